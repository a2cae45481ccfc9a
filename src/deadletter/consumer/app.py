"""The consumer: an application's queues and handlers, and its life.

    app = Consumer("amqp://…", service="shop")

    @app.queue("orders", retries=5, backoff=exponential(1, cap=600, jitter=0.2), on={ValidationError: park})
    async def handle(order: Order) -> None: ...

    app.run()

It connects, declares the layout of each queue (unless it is `external`), takes messages, and comes back by
itself after a lost connection. SIGTERM: no new messages, handlers end what they have begun, exit.
"""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias, TypeVar

from deadletter.amqp.address import parse_addresses
from deadletter.broker.session import Event as SessionEvent
from deadletter.broker.session import Link, Persistence, Waiting, supervise
from deadletter.consumer.backoffs import Delays, exponential
from deadletter.consumer.details import Redact, Teller
from deadletter.consumer.events import Event, Listener, Lost, Ready, Stopping
from deadletter.consumer.ground import Ground, Laid
from deadletter.consumer.handling import Handler
from deadletter.consumer.outcomes import Rule, Rules
from deadletter.consumer.station import Plan, Station
from deadletter.errors import ConnectionLost, DeadletterError, UsageError

LayoutName: TypeAlias = Literal["auto", "return", "ladder", "loop", "native", "external"]
LAYOUTS: Final = ("auto", "return", "ladder", "loop", "native", "external")
FOR_EVER: Final = Persistence(first_s=None, again_s=None, pause_max_s=5.0)
PAUSE_S: Final = 1.0
_log: Final = logging.getLogger("deadletter.consumer")
_F = TypeVar("_F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """One queue of the application, as it was asked for."""

    plan: Plan
    handler: Handler
    layout: LayoutName


class Consumer:
    """An application's consumer. `url` may name several hosts of a cluster, separated by commas."""

    def __init__(
        self,
        url: str,
        *,
        api: str | None = None,
        service: str = "",
        release: str = "",
        redact: Redact | None = None,
        grace: float = 30.0,
        persistence: Persistence = FOR_EVER,
    ) -> None:
        self._addresses = parse_addresses(url)
        self._api = api
        self._name = service or "deadletter consumer"
        self._teller = Teller(service=service, release=release, redact=redact)
        self._grace_s = grace
        self._persistence = persistence
        self._desks: dict[str, Desk] = {}
        self._listeners: list[Listener] = []
        self._threads: ThreadPoolExecutor | None = None
        self._stop: asyncio.Event | None = None
        self.ready: asyncio.Event | None = None
        """Set while messages are taken; there once `serve` runs."""

    # -- what the application says -----------------------------------------------------------------------
    def queue(
        self,
        name: str,
        *,
        layout: LayoutName = "auto",
        retries: int = 5,
        backoff: Delays | None = None,
        on: Mapping[type[BaseException], Rule] | None = None,
        prefetch: int = 100,
        concurrency: int = 10,
        timeout: float | None = None,
        deliveries: int = 5,
    ) -> Callable[[_F], _F]:
        """Handle the messages of this queue with the decorated function.

        `on` maps error classes to `park`, `discard`, `retry(…)` or a back-off. `timeout` is in seconds.
        `deliveries`: a message of which the process died so often is put aside.
        """
        if layout not in LAYOUTS:
            raise UsageError(f"queue {name}: layout: expected {', '.join(LAYOUTS)}, got {layout!r}")
        for what, number in (
            ("prefetch", prefetch),
            ("concurrency", concurrency),
            ("deliveries", deliveries),
        ):
            if not 1 <= number <= 65_535:
                raise UsageError(f"queue {name}: {what}: expected a number from 1 to 65535, got {number!r}")
        rules = Rules(
            retries=retries, backoff=exponential(cap=600, jitter=0.2) if backoff is None else backoff, on=on
        )

        def decorate(function: _F) -> _F:
            if name in self._desks:
                raise UsageError(f"queue {name}: expected one handler, got a second one: {function!r}")
            self._desks[name] = Desk(
                plan=Plan(
                    queue=name,
                    prefetch=max(prefetch, concurrency),
                    concurrency=concurrency,
                    deliveries_max=deliveries,
                ),
                handler=Handler(function, rules, timeout_s=timeout, threads=self._pool(concurrency)),
                layout=layout,
            )
            return function

        return decorate

    def listen(self, listener: Listener) -> None:
        """Hear of everything that happens: for logs, metrics, tests. One that raises stops nothing."""
        self._listeners.append(listener)

    def _pool(self, concurrency: int) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(max_workers=concurrency, thread_name_prefix="handler")
        return self._threads

    def _emit(self, event: Event) -> None:
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:
                _log.exception("a listener failed; messages go on")

    # -- life --------------------------------------------------------------------------------------------
    def run(self) -> None:
        """Serve until SIGTERM or SIGINT. The second of them ends it at once."""
        try:
            import uvloop
        except ImportError:
            asyncio.run(self._run())
        else:
            uvloop.run(self._run())

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        serving = asyncio.ensure_future(self.serve())

        def end() -> None:
            if self._stop is not None and self._stop.is_set():
                serving.cancel()
            self.stop("asked by a signal")

        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, end)
        try:
            await serving
        finally:
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.remove_signal_handler(number)

    async def serve(self) -> None:
        """Until `stop`. Raises when it cannot go on: wrong login, a layout that cannot be."""
        if not self._desks:
            raise UsageError("expected at least one @app.queue(…), got none")
        self._stop = asyncio.Event()
        self.ready = asyncio.Event()
        working = asyncio.ensure_future(
            supervise(
                self._addresses,
                self._on,
                name=self._name,
                persistence=self._persistence,
                on_event=self._on_session,
            )
        )
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done() and not self.ready.is_set():
                working.cancel()  # it waits for a broker that does not come
            await asyncio.wait({working})
            if not working.cancelled():
                working.result()
        finally:
            stopping.cancel()
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
            if self._threads is not None:
                self._threads.shutdown(wait=False, cancel_futures=True)
                self._threads = None

    def stop(self, why: str = "asked to") -> None:
        """No new messages; handlers end what they have begun; then `serve` returns."""
        if self._stop is not None and not self._stop.is_set():
            self._emit(Stopping(why=why))
            self._stop.set()

    def _on_session(self, event: SessionEvent) -> None:
        if isinstance(event, Waiting):
            self._emit(Lost(what="broker", why=str(event.reason), seconds=event.seconds))

    async def _on(self, link: Link) -> None:
        """All queues on one link."""
        assert self._stop is not None
        assert self.ready is not None
        ground = Ground(link, self._api)
        laid = [await ground.lay(desk) for desk in self._desks.values()]
        tasks = [
            asyncio.ensure_future(self._serve_queue(link, ground, desk, one))
            for desk, one in zip(self._desks.values(), laid, strict=True)
        ]
        self._emit(
            Ready(
                queues=tuple(self._desks),
                layouts=tuple(one.paths.way.value for one in laid),
                notes=tuple(note for one in laid for note in one.notes),
            )
        )
        self.ready.set()
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            self.ready.clear()
            for task in tasks:
                if not task.done():
                    task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
                raise result

    async def _serve_queue(self, link: Link, ground: Ground, desk: Desk, laid: Laid) -> None:
        """One queue on one link: a queue that goes away is waited for."""
        assert self._stop is not None
        while not self._stop.is_set():
            station = Station(
                desk.plan,
                desk.handler,
                laid.paths,
                teller=self._teller,
                emit=self._emit,
                mend=lambda target: ground.mend(desk, target),
            )
            try:
                await station.on(link, self._stop, grace_s=self._grace_s)
            except ConnectionLost:
                raise
            except DeadletterError as error:
                self._emit(Lost(what=f"queue {desk.plan.queue}", why=str(error), seconds=PAUSE_S))
                await asyncio.sleep(PAUSE_S)
