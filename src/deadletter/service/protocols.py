"""What intake needs of the guards, and no more."""

from __future__ import annotations

from typing import NamedTuple, Protocol


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


class Keeper(Protocol):
    """The guards, as intake needs them."""

    def died_again(self, dead: DiedAgain) -> None:
        """A letter that had gone back is here again."""

    def admit(self, origin: str, group: str, policy: str, letter_id: str, attempt: int = 0) -> str | None:
        """None: it may go home now, as this attempt. Else the gate that keeps it."""

    def refused(self, origin: str) -> None:
        """The origin did not take a letter."""
