"""One origin as the gates know it: its gate, how much room it has, and how fast letters go."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from deadletter.core.guards.budget import Budget
from deadletter.core.guards.gate import Gate
from deadletter.core.guards.health import OriginState
from deadletter.move.pace import Pace


@dataclass(slots=True)
class GuardedOrigin:
    """An origin, or one group of its letters."""

    gate: Gate
    seen_at: float
    sent: int = 0
    """Letters let through since its depth was last looked at."""
    room: int | None = None
    """For so many letters there is room until it is looked at again; None: for any number."""
    share: Budget | None = None
    heard: bool = False
    """Whether its last change came from another instance."""
    pace: tuple[float, Pace] | None = None

    def within(self, rate_per_s: float, now: float) -> bool:
        """Whether one more may go at this rate."""
        if self.pace is None or self.pace[0] != rate_per_s:
            self.pace = (rate_per_s, Pace(rate_per_s, now))
        return self.pace[1].may_go(now)

    def at_once(self, now: float) -> int | None:
        """For how many there is room, and enough of its share; None: for any number."""
        share = None if self.share is None else self.share.left(now)
        return min((most for most in (self.room, share) if most is not None), default=None)


class DiedAgain(NamedTuple):
    """A letter that had gone back and is dead again, as the guards hear of it."""

    dlq: str
    """Where it was found."""
    origin: str
    group: str
    letter_id: str
    attempt: int
    """As which it had gone back."""
    released_s: float | None
    """So many seconds ago; None: it was not seen to die, it is found long after, or nobody noted it."""


def room(state: OriginState, max_depth: int | None, sent: int) -> int | None:
    """Many letters may be due at once: between two looks no more may go than there is room for."""
    limits = [max_depth, state.max_length if state.drops_head else None]
    known = [limit for limit in limits if limit is not None and state.exists]
    return min(known) - state.ready - sent if known else None
