"""One queue in the place of another, on the connection that holds the lease for it.

The steps, and what a crash after each of them leaves, are told in `core.topology.migration`. There is no
journal: what is on the broker says where an earlier run stopped. The old queue is there: take the detour,
empty it, delete it. It is not, or it is the new one: come home. What cannot go on comes home to the queue
that is there, so that whoever uses it finds everything as it was.

Letters go through the courier, confirmed in one queue before they leave the other. A run that was killed
leaves some in both; `operations.migrating.carry` finds them and sets them aside.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

from deadletter.amqp.address import Address
from deadletter.amqp.channel import Channel
from deadletter.amqp.connection import Connection
from deadletter.broker.declare import put_policy
from deadletter.broker.live_topology import topology_of
from deadletter.broker.management import Management
from deadletter.broker.queue_removal import delete_empty
from deadletter.core.topology import look_cost, migration
from deadletter.core.topology.definitions import binding_of
from deadletter.core.topology.definitions_export import declared_arguments
from deadletter.core.topology.drift import frozen_differences, same_binding
from deadletter.core.topology.merging import BrokerPolicy
from deadletter.core.topology.migration import (
    copies_name,
    detour_name,
    harm,
    obstacle,
    trial_name,
    waiting_name,
)
from deadletter.core.topology.vhost import Binding, Queue, Topology, topology
from deadletter.errors import (
    ChannelClosed,
    ConnectionLost,
    ManagementRefused,
    MoveFailed,
    PreconditionFailed,
    WireError,
)
from deadletter.move import courier
from deadletter.move.courier import Terms
from deadletter.operations.migrating.carry import Carried, carry, depth_of

NEED: Final = "bindings and depths are told there: give its address (DLQ_API, --api)"
SETTLE_S: Final = 6.0
"""The broker counts letters that are neither ready nor ours (unacked elsewhere, held by at-least-once
dead-lettering) every five seconds."""
ROUNDS: Final = 3
"""So often a queue that was unbound and emptied may fill again; then somebody uses it by its name."""

Listen = Callable[[str, courier.MoveEvent], None]
_REFUSALS: Final = (ChannelClosed, ManagementRefused, MoveFailed)


class _Bound(NamedTuple):
    """A binding as it is: the key tells it from one whose arguments differ in their AMQP types alone."""

    binding: Binding
    key: str


class Swap:
    """`run` it once."""

    def __init__(
        self,
        connection: Connection,
        asked: Management,
        addresses: Sequence[Address],
        planned: Queue,
        *,
        terms: Terms,
        on_event: Listen,
    ) -> None:
        self.doing: str = "looking at what is there"
        self.carried: Carried = Carried()
        self.gone: int = 0
        self._connection = connection
        self._asked = asked
        self._addresses = addresses
        self._planned = planned
        self._name = planned.name
        self._waiting = waiting_name(planned.name)
        self._detour = detour_name(planned.name)
        self._terms = terms
        self._on_event = on_event
        self._resumed = False
        """Whether an earlier run began: then letters may be in both queues."""
        self._doubled = False
        """Whether both queues were bound at once."""

    async def run(self) -> None:
        """Raises MoveFailed, ChannelClosed or ManagementRefused when it cannot be, with what was found put
        back; and ConnectionLost, with the lease."""
        live = await self._look()
        old = live.queues.get(self._name)
        self._resumed = self._waiting in live.queues
        if old is None or not frozen_differences(self._planned, old):
            if self._resumed:
                await self._come_home(self._planned)
            return
        try:
            if why := obstacle(self._planned, old, live, await self._depths(live)):
                raise MoveFailed(why)
            await self._take_detour(live)
            await self._empty(old)
            self.doing = f"deleting {self._name}, which is empty"
            self.gone = await self._on_channel(partial(delete_empty, queue=old))
            await self._come_home(self._planned)
        except _REFUSALS as error:
            await self._put_back(old, error)
            raise

    async def _put_back(self, old: Queue, error: Exception) -> None:
        """Everything as it was, as far as it is not already."""
        live = await self._look()
        if self._waiting not in live.queues:
            return
        failed_at = self.doing
        there = live.queues.get(self._name, old)
        try:
            await self._come_home(there)
        except _REFUSALS as second:
            raise MoveFailed(
                f"{error}; and not all of it could be put back ({self.doing}: {second}); nothing is lost: "
                f"what is not in {self._name} is in {self._waiting}; run this again"
            ) from error
        self.doing = failed_at
        raise MoveFailed(f"{error}; everything was put back as it was") from error

    # -- away --------------------------------------------------------------------------------------------
    async def _take_detour(self, live: Topology) -> None:
        """Steps 1 to 3: letters that come go to the waiting queue, each to one of the two."""
        self.doing = f"declaring {self._waiting}"
        await self._guard(live)
        await self._try_planned()
        await self._lay(live)
        self.doing = f"binding {self._detour} as {self._name} is bound"
        # Bound by name while letters go to the waiting queue, or both bound: some came to both.
        home = any((b.source, b.destination) == (self._detour, self._name) for b in live.bindings)
        led_away = self._detour in live.exchanges and not home
        self._doubled |= led_away and bool(await self._bound(self._name, "queue"))
        self._doubled |= all([await self._bound(name, "queue") for name in (self._name, self._waiting)])
        await self._on_channel(lambda channel: channel.bind_queue(self._name, self._detour))
        await self._gather(self._name)
        await self._gather(self._waiting)
        await self._check_detour()
        self.doing = f"unbinding {self._name} from {self._detour}"
        await self._on_channel(lambda channel: channel.unbind_queue(self._name, self._detour))

    async def _guard(self, live: Topology) -> None:
        """No policy of others may put a limit on letters that wait."""
        queues = [self._resting(name, live.version) for name in (self._waiting, copies_name(self._name))]
        guard = BrokerPolicy(
            name=migration.GUARD,
            pattern=migration.GUARD_PATTERN,
            definition={"overflow": "reject-publish"},
            apply_to="queues",
            priority=migration.GUARD_PRIORITY,
        )
        if not harm(queues, live.policies):
            return
        if harmful := harm(queues, [*live.policies, guard]):
            raise MoveFailed(
                f"an operator policy puts limits ({', '.join(harmful)}) on {self._waiting}, where letters "
                "would wait, and nothing of ours goes before it: narrow its pattern"
            )
        await put_policy(self._asked, guard)

    async def _try_planned(self) -> None:
        """What the broker does not take is known before the old queue is gone."""
        name = trial_name(self._name)
        arguments = declared_arguments(self._planned)

        async def trial(channel: Channel) -> None:
            await channel.delete_queue(name)  # of a run that was killed here
            await channel.declare_queue(name, durable=self._planned.durable, arguments=arguments)
            await channel.delete_queue(name)

        await self._on_channel(trial)

    async def _lay(self, live: Topology) -> None:
        """The waiting queue, the exchange that leads to it, and the detour, which falls back on that one."""

        async def lay(channel: Channel) -> None:
            if self._waiting not in live.queues:
                await _declare(channel, self._resting(self._waiting, live.version))
            await channel.declare_exchange(self._waiting, "fanout")
            await channel.bind_queue(self._waiting, self._waiting)
            alternate = {"alternate-exchange": self._waiting}
            await channel.declare_exchange(self._detour, "fanout", arguments=alternate)

        await self._on_channel(lay)

    async def _gather(self, queue: str) -> None:
        """Bind the detour as this queue is bound, then unbind the queue."""
        bound = await self._bound(queue, "queue")
        for one in bound:
            await self._on_channel(partial(_bind_exchange, target=self._detour, binding=one.binding))
        self._check_all(bound, await self._bound(self._detour, "exchange"), self._detour)
        for one in bound:
            await self._asked.delete("bindings", "e", one.binding.source, "q", queue, one.key)

    async def _check_detour(self) -> None:
        """Before letters take it: it falls back on the waiting queue, and nobody else leads to the old."""
        live = await self._look()
        waits = any(b.source == b.destination == self._waiting for b in live.bindings)
        detour = live.exchanges.get(self._detour)
        if detour is None or detour.alternate != self._waiting or not waits:
            raise MoveFailed(f"{self._detour} does not lead to {self._waiting}; somebody changed it")
        if left := await self._bound(self._name, "queue"):
            sources = ", ".join(sorted({one.binding.source for one in left}))
            raise MoveFailed(f"{self._name} is still bound to {sources}; somebody binds it again: stop that")

    async def _empty(self, old: Queue) -> None:
        """Step 4. A crash leaves letters in either queue; the next run finds those in both."""
        said = ""
        for _ in range(ROUNDS):
            self.doing = f"moving letters from {self._name} to {self._waiting}"
            await self._carry(self._name, self._waiting, by=self._waiting)
            await asyncio.sleep(SETTLE_S)
            found = (await self._look()).queues.get(self._name)
            if found is None:
                return  # somebody deleted it
            if frozen_differences(old, found):
                raise MoveFailed(f"{self._name} is no longer the queue it was; somebody replaced it")
            assert found.state is not None
            if found.state.consumers:
                raise MoveFailed(f"{self._name} has consumers again; stop them and run this again")
            if await self._bound(self._name, "queue"):
                self._doubled = True
                await self._gather(self._name)
            elif found.state.messages == 0 and await depth_of(self._addresses, self._name) == 0:
                return
            state = found.state
            said = f"{state.ready} ready, {state.unacked} unacked, {state.messages} in all"
        raise MoveFailed(
            f"{self._name} does not stay empty ({said}): somebody publishes to it by its name, holds letters "
            "of it, or its dead letters find no target; stop that and run this again"
        )

    # -- home --------------------------------------------------------------------------------------------
    async def _come_home(self, queue: Queue) -> None:
        """Steps 6 to 10, to this queue; to the one that is there, where somebody declared another."""
        self.doing = f"declaring {self._name}"
        refused: PreconditionFailed | None = None
        try:
            await self._on_channel(lambda channel: _declare(channel, queue))
        except PreconditionFailed as error:
            refused = error
        live = await self._look()
        await self._lay(live)
        self.doing = f"binding {self._name} to {self._detour}"
        await self._on_channel(lambda channel: channel.bind_queue(self._name, self._detour))
        await self._gather(self._waiting)
        await self._fill(live)
        self.doing = f"binding {self._name} as it was bound"
        await self._scatter()
        self.doing = f"deleting {self._waiting}, which is empty"
        for exchange in (self._detour, self._waiting):
            await self._on_channel(partial(_delete_exchange, exchange=exchange))
        waiting = live.queues.get(self._waiting) or self._resting(self._waiting, live.version)
        await self._on_channel(partial(delete_empty, queue=waiting))  # last: it is the journal
        if refused is not None:
            raise MoveFailed(
                f"somebody declared {self._name} meanwhile, otherwise than planned ({refused.text}); its "
                "letters are in it: let whoever does it declare it as planned, and run this again"
            ) from refused

    async def _fill(self, live: Topology) -> None:
        """Step 8. Nothing new comes into the waiting queue: this ends."""
        for _ in range(ROUNDS):
            self.doing = f"moving letters from {self._waiting} to {self._name}"
            await self._check_room(live)
            await self._carry(self._waiting, self._name, by=self._detour)
            await asyncio.sleep(SETTLE_S)
            live = await self._look()
            found = live.queues.get(self._waiting)
            state = None if found is None else found.state
            if (state is None or state.messages == 0) and not await depth_of(self._addresses, self._waiting):
                return
        raise MoveFailed(f"{self._waiting} does not become empty: somebody holds letters of it; stop that")

    async def _check_room(self, live: Topology) -> None:
        """A queue that drops what does not fit is not given more than fits."""
        into = live.queues.get(self._name) or self._planned
        then = topology(queues=[into], policies=live.policies).queues[self._name]
        waiting = await depth_of(self._addresses, self._waiting)
        letters = waiting + await depth_of(self._addresses, self._name)
        most = then.max_length if waiting and then.overflow == "drop-head" else None
        if most is not None and letters > most:
            raise MoveFailed(
                f"{waiting} letters wait, and {self._name} holds {most} at most and would drop others; take "
                f"some out of it, or out of {self._waiting}, and run this again"
            )

    async def _scatter(self) -> None:
        """Bind the queue as the detour is bound; when it has every binding, unbind the detour."""
        recorded = await self._bound(self._detour, "exchange")
        for one in recorded:
            await self._on_channel(partial(_bind_queue, queue=self._name, binding=one.binding))
        self._check_all(recorded, await self._bound(self._name, "queue"), self._name)
        for one in recorded:
            await self._asked.delete("bindings", "e", one.binding.source, "e", self._detour, one.key)

    # -- small things ------------------------------------------------------------------------------------
    async def _look(self) -> Topology:
        return await topology_of(self._asked, self._connection.address)

    async def _depths(self, live: Topology) -> dict[str, int]:
        """How many letters are in the queues this is about; the management API tells it seconds late."""
        asked = (self._name, self._waiting, *migration.feeders(self._name, live))
        return {name: await depth_of(self._addresses, name) for name in asked if name in live.queues}

    async def _bound(self, destination: str, kind: str) -> list[_Bound]:
        """How others bound it; our own two exchanges left out."""
        return [
            _Bound(binding_of(item), str(item["properties_key"]))
            for item in await self._asked.get("bindings")
            if (item["destination"], item["destination_type"]) == (destination, kind)
            and item["source"] not in ("", self._waiting, self._detour)
        ]

    def _check_all(self, wanted: Sequence[_Bound], there: Sequence[_Bound], name: str) -> None:
        for one in wanted:
            if not any(same_binding(one.binding, other.binding) for other in there):
                raise MoveFailed(f"{name} is not bound to {one.binding.source} although it was bound")

    def _resting(self, name: str, version: str) -> Queue:
        """A queue in which nothing happens to a letter."""
        quorum = self._planned.type == "quorum"
        arguments = look_cost.no_limit_arguments(version) if quorum else {}
        return Queue(name=name, type="quorum" if quorum else "classic", arguments=arguments)

    async def _carry(self, source: str, target: str, *, by: str) -> None:
        version = self._connection.server_version
        carried = await self._while_held(
            carry(
                self._addresses,
                source=source,
                target=target,
                by=by,
                copies=self._resting(copies_name(self._name), version),
                resumed=self._resumed,
                doubled=self._doubled,
                terms=self._terms,
                on_event=lambda event: self._on_event(f"{source} → {target}", event),
            )
        )
        self.carried += carried
        if carried.failed:
            reasons = "; ".join(f"{number} × {why}" for why, number in carried.failed.items())
            raise MoveFailed(f"some letters stay in {source}: {reasons}")

    async def _while_held(self, work: Coroutine[Any, Any, Carried]) -> Carried:
        """The courier has connections of its own; it stops when the one that holds the lease is lost."""
        task = asyncio.ensure_future(work)
        lost = asyncio.ensure_future(_ended(self._connection))
        try:
            await asyncio.wait({task, lost}, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            raise ConnectionLost(f"the lease for {self._name} is lost: {lost.result()}")
        finally:
            for one in (task, lost):
                one.cancel()
            await asyncio.gather(task, lost, return_exceptions=True)

    async def _on_channel(self, work: Callable[[Channel], Awaitable[Any]]) -> Any:
        async with await self._connection.channel() as channel:
            return await work(channel)


async def _ended(connection: Connection) -> WireError:
    return await connection.closed


async def _declare(channel: Channel, queue: Queue) -> None:
    await channel.declare_queue(queue.name, durable=queue.durable, arguments=declared_arguments(queue))


async def _bind_queue(channel: Channel, *, queue: str, binding: Binding) -> None:
    await channel.bind_queue(queue, binding.source, binding.routing_key, binding.arguments)


async def _bind_exchange(channel: Channel, *, target: str, binding: Binding) -> None:
    await channel.bind_exchange(target, binding.source, binding.routing_key, binding.arguments)


async def _delete_exchange(channel: Channel, *, exchange: str) -> None:
    """One that only we publish to; that it is not there is well."""
    await channel.delete_exchange(exchange)
