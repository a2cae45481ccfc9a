"""`dlq topology apply --migrate`: a queue gets the arguments it was planned with, and keeps its letters.

The steps, and what a crash after each of them leaves, are told in `core.migration`. There is no journal: what
is on the broker says where an earlier run stopped. The old queue is there: fill the waiting queue, delete the
old. It is not, or it is the new one: declare it, empty the waiting queue into it. So a second run goes on.

Letters go through the courier, confirmed in one queue before they leave the other. A run that was killed
leaves some in both; `service.carry` finds them and sets them aside.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeAlias

from deadletter.amqp.address import Address
from deadletter.amqp.channel import Channel
from deadletter.broker import courier
from deadletter.broker.courier import Terms
from deadletter.broker.declare import put_policy
from deadletter.broker.management import management
from deadletter.broker.removal import delete_classic, delete_quorum
from deadletter.broker.session import Link, supervise
from deadletter.broker.shape import read_topology
from deadletter.core import looking, migration
from deadletter.core.draw.definitions import declared_arguments
from deadletter.core.drift import frozen_differences
from deadletter.core.merging import BrokerPolicy
from deadletter.core.migration import back_name, copies_name, waiting_name
from deadletter.core.topology import Binding, Kind, Queue, Topology, topology
from deadletter.errors import ChannelClosed, ManagementRefused, MoveFailed, WireError
from deadletter.service.carry import Carried, carry, depth_of

SETTLE_S: Final = 6.0
"""The broker counts letters that are neither ready nor ours (unacked elsewhere, held by at-least-once
dead-lettering) every five seconds."""
ROUNDS: Final = 3
"""So often a queue that was unbound and emptied may fill again; then somebody uses it by its name."""
_HARMFUL: Final = frozenset(
    {"message-ttl", "expires", "max-length", "max-length-bytes", "dead-letter-exchange", "delivery-limit"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Migrated:
    """The queue is as planned, and everything is in it."""

    queue: str
    moved: int
    set_aside: int
    """Letters in `copies`, which look like copies that an interrupted run left."""
    copies: str
    maybe_twice: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NotMigrated:
    """It stopped, or did not begin; nothing is lost, and the next run goes on from there."""

    queue: str
    why: str


Result: TypeAlias = Migrated | NotMigrated
Listen = Callable[[str, courier.Event], None]


async def migrate(
    addresses: Sequence[Address],
    api: str | None,
    planned: Queue,
    *,
    terms: Terms = Terms(),  # noqa: B008 -- frozen
    on_event: Listen = lambda _what, _event: None,
) -> Result:
    """Bring one queue to its planned arguments. Raises when the broker cannot be reached."""
    swap = _Swap(addresses, api, planned, terms, on_event)
    try:
        return await swap.run()
    except (ChannelClosed, ManagementRefused, MoveFailed) as error:
        return NotMigrated(queue=planned.name, why=f"{swap.doing}: {error}")


class _Swap:
    def __init__(
        self,
        addresses: Sequence[Address],
        api: str | None,
        planned: Queue,
        terms: Terms,
        on_event: Listen,
    ) -> None:
        self.doing = "looking at what is there"
        self._addresses = addresses
        self._api = api
        self._planned = planned
        self._name = planned.name
        self._waiting = waiting_name(planned.name)
        self._terms = terms
        self._on_event = on_event
        self._carried = Carried()

    async def run(self) -> Result:
        live = await self._look()
        old = live.queues.get(self._name)
        if old is not None and frozen_differences(self._planned, old):
            if why := _obstacle(self._planned, old, live, await self._depths(live)):
                return NotMigrated(queue=self._name, why=why)
            await self._open_waiting(live)
            await self._empty_old(old, live)
        elif self._waiting not in live.queues:
            return self._done()
        await self._fill_new()
        return self._done()

    def _done(self) -> Migrated:
        return Migrated(
            queue=self._name,
            moved=self._carried.moved,
            set_aside=self._carried.set_aside,
            copies=copies_name(self._name),
            maybe_twice=self._carried.maybe_twice,
        )

    # -- the old queue -----------------------------------------------------------------------------------
    async def _open_waiting(self, live: Topology) -> None:
        """Steps 1 and 2. A crash leaves letters that come meanwhile in both queues, never in none."""
        self.doing = f"declaring {self._waiting}"
        await self._guard(live)
        if self._waiting not in live.queues:
            waiting = self._resting(self._waiting, live.version)
            await self._on_channel(lambda channel: _declare(channel, waiting))
        self.doing = f"binding {self._waiting} as {self._name} is bound"
        bound = [b for b in _bindings_of(self._name, live) if b.source != self._way_to(self._name)]
        for binding in bound:
            await self._bind(replace(binding, destination=self._waiting))
        for binding in bound:
            await self._unbind(binding)

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
        if not _harm(queues, live.policies):
            return
        if harm := _harm(queues, [*live.policies, guard]):
            raise MoveFailed(
                f"an operator policy puts limits ({', '.join(harm)}) on {self._waiting}, where letters would "
                "wait, and nothing of ours goes before it: narrow its pattern"
            )
        async with management(self._addresses[0], self._api, need="a policy must be set there") as asked:
            await put_policy(asked, guard)

    async def _empty_old(self, old: Queue, live: Topology) -> None:
        """Steps 3 and 4. A crash leaves letters in either queue; the next run finds those in both."""
        said = ""
        for _ in range(ROUNDS):
            self.doing = f"moving letters from {self._name} to {self._waiting}"
            await self._carry(self._name, self._waiting, live.version)
            await asyncio.sleep(SETTLE_S)
            state = (await self._look()).queues[self._name].state
            assert state is not None
            if state.consumers:
                raise MoveFailed(f"{self._name} has consumers again; stop them and run this again")
            if state.messages == 0 and await depth_of(self._addresses, self._name) == 0:
                break
            said = f"{state.ready} ready, {state.unacked} unacked, {state.messages} in all"
        else:
            raise MoveFailed(
                f"{self._name} does not stay empty ({said}): somebody publishes to it by name, holds letters "
                "of it, or its dead letters find no target; stop that and run this again"
            )
        self.doing = f"deleting {self._name}, which is empty"
        await self._delete(self._name, old.type)

    # -- the new queue -----------------------------------------------------------------------------------
    async def _fill_new(self) -> None:
        """Steps 5 to 8. A crash leaves letters in either queue; those that come meanwhile in both."""
        self.doing = f"declaring {self._name} as planned"
        await self._on_channel(lambda channel: _declare(channel, self._planned))
        self.doing = f"moving letters from {self._waiting} to {self._name}"
        live = await self._look()
        await self._carry(self._waiting, self._name, live.version)
        self.doing = f"binding {self._name} as it was bound"
        bound = [b for b in _bindings_of(self._waiting, live) if b.source != self._way_to(self._waiting)]
        for binding in bound:
            await self._bind(replace(binding, destination=self._name))
        for binding in bound:
            await self._unbind(binding)
        self.doing = f"moving the rest from {self._waiting} to {self._name}"
        await self._carry(self._waiting, self._name, live.version)
        self.doing = f"deleting {self._waiting}, which is empty"
        for exchange in (self._waiting, back_name(self._name)):
            await self._on_channel(partial(_delete_exchange, exchange=exchange))
        await self._delete(self._waiting, live.queues[self._waiting].type)  # last: it is the journal

    async def _depths(self, live: Topology) -> dict[str, int]:
        """How many letters are in the queues this is about; the management API tells it seconds late."""
        asked = (self._name, self._waiting, *migration.feeders(self._name, live))
        return {name: await depth_of(self._addresses, name) for name in asked if name in live.queues}

    # -- small things ------------------------------------------------------------------------------------
    async def _look(self) -> Topology:
        return await read_topology(self._addresses[0], self._api)

    def _resting(self, name: str, version: str) -> Queue:
        """A queue in which nothing happens to a letter."""
        quorum = self._planned.type == "quorum"
        arguments = looking.no_limit_arguments(version) if quorum else {}
        return Queue(name=name, type="quorum" if quorum else "classic", arguments=arguments)

    async def _carry(self, source: str, target: str, version: str) -> None:
        carried = await carry(
            self._addresses,
            source=source,
            target=target,
            by=self._way_to(target),
            copies=self._resting(copies_name(self._name), version),
            terms=self._terms,
            on_event=lambda event: self._on_event(f"{source} → {target}", event),
        )
        self._carried += carried
        if carried.failed:
            reasons = "; ".join(f"{number} × {why}" for why, number in carried.failed.items())
            raise MoveFailed(f"some letters stay in {source}: {reasons}")

    def _way_to(self, queue: str) -> str:
        """The exchange that leads to this one of the two queues alone."""
        return self._waiting if queue == self._waiting else back_name(self._name)

    async def _delete(self, queue: str, kind: str) -> None:
        if kind == "quorum":
            await supervise(self._addresses, lambda link: _delete_quorum(link, queue))
        else:
            await delete_classic(self._addresses[0], self._api, queue)

    async def _bind(self, binding: Binding) -> None:
        await self._on_channel(
            lambda channel: channel.bind_queue(
                binding.destination, binding.source, binding.routing_key, binding.arguments
            )
        )

    async def _unbind(self, binding: Binding) -> None:
        await self._on_channel(
            lambda channel: channel.unbind_queue(
                binding.destination, binding.source, binding.routing_key, binding.arguments
            )
        )

    async def _on_channel(self, work: Callable[[Channel], Awaitable[None]]) -> None:
        async def on(link: Link) -> None:
            channel = await (await link.connection("consume")).channel()
            try:
                await work(channel)
            finally:
                with suppress(WireError):
                    await channel.close()

        await supervise(self._addresses, on)


def _obstacle(planned: Queue, old: Queue, live: Topology, depths: Mapping[str, int]) -> str:
    """Why this migration must not begin; empty: nothing stands against it."""
    name, state = old.name, old.state
    if old.type not in ("classic", "quorum") or planned.type not in ("classic", "quorum"):
        return (
            f"{name} is of type {old.type} and planned as {planned.type}; letters can be moved only between "
            "classic and quorum queues"
        )
    if old.exclusive or old.auto_delete:
        return (
            f"{name} is exclusive or auto-delete: it goes with whoever uses it, and then it can be declared"
        )
    assert state is not None
    if state.consumers:
        who = ", ".join(sorted({consumer.connection or consumer.tag for consumer in state.consumers})[:3])
        return (
            f"{name} has {len(state.consumers)} consumers ({who}); they would lose their queue: stop them "
            "and run this again"
        )
    then = topology(queues=[planned], policies=live.policies).queues[name]
    letters = max(state.messages, depths[name]) + depths.get(waiting_name(name), 0)
    if then.max_length is not None and letters > then.max_length:
        return (
            f"{name} holds {letters} letters and is planned to hold {then.max_length} at most; "
            "take some out first"
        )
    for feeder in migration.feeders(name, live):
        busy = live.queues[feeder].state
        if busy is None or busy.consumers or busy.messages or depths[feeder]:
            return (
                f"dead letters of {feeder} come to {name} by its name and would be lost while it is away; "
                f"stop the consumers of {feeder} and empty it, or let it dead-letter through an exchange"
            )
    return ""


def _harm(queues: Sequence[Queue], policies: Sequence[BrokerPolicy]) -> list[str]:
    """Settings of policies that could destroy letters in these queues."""
    return sorted(
        {
            key
            for queue in topology(queues=queues, policies=policies).queues.values()
            for key, value in queue.effective.items()
            if key in _HARMFUL and not (key == "delivery-limit" and isinstance(value, int) and value < 0)
        }
    )


def _bindings_of(queue: str, live: Topology) -> list[Binding]:
    return [b for b in live.bindings if b.destination == queue and b.to is Kind.QUEUE and b.source]


async def _declare(channel: Channel, queue: Queue) -> None:
    await channel.declare_queue(queue.name, durable=queue.durable, arguments=declared_arguments(queue))


async def _delete_quorum(link: Link, queue: str) -> None:
    await delete_quorum(await link.connection("consume"), queue)


async def _delete_exchange(channel: Channel, *, exchange: str) -> None:
    """One that only we publish to; that it is not there is well."""
    await channel.delete_exchange(exchange)
