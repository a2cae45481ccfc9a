"""Letters that the broker did not accept: held back for a while, then tried again. Pure; time is an argument.

A publish that the broker does not accept closes the channel or the connection it was made on, so the same
letter is not tried again at once. But what was refused is not always the letter: a right that was taken away
is given back, an exchange is declared anew. So each letter is tried again after a pause, which doubles each
time: one that is really not acceptable costs a connection every ten minutes, not every second.
"""

from __future__ import annotations

from typing import Final, NamedTuple

PAUSE_S: Final = 15.0
PAUSE_MAX_S: Final = 600.0
FORGET_S: Final = 3600.0
"""Not heard of for so long: it was moved, or somebody took it."""


class _Refusal(NamedTuple):
    why: str
    pause_s: float
    again_at: float


class RefusedLetters:
    """The letters that were refused to one courier."""

    __slots__ = ("_known", "fresh")

    def __init__(self) -> None:
        self._known: dict[str, _Refusal] = {}
        self.fresh: int = 0
        """How many since the move, or this part of it, began."""

    def begin(self, now: float) -> None:
        """A move begins; one that goes on for ever does so every few minutes."""
        self.fresh = 0
        self._known = {
            letter: refusal for letter, refusal in self._known.items() if now - refusal.again_at < FORGET_S
        }

    def add(self, letter: str, why: str, now: float) -> None:
        """This letter was refused."""
        before = self._known.get(letter)
        pause_s = PAUSE_S if before is None else min(before.pause_s * 2, PAUSE_MAX_S)
        self._known[letter] = _Refusal(why, pause_s, now + pause_s)
        self.fresh += 1

    def now(self, now: float) -> dict[str, str]:
        """Those that are not tried yet, and why."""
        return {letter: refusal.why for letter, refusal in self._known.items() if refusal.again_at > now}

    def again_at(self, now: float) -> float | None:
        """When the first of those may be tried again."""
        return min((known.again_at for known in self._known.values() if known.again_at > now), default=None)
