"""What is wished of replays and what is told of them: one shape, wherever the answer comes from.

Every answer is a frozen dataclass that is JSON as it stands (`json_of`), like those of `operations.records`.
Times are milliseconds since 1970. Selection, target and pace are told as the store keeps them:
`selection_from`, `target_from` and `pace_from` make values of them again.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.core.replaying.letter_diff import LetterDifference
from deadletter.core.replaying.preflight import Remark
from deadletter.core.replaying.replay_pace import Canary, ReplayPace
from deadletter.core.replaying.replay_plan import OUTCOME_MS
from deadletter.core.replaying.replay_states import ReplayState
from deadletter.core.replaying.replay_target import HOME, ReplayTarget
from deadletter.store.letters.letter_views import LetterRow
from deadletter.store.replays.deploy_table import Deploy
from deadletter.store.replays.draft_table import draft_version
from deadletter.store.replays.recipe_table import Recipe
from deadletter.store.replays.replay_views import ReplayCounts

SELECTED: Final = 1_000
"""So many letters are selected by their numbers, at most."""
SAMPLE: Final = 5
"""So many letters are shown before a replay."""
TRIED: Final = 1_000
"""So many letters an edit is tried on at once, as jq is started anew each time, unless somebody says less;"""
TRIED_MOST: Final = 1_000
"""and at most."""
EDIT_CHARS: Final = 2 * 1024 * 1024
"""The largest file of an edit by hand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EditWish:
    """How letters are to be changed: by a jq program, or by a recipe. Neither: not at all."""

    program: str = ""
    recipe: str = ""


UNCHANGED: Final = EditWish()
CAREFUL: Final = Canary()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayWish:
    """What somebody wants to be sent again. Only open letters are taken; order and page of the selection do
    not matter."""

    selection: LetterQuery
    vhost: str = ""
    """Empty: that of the letters, where they are all of one."""
    target: ReplayTarget = HOME
    edit: EditWish = UNCHANGED
    pace: ReplayPace = CAREFUL
    outcome_ms: int = OUTCOME_MS
    """So long "not returned" is waited for."""
    resolves: bool = False
    overrules_guards: bool = False


# -- before one -------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class PreflightTold:
    """What is to be known before a replay; nothing was changed."""

    vhost: str
    remarks: tuple[Remark, ...]
    """The worst first. A `stop` has to be overruled knowingly."""
    letters: int
    """So many would be sent."""
    exact: bool
    """False: at least so many; they had to be looked into, and the time for that was over."""
    unanswered: int
    """Letters of which the jq program of the selection could say nothing; they are left out."""
    origins: dict[str, int]
    """How many of each origin, of those that were counted."""
    sample: tuple[LetterRow, ...]
    """Some of them, the oldest first: in this order they would go."""
    drafts: int
    """Letters of the sample that were repaired by hand: the repaired one would go."""


# -- replays ----------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayTold:
    """A replay, as far as it is."""

    id: int
    vhost: str
    made_ms: int
    who: str
    why: str
    state: ReplayState
    selection: dict[str, Any]
    target: dict[str, Any]
    pace: dict[str, Any]
    """`{"pace": "all" | "canary" | "auto", …}`"""
    edit: str
    """The jq program; empty: letters go as they are."""
    recipe: str
    """The recipe that the program is from; empty: from none."""
    letters: int
    """So many were frozen; while it freezes, so far."""
    counts: ReplayCounts
    outcome_ms: int
    resolves: bool
    overrules_guards: bool
    began_ms: int | None
    last_sent_ms: int | None
    ended_ms: int | None
    """When nothing was left to wait for."""
    left_ms: int | None
    """How long until all are sent, if it goes on as until now. None: nobody can say."""
    holder: str
    """The instance of the service that works on it; empty: none does now."""
    waits_for: str
    """Why it waits, or stopped; empty: it goes, or it is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPage:
    """Replays, the newest first. `more`: the `after` of the next page; None: that was all."""

    replays: tuple[ReplayTold, ...]
    more: int | None


class StepPlace(StrEnum):
    BEHIND = "behind"
    NOW = "now"
    AHEAD = "ahead"


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryStep:
    """A step of a canary. `sent`, `returned`: of the one that is under way; None: of others."""

    number: int
    """From 1."""
    letters: int
    place: StepPlace
    sent: int | None = None
    returned: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayDetail:
    """A replay with what has to be looked up."""

    replay: ReplayTold
    origins: tuple[str, ...]
    """The queues that its letters failed in."""
    steps: tuple[CanaryStep, ...]
    """Of a canary; empty: it has another pace."""
    newcomers: int | None
    """Letters that would be in the selection and came after it was frozen. None: it was not asked."""


class OutcomeState(StrEnum):
    """What became of a letter in a replay: `SentState` by name."""

    WAITING = "waiting"
    SENDING = "sending"
    SENT = "sent"
    """Confirmed by the broker; its outcome is not known yet."""
    REFUSED = "refused"
    RETURNED = "returned"
    DONE = "done"
    """The consumer said so."""
    QUIET = "quiet"
    """Not returned in the time that was waited for."""
    LET_GO = "let_go"


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeTold:
    """What became of one letter."""

    letter: int
    letter_id: str
    """Empty where it is no longer there."""
    state: OutcomeState
    doubtful: bool
    """It may have gone twice."""
    why: str
    """Of what was refused or let go."""
    sent_ms: int | None
    ended_ms: int | None
    after_ms: int | None
    """How long after it was sent its outcome was known."""
    returned_letter: int | None
    """As which letter it came back."""
    returned_group: int | None
    same_group: bool | None
    """Whether it failed for the same reason; None: it did not come back, or nobody knows any more."""
    error: str
    """The error with which it came back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomePage:
    """Outcomes. `more`: the `after` of the next page; None: that was all."""

    outcomes: tuple[OutcomeTold, ...]
    more: int | None


# -- edits ------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class EditSample:
    """A letter that would change."""

    letter: int
    differences: tuple[LetterDifference, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EditFailure:
    """A letter that cannot be changed and would stay, and why, one by one."""

    letter: int
    why: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class EditTried:
    """What an edit would do to a portion of a selection. `more`: the `after` of the next portion; None: that
    was the last. The sum of all portions is the preview for all."""

    program: str
    letters: int
    changed: int
    same: int
    failed: int
    sample: tuple[EditSample, ...]
    failures: tuple[EditFailure, ...]
    """Every one of this portion."""
    more: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A program that does to the original what the person did, and what it does in words."""

    program: str
    words: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposals:
    """The best first; none: nothing short does it. Group and origin are those of the letter."""

    letter: int
    group: int
    group_key: str
    origin: str
    proposals: tuple[Proposal, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipes:
    """By name."""

    recipes: tuple[Recipe, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftTold:
    """A letter as it would be sent, to be edited by hand."""

    letter: int
    origin: str
    there: bool
    """Whether there is a draft; else all that follows is of the original."""
    who: str
    made_ms: int | None
    note: str
    differences: tuple[LetterDifference, ...]
    """Of the draft, from the original."""
    text: str
    """The file that a person edits: `core.replaying.hand_edit`."""

    @property
    def version(self) -> str:
        """Another one as soon as anybody saved, changed or dropped a draft."""
        return draft_version(self.who if self.there else "", self.made_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftWish:
    """One letter changed: by a program, by a recipe, or by the file that a person edited. Exactly one."""

    edit: EditWish = UNCHANGED
    text: str | None = None
    version: str = ""
    """Of the draft as it was looked at; empty: whatever it is. ChangedMeanwhile where it is another one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftSaved:
    """What was changed, from what would have been sent before. `saved`: it is kept as a draft now."""

    letter: int
    changed: bool
    saved: bool
    differences: tuple[LetterDifference, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftDropped:
    letter: int
    dropped: bool
    """Whether there was a draft."""


# -- deploys ----------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedGroup:
    """An open group of a service, which a canary would try with the new release."""

    group: int
    title: str
    origin: str
    open: int
    """Letters that are here."""
    release: str
    """The release that its letters failed in last; empty: they name none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployTold:
    deploy: Deploy
    news: bool
    """False: the same was told last, and nothing was written."""
    offered: tuple[OfferedGroup, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeployPage:
    """Deploys, the newest first. `more`: the `after` of the next page; None: that was all."""

    deploys: tuple[Deploy, ...]
    more: int | None
