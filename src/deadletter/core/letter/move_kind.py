"""What kind of trip a move is part of, and what that means for the letter's deaths."""

from __future__ import annotations

from enum import Enum


class Deaths(Enum):
    """What happens to the broker's `x-death` family."""

    KEEP = "keep"
    """Towards a parking place: whoever looks there wants to see it."""
    SET_ASIDE = "set aside"
    """Towards a queue that may let the letter die again."""
    FORGET = "forget"
    """Out of a delay of ours: the newest death is our own doing, the others were set aside before."""


class Leg(Enum):
    """Which part of a letter's trip a move is."""

    PLAIN = "plain"
    WAIT = "wait"
    """Into a delay, where nobody may overtake."""
    HOME = "home"
    """Back to its origin: what was set aside for the wait is put back."""
