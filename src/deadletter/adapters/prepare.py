"""The ground an adapter stands on: the queues of its layout, declared before the first message comes.

Once when the application starts, or when it is deployed; while it runs an adapter declares nothing. Declaring
sets policies, and that takes the management API. Where it cannot be asked nothing is declared and nothing is
guessed: if all queues are there it goes on and says so, if one is missing it says which, and what to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from deadletter.adapters.terms import LayoutName, Terms
from deadletter.amqp.address import parse_addresses
from deadletter.broker.declare import Outcome, declare
from deadletter.broker.session import Link, supervise
from deadletter.broker.shape import read_topology
from deadletter.consumer.outcomes import Rules
from deadletter.core import layouts
from deadletter.core.plan import Plan
from deadletter.core.topology import Topology
from deadletter.errors import ManagementRefused, NotFound, QueueMissing, ServiceRefused, WireError


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """What was declared, or found."""

    queue: str
    layout: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wish:
    api: str | None
    queue: str
    layout: LayoutName
    rules: Rules

    def plan(self, live: Topology | None, version: str) -> Plan:
        return layouts.plan(
            self.layout,
            self.queue,
            schedule=self.rules.schedule,
            version=version,
            declare_queue=live is not None and self.queue not in live.queues,
            in_consumer=True,
            more_levels_ms={ms for schedule in self.rules.schedules for ms in schedule.levels_ms},
            there=live,
        )


async def prepare(
    url: str, *, api: str | None = None, queue: str, layout: LayoutName, rules: Rules
) -> Prepared:
    """Declare this layout for this queue. `api` is the management API; without it, the usual address."""
    wish = _Wish(api=api, queue=queue, layout=layout, rules=rules)
    return await supervise(parse_addresses(url), lambda link: _lay(link, wish), name="deadletter adapter")


async def prepare_terms(url: str, terms: Terms, *, api: str | None = None) -> Prepared:
    """The same for terms that were agreed."""
    return await prepare(url, api=api, queue=terms.queue, layout=terms.way.value, rules=terms.rules)


def prepare_now(url: str, terms: Terms, *, api: str | None = None) -> Prepared:
    """The same for programs without an event loop; in a thread, because some have one and do not say."""
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="prepare") as thread:
        return thread.submit(lambda: asyncio.run(prepare_terms(url, terms, api=api))).result()


async def _lay(link: Link, wish: _Wish) -> Prepared:
    if wish.layout == "external":
        await _must_be(link, [wish.queue])
        return Prepared(queue=wish.queue, layout=wish.layout)
    try:
        live = await read_topology(link.address, wish.api)
    except ManagementRefused as error:
        return await _found(link, wish, error)
    plan = wish.plan(live, live.version)
    items = await declare(link, wish.api, plan.topology, live, change_policies=True)
    refused = [item for item in items if item.outcome is Outcome.REFUSED]
    if refused:
        told = "; ".join(f"{item.subject}: {item.why}" for item in refused[:5])
        raise ServiceRefused(f"the layout {wish.layout} of {wish.queue} could not be declared: {told}")
    return Prepared(queue=wish.queue, layout=wish.layout, notes=plan.notes)


async def _found(link: Link, wish: _Wish, error: ManagementRefused) -> Prepared:
    """Nothing can be declared; see whether it is all there."""
    plan = wish.plan(None, (await link.connection("consume")).server_version)
    try:
        await _must_be(link, [wish.queue, *plan.topology.queues])
    except QueueMissing as missing:
        raise ServiceRefused(
            f"{missing.queue!r} of layout {wish.layout} is missing and cannot be declared: {error}; give "
            f"prepare(…, api=…), or let somebody run: dlq topology apply --layout {wish.layout} "
            f"--queue {wish.queue}"
        ) from error
    note = f"the management API cannot be asked, so policies were not checked: {error}"
    return Prepared(queue=wish.queue, layout=wish.layout, notes=(note, *plan.notes))


async def _must_be(link: Link, queues: Iterable[str]) -> None:
    for queue in queues:
        channel = await (await link.connection("declare")).channel()
        try:
            await channel.declare_queue(queue, passive=True)
        except NotFound:
            raise QueueMissing(queue, link.address.vhost) from None
        finally:
            with suppress(WireError):
                await channel.close()
