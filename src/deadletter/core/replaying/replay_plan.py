"""What a person asks for when starting a replay, and how the store keeps it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, Final

from deadletter.core.access.field_masks import FieldMasks
from deadletter.core.access.scope import WHOLE, Scope
from deadletter.core.grouping.letter_query import LetterOrder, LetterQuery, LetterState
from deadletter.core.replaying.replay_pace import AllAtOnce, ReplayPace
from deadletter.core.replaying.replay_target import HOME, ReplayTarget

OUTCOME_MS: Final = 10 * 60_000
"""A letter that is not back after this time is told as "not returned"."""
UNHELD: Final = AllAtOnce()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPlan:
    """Of the selection only open letters are taken. Its order, page and state do not matter."""

    selection: LetterQuery
    vhost: str = ""
    """Where they are sent. Empty: that of the one service."""
    target: ReplayTarget = HOME
    edit: str = ""
    """A jq program; empty: as they are."""
    recipe: str = ""
    """The recipe that the program is from: it may be changed later, the program of this replay is not."""
    pace: ReplayPace = UNHELD
    outcome_ms: int = OUTCOME_MS
    resolves: bool = False
    """Groups of which every letter went and none came back are resolved when it is done."""
    overrules_guards: bool = False
    """It goes although a guard holds the retries of that queue."""


def selection_json(selection: LetterQuery) -> dict[str, Any]:
    """As the store keeps it: what was said, and nothing else."""
    usual = LetterQuery()
    told = {
        name: value
        for name, value in asdict(selection).items()
        if name not in (*_OF_A_PAGE, "scope") and value != getattr(usual, name)
    }
    return told if selection.scope == WHOLE else {**told, "scope": asdict(selection.scope)}


def scope_from(told: Mapping[str, Any]) -> Scope:
    """KeyError for what is missing: less would be more."""
    masks = told["masks"]
    return Scope(
        vhosts=tuple(told["vhosts"]),
        queues=tuple(told["queues"]),
        masks=FieldMasks(bodies=tuple(map(tuple, masks["bodies"])), headers=tuple(masks["headers"])),
    )


def selection_from(told: Mapping[str, Any]) -> LetterQuery:
    """What a newer version said and we do not know is an error: fewer conditions would mean more letters."""
    known = {field.name for field in fields(LetterQuery)} - _OF_A_PAGE
    if unknown := sorted(set(told) - known):
        raise ValueError(f"a selection with conditions that this version does not know: {', '.join(unknown)}")
    values = dict(told)
    if "ids" in values:
        values["ids"] = tuple(values["ids"])
    if "headers" in values:
        values["headers"] = tuple((name, pattern) for name, pattern in values["headers"])
    if "scope" in values:
        values["scope"] = scope_from(values["scope"])
    return LetterQuery(**values, state=LetterState.OPEN, order=LetterOrder.OLDEST)


_OF_A_PAGE: Final = frozenset({"state", "order", "after", "limit"})
