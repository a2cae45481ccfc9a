"""One vhost and all that is done in it: dead-letter queues are found and taken from, due letters released.

Its life on one connection (`on`): declare what is ours, look around, start a loop for each watched queue and
each queue of due letters, and then look around again and again; new queues get a loop, held letters somebody
who lets them through. When the connection is lost everything here ends, nothing is lost, and the next
connection begins with the same loops.

What the parts are for: `intake.sorting` decides, `guarding.guarded_release` sends home, `guarding.gates`
guards, `sweeps` keeps time, `survey` looks, `own_topology.custody` sees whether letters are safe,
`telling.fate_counter` counts, `queue_workers` has a loop for each queue, `storing` brings parked letters into
the store. This module only puts them together.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from deadletter.amqp.address import Address
from deadletter.broker.management import Management, management
from deadletter.broker.return_exchanges import WaysBack
from deadletter.broker.session import Link
from deadletter.config.settings import Settings
from deadletter.core.deciding.letter_fate import LetterFate
from deadletter.core.deciding.policy import Policies
from deadletter.core.deciding.states import Step
from deadletter.core.guards.health import OriginState
from deadletter.core.layouts.naming import DUE, held_name
from deadletter.core.layouts.service import serving
from deadletter.core.topology import look_cost
from deadletter.core.topology.look_cost import Deliveries
from deadletter.errors import (
    CannotConnect,
    ConnectionLost,
    DeadletterError,
    ManagementRefused,
    ServiceRefused,
)
from deadletter.move.asked_limits import by_default
from deadletter.service.guarding.gates import Gates
from deadletter.service.guarding.origin_looks import look_at_origins
from deadletter.service.intake.condition_batches import Asker
from deadletter.service.intake.conditions import Conditions
from deadletter.service.intake.lookout import Lookout
from deadletter.service.own_topology import policy_events
from deadletter.service.own_topology.custody import Custody, Safety
from deadletter.service.own_topology.declared import OwnTopology
from deadletter.service.own_topology.tidying import tidy
from deadletter.service.own_topology.vigil import Vigil
from deadletter.service.policies_in_force import PolicySource
from deadletter.service.queue_workers import QueueWorkers
from deadletter.service.replaying.replayer import Replayer
from deadletter.service.storing.store_lines import StoreLines
from deadletter.service.storing.storekeeper import Storekeeper
from deadletter.service.survey import Sight, Surveyor
from deadletter.service.sweeps import Swept
from deadletter.service.task_set import TaskSet
from deadletter.service.telling.fate_counter import FateCounter
from deadletter.service.telling.instance_news import InstanceNews
from deadletter.service.telling.service_events import Recovered, ServiceEvent, Trouble

NEED: Final = (
    "the service learns there which queues exist, and sets the policy that keeps letters safe: "
    "give its address (DLQ_API, [broker] api)"
)
FIRST_LOOK_S: Final = 30.0
GIVE_BACK_S: Final = 5.0
"""Of the time for an orderly end so much is kept, at most half of it, to give letters back in good order."""


class VhostWorker:
    """Of one vhost. `on` it for each link; `stop` ends it in good order."""

    def __init__(
        self,
        settings: Settings,
        address: Address,
        source: PolicySource,
        emit: Callable[[ServiceEvent], None],
        *,
        keeper: Storekeeper | None = None,
        each: bool = False,
        worked: bool = False,
        alone: bool = True,
        on_ready: Callable[[], None] = lambda: None,
    ) -> None:
        self.address = address
        self._settings = settings
        self._watches = [watch for watch in settings.watches if watch.vhost == address.vhost]
        self._source = source
        self._emit = emit
        self._stopping = asyncio.Event()
        self._look_now = asyncio.Event()
        self.ready: asyncio.Event = asyncio.Event()
        self.gates: Gates = Gates(settings.guards, source.current, emit)
        self.news: InstanceNews = InstanceNews(self.gates.hear)
        self.gates.on_news = self.news.tell
        self.fates: FateCounter = FateCounter(emit, self._on_confirmed)
        self.ways: WaysBack = WaysBack(self._lay_ground, self._on_origin)
        self._conditions = Conditions(emit=emit)
        self.store_lines: StoreLines = StoreLines(
            settings.desk.in_vhost(address.vhost),
            keeper,
            vhost=address.vhost,
            fates=self.fates,
            limits=self._deliveries,
            emit=emit,
        )
        self._surveyor = Surveyor(address, self._watches, emit, stored=self.store_lines.queues)
        self.replayer: Replayer = Replayer(
            keeper,
            vhost=address.vhost,
            alone=alone,
            ways=self.ways,
            gates=self.gates,
            unacked=self._surveyor.in_hand,
            schemas=settings.desk.schemas,
            emit=emit,
        )
        self._lookout = Lookout(self._look_now.set)
        self._custody = Custody(emit)
        self._vigil: Vigil | None = None
        self.queue_workers: QueueWorkers = QueueWorkers(
            settings,
            self._watches,
            source,
            gates=self.gates,
            ways=self.ways,
            fates=self.fates,
            asker=Asker(self._conditions),
            limits=self._deliveries,
            emit=emit,
            each=each,
            look_afresh=self._lookout.look_afresh,
        )
        self._link: Link | None = None
        self._own_topology: OwnTopology | None = None
        self._been_ready = worked
        """Also in an earlier life, before a reload: what worked once is worth another try."""
        self._on_ready = on_ready
        self._api_away = False
        source.on_change.append(self._on_policies)

    # -- life --------------------------------------------------------------------------------------------
    def stop(self) -> None:
        """Take no more, finish what is under way."""
        self._stopping.set()

    async def on(self, link: Link) -> None:
        """On this link until it is stopped. Raises when the connection is lost, or when it may not go on.

        Once it was ready it may always go on later: a right that is missing now may be given again.
        """
        try:
            await self._on(link)
        except ConnectionLost:
            raise
        except DeadletterError as error:
            if not self._been_ready or isinstance(error, CannotConnect):
                raise
            raise ConnectionLost(str(error)) from error

    async def _on(self, link: Link) -> None:
        self._link = link
        self.ways.renew(link)
        task_set = TaskSet()
        self.queue_workers.renew(link, task_set, (await link.connection("consume")).server_version)
        async with management(self.address, self._settings.broker.api, need=NEED) as asked:
            self.store_lines.renew(link, task_set, asked)
            try:
                await self._begin(link, asked, task_set)
                await self._until_stopped(task_set)
            finally:
                self.ready.clear()
                await task_set.dismiss()
                self.fates.tell()
                self._link = None

    async def close(self) -> None:
        if self._on_policies in self._source.on_change:
            self._source.on_change.remove(self._on_policies)
            self.store_lines.close()
        await self._conditions.close()
        await self.replayer.close()

    async def _begin(self, link: Link, asked: Management, task_set: TaskSet) -> None:
        self._own_topology = OwnTopology(link, asked, self._settings, self._emit)
        self._vigil = Vigil(link)
        await asyncio.to_thread(self.queue_workers.study)
        sight = await self._lay(asked, await self._first_look(asked))
        safety = await self._take_care(asked, sight)
        if (safety.threats or safety.refusing) and not self._been_ready:
            raise ServiceRefused(f"letters would not be safe in our queues: {safety.why}")
        sight = await self._take_off_limits(asked, sight)
        await self.news.on(link)
        await policy_events.listen(link, sight.shape, self._look_now.set)
        self._take_up(sight)
        task_set.start(self.fates.run())
        task_set.start(self._look_around(asked))
        task_set.start(look_at_origins(self.gates, self.ways))
        task_set.start(self.replayer.on(link))
        task_set.start(tidy(link, asked, self._settings.serve, self._emit))
        self._been_ready = True
        self.ready.set()
        self._on_ready()

    async def _lay(self, asked: Management, sight: Sight) -> Sight:
        """Declare what is missing; what is to be seen then."""
        assert self._own_topology is not None
        levels_ms, numbered_ms = self.queue_workers.levels_ms(), self.queue_workers.numbered_ms()
        laid = await self._own_topology.lay(
            sight.shape, levels_ms, numbered_ms, lambda: self._surveyor.look_again(asked)
        )
        return laid or sight

    async def _take_off_limits(self, asked: Management, sight: Sight) -> Sight:
        assert self._own_topology is not None
        changed = await self._own_topology.take_off_limits(sight, self.store_lines.queues)
        return await self._surveyor.look_again(asked) if changed else sight

    def _take_up(self, sight: Sight) -> None:
        self.queue_workers.take_up(sight)
        self.queue_workers.release()
        self.store_lines.take_up(sight)

    async def _take_care(self, asked: Management, sight: Sight) -> Safety:
        """Whether letters are safe in our queues; where not, nobody brings any there."""
        assert self._vigil is not None
        plan = serving(
            sight.shape,
            levels_ms=self.queue_workers.levels_ms(),
            numbered_ms=self.queue_workers.numbered_ms(),
        )
        safety = await self._custody.look(asked, sight, plan)
        self.queue_workers.heed(safety)
        await self._vigil.over(safety.expiring & sight.shape.queues.keys())
        return safety

    async def _first_look(self, asked: Management) -> Sight:
        """The management API may come up a little later than the broker itself."""
        loop = asyncio.get_running_loop()
        until = loop.time() + FIRST_LOOK_S
        while True:
            try:
                sight = await self._surveyor.look(asked)
            except ManagementRefused as error:
                if loop.time() >= until:
                    raise
                self._api_fails(str(error), 1.0)
                await asyncio.sleep(1.0)
            else:
                self._api_works()
                return sight

    def _api_fails(self, why: str, seconds: float) -> None:
        self._api_away = True
        self._emit(Trouble(what="management", why=why, seconds=seconds))

    def _api_works(self) -> None:
        if self._api_away:
            self._api_away = False
            self._emit(Recovered(what="management"))

    async def _until_stopped(self, task_set: TaskSet) -> None:
        stopped = asyncio.ensure_future(self._stopping.wait())
        failed = asyncio.ensure_future(task_set.wait())
        try:
            await asyncio.wait({stopped, failed}, return_when=asyncio.FIRST_COMPLETED)
            if failed.done():
                failed.result()
        finally:
            stopped.cancel()
            failed.cancel()
        await self._finish()

    async def _finish(self) -> None:
        """What is under way, within the time for it. A broker that does not answer, or accepts nothing, does
        not make it longer: near its end letters are given back, and at its end the line is cut."""
        assert self._link is not None
        grace_s = self._settings.serve.grace_ms / 1000
        cut = ConnectionLost("the time for an orderly end was over")
        asyncio.get_running_loop().call_later(grace_s, self._link.abort, cut)
        working = [*self.queue_workers.stop(), *self.store_lines.stop(), *self.replayer.stop()]
        if not working:
            return
        _, late = await asyncio.wait(working, timeout=max(grace_s - GIVE_BACK_S, grace_s / 2))
        if late:
            self._emit(Trouble(what="stop", why="letters were still under way when the time for it was over"))

    # -- looking around ----------------------------------------------------------------------------------
    async def _look_around(self, asked: Management) -> None:
        while True:
            try:
                async with asyncio.timeout(self._settings.serve.survey_ms / 1000):
                    await self._look_now.wait()
            except TimeoutError:
                pass
            self._look_now.clear()
            look = await self._lookout.begin()
            try:
                sight = await self._surveyor.look(asked, anew=look.anew)
                await self._take_care(asked, sight)
                sight = await self._take_off_limits(asked, await self._lay(asked, sight))
            except (ManagementRefused, ServiceRefused) as error:
                self._api_fails(str(error), self._settings.serve.survey_ms / 1000)
                continue
            self._api_works()
            self._take_up(sight)
            look.ended()
            self._tell_gates(sight)

    def _tell_gates(self, sight: Sight) -> None:
        due = sight.shape.queues.get(DUE)
        if due is not None and due.state is not None and due.state.consumer_count:
            self.gates.share_among(due.state.consumer_count)
        for origin in self.gates.origins:
            queue = sight.shape.queues.get(origin)
            if queue is not None and queue.state is not None:
                self.gates.traffic(origin, queue.state.published_per_s)
        for seen in self.gates.budgets():
            self._emit(seen)

    def _on_origin(self, origin: str, state: OriginState) -> None:
        sight = self._surveyor.sight
        limits = sight.limits.get(origin) if sight is not None else None
        if limits is not None:
            state = replace(state, max_length=limits.max_length, drops_head=limits.drops_head)
        self.gates.observe(origin, state)

    # -- policies ----------------------------------------------------------------------------------------
    def _on_policies(self, policies: Policies) -> None:
        """The new levels are declared first; until then the old policies decide."""
        self.gates.use(self._settings.guards, policies)
        if self._link is not None:
            task = asyncio.ensure_future(self._take_over())
            task.add_done_callback(self._took_over)

    async def _take_over(self) -> None:
        await asyncio.to_thread(self.queue_workers.study)
        await self._lay_ground()
        self.queue_workers.instruct()

    def _took_over(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._emit(Trouble(what="policies", why=f"the new policies are not in force yet: {error}"))
            self._look_now.set()

    async def _lay_ground(self) -> None:
        if self._own_topology is None:
            raise ConnectionLost("no connection to the broker")
        await self._own_topology.lay(None, self.queue_workers.levels_ms(), self.queue_workers.numbered_ms())

    async def _deliveries(self, link: Link, queue: str) -> Deliveries:
        """How this queue counts deliveries, as it was seen last."""
        sight = self._surveyor.sight
        if sight is None or queue not in sight.shape.queues:
            return await by_default(link, queue)
        version = (await link.connection("consume")).server_version
        return look_cost.deliveries_there(sight.shape.queues[queue], version)

    # -- what happened -----------------------------------------------------------------------------------
    def _on_confirmed(self, fates: Mapping[LetterFate, int]) -> None:
        held: set[str] = set()
        for fate in fates:
            if fate.step is Step.RELEASED:
                self.gates.accepted(fate.origin)
            elif fate.step is Step.HELD:
                held.add(fate.gate)
        if held and self.ready.is_set():
            # The broker's figures are five seconds old, and by then a breaker's probe may be overdue.
            for gate in held:
                self.queue_workers.hold(held_name(gate))
            self._look_now.set()

    def knows(self, queue: str) -> bool:
        """Whether a watch of this vhost looks after it."""
        return queue in self.queue_workers.sweepers or self.queue_workers.takes(queue)

    async def sweep(self, dlqs: Sequence[str], why: str) -> list[Swept]:
        """Sweep these now; all that are swept at all when none is named."""
        link = self._link
        names = list(dlqs) or list(self.queue_workers.sweepers)
        if link is None:
            return [Swept(dlq=name, refused="the broker cannot be reached now") for name in names]
        return [await self._sweep(name, link, why) for name in names]

    async def _sweep(self, name: str, link: Link, why: str) -> Swept:
        sweeper = self.queue_workers.sweepers.get(name)
        if sweeper is None:
            if self.queue_workers.takes(name):
                return Swept(dlq=name, refused="it is watched with mode consume: letters are taken at once")
            return Swept(dlq=name, refused="no watch looks after it")
        try:
            return await sweeper.sweep(link, why)
        except DeadletterError as error:
            return Swept(dlq=name, refused=str(error))
