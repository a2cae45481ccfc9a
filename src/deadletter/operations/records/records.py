"""What can be asked of stored letters, and what is answered: one shape, wherever the answer comes from.

Every answer is a frozen dataclass that is JSON as it stands (`json_of`): commands print it, the service's API
sends it, and whoever asks the API has the same value again. Times are milliseconds since 1970.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from pydantic import TypeAdapter

from deadletter.core.grouping.category import Category
from deadletter.core.grouping.group_query import GroupQuery
from deadletter.core.grouping.group_states import GroupState
from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.core.letter.archive_format import StoreKeys
from deadletter.core.letter.letter import Letter
from deadletter.operations.records.letter_told import LetterTold
from deadletter.store.letters.letter_views import (
    DiscardTold,
    Facets,
    GroupDetail,
    GroupingPreview,
    GroupingTold,
    GroupView,
    LetterRow,
)

HOURS: Final = 24
"""So many hours of a group are told in a list."""
CHANGED_AT_ONCE: Final = 1_000
"""So many letters are discarded or taken back in one transaction, at most."""
WHO_CHARS: Final = 200
WHY_CHARS: Final = 1_000
PROGRAM_CHARS: Final = 4_000
SOURCE_CHARS: Final = 1_000
RUN_CHARS: Final = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreTold:
    """Which store answers."""

    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLine(GroupView):
    """A group in a list, with its last hours."""

    hours: tuple[int, ...]
    """Letters that died in each of the last 24 hours, the oldest first; the last one is not over."""
    release: str
    """The release that its letters named last."""
    note: str = ""
    """What was noted last; empty: nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPage:
    """Groups. `more`: where to go on; None: that was all."""

    groups: tuple[GroupLine, ...]
    more: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LettersFound:
    """A page of letters. `more`: where to go on; None: that was all.

    Where letters had to be looked into, `looked_at` of them were, and the page may be short although there is
    more: a search has a limited time. `unanswered`: letters of which the jq program could say nothing within
    its limits; they are not among the found ones.
    """

    letters: tuple[LetterRow, ...]
    more: int | None
    looked_at: int
    unanswered: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupChange:
    """What shall be otherwise; None: as it is."""

    state: GroupState | None = None
    until_ms: int | None = None
    category: Category | None = None
    version: str = ""
    """Of the group as it was looked at; empty: however it is. ChangedMeanwhile where it is another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LettersChanged:
    """How many letters were in the state that was expected, and are in the other one now."""

    letters: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitDone:
    """The key of the group that is one of its own again."""

    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LettersTaken:
    """What a store made of letters that were put into it."""

    new: int
    copies: int
    """Further messages with a letter that is there."""
    again: int
    """They were there."""


class Records(Protocol):
    """Stored letters and their groups. A group is named by its number or the beginning of its key, a letter
    by its number or the beginning of its id: NotStored where there is none, or several."""

    async def store(self) -> StoreTold: ...

    # -- looking -----------------------------------------------------------------------------------------
    async def groups(self, query: GroupQuery) -> GroupPage: ...

    async def group(self, name: str) -> GroupDetail: ...

    async def grouping(self) -> GroupingTold:
        """The rules of whoever answers, and how far stored letters follow them."""
        ...

    async def letters(self, query: LetterQuery) -> LettersFound: ...

    async def facets(self, query: LetterQuery) -> Facets: ...

    async def letter(self, name: str) -> LetterTold: ...

    async def body(self, name: str) -> bytes:
        """All of it, exact."""
        ...

    async def exact(self, ids: Sequence[int]) -> dict[int, tuple[Letter, StoreKeys]]:
        """These letters, exact, as far as they fit into a portion: whoever wants more asks again for those
        behind the last one. What is missing before it, or where nothing is found at all, is not there."""
        ...

    # -- changing ----------------------------------------------------------------------------------------
    async def change_group(self, name: str, change: GroupChange, *, who: str) -> GroupView: ...

    async def note(self, name: str, text: str, *, who: str, version: str = "") -> GroupView:
        """`version`: of the group as it was looked at; ChangedMeanwhile where it is another one now."""
        ...

    async def merge(self, into: str, other: str, *, who: str) -> GroupView: ...

    async def split(self, key: str, *, who: str) -> SplitDone: ...

    async def preview(self) -> GroupingPreview:
        """What the rules of whoever answers would make of the letters that are stored."""
        ...

    async def regroup(self, *, who: str) -> GroupingTold:
        """Apply them, for a while; ask again until it is done. Who stops, and asks later, goes on there."""
        ...

    async def last_discard(self, who: str) -> DiscardTold:
        """NotStored: this person threw nothing away."""
        ...

    async def discard(self, ids: Sequence[int], *, who: str, why: str, run: str = "") -> LettersChanged:
        """At most CHANGED_AT_ONCE of them; several calls with the same `run` are one discard."""
        ...

    async def put(
        self, letters: Sequence[tuple[Letter, StoreKeys]], *, who: str, source: str
    ) -> LettersTaken:
        """Exact letters into the store, a portion of them. What is there already is not put there twice.
        `source`: where they are from, for the audit."""
        ...

    async def take_back(self, ids: Sequence[int], *, who: str, why: str) -> LettersChanged:
        """At most CHANGED_AT_ONCE of them."""
        ...


_ANY: Final = TypeAdapter(Any)


def json_of(answer: object) -> Any:
    """An answer as JSON has it: exactly what the API sends."""
    return _ANY.dump_python(answer, mode="json")
