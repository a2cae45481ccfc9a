"""Idempotency: the stores that are there, and one of an application's own."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from typing import assert_type

from deadletter import Consumer, Message, StoreIds
from deadletter.consumer.idempotency import Ids, MemoryIds, Seen, TransactedIds, Transaction


class OwnIds:
    """Any class with these methods will do; it need not inherit."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, str], Seen] = {}

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    async def begin(self, queue: str, key: str) -> Seen:
        seen = self._seen.get((queue, key), Seen.NEW)
        if seen is not Seen.DONE:
            self._seen[queue, key] = Seen.BEGUN
        return seen

    async def done(self, queue: str, key: str) -> None:
        self._seen[queue, key] = Seen.DONE

    async def forget(self, queue: str, key: str) -> None:
        self._seen.pop((queue, key), None)


class OwnTransactedIds(OwnIds):
    def transaction(self, queue: str, key: str) -> AbstractAsyncContextManager[Transaction | None]:
        raise NotImplementedError((queue, key))


STORES: list[Ids] = [
    MemoryIds(),
    MemoryIds(most=1000, keep=timedelta(hours=1)),
    StoreIds("sqlite:///ids.db", keep=3600.0, connections=3),
    OwnIds(),
    OwnTransactedIds(),
]
TRANSACTED: list[TransactedIds] = [StoreIds("postgresql://host/shop"), OwnTransactedIds()]
assert_type(len(MemoryIds()), int)


def by_order(message: Message) -> str | None:
    order = message.headers.get("order")
    return order if isinstance(order, str) else None


app = Consumer("amqp://host")


@app.queue("orders", idempotent=OwnIds(), key=by_order)
async def own_store(message: Message) -> None: ...


@app.queue("mails", idempotent=MemoryIds(), key=lambda message: message.message_id)
async def in_memory(message: Message) -> None: ...


@app.batch("events", idempotent=StoreIds("sqlite:///ids.db"))
async def in_batches(messages: list[Message]) -> None: ...
