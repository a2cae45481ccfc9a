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
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, TypeVar, Unpack

from deadletter.amqp.address import parse_addresses
from deadletter.broker.session import Persistence
from deadletter.consumer.backoffs import Delays
from deadletter.consumer.events import Audience, Listener, Stopping
from deadletter.consumer.handlers.failure_details import Redact, Teller
from deadletter.consumer.handlers.middleware import Middleware, checked
from deadletter.consumer.handlers.once import MessageKey
from deadletter.consumer.idempotency import Ids
from deadletter.consumer.log_events import EventLog
from deadletter.consumer.outcomes import OnErrorRule
from deadletter.consumer.publishing.mailing import AppMail
from deadletter.consumer.publishing.publications import PublishOptions
from deadletter.consumer.publishing.shared_mail import SharedMail
from deadletter.consumer.queues.health_wait import HealthCheck
from deadletter.consumer.queues.own_queue import AppExchange, Bind, QueueType
from deadletter.consumer.queues.queue_options import QueueOptions, QueueWishes
from deadletter.consumer.registering import QueueHandlers
from deadletter.consumer.serving import DepthAlert, DepthCall, DepthWatch, Serving
from deadletter.consumer.signals import Signals
from deadletter.consumer.statistics import QueueStatistics, all_statistics, drain
from deadletter.consumer.usual_log import UsualLog
from deadletter.core.letter.field_table import Value
from deadletter.core.topology.layout_names import LayoutName
from deadletter.errors import UsageError
from deadletter.move.courier import MoveTally

if TYPE_CHECKING:
    from deadletter.testing.memory import MemoryBroker

__all__ = ["Consumer", "DepthAlert"]

FOR_EVER: Final = Persistence(first_s=None, again_s=None, pause_max_s=5.0, forgives=True)
DEPTH_S: Final = 30.0
ExchangeType: TypeAlias = Literal["topic", "direct", "fanout", "headers"]
Lifespan: TypeAlias = Callable[["Consumer"], AbstractAsyncContextManager[object]]
_F = TypeVar("_F", bound=Callable[..., Any])


class Consumer:
    """An application's consumer. `url` may name several hosts of a cluster, separated by commas.

    `lifespan`: what lives as long as it serves, an async context manager of the consumer, as Starlette's.
    `middleware`: what stands around every handler, the first outermost.
    """

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
        lifespan: Lifespan | None = None,
        middleware: Iterable[Middleware] = (),
    ) -> None:
        self._addresses = parse_addresses(url)
        self._api = api
        self._name = service or "deadletter consumer"
        self._teller = Teller(service=service, release=release, redact=redact)
        self._health = health
        self._grace_s = grace
        self._persistence = persistence
        self._lifespan = lifespan
        self._middleware = checked(middleware)
        self.state: Any = None
        """What the lifespan yielded, while it lasts."""
        self._queues: dict[str, QueueOptions] = {}
        self._exchanges: dict[str, AppExchange] = {}
        self._depths: list[DepthWatch] = []
        self._log = UsualLog(self._teller)
        self._emit = Audience(self._log)
        self._stops: set[asyncio.Event] = set()
        """Of each `serve` that was called and has not ended."""
        self._serves = False
        self._serving: Serving | None = None
        self._mail = SharedMail(self._addresses, name=self._name, service=service, exchanges=self._exchanges)
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
        bind: Iterable[Bind] = (),
        queue_type: QueueType | None = None,
        arguments: Mapping[str, Value] | None = None,
        delivery_limit: int | None = None,
        middleware: Iterable[Middleware] = (),
    ) -> QueueHandlers:
        """Handle the messages of this queue with the decorated function.

        `on` maps error classes to `park`, `discard`, `retry(…)` or a back-off. `timeout` is in seconds.
        `deliveries`: a message of which the process died so often is put aside. `budget`: at most so many
        retries a minute. `health`: while it says no, nothing is taken. `idempotent`: a message that was done
        is not handled again, by its `message_id` or by `key`. `bind`: exchanges and keys; `queue_type` and
        `arguments`: what it is declared with if it is not there; `delivery_limit`: of a quorum queue.
        """
        return QueueHandlers(
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
                bind=bind,
                queue_type=queue_type,
                arguments=arguments,
                delivery_limit=delivery_limit,
                middleware=(*self._middleware, *checked(middleware)),
            ),
            self._queues,
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
        bind: Iterable[Bind] = (),
        queue_type: QueueType | None = None,
        arguments: Mapping[str, Value] | None = None,
        delivery_limit: int | None = None,
    ) -> Callable[[_F], _F]:
        """Handle up to `size` messages of this queue in one call; fewer when none came for `wait` seconds.

        The function takes a `list[Order]`, a `list[Message]` or both. Returning: all are done. Raising: each
        is treated by the rules. `raise BatchFailed({index: error})`: these failed, the others are done.
        """
        return QueueHandlers(
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
                bind=bind,
                queue_type=queue_type,
                arguments=arguments,
                delivery_limit=delivery_limit,
                middleware=self._middleware,
                size=size,
                wait=wait,
            ),
            self._queues,
        )

    def exchange(
        self,
        name: str,
        *,
        type: ExchangeType = "topic",  # noqa: A002 -- the name AMQP has for it
        arguments: Mapping[str, Value] | None = None,
    ) -> None:
        """Declare this exchange, durable, before a queue is bound to it or a message published to it.

        Others that `bind=` names are expected to be there.
        """
        asked = AppExchange(name, type, dict(arguments or {}))
        if not name or name.startswith("amq.") or self._exchanges.get(name, asked) != asked:
            raise UsageError(
                f"exchange: expected a name of the application's own, declared in one way, got {name!r} as "
                f"{type!r}"
            )
        self._exchanges[name] = asked

    def listen(self, listener: Listener) -> None:
        """Hear of everything that happens: for logs, metrics, tests. One that raises stops nothing.

        `log_events()` writes in place of what is logged without it.
        """
        self._emit.add(listener, instead=isinstance(listener, EventLog))

    def has_listener(self, kind: type[object]) -> bool:
        """Whether a listener of this class was added: whoever runs an application may add one of its own."""
        return self._emit.has(kind)

    def watch_depth(self, queue: str, *, above: int, call: DepthCall, every: float = DEPTH_S) -> None:
        """Call this, every 30 s, while more than so many messages wait in a queue, any of the vhost."""
        if above < 0 or every <= 0:
            raise UsageError(f"watch_depth {queue}: expected above ≥ 0 and every > 0, got {above}, {every}")
        self._depths.append(DepthWatch(queue=queue, above=above, call=call, every_s=every))

    # -- publishing --------------------------------------------------------------------------------------
    async def publish(
        self, body: object, *, exchange: str = "", key: str = "", **options: Unpack[PublishOptions]
    ) -> str:
        """Publish, and return its message id once a queue has it; without an exchange to the queue `key`.

        A body is bytes, str, a pydantic model, a msgspec struct, a dataclass or what JSON can say. It is
        persistent, mandatory and confirmed. Raises a PublishError: `Unroutable`, `PublishRefused`,
        `NotPublished`, or `MaybePublished` where the line was lost in between. In a handler with a
        `Transaction` it goes out after the commit.
        """
        if self._mail.mail is None:
            raise UsageError(
                "publish: expected a consumer that serves, or `async with app.publishing():` around it, got "
                "neither"
            )
        return await self._mail.mail.send(body, exchange=exchange, key=key, **options)

    @asynccontextmanager
    async def publishing(self, broker: MemoryBroker | None = None) -> AsyncIterator[None]:
        """For a program that publishes without consuming, and for what it publishes before it serves.

        Any number at a time, and beside `serve`: all share one publisher, until the last of them ends.
        `broker`: in tests, a memory broker in place of the one that the URL names; the same for all.
        """
        async with self._mail.opened(broker, anywhere=broker is None):
            yield

    # -- looking and helping -----------------------------------------------------------------------------
    async def statistics(self) -> dict[str, QueueStatistics]:
        """How full each queue, its delays and its parked letters are. The consumer need not run."""
        return await all_statistics(self._addresses, self._api, self._name, self._queues)

    async def drain(self, queue: str, *delays: float) -> dict[str, MoveTally]:
        """Let out now what waits in the delays of a queue: in these (in seconds), or in all of them.

        Returns what became of each, by the name of the delay's queue. The consumer need not run.
        """
        options = self._queues.get(queue)
        if options is None:
            raise UsageError(f"drain: expected one of {', '.join(self._queues)}, got {queue!r}")
        return await drain(self._addresses, self._api, self._name, options, delays)

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

    def serve(self, broker: MemoryBroker | None = None) -> Coroutine[Any, Any, None]:
        """Until `stop`, also if that was called before the first step. One at a time. Raises when it cannot
        go on: wrong login, a layout that cannot be.

        `broker`: in tests, a memory broker in place of the one that the URL names.
        """
        if not self._queues:
            raise UsageError("expected at least one @app.queue(…), got none")
        stop = asyncio.Event()
        self._stops.add(stop)
        return self._until(stop, broker)

    async def _until(self, stop: asyncio.Event, broker: MemoryBroker | None) -> None:
        if self._serves:
            self._stops.discard(stop)
            raise UsageError("serve: expected a consumer that does not serve yet, got one that does")
        self._serves = True
        self.ready = asyncio.Event()
        try:
            async with AsyncExitStack() as stack:
                mail = await stack.enter_async_context(self._mail.opened(broker))
                if self._lifespan is not None:
                    self.state = await stack.enter_async_context(self._lifespan(self))
                await self._serve(broker, stop, self.ready, mail)
        finally:
            self.state = None
            self._serves = False
            self._stops.discard(stop)

    async def _serve(
        self, broker: MemoryBroker | None, stop: asyncio.Event, ready: asyncio.Event, mail: AppMail
    ) -> None:
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
            stop=stop,
            ready=ready,
            mail=mail,
            exchanges=tuple(self._exchanges.values()),
            memory=broker,
        )
        try:
            await self._serving.run()
        finally:
            self._log.close()

    def stop(self, why: str = "asked to") -> None:
        """No new messages; handlers end what they have begun; then `serve` returns."""
        if asked := [one for one in self._stops if not one.is_set()]:
            self._emit(Stopping(why=why))
            for one in asked:
                one.set()


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
