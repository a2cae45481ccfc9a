"""How letters may flow through a gate: the answer every guard gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias, assert_never


@dataclass(frozen=True, slots=True, kw_only=True)
class Free:
    """As they come."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hold:
    """Not now. `until` is when to ask again, on the clock the guard was asked with."""

    until: float
    guard: str
    """breaker, consumers, depth, full, budget, growth."""
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One letter; then tell the guard `probe_sent`, and ask again."""

    guard: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ramp:
    """At most at this rate, which grows while all goes well."""

    rate_per_s: float
    guard: str
    why: str


Flow: TypeAlias = Free | Hold | Probe | Ramp

FREE: Final = Free()
"""The answer almost every time, made once."""


def strictest(first: Flow, second: Flow) -> Flow:
    """Of two answers the one that lets less through: Hold, then Probe, then the slower Ramp, then Free."""
    match first, second:
        case Hold(), Hold():
            return second if second.until > first.until else first
        case (Hold(), _) | (_, Free()):
            return first
        case (_, Hold()) | (Free(), _):
            return second
        case Probe(), _:
            return first
        case _, Probe():
            return second
        case Ramp(), Ramp():
            return second if second.rate_per_s < first.rate_per_s else first
        case _:
            assert_never((first, second))
