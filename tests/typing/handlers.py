"""Handlers as applications write them: async and plain, with models, the message, a transaction, batches."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, assert_type

import msgspec
import pydantic

from deadletter import Consumer, Discard, Message, Park, RetryLater, StoreIds, Transaction
from deadletter.consumer.outcomes import BatchFailed, HandlerCancelled, HandlerTimeout, Undecodable
from deadletter.errors import DeadletterError, UsageError


class Order(pydantic.BaseModel):
    number: int
    total: str = "0 EUR"


class Payment(msgspec.Struct):
    number: int


@dataclass(frozen=True, slots=True)
class Parcel:
    number: int


app = Consumer(
    "amqp://user:password@one:5672/vhost,amqp://user:password@two:5672/vhost",
    api="http://one:15672",
    service="shop",
    release="1.4.2",
    redact=lambda text: text.replace("secret", "…"),
    grace=10,
)


@app.queue("orders")
async def by_model(order: Order) -> None:
    assert_type(order.number, int)


@app.queue("payments", prefetch=200, concurrency=20, timeout=1.5, deliveries=3, budget=600)
def plain(payment: Payment) -> None:
    assert_type(payment.number, int)


@app.queue("parcels", layout="return")
async def by_dataclass(parcel: Parcel, message: Message) -> None:
    assert_type(message.queue, str)
    assert_type(message.body, bytes)
    assert_type(message.attempt, int)
    assert_type(message.begun_before, bool)
    assert_type(message.id, str)
    assert_type(message.message_id, str | None)
    assert_type(message.content_type, str | None)
    assert_type(message.exchange, str)
    assert_type(message.routing_key, str)
    assert_type(message.redelivered, bool)
    assert_type(message.age, timedelta | None)
    reasons: list[str] = [death.reason for death in message.deaths]
    tenant = message.headers.get("tenant")
    if isinstance(tenant, str) and reasons:
        await message.park(f"parcel {parcel.number} of {tenant}")


@app.queue("verbs", layout="ladder")
async def verbs(message: Message) -> None:
    match message.attempt:
        case 0:
            await message.retry()
        case 1:
            await message.retry(after=90, why="not yet")
        case 2:
            await message.retry(timedelta(minutes=2))
        case 3:
            await message.park("no more")
        case 4:
            await message.discard()
        case 5:
            await message.discard("nobody misses it")
        case _:
            await message.ack()


@app.queue("raising")
async def raising(body: bytes) -> None:
    match body:
        case b"later":
            raise RetryLater
        case b"in a while":
            raise RetryLater(after=90, why="the warehouse is closed")
        case b"tomorrow":
            raise RetryLater(timedelta(days=1))
        case b"away":
            raise Discard("test data")
        case _:
            raise Park("nobody knows what this is")


@app.queue("unions")
async def either(body: Order | Parcel) -> None: ...


@app.queue("any", layout="external")
def anything(body: Any) -> None: ...


@app.queue("paid", idempotent=StoreIds("postgresql://shop@host/shop"))
async def pay(order: Order, transaction: Transaction) -> None:
    result = await transaction.execute("INSERT INTO paid (id) VALUES (:id)", {"id": order.number})
    assert_type(result.rowcount, int)
    await transaction.connection.commit()


@app.batch("mails", size=500, wait=0.5, concurrency=2)
async def many(orders: list[Order], messages: list[Message]) -> None:
    failed: dict[int, Exception] = {}
    for place, (order, message) in enumerate(zip(orders, messages, strict=True)):
        if order.number < 0:
            failed[place] = Park(f"order {message.id} has no number")
    if failed:
        raise BatchFailed(failed)


@app.batch("faxes")
def many_plain(faxes: list[bytes]) -> None: ...


class Shop:
    """A handler may be a method, if the queue is named when there is an object."""

    async def handle(self, order: Order) -> None: ...


shop = Shop()
method: Callable[[Order], Awaitable[None]] = app.queue("shop")(shop.handle)

# A decorated function is still the function it was: tests call it as it is.
by_name: Callable[[Order], Awaitable[None]] = by_model
by_thread: Callable[[Payment], None] = plain
errors: tuple[type[Exception], ...] = (
    HandlerTimeout,
    HandlerCancelled,
    Undecodable,
    DeadletterError,
    UsageError,
)

if __name__ == "__main__":
    app.run()
