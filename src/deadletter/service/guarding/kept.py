"""What gates keep of a sweep, and how it goes on: so many letters of each gate, and the next step. Pure.

Letters that a sweep leaves stay in their dead-letter queue, at its head and in their order. Where one gate
keeps all of them, any of them will do: as many are taken as the gate lets through, and none is given back.
Where several gates keep some, or others are left for other reasons, only looking at all of them finds those
that may go; what is looked at and left is given back, which is not free everywhere. So that waits until a
gate is fully open, or asks for a probe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias, assert_never

from deadletter.core.guards.flow import Flow, Free, Hold, Probe, Ramp
from deadletter.service.guarding.allowance import Allowance

_BY_THEMSELVES: Final = "they go by themselves"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """Letters of one sweep that are still in their queue: by the gate that keeps them, and the others."""

    by: Mapping[str, int] = field(default_factory=dict)
    others: int = 0
    """Left or failed for another reason."""

    @property
    def letters(self) -> int:
        """How many a gate keeps."""
        return sum(self.by.values())

    @property
    def alone(self) -> str | None:
        """The one gate that keeps all that is left; None when there are several, or other reasons."""
        return next(iter(self.by)) if len(self.by) == 1 and not self.others else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Take:
    """Look at so many letters now, at this rate."""

    count: int
    rate_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Soon:
    """A gate opens, and is not open yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shut:
    """Nothing may go, and nobody knows when it may."""


KeptStep: TypeAlias = Take | Soon | Shut


def next_step(kept: Kept, allowance: Callable[[str], Allowance]) -> KeptStep:
    """What may be done now about these letters; `allowance` is what each gate says."""
    if not kept.by:
        return Shut()
    if (gate := kept.alone) is not None:
        allowed = allowance(gate)
        if not _lets_through(allowed):
            return Shut()
        most = kept.letters if allowed.count is None else min(allowed.count, kept.letters)
        return Take(count=most, rate_per_s=allowed.rate_per_s)
    found = [allowed for gate in kept.by if _lets_through(allowed := allowance(gate))]
    if any(allowed.rate_per_s is None for allowed in found):
        return Take(count=kept.letters + kept.others)
    return Soon() if found else Shut()


def _lets_through(allowed: Allowance) -> bool:
    return allowed.count != 0 and allowed.wait_s <= 0


def in_words(gate: str, letters: int, flow: Flow) -> str:
    """Why so many letters stay, and what would let them go."""
    match flow:
        case Hold(guard=guard, why=why):
            state = f"closed by {guard}: {why}; {_opened_by(guard)}"
        case Probe(guard=guard, why=why):
            state = f"probing ({guard}: {why}); when one letter went well the others follow, {_BY_THEMSELVES}"
        case Ramp(guard=guard, why=why):
            state = f"ramping ({guard}: {why}); {_BY_THEMSELVES}"
        case Free():
            state = f"open again; {_BY_THEMSELVES}"
        case _:
            assert_never(flow)
    return f"{letters:,} {'stays' if letters == 1 else 'stay'}, the gate {gate!r} is {state}"


def _opened_by(guard: str) -> str:
    opened = _OPENED_BY.get(guard)
    return f"{_BY_THEMSELVES} {opened}" if opened else "only a person opens it (see docs/guards.md)"


_OPENED_BY: Final = {
    "consumers": "once somebody consumes the origin",
    "depth": "once the origin has room",
    "full": "once the origin takes letters again",
    "breaker": "after a pause, one letter first",
    "budget": "as the budget allows",
}
