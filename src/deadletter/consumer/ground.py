"""The ground a consumer stands on: the exchanges and queues of its layouts, declared, or known to be there.

Declaring sets policies, and that takes the management API. Where it cannot be reached nothing is declared and
nothing is guessed: if all queues of the layout are there the consumer goes on and says so; if one is missing
it says which, and how somebody with the rights makes it (`dlq topology apply`).
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from deadletter.broker.declare import Outcome, declare
from deadletter.broker.memory.laying import lay, shape_of
from deadletter.broker.session import Link
from deadletter.broker.shape import read_topology
from deadletter.consumer.paths import Paths, Way
from deadletter.core import layouts
from deadletter.core.layouts.naming import level_name
from deadletter.core.layouts.serving import level
from deadletter.core.plan import Plan as Layout
from deadletter.core.topology import Topology
from deadletter.errors import ManagementRefused, NotFound, QueueMissing, ServiceRefused, WireError

if TYPE_CHECKING:
    from deadletter.broker.memory import MemoryBroker
    from deadletter.consumer.app import Desk

_LEVEL: Final = level_name(0).removesuffix("0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Laid:
    """What was declared for a queue, or found."""

    paths: Paths
    notes: tuple[str, ...] = ()


class Ground:
    """On one link."""

    def __init__(self, link: Link, api: str | None, memory: MemoryBroker | None = None) -> None:
        self._link = link
        self._api = api
        self._memory = memory
        """In an application's tests: the broker itself, which has no management API and needs none."""
        self._live: Topology | None = None

    async def lay(self, desk: Desk) -> Laid:
        """Declare the layout of a queue. Raises when it cannot be, with what to do."""
        queue = desk.plan.queue
        if desk.layout == "external":
            await self._must_be([queue])
            if self._memory is not None:
                return Laid(paths=Paths(Way.EXTERNAL, queue))
            return Laid(paths=Paths(Way.EXTERNAL, queue), notes=await self._leads_somewhere(queue))
        if self._memory is not None:
            plan = self._plan(desk, shape_of(self._memory))
            await lay(self._memory, self._link, plan.topology)
            return Laid(paths=Paths(Way(plan.layout), queue), notes=plan.notes)
        try:
            live = self._live = self._live or await read_topology(self._link.address, self._api)
        except ManagementRefused as error:
            return await self._found(desk, error)
        plan = self._plan(desk, live)
        items = await declare(self._link, self._api, plan.topology, live, change_policies=True)
        refused = [item for item in items if item.outcome is Outcome.REFUSED]
        if refused:
            told = "; ".join(f"{item.subject}: {item.why}" for item in refused[:5])
            raise ServiceRefused(f"the layout {plan.layout} of {queue} could not be declared: {told}")
        self._live = None  # it changed
        return Laid(paths=Paths(Way(plan.layout), queue), notes=plan.notes)

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

    def _plan(self, desk: Desk, live: Topology | None, version: str | None = None) -> Layout:
        rules = desk.handler.rules
        return layouts.plan(
            desk.layout,
            desk.plan.queue,
            schedule=rules.schedule,
            version=live.version if live is not None else version or "",
            declare_queue=live is not None and desk.plan.queue not in live.queues,
            in_consumer=True,
            more_levels_ms={ms for schedule in rules.schedules for ms in schedule.levels_ms},
            there=live,
        )

    async def _found(self, desk: Desk, error: ManagementRefused) -> Laid:
        """Nothing can be declared; see whether it is all there."""
        version = (await self._link.connection("consume")).server_version
        plan = self._plan(desk, None, version)
        try:
            await self._must_be([desk.plan.queue, *plan.topology.queues])
        except QueueMissing as missing:
            raise ServiceRefused(
                f"{missing.queue!r} of layout {plan.layout} is missing and cannot be declared: {error}; give "
                f"Consumer(api=…), or let somebody run: dlq topology apply --layout {plan.layout} "
                f"--queue {desk.plan.queue}"
            ) from error
        note = f"the management API cannot be asked, so policies were not checked: {error}"
        return Laid(paths=Paths(Way(plan.layout), desk.plan.queue), notes=(note, *plan.notes))

    async def _must_be(self, queues: Iterable[str]) -> None:
        for queue in queues:
            channel = await (await self._link.connection("declare")).channel()
            try:
                await channel.declare_queue(queue, passive=True)
            except NotFound:
                raise QueueMissing(queue, self._link.address.vhost) from None
            finally:
                with suppress(WireError):
                    await channel.close()

    async def lay_again(self, desk: Desk) -> Laid:
        """Once more, for a queue that somebody deleted and declared: by itself it is not declared again."""
        self._live = None
        await self._must_be([desk.plan.queue])
        return await self.lay(desk)

    async def mend(self, desk: Desk, target: str) -> None:
        """A publish found no queue: a delay nobody declared yet, or something that was deleted."""
        self._live = None
        if target.startswith(_LEVEL) and target.removeprefix(_LEVEL).isdecimal():
            await self._one_level(int(target.removeprefix(_LEVEL)))
            return
        await self.lay(desk)

    async def _one_level(self, delay_ms: int) -> None:
        channel = await (await self._link.connection("declare")).channel()
        queue = level(delay_ms)
        try:
            await channel.declare_queue(queue.name, arguments={"x-queue-type": queue.type, **queue.arguments})
        finally:
            with suppress(WireError):
                await channel.close()
