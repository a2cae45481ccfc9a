"""The phases of a guard that closes and opens again by itself."""

from __future__ import annotations

from enum import Enum, auto


class Phase(Enum):
    """Where it stands."""

    FREE = auto()
    HELD = auto()
    """Nothing goes, for a pause."""
    PROBE_DUE = auto()
    """One letter may go."""
    PROBING = auto()
    """It went; nothing more goes until it is known what became of it."""
    RAMPING = auto()
    """Letters go, faster and faster."""

    @property
    def probing(self) -> bool:
        return self in (Phase.PROBE_DUE, Phase.PROBING)
