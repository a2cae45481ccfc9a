"""What intake and release need of the guards and of the ways back, and no more."""

from __future__ import annotations

from typing import Protocol

from deadletter.broker.ways import Home


class Keeper(Protocol):
    """The guards, as intake needs them."""

    def died_again(
        self, origin: str, group: str, letter_id: str, *, attempt: int, redelivered: bool, age_s: float = 0.0
    ) -> None:
        """A letter that had gone back is here again; it died `age_s` ago, and was swept up only now."""

    def admit(self, origin: str, group: str, policy: str, letter_id: str) -> str | None:
        """None: it may go home now. Else the gate that keeps it."""

    def refused(self, origin: str) -> None:
        """The origin did not take a letter."""


class Ways(Protocol):
    """The ways back, as intake needs them."""

    def known(self, origin: str) -> Home | None: ...

    async def find(self, origin: str, *, again: bool = False) -> Home | None:
        """None: the origin is not there."""

    async def repair(self) -> None:
        """Declare anew what is ours."""

    def forget(self) -> None:
        """What is remembered no longer holds."""
