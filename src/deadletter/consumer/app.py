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
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar

from deadletter.amqp.address import parse_addresses
from deadletter.broker.queue_counts import counts_of
from deadletter.broker.session import Link, Persistence
from deadletter.consumer.backoffs import Delays, milliseconds
from deadletter.consumer.events import Audience, Listener, Stopping
from deadletter.consumer.handlers.failure_details import Redact, Teller
from deadletter.consumer.handlers.once import MessageKey
from deadletter.consumer.idempotency import Ids
from deadletter.consumer.outcomes import OnErrorRule
from deadletter.consumer.queues.health_wait import HealthCheck
from deadletter.consumer.queues.layout_routes import delays_of
from deadletter.consumer.queues.queue_options import QueueOptions, QueueWishes
from deadletter.consumer.serving import DepthAlert, DepthCall, DepthWatch, Serving
from deadletter.consumer.signals import Signals
from deadletter.consumer.statistics import (
    QueueStatistics,
    drain_level,
    queue_statistics,
    way_of,
)
from deadletter.core.topology.layout_names import LayoutName
from deadletter.errors import CannotConnect, UsageError
from deadletter.move.courier import MoveTally

if TYPE_CHECKING:
    from deadletter.testing.memory import MemoryBroker

__all__ = ["Consumer", "DepthAlert"]

FOR_EVER: Final = Persistence(first_s=None, again_s=None, pause_max_s=5.0, forgives=True)
DEPTH_S: Final = 30.0
_F = TypeVar("_F", bound=Callable[..., Any])


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
        health: HealthCheck | None = None,
        grace: float = 30.0,
        persistence: Persistence = FOR_EVER,
    ) -> None:
        self._addresses = parse_addresses(url)
        self._api = api
        self._name = service or "deadletter consumer"
        self._teller = Teller(service=service, release=release, redact=redact)
        self._health = health
        self._grace_s = grace
        self._persistence = persistence
        self._queues: dict[str, QueueOptions] = {}
        self._depths: list[DepthWatch] = []
        self._emit = Audience()
        self._stop: asyncio.Event | None = None
        self._serving: Serving | None = None
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
        on: Mapping[type[BaseException], OnErrorRule] | None = None,
        prefetch: int = 100,
        concurrency: int = 10,
        timeout: float | None = None,
        deliveries: int = 5,
        budget: float | None = None,
        health: HealthCheck | None = None,
        idempotent: Ids | None = None,
        key: MessageKey | None = None,
    ) -> Callable[[_F], _F]:
        """Handle the messages of this queue with the decorated function.

        `on` maps error classes to `park`, `discard`, `retry(…)` or a back-off. `timeout` is in seconds.
        `deliveries`: a message of which the process died so often is put aside. `budget`: at most so many
        retries a minute. `health`: while it says no, nothing is taken. `idempotent`: a message that was done
        is not handled again, by its `message_id` or by `key`.
        """
        return self._decorator(
            QueueWishes(
                queue=name,
                layout=layout,
                retries=retries,
                backoff=backoff,
                on=on,
                prefetch=prefetch,
                concurrency=concurrency,
                timeout=timeout,
                deliveries=deliveries,
                budget=budget,
                health=health,
                idempotent=idempotent,
                key=key,
            )
        )

    def batch(
        self,
        name: str,
        *,
        size: int = 100,
        wait: float = 1.0,
        layout: LayoutName = "auto",
        retries: int = 5,
        backoff: Delays | None = None,
        on: Mapping[type[BaseException], OnErrorRule] | None = None,
        prefetch: int | None = None,
        concurrency: int = 1,
        timeout: float | None = None,
        deliveries: int = 5,
        budget: float | None = None,
        health: HealthCheck | None = None,
        idempotent: Ids | None = None,
        key: MessageKey | None = None,
    ) -> Callable[[_F], _F]:
        """Handle up to `size` messages of this queue in one call; fewer when none came for `wait` seconds.

        The function takes a `list[Order]`, a `list[Message]` or both. Returning: all are done. Raising: each
        is treated by the rules. `raise BatchFailed({index: error})`: these failed, the others are done.
        """
        return self._decorator(
            QueueWishes(
                queue=name,
                layout=layout,
                retries=retries,
                backoff=backoff,
                on=on,
                prefetch=min(65_535, 2 * size * concurrency) if prefetch is None else prefetch,
                concurrency=concurrency,
                timeout=timeout,
                deliveries=deliveries,
                budget=budget,
                health=health,
                idempotent=idempotent,
                key=key,
                size=size,
                wait=wait,
            )
        )

    def _decorator(self, wishes: QueueWishes) -> Callable[[_F], _F]:
        wishes.check()

        def decorate(function: _F) -> _F:
            if wishes.queue in self._queues:
                raise UsageError(
                    f"queue {wishes.queue}: expected one handler, got a second one: {function!r}"
                )
            self._queues[wishes.queue] = wishes.options(function)
            return function

        return decorate

    def listen(self, listener: Listener) -> None:
        """Hear of everything that happens: for logs, metrics, tests. One that raises stops nothing."""
        self._emit.add(listener)

    def watch_depth(self, queue: str, *, above: int, call: DepthCall, every: float = DEPTH_S) -> None:
        """Call this, every 30 s, while more than so many messages wait in a queue, any of the vhost."""
        if above < 0 or every <= 0:
            raise UsageError(f"watch_depth {queue}: expected above ≥ 0 and every > 0, got {above}, {every}")
        self._depths.append(DepthWatch(queue=queue, above=above, call=call, every_s=every))

    # -- looking and helping -----------------------------------------------------------------------------
    async def statistics(self) -> dict[str, QueueStatistics]:
        """How full each queue, its delays and its parked letters are. The consumer need not run."""
        found: dict[str, QueueStatistics] = {}
        async with self._visit() as link:
            for queue, options in self._queues.items():
                rules = options.handler.rules
                way = await way_of(link, self._api, options)
                found[queue] = await queue_statistics(link, way, queue, rules.schedule, rules.schedules)
        return found

    async def drain(self, queue: str, *delays: float) -> dict[str, MoveTally]:
        """Let out now what waits in the delays of a queue: in these (in seconds), or in all of them.

        Returns what became of each, by the name of the delay's queue. The consumer need not run.
        """
        options = self._queues.get(queue)
        if options is None:
            raise UsageError(f"drain: expected one of {', '.join(self._queues)}, got {queue!r}")
        rules = options.handler.rules
        async with self._visit() as link:
            way = await way_of(link, self._api, options)
            levels = delays_of(way, queue, rules.schedule, rules.schedules)
            wanted = {milliseconds("drain", delay) for delay in delays}
            if unknown := wanted - set(levels.values()):
                there = ", ".join(f"{ms / 1000:g}" for ms in sorted(set(levels.values())))
                raise UsageError(
                    f"drain {queue}: expected delays of layout {way} ({there or 'none'} s), got "
                    f"{', '.join(f'{ms / 1000:g}' for ms in sorted(unknown))} s"
                )
            connection = await link.connection("declare")
            chosen = [
                name
                for name, ms in levels.items()
                if (not wanted or ms in wanted) and await counts_of(connection, name) is not None
            ]
        return {name: await drain_level(self._addresses, way, queue, name) for name in chosen}

    @asynccontextmanager
    async def _visit(self) -> AsyncIterator[Link]:
        """A link of its own, for a question: to the first host that answers."""
        *others, last = self._addresses
        link = Link(last, f"{self._name}: statistics")
        for address in others:
            found = Link(address, link.name)
            try:
                await found.connection("declare")
            except CannotConnect:
                continue
            link = found
            break
        try:
            yield link
        finally:
            await link.close()

    # -- life --------------------------------------------------------------------------------------------
    def run(self) -> None:
        """Serve until SIGTERM or SIGINT. The second of them ends the process at once."""
        runner = asyncio.Runner(loop_factory=_new_loop)
        try:
            runner.run(self._run())
        finally:
            # It would wait for all that runs on the loop. A handler that does not heed its cancellation has
            # been named, its message is back in its queue, and it must not keep the process.
            if self._serving is None or not self._serving.hanging:
                runner.close()

    async def _run(self) -> None:
        with Signals(stop=self.stop, running=self._running, let_go=self._let_go):
            await self.serve()

    def _running(self) -> list[str]:
        return [] if self._serving is None else self._serving.running()

    async def _let_go(self) -> None:
        if self._serving is not None:
            await self._serving.let_go()

    async def serve(self, broker: MemoryBroker | None = None) -> None:
        """Until `stop`. Raises when it cannot go on: wrong login, a layout that cannot be.

        `broker`: in tests, a memory broker in place of the one that the URL names.
        """
        if not self._queues:
            raise UsageError("expected at least one @app.queue(…), got none")
        self._stop = asyncio.Event()
        self.ready = asyncio.Event()
        self._serving = Serving(
            self._addresses if broker is None else [broker.address],
            tuple(self._queues.values()),
            api=self._api,
            name=self._name,
            teller=self._teller,
            health=self._health,
            depths=tuple(self._depths),
            persistence=self._persistence,
            grace_s=self._grace_s,
            emit=self._emit,
            stop=self._stop,
            ready=self.ready,
            memory=broker,
        )
        await self._serving.run()

    def stop(self, why: str = "asked to") -> None:
        """No new messages; handlers end what they have begun; then `serve` returns."""
        if self._stop is not None and not self._stop.is_set():
            self._emit(Stopping(why=why))
            self._stop.set()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
