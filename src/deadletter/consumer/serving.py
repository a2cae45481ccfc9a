"""The life of a consumer: a link, its layouts declared there, a consumer per queue; again on the next link.

A queue that goes away is waited for. A queue whose health check says no is left alone until it says yes.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeAlias

from deadletter.amqp.address import Address
from deadletter.amqp.handshake import connect
from deadletter.broker.queue_counts import counts_of
from deadletter.broker.session import Link, Persistence, SessionEvent, Waiting, supervise
from deadletter.consumer.events import BROKER, Audience, Lost, Ready, Stopping
from deadletter.consumer.handlers.failure_details import Teller
from deadletter.consumer.handlers.handler_end import told
from deadletter.consumer.publishing.mailing import AppMail
from deadletter.consumer.queues.declared_layouts import ASKING, BrokerInProcess, DeclaredLayouts, Laid
from deadletter.consumer.queues.due_release import Releasing
from deadletter.consumer.queues.health_wait import HealthCheck, HealthWait
from deadletter.consumer.queues.own_queue import AppExchange, declare_exchanges
from deadletter.consumer.queues.queue_consumer import QueueConsumer
from deadletter.consumer.queues.queue_options import QueueOptions
from deadletter.core.guards.budget import Budget
from deadletter.core.topology.layout_names import ConsumerLayout
from deadletter.errors import ConnectionLost, DeadletterError, MoveFailed

PAUSE_S: Final = 1.0
WELL_S: Final = 5.0
"""So long a queue that was lost is consumed before it is said to be back: one that fails again and again must
not be told of every second."""
_log: Final = logging.getLogger("deadletter.consumer")


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthAlert:
    """A queue holds more messages than it should."""

    queue: str
    depth: int
    above: int


DepthCall: TypeAlias = Callable[[DepthAlert], object]
"""A plain function, or one that is awaited."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthWatch:
    """Whom to call when."""

    queue: str
    above: int
    call: DepthCall
    every_s: float


class Serving:
    """One run of a consumer, until `stop` is set. `ready` is set while messages are taken."""

    def __init__(
        self,
        addresses: Sequence[Address],
        queues: tuple[QueueOptions, ...],
        *,
        api: str | None,
        name: str,
        teller: Teller,
        health: HealthCheck | None,
        depths: tuple[DepthWatch, ...],
        persistence: Persistence,
        grace_s: float,
        emit: Audience,
        stop: asyncio.Event,
        ready: asyncio.Event,
        mail: AppMail,
        exchanges: tuple[AppExchange, ...] = (),
        memory: BrokerInProcess | None = None,
    ) -> None:
        self._memory = memory
        self._mail = mail
        self._exchanges = exchanges
        self._addresses = addresses
        self._queues = queues
        self._api = api
        self._name = name
        self._teller = teller
        self._health = health
        self._depths = depths
        self._persistence = persistence
        self._grace_s = grace_s
        self._emit = emit
        self._stop = stop
        self._ready = ready
        self._consumers: dict[str, QueueConsumer] = {}
        """By queue; the last one of each."""
        self._away: set[str] = set()
        """Queues that were told to be lost, on this link."""
        self._leaving: SystemExit | KeyboardInterrupt | None = None
        self._working: asyncio.Future[None] | None = None
        self._worked = False
        """Whether its layouts were declared once."""
        now = asyncio.get_running_loop().time()
        self._budgets = {
            options.plan.queue: Budget(options.budget_per_minute, now)
            for options in queues
            if options.budget_per_minute is not None
        }
        """They outlive a link: a connection that is lost again and again buys no retries."""

    async def run(self) -> None:
        """Raises when it cannot go on."""
        opened = list(
            {id(ids): ids for options in self._queues if (ids := options.handler.ids) is not None}.values()
        )
        try:
            for ids in opened:
                await ids.open()
            await self._supervised()
            if self._leaving is not None:
                raise self._leaving
        finally:
            for options in self._queues:
                options.handler.close()
            for ids in opened:
                await ids.close()

    @property
    def hanging(self) -> bool:
        """Whether a handler goes on that was cancelled."""
        return any(consumer.hanging for consumer in self._consumers.values())

    def running(self) -> list[str]:
        """A line for each handler that has not ended."""
        return [line for consumer in self._consumers.values() for line in consumer.running()]

    async def let_go(self) -> None:
        """The process ends at once: what is done is acked, the rest goes back."""
        await asyncio.gather(*(consumer.let_go() for consumer in self._consumers.values()))

    def _leave(self, queue: str, error: SystemExit | KeyboardInterrupt) -> None:
        """A handler wants the process to end: in good order, as when somebody asks for it from outside."""
        if self._leaving is None:
            self._leaving = error
            _log.error(
                "a handler of %s raised %s: the consumer stops, and raises it again", queue, told(error)
            )
        if not self._stop.is_set():
            self._emit(Stopping(why=f"a handler of {queue} raised {told(error)}"))
            self._stop.set()

    async def _supervised(self) -> None:
        working = self._working = asyncio.ensure_future(
            supervise(
                self._addresses,
                self._on,
                name=self._name,
                persistence=self._persistence,
                on_event=self._on_session,
                dial=connect if self._memory is None else self._memory.connect,
            )
        )
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done() and not self._ready.is_set():
                working.cancel()  # it waits for a broker that does not come
            await asyncio.wait({working})
            if not working.cancelled():
                working.result()
        finally:
            stopping.cancel()
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    def _on_session(self, event: SessionEvent) -> None:
        if isinstance(event, Waiting):
            if self._stop.is_set() and self._working is not None:
                self._working.cancel()  # the line was lost while it stopped: nothing is left to be done
            self._emit(Lost(what=BROKER, why=str(event.reason), seconds=event.seconds))

    async def _on(self, link: Link) -> None:
        """All queues on one link."""
        layouts = DeclaredLayouts(link, self._api, self._memory, exchanges=self._exchanges)
        laid = await self._laid(link, layouts)
        tasks = [
            asyncio.ensure_future(self._serve_queue(link, layouts, options, one))
            for options, one in zip(self._queues, laid, strict=True)
        ]
        tasks += self._releasing(link, layouts, laid)
        watching = [asyncio.ensure_future(self._watch_depth(link, watch)) for watch in self._depths]
        if self._memory is None:  # in an application's tests nobody deletes anything behind its back
            watching.append(asyncio.ensure_future(layouts.keep(self._queues, self._emit)))
            if any(one.paths.layout in ASKING for one in laid):
                watching.append(asyncio.ensure_future(layouts.tidy()))
        self._away.clear()
        self._emit(
            Ready(
                queues=tuple(options.plan.queue for options in self._queues),
                layouts=tuple(one.paths.layout.value for one in laid),
                notes=tuple(note for one in laid for note in one.notes),
            )
        )
        self._ready.set()
        for task in watching:
            task.add_done_callback(_seen_ending)
        ended: set[asyncio.Task[None]] = set()
        try:
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
        finally:
            self._ready.clear()
            for task in (*tasks, *watching):
                task.cancel()
            results = await asyncio.gather(*tasks, *watching, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
                raise result
        if not self._stop.is_set() and any(task.cancelled() for task in ended):
            raise MoveFailed("a task of the consumer was cancelled by somebody else: it cannot go on")

    async def _laid(self, link: Link, layouts: DeclaredLayouts) -> list[Laid]:
        """Raises what cannot be; but what worked once is worth another try: a right may be given again."""
        try:
            await declare_exchanges(link, self._exchanges)
            laid = [await layouts.lay(options) for options in self._queues]
        except ConnectionLost:
            raise
        except DeadletterError as error:
            if not self._worked:
                raise
            raise ConnectionLost(f"its layouts cannot be declared any more: {error}") from error
        self._worked = True
        return laid

    def _releasing(self, link: Link, layouts: DeclaredLayouts, laid: list[Laid]) -> list[asyncio.Task[None]]:
        """In the layout `return` somebody takes what is due home: whoever consumes such a queue."""
        for options, one in zip(self._queues, laid, strict=True):
            if one.paths.layout is ConsumerLayout.RETURN:

                async def mend(target: str, options: QueueOptions = options) -> None:
                    await layouts.mend(options, target)

                return [asyncio.create_task(Releasing(mend=mend, emit=self._emit).on(link, self._stop))]
        return []

    async def _serve_queue(
        self, link: Link, layouts: DeclaredLayouts, options: QueueOptions, laid: Laid
    ) -> None:
        """One queue on one link: a queue that goes away is waited for, and so is its health."""
        checks = tuple(check for check in (self._health, options.health) if check is not None)
        gate = HealthWait(options.plan.queue, checks, self._emit)
        whole = True
        while await self._may_go(gate):
            try:
                if not whole:
                    laid = await layouts.lay_again(options)
                    whole = True
                await self._shift(link, layouts, options, laid, gate)
            except ConnectionLost:
                raise
            except DeadletterError as error:
                # A queue that was deleted has lost its bindings and what leads back to it, and an exchange
                # that was deleted closes every channel that publishes to it.
                whole = False
                self._away.add(options.plan.queue)
                self._emit(Lost(what=f"queue {options.plan.queue}", why=str(error), seconds=PAUSE_S))
                await self._unless_stopped(asyncio.sleep(PAUSE_S))

    async def _may_go(self, gate: HealthWait) -> bool:
        """Wait until the queue may be consumed; False: the consumer is to end."""
        await self._unless_stopped(gate.opened())
        return not self._stop.is_set()

    async def _shift(
        self, link: Link, layouts: DeclaredLayouts, options: QueueOptions, laid: Laid, gate: HealthWait
    ) -> None:
        """Until the consumer is to end, or the gate closes."""

        async def mend(target: str) -> None:
            await layouts.mend(options, target)

        consumer = QueueConsumer(
            options.plan,
            options.handler,
            laid.paths,
            teller=self._teller,
            emit=self._emit,
            mend=mend,
            leave=partial(self._leave, options.plan.queue),
            mail=self._mail,
            budget=self._budgets.get(options.plan.queue),
        )
        self._consumers[options.plan.queue] = consumer
        halt = asyncio.Event()

        async def end() -> None:
            await self._unless_stopped(gate.closed())
            halt.set()

        def well() -> None:
            if not halt.is_set() and options.plan.queue in self._away:
                self._away.discard(options.plan.queue)
                layout = laid.paths.layout.value
                self._emit(Ready(queues=(options.plan.queue,), layouts=(layout,), notes=laid.notes))

        loop, timers = asyncio.get_running_loop(), list[asyncio.TimerHandle]()
        ending = asyncio.ensure_future(end())
        try:
            await consumer.on(
                link,
                halt,
                self._stop,
                grace_s=self._grace_s,
                begun=lambda: timers.append(loop.call_later(WELL_S, well)),
            )
        finally:
            for one in timers:
                one.cancel()
            ending.cancel()
            await asyncio.gather(ending, return_exceptions=True)

    async def _unless_stopped(self, work: Coroutine[Any, Any, None]) -> None:
        """Until it is done, or the consumer is to end."""
        doing = asyncio.ensure_future(work)
        stopped = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait({doing, stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stopped.cancel()
            doing.cancel()
            await asyncio.gather(doing, stopped, return_exceptions=True)
        if not doing.cancelled():
            doing.result()

    async def _watch_depth(self, link: Link, watch: DepthWatch) -> None:
        while True:
            found = await counts_of(await link.connection("declare"), watch.queue)
            if found is not None and found.ready > watch.above:
                try:
                    answer = watch.call(DepthAlert(queue=watch.queue, depth=found.ready, above=watch.above))
                    if inspect.isawaitable(answer):
                        await answer
                except asyncio.CancelledError:
                    raise
                except BaseException:  # noqa: BLE001 -- the application's own call
                    _log.exception("the depth alert of %s failed; messages go on", watch.queue)
            await asyncio.sleep(watch.every_s)


def _seen_ending(task: asyncio.Task[None]) -> None:
    """What watches has no end of its own; that it has one must not stay unseen."""
    error = None if task.cancelled() else task.exception()
    if error is not None and not isinstance(error, ConnectionLost):
        _log.error("nobody watches any more until the next connection", exc_info=error)
