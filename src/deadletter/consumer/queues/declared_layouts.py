"""The exchanges and queues of a consumer's layouts: declared, or known to be there.

Declaring sets policies, and that takes the management API. Where it cannot be reached nothing is declared and
nothing is guessed: if all queues of the layout are there the consumer goes on and says so; if one is missing
it says which, and how somebody with the rights makes it (`dlq topology apply`).

What somebody deletes while the consumer runs is declared again. A publish that finds no queue tells of it
(`mend`). Where the broker itself moves the letters nobody would: a delay whose way back is gone keeps its
letters, safe and in silence, so every few seconds all of it is looked for (`keep`). The application's own
queue is the exception: who deleted it meant it, and it is waited for.
"""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from deadletter.amqp.address import Address
from deadletter.amqp.channel import Channel
from deadletter.amqp.connection import Connection
from deadletter.broker.asked_delays import lay_exchange, open_delay
from deadletter.broker.declare import DeclareOutcome, declare
from deadletter.broker.housekeeping import EVERY_S, Housekeeper
from deadletter.broker.live_topology import read_topology
from deadletter.broker.management import management
from deadletter.broker.queue_counts import counts_on
from deadletter.broker.session import Link
from deadletter.consumer.events import Event
from deadletter.consumer.outcomes import Rules
from deadletter.consumer.queues.declaring_command import declaring_command
from deadletter.consumer.queues.layout_routes import LayoutRoutes, extra_rung
from deadletter.consumer.queues.own_queue import AppExchange, OwnQueue, bind, declare_exchanges
from deadletter.consumer.queues.told_losses import ToldLosses
from deadletter.core import layouts
from deadletter.core.layouts.naming import DUE, PARKED, asked_name, level_name
from deadletter.core.layouts.request import Plan
from deadletter.core.layouts.service import level, serving
from deadletter.core.topology.definitions_export import declared_arguments
from deadletter.core.topology.drift import planned_exchanges
from deadletter.core.topology.layout_names import ConsumerLayout
from deadletter.core.topology.queue_arguments import X_QUEUE_TYPE
from deadletter.core.topology.safekeeping import shortfalls
from deadletter.core.topology.vhost import Queue, Topology
from deadletter.errors import (
    AccessRefused,
    ChannelClosed,
    ConnectionLost,
    DeadletterError,
    ManagementRefused,
    NotFound,
    QueueMissing,
    ServiceRefused,
    WireError,
)

_log: Final = logging.getLogger("deadletter.consumer")
LOOK_S: Final = 5.0
LOOK_MAX_S: Final = 60.0
"""Between looks while something is gone and cannot be declared."""
MEND_S: Final = 3.0
"""However many letters find something gone, it is declared once in this time."""
_LEVEL: Final = level_name(0).removesuffix("0")
ASKING: Final = (ConsumerLayout.RETURN, ConsumerLayout.LADDER)
"""Layouts whose handlers may ask for any delay: each is a queue, made when it is first needed."""
_ASKED: Final = asked_name(0).removesuffix("0")


class Wanted(Protocol):
    """A queue that is to have a layout: the options of a consumer's queue, or the terms of an adapter."""

    @property
    def queue(self) -> str: ...
    @property
    def layout(self) -> str: ...
    @property
    def rules(self) -> Rules: ...
    @property
    def own(self) -> OwnQueue: ...


class BrokerInProcess(Protocol):
    """The broker of an application's tests: itself at hand, so it has no management API and needs none."""

    async def connect(self, address: Address, *, name: str) -> Connection: ...
    def topology(self) -> Topology: ...
    async def lay(self, link: Link, plan: Topology) -> None: ...


class _Missing(NamedTuple):
    kind: str
    name: str


class _Mending(NamedTuple):
    begun: float
    work: asyncio.Future[object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Laid:
    """What was declared for a queue, or found."""

    paths: LayoutRoutes
    notes: tuple[str, ...] = ()


async def _look_at(channel: Channel, one: _Missing) -> None:
    if one.kind == "queue":
        await counts_on(channel, one.name)
    else:
        await channel.declare_exchange(one.name, "", passive=True)


class DeclaredLayouts:
    """On one link. `ask` is what to give so that the management API is found."""

    def __init__(
        self,
        link: Link,
        api: str | None,
        memory: BrokerInProcess | None = None,
        *,
        ask: str = "Consumer(api=…)",
        exchanges: Sequence[AppExchange] = (),
    ) -> None:
        self._link = link
        self._api = api
        self._memory = memory
        self._ask = ask
        self._exchanges = exchanges
        """Those of the application, declared again with what is bound to them."""
        self._live: Topology | None = None
        self._laid: dict[str, Topology] = {}
        """By queue: what was declared for it, or found."""
        self._mendings: dict[str, _Mending] = {}
        self._opening: dict[str, asyncio.Future[None]] = {}

    async def lay(self, wanted: Wanted) -> Laid:
        """Declare the layout of a queue. Raises when it cannot be, with what to do."""
        queue = wanted.queue
        if wanted.layout == "external":
            await self._must_be([queue])
            notes = () if self._memory is not None else await self._leads_somewhere(queue)
            await bind(self._link, queue, wanted.own.bindings)
            return Laid(paths=LayoutRoutes(ConsumerLayout.EXTERNAL, queue), notes=notes)
        try:
            live = await self._look()
        except ManagementRefused as error:
            return await self._found(wanted, error)
        plan = planned_for(wanted, live)
        await self._declare(plan.topology, live, f"the layout {plan.layout} of {queue}")
        await bind(self._link, queue, wanted.own.bindings)
        return await self._stands(wanted, plan, *wanted.own.notes(queue, live), *await self._what_holds(plan))

    async def _look(self) -> Topology:
        if self._memory is not None:
            return self._memory.topology()
        self._live = self._live or await read_topology(self._link.address, self._api)
        return self._live

    async def _declare(self, plan: Topology, live: Topology, what: str) -> None:
        if self._memory is not None:
            await self._memory.lay(self._link, plan)
            return
        items = await declare(self._link, self._api, plan, live, change_policies=True)
        refused = [item for item in items if item.outcome is DeclareOutcome.REFUSED]
        if refused:
            told = "; ".join(f"{item.subject}: {item.why}" for item in refused[:5])
            raise ServiceRefused(f"{what} could not be declared: {told}")
        self._live = None  # it changed

    async def _stands(self, wanted: Wanted, plan: Plan, *notes: str) -> Laid:
        self._laid[wanted.queue] = plan.topology
        layout = ConsumerLayout(plan.layout)
        asks = layout in ASKING and await self._may_ask()
        levels_ms = frozenset(_levels_ms(wanted.rules)) if asks else None
        paths = LayoutRoutes(layout, wanted.queue, levels_ms=levels_ms)
        return Laid(paths=paths, notes=(*notes, *plan.notes))

    async def _may_ask(self) -> bool:
        """Whether delays that nobody planned can be reached by their exchange; else by their names, and then
        nobody deletes them."""
        try:
            async with await self._link.channel() as channel:
                await lay_exchange(channel)
        except ChannelClosed:
            return False
        return True

    async def _what_holds(self, plan: Plan) -> tuple[str, ...]:
        """Somebody may have declared a queue before us, or set a policy that goes before ours: what of it
        does no worse than another delay is noted."""
        if self._memory is not None:
            return ()
        found = shortfalls(plan.topology, await self._look())
        if grave := [one for one in found if one.grave]:
            raise ServiceRefused(
                f"the layout {plan.layout} of {plan.queue} is declared and does not hold, so retries would "
                f"not come back: {'; '.join(map(str, grave[:5]))}; "
                f"see: dlq topology diff --layout {plan.layout} --queue {shlex.quote(plan.queue)}"
            )
        return tuple(f"not as planned: {one}" for one in found)

    async def _leads_somewhere(self, queue: str) -> tuple[str, ...]:
        """What is rejected must have somewhere to go: without a dead-letter exchange the broker drops it."""
        try:
            live = await read_topology(self._link.address, self._api)
        except ManagementRefused as error:
            note = f"whether {queue} has a dead-letter exchange could not be seen; without one rejected "
            return (f"{note}messages are lost: {error}",)
        found = live.queues.get(queue)
        if found is not None and found.dead_letter_exchange is None:
            raise ServiceRefused(
                f"layout external: expected a dead-letter exchange on queue {queue!r}, got none; what a "
                "handler fails on is rejected, and the broker would throw it away: give it one (dlq topology "
                f"apply --queue {queue}), or take another layout"
            )
        return ()

    async def _found(self, wanted: Wanted, error: ManagementRefused) -> Laid:
        """Nothing can be declared; see whether it is all there."""
        plan = planned_for(wanted, None, (await self._link.connection("consume")).server_version)
        try:
            await self._must_be([wanted.queue, *plan.topology.queues])
        except QueueMissing as missing:
            raise ServiceRefused(
                f"{missing.queue!r} of layout {plan.layout} is missing and cannot be declared: {error}; give "
                f"{self._ask}, or let somebody run: "
                f"{declaring_command(plan, wanted.rules, wanted.own, missing=missing.queue)}"
            ) from error
        await bind(self._link, wanted.queue, wanted.own.bindings)
        note = f"the management API cannot be asked, so policies were not checked: {error}"
        return await self._stands(wanted, plan, note)

    async def _must_be(self, queues: Iterable[str]) -> None:
        missing = await self._missing(queues)
        if missing is not None:
            raise QueueMissing(missing.name, self._link.address.vhost)

    async def _missing(self, queues: Iterable[str], exchanges: Iterable[str] = ()) -> _Missing | None:
        """The first of these that is not there. What we may not look at is taken to be there: whoever sends
        to it finds out, and a letter that finds no queue stays."""
        named = deque(_Missing("queue", one) for one in queues)
        named += [_Missing("exchange", one) for one in exchanges]
        while named:
            try:
                async with await self._link.channel() as channel:
                    while named:
                        await _look_at(channel, named[0])
                        named.popleft()
            except AccessRefused:
                named.popleft()
            except NotFound:
                return named[0]
        return None

    # -- while the consumer runs -------------------------------------------------------------------------
    async def lay_again(self, wanted: Wanted) -> Laid:
        """Once more, for a queue that somebody deleted and declared: by itself it is not declared again."""
        self._live = None
        await self._must_be([wanted.queue])
        await declare_exchanges(self._link, self._exchanges)
        return await self.lay(wanted)

    async def keep(self, queues: Sequence[Wanted], emit: Callable[[Event], None]) -> None:
        """Declare again what somebody deletes, until the connection is lost."""
        pause_s, losses = LOOK_S, ToldLosses(emit)
        while True:
            await asyncio.sleep(pause_s)
            refused = [wanted.queue for wanted in queues if not await self._kept(wanted, losses)]
            pause_s = min(pause_s * 2, LOOK_MAX_S) if refused else LOOK_S

    async def _kept(self, wanted: Wanted, losses: ToldLosses) -> bool:
        """Whether it is all there, or there again."""
        queue, laid = wanted.queue, self._laid.get(wanted.queue)
        if laid is None:
            return True
        exchanges = [exchange.name for exchange in planned_exchanges(laid)]
        exchanges += [binding.exchange for binding in wanted.own.bindings]
        try:
            missing = await self._missing([queue, *laid.queues], exchanges)
        except ConnectionLost:
            raise
        except WireError:
            return False  # RabbitMQ 4.3 shows a name only to those who may do something with it
        if missing is None:
            losses.whole(queue)
        if missing is None or missing.name == queue:
            return True
        what = f"{missing.kind} {missing.name}"
        try:
            await self._once(queue, lambda: self.lay_again(wanted))
        except ConnectionLost:
            raise
        except DeadletterError as error:
            why = f"somebody deleted it, and it cannot be declared: {error}"
            losses.gone(queue, what, why, seconds=LOOK_S)
            return False
        losses.mended(queue, what, "somebody deleted it; it is declared again")
        return True

    async def tidy(self) -> None:
        """Delete what nobody uses any more, until the connection is lost; one of many consumers does it."""
        connection = await self._link.connection("housekeeping")
        async with management(self._link.address, self._api, need="unused queues are seen there") as asked:
            housekeeper = Housekeeper(connection, asked)
            while True:
                await asyncio.sleep(EVERY_S)
                with suppress(ManagementRefused, ChannelClosed):  # not ours to know, or to delete
                    found = await housekeeper.round()
                    if found:
                        _log.info(
                            "deleted what nobody uses: %d delays, %d queues of held letters, %d ways back",
                            found.delays,
                            found.held,
                            found.ways,
                        )

    async def mend(self, wanted: Wanted, target: str) -> None:
        """A publish found no queue: a delay nobody declared yet, or something that was deleted."""
        if target.startswith(_LEVEL) and target.removeprefix(_LEVEL).isdecimal():
            await self._one_level(int(target.removeprefix(_LEVEL)))
        elif target.startswith(_ASKED) and target.removeprefix(_ASKED).isdecimal():
            await self._open(level(int(target.removeprefix(_ASKED)), target))
        elif (rung := extra_rung(wanted.queue, target)) is not None:
            await (self._open(rung) if await self._may_ask() else self._by_name(rung))
        elif target in (DUE, PARKED):
            await self._once(target, lambda: self._shared(wanted.rules))
        else:
            await self._once(wanted.queue, lambda: self.lay_again(wanted))

    async def _open(self, queue: Queue) -> None:
        """A delay that was asked for: one of many that ask for it now opens it, for all of them."""
        work = self._opening.get(queue.name)
        if work is None or work.done():
            work = self._opening[queue.name] = asyncio.ensure_future(open_delay(self._link, queue))
            work.add_done_callback(_seen)
        await asyncio.shield(work)

    async def _by_name(self, queue: Queue) -> None:
        async with await self._link.channel() as channel:
            await channel.declare_queue(queue.name, arguments=declared_arguments(queue))

    async def _once(self, what: str, declare: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Whoever comes while it is done, or soon after, has the same answer."""
        now = asyncio.get_running_loop().time()
        mending = self._mendings.get(what)
        if mending is None or now - mending.begun >= MEND_S:
            work = asyncio.ensure_future(declare())
            work.add_done_callback(_seen)
            mending = self._mendings[what] = _Mending(now, work)
        await asyncio.shield(mending.work)

    async def _shared(self, rules: Rules) -> None:
        """What is due, what is parked, the levels: also while the application's own queue is away."""
        self._live = None
        live = await self._look()
        plan = serving(live, levels_ms=_levels_ms(rules), numbered_ms=None)
        await self._declare(plan, live, "what is due, and what is parked,")

    async def _one_level(self, delay_ms: int) -> None:
        queue = level(delay_ms, level_name(delay_ms))
        async with await self._link.channel() as channel:
            await channel.declare_queue(queue.name, arguments={X_QUEUE_TYPE: queue.type, **queue.arguments})


def planned_for(wanted: Wanted, live: Topology | None, version: str = "") -> Plan:
    """The plan of a queue's layout; without the live topology for a broker of this version."""
    return layouts.plan(
        wanted.layout,
        wanted.queue,
        schedule=wanted.rules.schedule,
        version=version if live is None else live.version,
        declare_queue=live is not None and wanted.queue not in live.queues,
        more_levels_ms=_levels_ms(wanted.rules),
        there=None if live is None else wanted.own.foreseen(wanted.queue, live),
        delivery_limit=wanted.own.delivery_limit,
    )


def _levels_ms(rules: Rules) -> set[int]:
    return {ms for schedule in rules.schedules for ms in schedule.levels_ms}


def _seen(work: asyncio.Future[Any]) -> None:
    """Whoever waited for it may be gone, and an error nobody asks for is written to the log by asyncio."""
    if not work.cancelled():
        work.exception()
