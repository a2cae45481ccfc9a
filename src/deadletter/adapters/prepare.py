"""The queues of an adapter's layout, declared before the first message comes.

Once when the application starts, or when it is deployed; while it runs an adapter declares nothing. They are
those of our own consumer (`consumer.queues.declared_layouts`) and ask for the same: the management API.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor

from deadletter.adapters.terms import AdapterTerms
from deadletter.amqp.address import parse_addresses
from deadletter.broker.session import Link, supervise
from deadletter.consumer.queues.declared_layouts import DeclaredLayouts, Laid


async def prepare(url: str, terms: AdapterTerms, *, api: str | None = None) -> Laid:
    """Declare what these terms need. `api` is the management API; without it, the usual address."""

    async def lay(link: Link) -> Laid:
        return await DeclaredLayouts(link, api, ask="prepare(…, api=…)").lay(terms)

    return await supervise(parse_addresses(url), lay, name="deadletter adapter")


def prepare_now(url: str, terms: AdapterTerms, *, api: str | None = None) -> Laid:
    """The same for programs without an event loop; in a thread, because some have one and do not say."""
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="prepare") as thread:
        return thread.submit(lambda: asyncio.run(prepare(url, terms, api=api))).result()
