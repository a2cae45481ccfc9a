"""What the shop does when things fail, in virtual time: no broker, and no waiting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from shop.gateway import THE_GATEWAY
from shop.orders import SENT, Order, shop

from deadletter import Consumer
from deadletter.testing.memory import LoopClock, MemoryBroker, virtual_time


@pytest.fixture(autouse=True)
def _anew() -> None:
    THE_GATEWAY.down = False
    THE_GATEWAY.charged.clear()
    SENT.clear()


@asynccontextmanager
async def running(tmp_path: Path) -> AsyncGenerator[tuple[Consumer, MemoryBroker, LoopClock]]:
    app = shop("amqp://broker.example", database=f"sqlite:///{tmp_path}/shop.db")
    with virtual_time() as clock:
        broker = MemoryBroker("4.3.6", clock=clock)
        serving = asyncio.create_task(app.serve(broker))
        await until(clock, lambda: app.ready is not None and app.ready.is_set())
        yield app, broker, clock
        app.stop()
        await serving


async def until(clock: LoopClock, holds: Callable[[], bool]) -> None:
    """However long the real database takes, in real time."""
    for _ in range(600):
        if holds():
            return
        await clock.advance(1)
    raise AssertionError("ten minutes, and it does not hold")


async def test_an_order_is_written_paid_and_told(tmp_path: Path) -> None:
    async with running(tmp_path) as (app, broker, clock):
        await app.publish(Order(number=17, cents=4200, card="4242"), key="orders", message_id="order-17")
        await until(clock, lambda: len(SENT) == 1)
        assert THE_GATEWAY.charged == [17]
        assert [mail.text for mail in SENT] == ["order 17 is paid"]
        assert broker.depth("deadletter.parked") == 0


async def test_an_hour_without_the_gateway_loses_no_order(tmp_path: Path) -> None:
    async with running(tmp_path) as (app, broker, clock):
        THE_GATEWAY.down = True
        await app.publish(Order(number=18, cents=4200, card="4242"), key="orders", message_id="order-18")
        await clock.advance(120)
        assert THE_GATEWAY.charged == []
        THE_GATEWAY.down = False
        await clock.advance(600)
        await until(clock, lambda: bool(THE_GATEWAY.charged))
        assert THE_GATEWAY.charged == [18]
        assert broker.depth("deadletter.parked") == 0


async def test_a_refused_card_is_for_a_person(tmp_path: Path) -> None:
    async with running(tmp_path) as (app, broker, clock):
        await app.publish(Order(number=19, cents=4200, card="expired"), key="orders", message_id="order-19")
        await until(clock, lambda: broker.depth("deadletter.parked") == 1)
        assert SENT == []


async def test_the_same_order_twice_is_one(tmp_path: Path) -> None:
    async with running(tmp_path) as (app, _, clock):
        for _ in range(2):
            await app.publish(Order(number=20, cents=4200, card="4242"), key="orders", message_id="order-20")
        await until(clock, lambda: len(SENT) == 1)
        await clock.advance(5)
        assert THE_GATEWAY.charged == [20]
        assert len(SENT) == 1


async def test_what_no_handler_takes_is_put_aside(tmp_path: Path) -> None:
    async with running(tmp_path) as (app, broker, clock):
        await app.publish({"odd": True}, key="mails", type="mail.unknown")
        await until(clock, lambda: broker.depth("deadletter.parked") == 1)
