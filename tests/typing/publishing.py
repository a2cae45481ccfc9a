"""Publishing, bindings, routes, dependencies, middleware and lifespan, as an application writes them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Annotated, assert_type

from deadletter import Consumer, Depends, Handled, Message, Proceed
from deadletter.errors import MaybePublished, PublishError
from deadletter.testing.memory import MemoryBroker


@dataclass
class Order:
    number: int


class Db: ...


async def open_db(message: Message) -> AsyncIterator[Db]:
    yield Db()


@asynccontextmanager
async def lifespan(app: Consumer) -> AsyncGenerator[dict[str, Db], None]:
    await app.publish("here", key="news", mandatory=False)
    yield {"db": Db()}


async def timed(message: Message, proceed: Proceed) -> None:
    assert_type(message.type, str | None)
    await proceed()


app = Consumer("amqp://broker.example", lifespan=lifespan, middleware=[timed])
app.exchange("shop", type="topic", arguments={"alternate-exchange": "lost"})


@app.queue(
    "orders",
    bind=[("shop", "order.*"), ("by-header", "", {"x-match": "all", "tenant": "acme"})],
    queue_type="quorum",
    arguments={"x-max-length": 5},
    delivery_limit=50,
    middleware=[timed],
)
async def handle(order: Order, message: Message, db: Annotated[Db, Depends(open_db)]) -> None:
    assert_type(message.timestamp, datetime | None)
    assert_type(message.expiration, timedelta | None)
    assert_type(message.priority, int | None)
    assert_type(await message.publish(order, exchange="shop", key="order.made"), str)
    assert_type(await message.reply({"number": order.number}), bool)


events = app.queue("events")


@events.on(type="order.made", key="order.#", headers={"tenant": "acme"})
async def made(order: Order) -> None: ...


@events
async def other(message: Message) -> None: ...


async def publish() -> None:
    async with app.publishing(MemoryBroker()):
        try:
            told = await app.publish(
                Order(1), exchange="shop", key="order.made", headers={"tenant": "acme"}, message_id="m-1",
                correlation_id="c-1", reply_to="answers", type="order.made", priority=3,
                expiration=timedelta(hours=1), timestamp=datetime.now(UTC), content_type="application/json",
                content_encoding=None, app_id="till", persistent=False, mandatory=False,
            )  # fmt: skip
            assert_type(told, str)
        except MaybePublished as error:
            assert_type(error.message_id, str)
        except PublishError as error:
            assert_type(error.exchange, str)


def listen(event: Handled) -> None:
    assert_type(event.raised, BaseException | None)
