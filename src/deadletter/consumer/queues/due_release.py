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
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, Final, assert_never

from deadletter.broker.return_exchanges import Home, WaysBack
from deadletter.broker.session import Link
from deadletter.consumer.events import Event, Fate, Handled, Lost
from deadletter.core.layouts.naming import DUE, PARKED, level_name
from deadletter.core.letter import header_values, names
from deadletter.core.letter.envelope import Deaths, Leg
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.letter import Letter
from deadletter.errors import ConnectionLost, DeadletterError, MessageError
from deadletter.move.courier import Bounds, Courier, Judging, Terms
from deadletter.move.verdict import Later, MoveFailure, Send, Setback, Verdict, Wrap
from deadletter.retrying.release import homewards

FULL_MS: Final = 5_000
"""How long a letter waits whose origin is full."""
ANEW_S: Final = 60.0
"""How often it begins anew: a queue that is deleted as a consumer comes may tell it nothing (4.3.6)."""
PAUSE_S: Final = 1.0
PAUSE_MAX_S: Final = 30.0
WELL_S: Final = 5.0
"""After this long without trouble the pauses begin small again."""
TOLD_MAX: Final = 10
"""So many letters that could not go are told of one by one before the work begins anew."""
KNOWN_MAX: Final = 4_096
_WANTED: Final = frozenset({names.ORIGIN_QUEUE.encode(), names.ORIGIN_ROUTING_KEY.encode()})


class _Again(str):
    """An origin that a letter was sent to a second time."""

    __slots__ = ()


class Releasing:
    """On one link. `mend` declares what a publish did not find; it hears the routing key."""

    def __init__(
        self, *, mend: Callable[[str], Awaitable[None]], emit: Callable[[Event], None], prefetch: int = 200
    ) -> None:
        self._mend = mend
        self._emit = emit
        self._prefetch = prefetch
        self._ways = WaysBack(self._nothing, lambda _origin, _state: None)
        self._sends: dict[tuple[str, str], tuple[Home, Send]] = {}
        self._courier: Courier | None = None

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
                decide=self._decide, again=self._again, on_missing=self._ways.forget, on_failure=on_failure
            ),
            bounds=Bounds(seconds=ANEW_S, depth_at_start=False),
            terms=Terms(prefetch=self._prefetch, blocked_patience_s=float("inf")),
        )
        try:
            await courier.on(link)
        except ConnectionLost:
            raise
        except DeadletterError as error:
            return await self._declared(str(error))
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

    def _decide(self, letter: Letter) -> Verdict:
        try:
            headers = letter.select(_WANTED)
        except MessageError as error:
            return _wrapped(f"it cannot be read: {error}")
        origin, key = headers.get(names.ORIGIN_QUEUE), headers.get(names.ORIGIN_ROUTING_KEY)
        if not isinstance(origin, str) or not origin:
            return _parked("origin-unknown", "it is due, and no header says which queue it belongs to")
        routing_key = header_values.name(key) or ""  # of all names the key alone may be any bytes
        home = self._ways.known(origin)
        return _later(self._found(origin, routing_key)) if home is None else self._send(home, routing_key)

    async def _found(self, origin: str, routing_key: str) -> Verdict:
        home = await self._ways.find(origin)
        return _missing(origin) if home is None else self._send(home, routing_key)

    def _send(self, home: Home, routing_key: str) -> Send:
        """The same object for the same way: what follows from it is computed once."""
        known = self._sends.get((home.origin, routing_key))
        if known is None or known[0] is not home:
            if len(self._sends) >= KNOWN_MAX:
                self._sends.clear()
            known = self._sends[home.origin, routing_key] = (
                home,
                homewards(home, routing_key, fate=home.origin),
            )
        return known[1]

    def _again(self, _letter: Letter, verdict: Send | Wrap, setback: Setback, why: str) -> Verdict:
        origin = verdict.fate if isinstance(verdict.fate, str) else ""
        match setback:
            case Setback.UNROUTABLE if isinstance(verdict.fate, _Again):
                return _missing(origin)
            case Setback.UNFIT:
                return _wrapped(why)
            case Setback.REFUSED if origin:
                return Send(routing_key=level_name(FULL_MS), deaths=Deaths.FORGET, leg=Leg.WAIT)
            case Setback.REFUSED:
                raise RuntimeError(f"{why} at {verdict.routing_key!r}; it waits here")
            case Setback.UNROUTABLE if origin and isinstance(verdict, Send):
                return _later(self._once_more(origin, verdict))
            case Setback.UNROUTABLE:
                return _later(self._mended(verdict))
            case _:
                assert_never(setback)

    async def _once_more(self, origin: str, verdict: Send) -> Verdict:
        """Bind once more, else park."""
        home = await self._ways.find(origin, again=True)
        if home is None:
            return _missing(origin)
        return homewards(home, verdict.routing_key, fate=_Again(origin))

    async def _mended(self, verdict: Send | Wrap) -> Verdict:
        await self._mend(verdict.routing_key)
        return verdict


def _missing(origin: str) -> Verdict:
    return _parked("origin-missing", f"its origin {origin!r} is not there")


def _parked(cause: str, why: str) -> Verdict:
    headers: dict[str, Value] = {names.CAUSE: cause, names.WHY: why, names.PARKED_AT: _now_ms()}
    return Send(routing_key=PARKED, deaths=Deaths.FORGET, headers=headers)


def _wrapped(why: str) -> Wrap:
    return Wrap(routing_key=PARKED, cause="unreadable", why=why, at_ms=_now_ms())


def _now_ms() -> int:
    return int(time.time() * 1000)


def _later(work: Coroutine[Any, Any, Verdict]) -> Later:
    return Later(asyncio.ensure_future(work))
