"""What of the layouts was told to be gone, until it is told to be there again.

Two queues may need the same exchange: it is told to be back when the last that missed it has found it.
"""

from __future__ import annotations

from collections.abc import Callable

from deadletter.consumer.events import Event, Lost


class ToldLosses:
    """On one link; with the next one all of it is declared anew."""

    def __init__(self, emit: Callable[[Event], None]) -> None:
        self._emit = emit
        self._gone: dict[str, set[str]] = {}
        """By queue: what its layout misses."""

    def gone(self, queue: str, what: str, why: str, *, seconds: float) -> None:
        """The layout of this queue misses it; it is looked for again after `seconds`."""
        self._gone.setdefault(queue, set()).add(what)
        self._emit(Lost(what=what, why=why, seconds=seconds))

    def mended(self, queue: str, what: str, why: str) -> None:
        """It was declared again, and with it all that the layout of this queue needs."""
        for missed in self._gone.values():
            missed.discard(what)
        self._emit(Lost(what=what, why=why, seconds=0.0))
        self.whole(queue)

    def whole(self, queue: str) -> None:
        """The layout of this queue misses nothing."""
        found = self._gone.pop(queue, set[str]())
        for what in sorted(found.difference(*self._gone.values())):
            self._emit(Lost(what=what, why="it is there again", seconds=0.0))
