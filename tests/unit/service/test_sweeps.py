"""When a dead-letter queue is swept: at once or after a pause, how often, by whom, and that it ends promptly.

Against a broker of a few lines, because no letter matters here: it has one empty queue, and leases.

About `service.sweeps`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Final

from tests import amqp_oracle as oracle
from tests.amqp_server import Peer, serving

from deadletter.amqp.address import Address
from deadletter.broker.lease import lease_name
from deadletter.broker.session import Link
from deadletter.config.settings import GuardSettings, Mode, Watch
from deadletter.core.deciding.backoff import Exponential, Fixed
from deadletter.core.deciding.policy import Policies
from deadletter.errors import ConnectionLost
from deadletter.move.courier import Judging
from deadletter.move.verdict import Leave
from deadletter.service.guarding.gates import Gates
from deadletter.service.sweeps import Sweeper
from deadletter.service.telling.service_events import LeaseChanged, ServiceEvent, SweepEnded, Trouble

DLQ: Final = "orders.dlq"
HOUR_MS: Final = 3_600_000
QOS_OK: Final = oracle.method(60, 11)
DELETE_OK: Final = oracle.method(50, 41, b"\0\0\0\0")


class Broker:
    """Answers what a sweep of an empty queue asks. `locked`: leases that another instance holds."""

    def __init__(self) -> None:
        self.locked: set[str] = set()
        self.missing = False

    async def script(self, peer: Peer) -> None:
        await peer.greet()
        while True:
            _, channel, payload = await peer.frame()
            said, arguments = payload[:4], payload[4:]
            if said == oracle.method(20, 10):
                peer.say(channel, oracle.OPEN_CHANNEL_OK)
            elif said == oracle.method(50, 10):
                self._declare(peer, channel, arguments)
            elif said == oracle.method(60, 10):
                peer.say(channel, QOS_OK)
            elif said == oracle.method(60, 20):
                tag = arguments[3 + arguments[2] :]
                peer.say(channel, oracle.method(60, 21, tag[: 1 + tag[0]]))
            elif said == oracle.method(50, 40):
                peer.say(channel, DELETE_OK)
            elif said == oracle.method(20, 40):
                peer.say(channel, oracle.CLOSE_CHANNEL_OK)
            elif said == oracle.method(10, 50):
                peer.say(0, oracle.CLOSE_CONNECTION_OK)
                return

    def _declare(self, peer: Peer, channel: int, arguments: bytes) -> None:
        name = arguments[3 : 3 + arguments[2]]
        if name.decode() in self.locked:
            peer.say(channel, oracle.closing(20, 40, 405, b"RESOURCE_LOCKED"))
        elif name == DLQ.encode() and self.missing:
            peer.say(channel, oracle.closing(20, 40, 404, b"NOT_FOUND"))
        else:
            peer.say(channel, oracle.declare_ok(name, 0, 0))


class Clocked:
    """A sweeper of one watch on such a broker."""

    def __init__(self, broker: Broker, port: int, watch: Watch) -> None:
        self.broker = broker
        self.events: list[ServiceEvent] = []
        self.at: list[float] = []
        self.changed = asyncio.Event()
        self.link = Link(Address(port=port), "test")
        self.sweeper = Sweeper(
            DLQ,
            watch,
            lambda: Judging(decide=lambda _letter: Leave()),
            gates=Gates(GuardSettings(), Policies(), lambda _event: None),
            prefetch=10,
            emit=self._on_event,
            dice=lambda: 0.0,
        )
        self._port = port
        self._work: asyncio.Task[None] | None = None

    def _on_event(self, event: ServiceEvent) -> None:
        self.events.append(event)
        if isinstance(event, SweepEnded):
            self.at.append(asyncio.get_running_loop().time())
        self.changed.set()

    def start(self) -> None:
        self._work = asyncio.create_task(self.sweeper.on(self.link))

    async def cut(self) -> None:
        """The connection is lost, and there is another one."""
        (await self.link.connection("consume")).abort(ConnectionLost("the cable is cut"))
        assert self._work is not None
        self._work.cancel()
        await asyncio.wait({self._work})
        self.link = Link(Address(port=self._port), "test")
        self.start()

    async def sweeps(self, count: int) -> None:
        """Until there were so many."""
        async with asyncio.timeout(60):
            while len(self.at) < count:
                self.changed.clear()
                await self.changed.wait()

    async def planned(self) -> float:
        """In how many seconds the next one is, once it is known."""
        async with asyncio.timeout(60):
            while (next_at := self.sweeper.next_at) is None:  # noqa: ASYNC110 -- nobody tells
                await asyncio.sleep(0.005)
        return next_at - asyncio.get_running_loop().time()

    async def end(self) -> None:
        self.sweeper.stop()
        if self._work is not None:
            async with asyncio.timeout(60):
                await self._work
        await self.link.close()

    @property
    def leases(self) -> list[bool]:
        return [event.held for event in self.events if isinstance(event, LeaseChanged)]


@asynccontextmanager
async def clocked(
    mode: Mode = Mode.SWEEP,
    *,
    every_ms: int | None = None,
    pauses: Fixed | Exponential | None = None,
    limit_per_boot: int | None = None,
) -> AsyncIterator[Clocked]:
    broker = Broker()
    watch = Watch(
        dlq=DLQ, vhost="/", mode=mode, every_ms=every_ms, pauses=pauses, limit_per_boot=limit_per_boot
    )
    async with serving(broker.script) as port:
        found = Clocked(broker, port, watch)
        try:
            yield found
        finally:
            await found.end()


# -- by the clock -----------------------------------------------------------------------------------------
async def test_the_first_sweep_of_an_interval_is_at_once_and_the_next_an_interval_later() -> None:
    async with clocked(every_ms=HOUR_MS) as found:
        found.start()
        await found.sweeps(1)
        assert 3_000 < await found.planned() <= 3_600
        assert found.sweeper.last is not None
        assert found.sweeper.last.why == "timer"
        await found.end()  # in the middle of the wait
        assert found.leases == [True, False]
        assert len(found.at) == 1


async def test_an_interval_comes_again_and_again() -> None:
    async with clocked(every_ms=30) as found:
        found.start()
        await found.sweeps(4)
    gaps = [later - earlier for earlier, later in pairwise(found.at)]
    assert min(gaps) >= 0.03


async def test_a_back_off_begins_with_its_pause_and_grows() -> None:
    async with clocked(pauses=Exponential(first_ms=300_000, factor=3)) as found:
        found.start()
        assert 200 < await found.planned() <= 300
        assert not found.at
    async with clocked(pauses=Exponential(first_ms=20, factor=3)) as found:
        began = asyncio.get_running_loop().time()
        found.start()
        await found.sweeps(3)
    times = [began, *found.at]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert gaps[0] >= 0.02
    assert gaps[1] >= 0.06
    assert gaps[2] >= 0.18


async def test_no_more_sweeps_than_a_boot_may_have() -> None:
    async with clocked(pauses=Fixed(delays_ms=(10,)), limit_per_boot=2) as found:
        found.start()
        await found.sweeps(2)
        await asyncio.sleep(0.2)
        assert len(found.at) == 2
        assert found.sweeper.next_at is None
        await found.cut()  # another connection is not another boot
        await asyncio.sleep(0.2)
        assert len(found.at) == 2
        swept = await found.sweeper.sweep(found.link, "request")  # but a person may ask
        assert (swept.refused, len(found.at)) == ("", 3)


async def test_a_lost_connection_does_not_begin_the_pause_anew() -> None:
    async with clocked(every_ms=HOUR_MS) as found:
        found.start()
        await found.sweeps(1)
        await found.planned()
        before = found.sweeper.next_at
        await found.cut()
        await asyncio.sleep(0.1)
        assert found.leases == [True, False, True]
        assert found.sweeper.next_at == before
        assert len(found.at) == 1


async def test_while_another_instance_has_the_clock_nothing_is_swept() -> None:
    async with clocked(every_ms=10) as found:
        found.broker.locked.add(lease_name(f"clock.{DLQ}"))
        found.start()
        await asyncio.sleep(0.3)
        assert not found.at
        assert not found.leases
        found.broker.locked.clear()
        await found.sweeps(1)
        assert found.leases == [True]


# -- on start, and when somebody asks -----------------------------------------------------------------------
async def test_on_start_there_is_one_and_not_one_for_each_connection() -> None:
    async with clocked(Mode.STARTUP) as found:
        found.start()
        await found.sweeps(1)
        assert found.sweeper.last is not None
        assert found.sweeper.last.why == "startup"
        await found.cut()
        await asyncio.sleep(0.2)
        assert len(found.at) == 1


async def test_a_manual_watch_sweeps_when_somebody_asks_and_only_then() -> None:
    async with clocked(Mode.MANUAL) as found:
        found.start()
        await asyncio.sleep(0.1)
        assert not found.at
        swept = await found.sweeper.sweep(found.link, "request")
        assert swept.ended is not None
        assert (swept.dlq, swept.ended.seen, swept.refused) == (DLQ, 0, "")
        assert [event.why for event in found.events if isinstance(event, SweepEnded)] == ["request"]


async def test_two_sweeps_do_not_meet() -> None:
    async with clocked(Mode.MANUAL) as found:
        found.broker.locked.add(lease_name(f"sweep.{DLQ}"))
        swept = await found.sweeper.sweep(found.link, "request")
        assert "already" in swept.refused
        assert not found.at


async def test_a_sweep_that_cannot_be_is_said_and_the_clock_goes_on() -> None:
    async with clocked(every_ms=10) as found:
        found.broker.missing = True
        found.start()
        async with asyncio.timeout(60):
            while not any(isinstance(event, Trouble) for event in found.events):
                found.changed.clear()
                await found.changed.wait()
        found.broker.missing = False
        await found.sweeps(1)
    (first, *_) = [event for event in found.events if isinstance(event, Trouble)]
    assert first.what == f"queue:{DLQ}"
    assert "the sweep did not happen" in first.why
