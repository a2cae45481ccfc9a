"""The contract runs on the broker in memory at three versions, and on the real broker of this run.

`pytest tests/contract --broker 4.3` chooses the real one; `-m "not rabbitmq"` leaves it out.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.brokers import Vhost
from tests.contract.ground import Ground, MemorySite, RealSite

from deadletter.amqp.address import parse_addresses
from deadletter.amqp.handshake import connect
from deadletter.testing.memory import virtual_time

MEMORY = ("3.10.8", "4.0.5", "4.3.6")


@pytest.fixture(
    params=[*(f"memory-{version}" for version in MEMORY), pytest.param("real", marks=pytest.mark.rabbitmq)]
)
async def ground(request: pytest.FixtureRequest) -> AsyncIterator[Ground]:
    """One test's broker."""
    kind = str(request.param)
    if kind != "real":
        with virtual_time():
            ground = Ground(MemorySite(kind.removeprefix("memory-")))
            yield ground
            await ground.leave()
        return
    vhost = request.getfixturevalue("vhost")
    assert isinstance(vhost, Vhost)
    ground = Ground(RealSite(vhost, await version_of(vhost)))
    yield ground
    await ground.leave()


async def version_of(vhost: Vhost) -> str:
    connection = await connect(parse_addresses(vhost.url)[0])
    try:
        return connection.server_version
    finally:
        await connection.close()
