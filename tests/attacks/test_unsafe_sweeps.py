"""A policy makes our queues unsafe in the middle of a sweep: that one must not count as a sweep.

It decided about no letter. Counted, it would use up `limit_per_boot`, and the one sweep of a start would be
over with every letter where it was.

About `service.sweeps`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.brokers import Vhost
from tests.consuming import until
from tests.postbox import declare, depth, fill

from deadletter.amqp.address import parse_addresses
from deadletter.broker.session import Link
from deadletter.config.settings import GuardSettings, Mode, Watch
from deadletter.core.deciding.policy import Policies
from deadletter.core.letter.letter import Letter
from deadletter.errors import ServiceRefused
from deadletter.move.courier import Judging
from deadletter.move.verdict import Drop, Leave, Verdict
from deadletter.service.guarding.gates import Gates
from deadletter.service.sweeps import Halted, Sweeper
from deadletter.service.telling.service_events import ServiceEvent, SweepEnded, Trouble

DLQ = "orders.dlq"
UNSAFE = "a policy expires what is parked"


class Service:
    """One sweeper; letters are dropped where it is safe, so that it is seen."""

    def __init__(self, watch: Watch) -> None:
        self.safe = False
        self.events: list[ServiceEvent] = []
        self.sweeper = Sweeper(
            DLQ,
            watch,
            lambda: Judging(decide=self._decide),
            gates=Gates(GuardSettings(), Policies(), lambda _event: None),
            prefetch=10,
            emit=self.events.append,
        )

    def _decide(self, _letter: Letter) -> Verdict:
        return Drop() if self.safe else Leave(fate=Halted(UNSAFE))

    def in_vain(self) -> int:
        return sum(isinstance(event, Trouble) and UNSAFE in event.why for event in self.events)

    def ended(self) -> int:
        return sum(isinstance(event, SweepEnded) for event in self.events)


@asynccontextmanager
async def running(vhost: Vhost, watch: Watch) -> AsyncIterator[Service]:
    await asyncio.to_thread(declare, vhost.url, DLQ)
    await asyncio.to_thread(fill, vhost.url, DLQ, [b"1", b"2", b"3"])
    service, link = Service(watch), Link(parse_addresses(vhost.url)[0], "test")
    work = asyncio.create_task(service.sweeper.on(link))
    try:
        yield service
    finally:
        service.sweeper.stop()
        await work
        await link.close()


@pytest.mark.parametrize(
    "watch",
    [
        pytest.param(
            Watch(dlq=DLQ, vhost="/", mode=Mode.SWEEP, every_ms=50, limit_per_boot=1), id="limit_per_boot"
        ),
        pytest.param(Watch(dlq=DLQ, vhost="/", mode=Mode.STARTUP), id="startup"),
    ],
)
async def test_a_sweep_that_was_not_safe_is_made_again(vhost: Vhost, watch: Watch) -> None:
    async with running(vhost, watch) as service:
        await until(lambda: service.in_vain() >= 2, "sweeps that decided nothing")
        assert not service.ended()
        service.safe = True
        await until(lambda: service.ended() == 1, "the one that counts")
        await asyncio.sleep(0.3)
        assert service.ended() == 1
    assert await asyncio.to_thread(depth, vhost.url, DLQ) == 0


async def test_whoever_asks_is_told_why_there_was_none(vhost: Vhost) -> None:
    async with running(vhost, Watch(dlq=DLQ, vhost="/", mode=Mode.MANUAL)) as service:
        link = Link(parse_addresses(vhost.url)[0], "asked")
        with pytest.raises(ServiceRefused, match=UNSAFE):
            await service.sweeper.sweep(link, "request")
        await link.close()
    assert await asyncio.to_thread(depth, vhost.url, DLQ) == 3
