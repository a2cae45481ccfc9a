"""Release inside an application: what is due in `deadletter.due` goes home, for whoever it is.

In the layout `return` a delay leads to one queue of ours, and somebody has to publish from there: `dlq serve`
where it runs, else the consumers themselves. They share the work, and each letter goes to one of them. This
one has no guards: a letter whose origin is missing is parked, one whose origin is full waits for five seconds
more, its attempt not counted.

When `deadletter.due` is deleted, or the broker refuses something, it is declared again and the work begins
anew, after pauses that grow. A letter that could not go anywhere stays in the queue, is told of, and is tried
again in the same way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final

from deadletter.broker.return_exchanges import WaysBack
from deadletter.broker.session import Link
from deadletter.consumer.events import Event, Fate, Handled, Lost
from deadletter.core.deciding.letter_fate import LetterFate
from deadletter.core.deciding.states import Step
from deadletter.core.layouts.naming import DUE, level_name
from deadletter.core.letter.envelope import Deaths, Leg
from deadletter.core.letter.letter import Letter
from deadletter.errors import ConnectionLost, DeadletterError
from deadletter.move.courier import Bounds, Courier, Judging, MoveFailure, Terms
from deadletter.move.verdict import Send, Verdict, Wrap
from deadletter.retrying.homewards import due_stamp, stamped
from deadletter.retrying.parking import PARKED
from deadletter.retrying.release import Release

FULL_MS: Final = 5_000
"""How long a letter waits whose origin is full."""
ANEW_S: Final = 60.0
"""How often it begins anew: a queue that is deleted as a consumer comes may tell it nothing (4.3.6)."""
PAUSE_S: Final = 1.0
PAUSE_MAX_S: Final = 30.0
WELL_S: Final = 5.0
"""After this long without trouble the pauses begin small again, and it is told that all is well."""
TOLD_MAX: Final = 10
"""So many letters that could not go are told of one by one before the work begins anew."""


class Releasing:
    """On one link. `mend` declares what a publish did not find; it hears the routing key."""

    def __init__(
        self, *, mend: Callable[[str], Awaitable[None]], emit: Callable[[Event], None], prefetch: int = 200
    ) -> None:
        self._mend = mend
        self._emit = emit
        self._prefetch = prefetch
        self._ways = WaysBack(self._nothing, lambda _origin, _state: None)
        self._release = OwnRelease(self._ways, mend)
        self._courier: Courier | None = None
        self._away = False
        """Whether it was told that what is due does not go home, and not yet that it does."""

    async def on(self, link: Link, stop: asyncio.Event) -> None:
        """Until `stop`. Raises when the connection is lost."""
        self._ways.renew(link)
        loop = asyncio.get_running_loop()
        stopping = asyncio.ensure_future(self._watch(stop))
        pause_s = PAUSE_S
        try:
            while not stop.is_set():
                begun = loop.time()
                trouble = await self._passage(link, pause_s)
                if trouble is not None and not stop.is_set():
                    if loop.time() - begun >= WELL_S + pause_s:
                        pause_s = PAUSE_S
                    self._away = True
                    self._emit(Lost(what=f"queue {DUE}", why=trouble, seconds=pause_s))
                    with suppress(TimeoutError):
                        await asyncio.wait_for(stop.wait(), pause_s)
                    pause_s = min(pause_s * 2, PAUSE_MAX_S)
        finally:
            stopping.cancel()

    async def _passage(self, link: Link, patience_s: float) -> str | None:
        """Until there is trouble, or it is time to begin anew. Returns what the trouble was."""
        failures: list[str] = []

        def on_failure(failure: MoveFailure) -> None:
            # It is held until the passage ends: that must not be in ten minutes.
            if not failures:
                asyncio.get_running_loop().call_later(patience_s, courier.stop)
            failures.append(failure.why)
            if len(failures) <= TOLD_MAX:
                why = f"letter {failure.id} stays in {DUE}: {failure.why}"
                self._emit(Handled(queue=DUE, fate=Fate.STUCK, why=why))

        courier = self._courier = Courier(
            [],
            source=DUE,
            decide=Judging(
                decide=self._release.decide,
                again=self._release.again,
                on_fate=self._on_fate,
                on_missing=self._ways.forget,
                on_failure=on_failure,
            ),
            bounds=Bounds(seconds=ANEW_S, depth_at_start=False),
            terms=Terms(prefetch=self._prefetch, blocked_patience_s=float("inf")),
        )

        def well() -> None:
            if self._away and not failures:
                self._away = False
                self._emit(Lost(what=f"queue {DUE}", why="what is due goes home again", seconds=0.0))

        telling = asyncio.get_running_loop().call_later(WELL_S, well)
        try:
            await courier.on(link)
        except ConnectionLost:
            raise
        except DeadletterError as error:
            return await self._declared(str(error))
        finally:
            telling.cancel()
        return f"{len(failures)} letters could not go, the first: {failures[0]}" if failures else None

    async def _declared(self, trouble: str) -> str:
        """It may be that the queue was deleted; then it is declared again."""
        try:
            await self._mend(DUE)
        except ConnectionLost:
            raise
        except DeadletterError as error:
            return f"{trouble}; and it cannot be declared: {error}"
        return trouble

    async def _watch(self, stop: asyncio.Event) -> None:
        await stop.wait()
        if self._courier is not None:
            self._courier.stop()

    async def _nothing(self) -> None:
        return

    def _on_fate(self, fate: object) -> None:
        """What could not go home is told; the others are what is expected."""
        if isinstance(fate, LetterFate) and fate.step is Step.PARKED:
            self._emit(
                Handled(
                    queue=fate.origin or DUE,
                    fate=Fate.PARKED,
                    attempt=fate.attempt or 0,
                    cause=fate.cause,
                    why=f"it was due in {DUE}",
                )
            )


class OwnRelease(Release):
    """The release inside an application: without guards."""

    def __init__(self, ways: WaysBack, mend: Callable[[str], Awaitable[None]]) -> None:
        super().__init__(DUE, PARKED, ways)
        self._mend = mend

    def _full(self, _letter: Letter, fate: LetterFate) -> Verdict:
        """It waits once more; its attempt is not counted."""
        again = replace(fate, step=Step.DELAYED, delay_ms=FULL_MS)
        send = Send(routing_key=level_name(FULL_MS), deaths=Deaths.FORGET, leg=Leg.WAIT, fate=again)
        return due_stamp(send, self._now_ms() + FULL_MS)

    def _refused(self, verdict: Send | Wrap, why: str) -> Verdict:
        raise RuntimeError(f"{why} at {verdict.routing_key!r}; it waits here")

    async def _repaired(self, _letter: Letter, verdict: Send | Wrap) -> Verdict:
        await self._mend(verdict.routing_key)
        return stamped(verdict, self._now_ms())
