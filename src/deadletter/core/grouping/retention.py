"""How long letters stay in the store."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """None: for ever, or any number."""

    age_ms: int | None = None
    """Since it came into the store."""
    letters: int | None = None
    bytes: int | None = None
    """Of bodies, as they were."""
    discarded_ms: int = 7 * 24 * 3_600_000
    """How long a discarded one can be taken back."""
