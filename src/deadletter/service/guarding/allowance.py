"""How many held letters may go in the next step, as a gate or a budget says. Pure; the time is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, assert_never

from deadletter.core.guards.budget import Budget
from deadletter.core.guards.flow import FREE, Flow, Free, Hold, Probe, Ramp

STEP_S: Final = 1.0
"""So much time's worth goes in one step."""
ROOM_S: Final = 0.25
"""How soon to look again at an origin that has no room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """How many held letters may go in the next step. `count` None: all that are there."""

    count: int | None
    rate_per_s: float | None = None
    wait_s: float = 0.0


def within(budget: Budget, now: float) -> Allowance:
    """What a budget lets go."""
    count = max(1, int(min(budget.burst, budget.per_minute / 60 * STEP_S)))
    return Allowance(count=count, wait_s=budget.wait_s(now))


def allowance(flow: Flow, now: float, *, room: int | None, share: Budget | None) -> Allowance:
    """What a gate lets go; `room` is what its origin can still hold, `share` its part of the traffic."""
    match flow:
        case Free() if room is not None:
            return Allowance(count=max(0, room), wait_s=0.0 if room > 0 else ROOM_S)
        case Free() if share is not None:
            return Allowance(count=max(1, int(share.burst)), wait_s=share.wait_s(now))
        case Free():
            return Allowance(count=None)
        case Hold(until=until):
            return Allowance(count=0, wait_s=max(0.05, until - now))
        case Probe():
            return Allowance(count=1)
        case Ramp(rate_per_s=rate_per_s):
            return Allowance(count=max(1, int(rate_per_s * STEP_S)), rate_per_s=rate_per_s)
        case _:
            assert_never(flow)


def kept_by(flow: Flow, now: float, *, room: int | None = None, budget: Budget | None = None) -> Flow:
    """What keeps letters, also where the gate itself is open: an origin without room, a budget used up."""
    if flow is not FREE:
        return flow
    if room is not None and room <= 0:
        return Hold(until=now + ROOM_S, guard="depth", why="the origin has no room for more")
    if budget is not None and (wait_s := budget.wait_s(now)) > 0:
        return Hold(until=now + wait_s, guard="budget", why=f"{budget.per_minute:g} letters a minute go back")
    return FREE
