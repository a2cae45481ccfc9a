"""A housekeeper of a test's own, in a hurry, and a publisher that tells what became of its letter."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tests.brokers import Vhost

from deadletter.amqp.address import parse_addresses
from deadletter.amqp.handshake import connect
from deadletter.broker.housekeeping import Housekeeper, Tidied
from deadletter.broker.management import management
from deadletter.broker.session import Link
from deadletter.core.layouts.naming import ASKED


@asynccontextmanager
async def keeping(vhost: Vhost, *, after_s: float = 0.0, closed_s: float = 0.0) -> AsyncIterator[Housekeeper]:
    address = parse_addresses(vhost.url)[0]
    connection = await connect(address, name="housekeeper")
    try:
        async with management(address, vhost.api, need="the test asks") as asked:
            yield Housekeeper(connection, asked, after_s=after_s, closed_s=closed_s)
    finally:
        await connection.close()


@asynccontextmanager
async def linked(vhost: Vhost) -> AsyncIterator[Link]:
    link = Link(parse_addresses(vhost.url)[0], "test")
    try:
        yield link
    finally:
        await link.close()


def asked_keys(vhost: Vhost) -> set[str]:
    return {b["routing_key"] for b in vhost.list("bindings") if b["source"] == ASKED}


async def rounds(
    keeper: Housekeeper, *, times: int = 240, until: Callable[[], bool] = lambda: False
) -> Tidied:
    """So many rounds, or until something is so; the broker's figures are seconds old, more under load."""
    total = Tidied()
    for _ in range(times):
        found = await keeper.round()
        total = Tidied(
            delays=total.delays + found.delays,
            held=total.held + found.held,
            ways=total.ways + found.ways,
            letters=total.letters + found.letters,
        )
        if await asyncio.to_thread(until):
            break
        await asyncio.sleep(0.5)
    return total


async def publish_asked(link: Link, name: str, body: bytes = b"letter") -> str:
    channel = await (await link.connection("publish")).channel()
    await channel.select_confirms()
    came: asyncio.Queue[str] = asyncio.Queue()
    channel.on_confirm = lambda *_: came.put_nowait("confirmed")
    channel.on_return = lambda *_: came.put_nowait("returned")
    channel.publish(channel.publishing(ASKED, name, mandatory=True), b"\0\0", body)
    told = await asyncio.wait_for(came.get(), 30)
    await channel.close()
    return told
