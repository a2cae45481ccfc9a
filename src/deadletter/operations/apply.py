"""Bringing a plan to a broker: declare what is missing, migrate what is frozen wrong if that is asked for.

What differs afterwards is said, with the steps. Applying twice changes nothing the second time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from deadletter.amqp.address import Address
from deadletter.broker.declare import DeclaredItem, DeclareOutcome, declare
from deadletter.broker.live_topology import read_topology
from deadletter.broker.session import Link, supervise
from deadletter.core.topology.drift import DifferentQueue, Drift, Interrupted, compare
from deadletter.core.topology.vhost import Topology
from deadletter.move.courier import Terms
from deadletter.operations.migrating.migrate import NotMigrated, Result, migrate
from deadletter.operations.migrating.swap import Listen


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    items: tuple[DeclaredItem, ...]
    migrations: tuple[Result, ...]
    left: tuple[Drift, ...]
    """What still differs."""
    live: Topology
    """The vhost as it is now."""

    @property
    def complete(self) -> bool:
        refused = any(item.outcome is DeclareOutcome.REFUSED for item in self.items)
        stopped = any(isinstance(result, NotMigrated) for result in self.migrations)
        return not self.left and not refused and not stopped


async def apply(
    addresses: Sequence[Address],
    api: str | None,
    plan: Topology,
    live: Topology,
    *,
    migrating: bool,
    terms: Terms = Terms(),  # noqa: B008 -- frozen
    on_event: Listen = lambda _what, _event: None,
) -> Applied:
    """Declare, then migrate. Raises when the broker cannot be reached; a refusal is in the result."""

    async def work(link: Link) -> tuple[DeclaredItem, ...]:
        return await declare(link, api, plan, live, change_policies=migrating)

    items = await supervise(addresses, work)
    results: list[Result] = []
    now = await read_topology(addresses[0], api)
    if migrating:
        # By name: a queue whose migration was interrupted may also be different.
        frozen = {
            found.planned.name: found.planned
            for found in compare(plan, now)
            if isinstance(found, DifferentQueue | Interrupted)
        }
        results = [
            await migrate(addresses, api, queue, terms=terms, on_event=on_event) for queue in frozen.values()
        ]
        if frozen:
            now = await read_topology(addresses[0], api)
            second = await supervise(addresses, lambda link: declare(link, api, plan, now))
            items = tuple(map(_latest, items, second))
            now = await read_topology(addresses[0], api)
    return Applied(items=items, migrations=tuple(results), left=compare(plan, now), live=now)


def _latest(before: DeclaredItem, after: DeclaredItem) -> DeclaredItem:
    """What became of one thing, declared before the migrations and looked at again after them."""
    if after.outcome is not DeclareOutcome.THERE:
        return after
    return (
        replace(before, outcome=DeclareOutcome.CHANGED, why="")
        if before.outcome is DeclareOutcome.DIFFERENT
        else before
    )
