"""One queue that is taken from for as long as the service runs, on the link of its vhost.

It lives through everything but a lost connection, which its vhost's worker sees to: a queue that is deleted
and comes back, a consumer that the broker cancels, a broker that refuses. Every ten minutes or so it gives
back what it could not move and begins anew: a broker takes back by force what is held for half an hour, and
what could not go then may go now. What the broker did not accept is tried again sooner
(`move.refused_letters`).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from deadletter.broker.session import Link
from deadletter.errors import ConnectionLost, DeadletterError
from deadletter.move.asked_limits import LimitSource, by_default
from deadletter.move.courier import Bounds, Courier, Judging, Terms
from deadletter.service.telling.service_events import Recovered, ServiceEvent, Trouble

ANEW_S: Final = 600.0
WELL_S: Final = 2.0
"""A line that works for this long is well."""
PAUSE_S: Final = 0.5
PAUSE_MAX_S: Final = 30.0


class QueueLoop:
    """`on` a link until it is stopped; the same line goes on with the next link."""

    def __init__(
        self,
        source: str,
        judging: Judging,
        *,
        prefetch: int,
        decision_patience_s: float = 0.0,
        limits: LimitSource = by_default,
        emit: Callable[[ServiceEvent], None],
        dice: Callable[[], float] = random.random,
    ) -> None:
        self.source = source
        self.on_begin: Callable[[], None] = lambda: None
        """Called before each pass: what the last one gave back may come again."""
        self._emit = emit
        self._stopped = asyncio.Event()
        self._in_trouble = False
        self._courier = Courier(
            [],
            source=source,
            decide=judging,
            bounds=Bounds(seconds=ANEW_S * (0.8 + 0.4 * dice()), depth_at_start=False),
            terms=Terms(
                prefetch=prefetch,
                blocked_patience_s=float("inf"),
                decision_patience_s=decision_patience_s,
            ),
            limits=limits,
        )

    def stop(self) -> None:
        """Take no more; finish what is under way."""
        self._stopped.set()
        self._courier.stop()

    async def on(self, link: Link) -> None:
        """Until it is stopped. Raises when the connection is lost."""
        tries = 0
        loop = asyncio.get_running_loop()
        while not self._stopped.is_set():
            well = loop.call_later(WELL_S, self.recover)
            self.on_begin()
            try:
                await self._courier.on(link)
                tries = 0
            except ConnectionLost:
                raise
            except DeadletterError as error:
                tries = 1 if not self._in_trouble else tries + 1
                self._in_trouble = True
                pause_s = min(PAUSE_S * 2 ** min(tries - 1, 10), PAUSE_MAX_S)
                self._emit(Trouble(what=f"queue:{self.source}", why=str(error), seconds=pause_s))
                well.cancel()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._stopped.wait(), pause_s)
            finally:
                well.cancel()

    def recover(self) -> None:
        """It works again, or nobody wants it to any more."""
        if self._in_trouble:
            self._in_trouble = False
            self._emit(Recovered(what=f"queue:{self.source}"))
