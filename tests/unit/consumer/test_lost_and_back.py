"""What is lost is told to be back: a queue, what is due, what a layout needs. Once, and not while it fails.

About `consumer.serving`, `consumer.events`, `consumer.usual_log`, `consumer.log_events`,
`consumer.queues.told_losses`, `consumer.queues.due_release`, `consumer.queues.declared_layouts`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from deadletter import Consumer, fixed, log_events
from deadletter.amqp.channel import Channel
from deadletter.broker.session import Link
from deadletter.consumer.events import Event, Lost, Ready
from deadletter.consumer.queues.declared_layouts import DeclaredLayouts
from deadletter.consumer.queues.told_losses import ToldLosses
from deadletter.core.layouts.naming import DUE
from deadletter.core.topology.vhost import Topology
from deadletter.errors import ServiceRefused
from deadletter.testing.memory import MemoryBroker, virtual_time
from deadletter.testing.memory.clock import LoopClock

QUORUM = {"x-queue-type": "quorum"}


@asynccontextmanager
async def served(
    *queues: str, health: Callable[[], bool] | None = None
) -> AsyncIterator[tuple[LoopClock, Channel, list[Event]]]:
    app = Consumer("amqp://broker.example", health=health)
    events: list[Event] = []
    app.listen(events.append)

    async def handle(body: bytes) -> None: ...

    for queue in queues:
        app.queue(queue, layout="return", backoff=fixed(1))(handle)
    with virtual_time() as clock:
        broker = MemoryBroker(clock=clock)
        serving = asyncio.create_task(app.serve(broker))
        await clock.advance(1)
        async with await (await broker.connect()).channel() as channel:
            yield clock, channel, events
        app.stop()
        await serving


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "deadletter.consumer"]


# -- a queue -------------------------------------------------------------------------------------------------
async def test_a_queue_that_is_back_is_told_and_the_other_one_is_still_away(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with served("orders", "mails") as (clock, channel, events):
        for queue in ("orders", "mails"):
            await channel.delete_queue(queue)
        await clock.advance(10)
        await channel.declare_queue("orders", arguments=QUORUM)
        await clock.advance(30)
        first, *again = [event for event in events if isinstance(event, Ready)]
        assert first.queues == ("orders", "mails")
        assert [(event.queues, event.layouts) for event in again] == [(("orders",), ("return",))]
    told = lines(caplog)
    assert [line.partition(":")[0] for line in told] == [
        "queue orders is away",
        "queue mails is away",
        "queue orders is back; consuming orders",
    ]


async def test_a_queue_that_is_away_again_at_once_is_not_told_to_be_back() -> None:
    async with served("orders") as (clock, channel, events):
        for _ in range(5):
            await channel.delete_queue("orders")
            await clock.advance(2)
            await channel.declare_queue("orders", arguments=QUORUM)
            await clock.advance(3)
        assert sum(isinstance(event, Ready) for event in events) == 1
        await clock.advance(10)
        assert sum(isinstance(event, Ready) for event in events) == 2
        await clock.advance(100)
        assert sum(isinstance(event, Ready) for event in events) == 2


async def test_a_queue_is_not_back_while_its_health_check_says_no() -> None:
    well = True
    async with served("orders", health=lambda: well) as (clock, channel, events):
        await channel.delete_queue("orders")
        await clock.advance(1.5)
        well = False
        await channel.declare_queue("orders", arguments=QUORUM)
        await clock.advance(100)
        assert sum(isinstance(event, Ready) for event in events) == 1
        well = True
        await clock.advance(60)
        assert sum(isinstance(event, Ready) for event in events) == 2


# -- what is due ---------------------------------------------------------------------------------------------
async def test_what_is_due_is_told_to_go_home_again(caplog: pytest.LogCaptureFixture) -> None:
    async with served("orders") as (clock, channel, events):
        await channel.delete_queue(DUE)
        await clock.advance(120)
        losses = [event for event in events if isinstance(event, Lost)]
        assert [(event.what, event.seconds) for event in losses] == [
            (f"queue {DUE}", 1.0),
            (f"queue {DUE}", 0.0),
        ]
    assert lines(caplog)[-1] == f"queue {DUE} is back: what is due goes home again"


# -- what a layout needs -------------------------------------------------------------------------------------
class Refusing(MemoryBroker):
    """A broker that may refuse to declare."""

    refuses = False

    async def lay(self, link: Link, plan: Topology) -> None:
        if self.refuses:
            raise ServiceRefused("no")
        await super().lay(link, plan)


async def test_what_somebody_else_declares_again_is_told_to_be_back() -> None:
    app = Consumer("amqp://broker.example")

    @app.queue("orders", layout="loop", backoff=fixed(1))
    async def handle(body: bytes) -> None: ...

    events: list[Event] = []
    with virtual_time() as clock:
        broker = Refusing(clock=clock)
        link = broker.link()
        layouts = DeclaredLayouts(link, None, broker)
        options = app._queues["orders"]
        await layouts.lay(options)
        keeping = asyncio.create_task(layouts.keep([options], events.append))
        broker.refuses = True
        async with await link.channel() as channel:
            await channel.delete_queue("orders.retry")
            await clock.advance(6)
            assert [(event.what, bool(event.seconds)) for event in events if isinstance(event, Lost)] == [
                ("queue orders.retry", True)
            ]
            await channel.declare_queue("orders.retry", arguments=QUORUM)
        events.clear()
        await clock.advance(120)
        assert events == [Lost(what="queue orders.retry", why="it is there again", seconds=0.0)]
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await link.close()


def test_what_two_queues_miss_is_back_when_both_have_found_it() -> None:
    events: list[Event] = []
    losses = ToldLosses(events.append)
    for queue in ("a", "b"):
        losses.gone(queue, "exchange shop", "gone", seconds=5.0)
    events.clear()
    losses.whole("a")
    assert events == []
    losses.whole("b")
    losses.whole("b")
    assert events == [Lost(what="exchange shop", why="it is there again", seconds=0.0)]


def test_what_is_mended_at_once_was_away(caplog: pytest.LogCaptureFixture) -> None:
    listen = log_events(logging.getLogger("shop"))
    listen(Lost(what="exchange shop", why="it is declared again", seconds=0.0))
    assert caplog.messages == ["exchange shop was away: it is declared again"]
