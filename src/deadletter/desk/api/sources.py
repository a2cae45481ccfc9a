"""Where answers come from: a store that is away today may be there at the next request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeAlias

from deadletter.desk.answers.desk_route import JournalSource
from deadletter.desk.answers.news import News
from deadletter.operations.outlook.outlook import Outlook
from deadletter.operations.records.records import Records
from deadletter.operations.replays.replays import Replays
from deadletter.operations.rulebook.rulebook import Rulebook

RecordsSource: TypeAlias = Callable[[], Awaitable[Records]]
ReplaysSource: TypeAlias = Callable[[], Awaitable[Replays]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MoreSources:
    """What is not of stored letters; None: there is none."""

    journal: JournalSource | None = None
    outlook: Outlook | None = None
    rulebook: Rulebook | None = None
    news: News | None = None


NO_MORE = MoreSources()
