"""The breaker: when everything that returns dies again, hold, probe with one letter, then go faster and faster."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakerTerms:
    """Hold an origin's letters when at least `letters` of the last `window_ms` died again, `share` of all."""

    enabled: bool = True
    letters: int = 20
    share: float = 0.9
    window_ms: int = 60_000
    pause_ms: int = 5_000
    """Before the first probe; twice as long after each that fails, up to `pause_max_ms`."""
    pause_max_ms: int = 300_000
    probe_ms: int = 5_000
    """How long a probe may take to die again; after that it is taken for a success."""
