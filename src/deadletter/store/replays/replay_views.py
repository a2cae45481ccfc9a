"""What the store tells of replays. Times are milliseconds since 1970."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.core.letter.letter import Letter
from deadletter.core.replaying.replay_pace import AllAtOnce, Auto, Canary, ReplayPace, ReplayStage
from deadletter.core.replaying.replay_states import GONE, ReplayState, SentState
from deadletter.core.replaying.replay_target import ReplayTarget

_RATE_FROM_MS: Final = 2_000
_RATE_FROM: Final = 20
"""A time left is told only after so long and so many letters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayCounts:
    """Letters of a replay by what became of them. Together they are all that were frozen."""

    waiting: int = 0
    sending: int = 0
    sent: int = 0
    """Confirmed by the broker; the outcome is not known yet."""
    refused: int = 0
    returned: int = 0
    done: int = 0
    quiet: int = 0
    let_go: int = 0
    doubtful: int = 0
    """Of all of these: may have gone twice."""

    @property
    def gone(self) -> int:
        """Letters that the broker took."""
        return sum(getattr(self, state.name.lower()) for state in GONE)

    @property
    def all(self) -> int:
        return sum(getattr(self, state.name.lower()) for state in SentState)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayView:
    """A replay, as far as it is."""

    id: int
    vhost: str
    made_ms: int
    who: str
    why: str
    state: ReplayState
    selection: LetterQuery
    target: ReplayTarget
    edit: str
    """A jq program; empty: they go as they are."""
    recipe: str
    """The recipe that it is from; empty: from none."""
    pace: ReplayPace
    stage: ReplayStage
    letters: int
    """So many were frozen; while it freezes, so far."""
    outcome_ms: int
    resolves: bool
    overrules_guards: bool
    told: str
    """Why it waits or stopped, for people."""
    began_ms: int | None
    last_sent_ms: int | None
    ended_ms: int | None
    """When nothing was left to wait for."""
    holder: str
    held_until_ms: int
    counts: ReplayCounts

    def left_ms(self) -> int | None:
        """How long until all are sent, if it goes on as until now. None: nobody can say."""
        match self.pace:
            case Canary():
                return None  # it waits for outcomes, not for time
            case AllAtOnce() | Auto():
                pass
        counts = self.counts
        if self.state is not ReplayState.RUNNING or self.began_ms is None or self.last_sent_ms is None:
            return None
        took_ms = self.last_sent_ms - self.began_ms
        if took_ms < _RATE_FROM_MS or counts.gone < _RATE_FROM:
            return None
        return round((counts.waiting + counts.sending) * took_ms / counts.gone)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayedLetter:
    """What became of one letter in a replay."""

    letter: int
    """Its number in the store."""
    letter_id: str
    """Empty where it is no longer there."""
    state: SentState
    sent_ms: int | None
    ended_ms: int | None
    doubtful: bool
    why: str
    returned_letter: int | None
    returned_group: int | None
    same_group: bool | None
    """Whether it came back for the same reason; None: it did not come back, or nobody knows any more."""


class ClaimedLetter(NamedTuple):
    """A letter that is to be sent now."""

    row: int
    letter: Letter
    origin: str
    letter_id: str
    doubtful: bool
