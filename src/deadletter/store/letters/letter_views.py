"""What the store tells of groups and letters. Times are milliseconds since 1970."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from deadletter.core.grouping.category import By, Category
from deadletter.core.grouping.group_states import GroupState
from deadletter.core.grouping.letter_query import LetterState
from deadletter.core.letter.letter import Letter


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """A group in a list."""

    id: int
    key: str
    vhost: str = ""
    """In which its letters failed; empty where they are of several, or nobody knows."""
    origin: str
    title: str
    culprit: str
    error_type: str
    category: Category
    category_by: By
    """Who says so: a person, a rule, the group's history, or its error as a first guess."""
    category_why: str
    state: GroupState
    until_ms: int | None
    first_ms: int
    last_ms: int
    total: int
    """Letters that ever came."""
    open: int
    """Letters that are here and not discarded."""
    reopened_ms: int | None
    reopened_release: str

    @property
    def version(self) -> str:
        """Another one as soon as anybody changed the group; letters that come do not change it."""
        told = (self.id, self.state.value, self.until_ms, self.category.value, self.category_by.value)
        return hashlib.sha256(repr((*told, self.reopened_ms)).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupNote:
    at_ms: int
    author: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTag:
    """A release or a host that letters of a group name."""

    kind: str
    value: str
    letters: int
    first_ms: int
    last_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDetail:
    """A group with all that is known of it."""

    group: GroupView
    parts: tuple[tuple[str, str, bool], ...]
    """What its fingerprint was made of: kind, text, and whether it counted."""
    notes: tuple[GroupNote, ...]
    tags: tuple[GroupTag, ...]
    minutes: tuple[tuple[int, int], ...]
    """Minutes since 1970, and letters that died in them."""
    samples: tuple[LetterRow, ...]
    merged: tuple[str, ...]
    """Keys of groups that were merged into this one."""
    partly: bool = False
    """Whether it has letters, too, that whoever asks does not see: then they may not change it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterRow:
    """A letter in a list: nothing of it was unpacked."""

    id: int
    letter_id: str
    vhost: str
    """Empty where it is not known."""
    queue: str
    origin: str
    group: int
    state: LetterState
    cause: str
    attempt: int
    died_ms: int
    stored_ms: int
    bytes: int
    message_id: str
    type: str
    routing_key: str
    error: str
    copies: int


REFUSED: Final = "refused"
"""The step of a letter that a replay did not send: its edit, its schema or the broker refused it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterStep:
    """Something that happened to a letter in the store."""

    at_ms: int
    step: str
    who: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterDetail:
    """A letter, whole."""

    row: LetterRow
    letter: Letter
    steps: tuple[LetterStep, ...]
    earlier: tuple[LetterRow, ...]
    """The same letter, when it was here before: same id, other death."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterPage:
    """A page of what was looked for. `more`: where to go on; None: that was all.

    Where letters had to be looked into, `looked_at` of them were, and the page may be short although there is
    more: a search has a limited time.
    """

    letters: tuple[LetterRow, ...]
    more: int | None
    looked_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscardTold:
    """What somebody threw away at once. `discard`: its number, for a query."""

    discard: int
    who: str
    at_ms: int
    letters: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Facet:
    """So many letters with this value. `label`: how people call it; of a group its title, as its value is its
    number."""

    value: str
    letters: int
    label: str = ""
    vhost: str = ""
    """Of a queue; empty where it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facets:
    """How the found ones divide. `exact` is false where only the newest ones were counted: those that could
    be found within bounds.

    `looked_at`: letters that had to be looked into. `unanswered`: those of which a jq program could say
    nothing; they do not count.
    """

    by: dict[str, tuple[Facet, ...]]
    exact: bool
    total: int
    looked_at: int = 0
    unanswered: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """Groups that would be one."""

    title: str
    groups: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parted:
    """A group that would be several."""

    group: int
    title: str
    into: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupingPreview:
    """So many groups there are, and so many there would be, as far as `letters` of them tell."""

    before: int
    after: int
    letters: int
    joined: tuple[Joined, ...]
    parted: tuple[Parted, ...]


class RegroupStage(StrEnum):
    """How far stored letters follow the grouping in force."""

    BEHIND = "behind"
    """They are in the groups of an earlier one."""
    MOVING = "moving"
    MENDING = "mending"
    SETTLING = "settling"
    RETIRING = "retiring"
    DONE = "done"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupingTold:
    """The grouping of whoever answers, and how far stored letters follow it."""

    digest: str
    since_ms: int | None
    """Since when letters that come are grouped so; None: they are not yet."""
    stage: RegroupStage
    letters: int
    """That are stored."""
    looked_at: int
    moved: int
    """Into another group."""
    groups_before: int
    groups: int
