"""A lease on a real broker: one holder at a time, and gone with the connection that held it.

About `broker.lease`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.brokers import Vhost, call
from tests.postbox import wait_for

from deadletter.amqp.address import parse_addresses
from deadletter.amqp.connection import Connection
from deadletter.amqp.handshake import connect
from deadletter.broker.lease import Lease, lease_name
from deadletter.errors import ConnectionLost


@asynccontextmanager
async def connected(vhost: Vhost) -> AsyncIterator[Connection]:
    connection = await connect(parse_addresses(vhost.url)[0])
    try:
        yield connection
    finally:
        if not connection.closed.done():
            await connection.close()


async def taken(connection: Connection, what: str, seconds: float = 120.0) -> Lease:
    """Ask until it is free: a broker needs a moment to see that a connection is gone."""
    async with asyncio.timeout(seconds):
        while True:
            if (lease := await Lease.take(connection, what)) is not None:
                return lease
            await asyncio.sleep(0.05)


async def test_the_second_gets_nothing_until_the_first_lets_go(vhost: Vhost) -> None:
    async with connected(vhost) as one, connected(vhost) as other:
        first = await Lease.take(one, "clock.orders.dlq")
        assert first is not None
        assert await Lease.take(other, "clock.orders.dlq") is None
        assert await Lease.take(other, "clock.orders.dlq") is None
        elsewhere = await Lease.take(other, "clock.invoices.dlq")
        assert elsewhere is not None
        await first.release()
        assert not first.held
        second = await taken(other, "clock.orders.dlq")
        assert second.held
        assert await Lease.take(one, "clock.orders.dlq") is None
        assert elsewhere.held


async def test_a_policy_that_lets_queues_expire_does_not_end_it(vhost: Vhost) -> None:
    vhost.put("policies", "gone", **{"pattern": ".*", "definition": {"expires": 300}, "apply-to": "queues"})
    async with connected(vhost) as one, connected(vhost) as other:
        # The queue has no lease's consumer: it shows that the policy is in force.
        channel = await one.channel()
        await channel.declare_queue("unused", durable=False, exclusive=True)
        first = await Lease.take(one, "clock.orders.dlq")
        assert first is not None
        await asyncio.to_thread(wait_for, lambda: vhost.get("queues", "unused") is None, "it to expire")
        await asyncio.sleep(1)
        assert first.held
        assert await Lease.take(other, "clock.orders.dlq") is None
        await first.release()
        assert await taken(other, "clock.orders.dlq") is not None


async def test_who_may_not_read_holds_it_all_the_same(vhost: Vhost) -> None:
    user = f"u{vhost.name[-8:]}"
    call(vhost.broker, "PUT", "users", user, content={"password": "s", "tags": ""})
    try:
        rights = {"configure": ".*", "write": ".*", "read": "^orders$"}
        call(vhost.broker, "PUT", "permissions", vhost.name, user, content=rights)
        async with connected(vhost) as other:
            one = await connect(parse_addresses(vhost.url.replace("guest:guest", f"{user}:s"))[0])
            lease = await Lease.take(one, "delay.orders")
            assert lease is not None
            assert lease.held
            assert await Lease.take(other, "delay.orders") is None
            await lease.release()
            assert await taken(other, "delay.orders") is not None
            await one.close()
    finally:
        call(vhost.broker, "DELETE", "users", user)


async def test_another_takes_over_when_the_connection_of_the_holder_is_cut(vhost: Vhost) -> None:
    async with connected(vhost) as one, connected(vhost) as other:
        first = await Lease.take(one, "clock.orders.dlq")
        assert first is not None
        one.abort(ConnectionLost("the cable is cut"))
        assert not first.held
        second = await taken(other, "clock.orders.dlq")
        assert second.held
        await first.release()  # it has nothing to let go of, and takes nothing from the other
        assert second.held
        assert vhost.get("queues", lease_name("clock.orders.dlq")) is not None


async def test_five_that_ask_together_make_one_holder(vhost: Vhost) -> None:
    connections = [await connect(parse_addresses(vhost.url)[0]) for _ in range(5)]
    try:
        found = await asyncio.gather(*(Lease.take(one, "sweep.orders.dlq") for one in connections))
        assert sum(lease is not None for lease in found) == 1
    finally:
        for one in connections:
            await one.close()


async def test_what_is_leased_may_have_a_long_name(vhost: Vhost) -> None:
    async with connected(vhost) as one, connected(vhost) as other:
        long, longer = "q" * 255, "q" * 254 + "r"
        assert await Lease.take(one, f"clock.{long}") is not None
        assert await Lease.take(other, f"clock.{long}") is None
        assert await Lease.take(other, f"clock.{longer}") is not None
