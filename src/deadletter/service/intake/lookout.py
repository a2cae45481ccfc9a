"""Letters that wait for a look around which begins after they came.

A queue may be younger than the last look, and its policy or bindings may have changed since. So no letter is
judged by an old look alone: it waits for the next one. However many wait, one look serves them all; and each
waits as long as the one before it took, so that a flood of such letters does not keep the management API
busy. While that is away they wait, but not for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

PATIENCE_S: Final = 20.0
"""Then a letter is judged by what was known."""


class Lookout:
    """`wake` asks for a look soon."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._waiting: set[asyncio.Future[None]] = set()
        self._took_s = 0.0

    async def look_afresh(self) -> bool:
        """After a look that began later than this; False: there was none in time."""
        turn = asyncio.get_running_loop().create_future()
        self._waiting.add(turn)
        self._wake()
        try:
            async with asyncio.timeout(PATIENCE_S):
                await turn
        except TimeoutError:
            return False
        finally:
            self._waiting.discard(turn)
        return True

    async def begin(self) -> LookAround:
        """A look begins now; or soon, where it is one of many that letters ask for."""
        if self._waiting and self._took_s:
            await asyncio.sleep(self._took_s)
        return LookAround(self, frozenset(self._waiting))

    def ended(self, look: LookAround, took_s: float) -> None:
        self._took_s = took_s if look.waiting else 0.0
        for turn in look.waiting:
            if not turn.done():
                turn.set_result(None)


class LookAround:
    """One look around, and who waits for it."""

    def __init__(self, lookout: Lookout, waiting: frozenset[asyncio.Future[None]]) -> None:
        self.waiting = waiting
        self._lookout = lookout
        self._begun = asyncio.get_running_loop().time()

    @property
    def anew(self) -> bool:
        """Whether it has to see everything."""
        return bool(self.waiting)

    def ended(self) -> None:
        """It was made, and what it found is in force. One that failed is simply followed by the next."""
        self._lookout.ended(self, asyncio.get_running_loop().time() - self._begun)
