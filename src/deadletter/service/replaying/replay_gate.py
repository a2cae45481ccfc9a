"""Whether the guards that hold retries hold a replay too, and why."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, assert_never

from deadletter.core.guards.flow import Free, Hold, Probe, Ramp, strictest
from deadletter.core.letter.header_values import shown
from deadletter.service.guarding.allowance import STEP_S
from deadletter.service.guarding.gates import BUDGET, Gates


class Held(NamedTuple):
    """So many letters may go now; None: any number."""

    letters: int | None
    why: str


FREE_TO_GO = Held(None, "")


def held_by(gates: Gates, origins: Iterable[str], *, sending: int = 0, lately: int = 0) -> Held:
    """What the strictest guard of these queues says. `sending`: letters under way, of which the guards know
    nothing yet; `lately`: those that went in the last step of time."""
    strict = FREE_TO_GO
    for origin in origins:
        flow = strictest(gates.flow(origin), gates.flow(BUDGET))
        match flow:
            case Free():
                known = [gates.at_once(key) for key in (origin, BUDGET)]
                most = min((one for one in known if one is not None), default=None)
                guard, why = "room or budget", "there is so much room, or so much is left of a budget"
            case Hold(guard=guard, why=why):
                return Held(0, f"a guard ({guard}) holds letters for {shown(origin)}: {why}")
            case Probe(guard=guard, why=why):
                most = 1
            case Ramp(rate_per_s=rate_per_s, guard=guard, why=why):
                most = max(1, int(rate_per_s * STEP_S)) - lately
            case _:
                assert_never(flow)
        if most is None:
            continue
        free = max(0, most - sending)
        if strict.letters is None or free < strict.letters:
            strict = Held(free, f"a guard ({guard}) lets letters for {shown(origin)} through slowly: {why}")
    return strict
