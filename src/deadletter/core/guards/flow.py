"""How letters may flow through a gate: the answer every guard gives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


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
