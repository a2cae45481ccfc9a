"""Wrong uses. Both checkers must object to each of them, and each line says with which error."""

from __future__ import annotations

from datetime import datetime, timedelta

import deadletter
from deadletter import BatchFailed, Consumer, Message, Park, RetryLater, exponential, fixed, own, park, retry
from deadletter import Exponential as Typo  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownVariableType]
from deadletter.adapters import aio_pika as on_aio_pika
from deadletter.adapters import pika as on_pika
from deadletter.adapters.faststream import with_retries
from deadletter.consumer.events import Event, Ready
from deadletter.consumer.idempotency import Seen, Transaction
from deadletter.testing.memory import MemoryBroker


def squares(attempt: int) -> float:
    return attempt**2


Consumer()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
Consumer(5672)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
app = Consumer("amqp://host", grace="30")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
app.queue()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
app.queue("orders", "ladder")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
app.queue("orders", layout="ladders")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
app.queue("orders", retry=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
app.queue("orders", retries="5")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
app.queue("orders", timeout=timedelta(seconds=5))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
app.queue("orders")(17)  # type: ignore[type-var]  # pyright: ignore[reportArgumentType]
app.batch("orders", size=None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
print(deadletter.nothing, Typo)  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType]

# Back-offs and rules
app.queue("orders", backoff=60)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
app.queue("orders", backoff=squares)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
app.queue("orders", backoff=park)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
app.queue("orders", backoff=retry(fixed(60)))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
app.queue("orders", on={"ValueError": park})  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]
app.queue("orders", on={ValueError: "park"})  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]
app.queue("orders", on={ValueError: Park})  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]
app.queue("orders", on={ValueError: 60})  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]
app.queue("orders", on=[ValueError])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
fixed("1s", "10s")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
exponential(1, 600)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
own(lambda: 1.0)  # type: ignore[arg-type, misc]  # pyright: ignore[reportArgumentType]
own(lambda attempt: f"{attempt}s")  # type: ignore[arg-type, return-value]  # pyright: ignore[reportArgumentType]
retry(60)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
Park()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
RetryLater(after="1min")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
RetryLater(datetime.now)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
BatchFailed([ValueError()])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@app.queue("mails")
async def handle(message: Message) -> None:
    message.body = b""  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    message.headers["tenant"] = "a"  # type: ignore[index]  # pyright: ignore[reportIndexIssue]
    message.attempt.upper()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    message.age.total_seconds()  # type: ignore[union-attr]  # pyright: ignore[reportOptionalMemberAccess]
    await message.retry("soon")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await message.park()  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await message.nack()  # type: ignore[attr-defined]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    message.ack()  # type: ignore[unused-coroutine]  # pyright: ignore[reportUnusedCoroutine]


async def pay(transaction: Transaction) -> None:
    await transaction.execute(b"INSERT INTO paid VALUES (1)")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await transaction.execute("INSERT INTO paid VALUES (?)", [1])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# What an application gives
class Forgetful:
    """Has not all the methods of Ids."""

    async def open(self) -> None: ...
    async def close(self) -> None: ...
    async def begin(self, queue: str, key: str) -> Seen:
        raise NotImplementedError(queue, key)


class Blocking:
    """Has them, and they are plain."""

    def open(self) -> None: ...
    def close(self) -> None: ...
    def begin(self, queue: str, key: str) -> Seen:
        raise NotImplementedError(queue, key)

    def done(self, queue: str, key: str) -> None: ...
    def forget(self, queue: str, key: str) -> None: ...


def up(queue: str) -> bool:
    return queue != ""


def only_ready(event: Ready) -> None: ...


def key(body: bytes) -> str:
    return body.decode()


app.queue("orders", idempotent=Forgetful())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
app.queue("orders", idempotent=Blocking())  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
app.queue("orders", idempotent="sqlite:///ids.db")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
app.queue("orders", key=key)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
app.queue("orders", health=up)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
app.listen(only_ready)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
app.listen(lambda: None)  # type: ignore[arg-type, misc]  # pyright: ignore[reportArgumentType]
app.watch_depth("orders", 100)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]


def told(event: Event) -> None:
    print(event.queue)  # type: ignore[union-attr]  # pyright: ignore[reportAttributeAccessIssue, reportUnknownArgumentType, reportUnknownMemberType]


async def look() -> None:
    assert (await app.statistics())["orders"].parked > 0  # type: ignore[operator]  # pyright: ignore[reportOptionalOperand]
    await app.drain("orders", "60s")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await app.serve("amqp://host")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await app.run()  # type: ignore[func-returns-value, misc]  # pyright: ignore[reportGeneralTypeIssues]
    MemoryBroker(4.3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


# Adapters
async def on_message(body: bytes) -> None: ...


on_aio_pika.retrying(queue="orders")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
on_aio_pika.retrying("amqp://host", queue="orders", layout="auto")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
on_aio_pika.retrying("amqp://host", queue="orders")(on_message)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
on_pika.retrying("orders")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
on_pika.retrying(queue="orders", backoff=1.0)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
with_retries("amqp://host", on={ValueError: "park"})  # type: ignore[dict-item]  # pyright: ignore[reportArgumentType]
with_retries("amqp://host", retry=5)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
app.exchange("shop", type="topical")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
app.queue("orders", bind=["shop"])  # type: ignore[list-item]  # pyright: ignore[reportArgumentType]
app.queue("orders", queue_type="stream")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
app.queue("orders").on(types="a")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
