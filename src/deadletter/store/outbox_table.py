"""Reads and writes `deadletter_outbox`: what handlers of done messages publish, until it is published.

A row is written in the transaction that marks its message as done, and deleted when the broker has confirmed
all of that message's. Who finds a message done and rows of it here publishes them again: whoever wrote them
has died in between, or was not heard.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from sqlalchemy import (
    BigInteger,
    Boolean,
    Integer,
    LargeBinary,
    String,
    Text,
    column,
    delete,
    insert,
    select,
    table,
)
from sqlalchemy.ext.asyncio import AsyncConnection

outbox: Final = table(
    "deadletter_outbox",
    column("queue", String),
    column("key", String),
    column("place", Integer),
    column("exchange", Text),
    column("routing_key", LargeBinary),
    column("message_id", Text),
    column("properties", LargeBinary),
    column("body", LargeBinary),
    column("mandatory", Boolean),
    column("until_ms", BigInteger),
)


class OutboxRow(NamedTuple):
    """One message that is to be published."""

    exchange: str
    routing_key: str
    message_id: str
    properties: bytes
    body: bytes
    mandatory: bool


async def keep(
    connection: AsyncConnection, queue: str, key: str, rows: Sequence[OutboxRow], *, until_ms: int
) -> None:
    """These, and no others, are what the message wants to publish."""
    await forget(connection, queue, key)
    told = [
        {
            **row._asdict(),
            "routing_key": row.routing_key.encode("utf-8", "surrogateescape"),
            "queue": queue,
            "key": key,
            "place": place,
            "until_ms": until_ms,
        }
        for place, row in enumerate(rows)
    ]
    await connection.execute(insert(outbox), told)


async def kept(connection: AsyncConnection, queue: str, key: str) -> list[OutboxRow]:
    """What is not known to be published, in the order in which it was asked for."""
    columns = outbox.c
    asked = (
        select(
            columns.exchange,
            columns.routing_key,
            columns.message_id,
            columns.properties,
            columns.body,
            columns.mandatory,
        )
        .where(columns.queue == queue, columns.key == key)
        .order_by(columns.place)
    )
    return [
        OutboxRow(
            exchange=row.exchange,
            routing_key=bytes(row.routing_key).decode("utf-8", "surrogateescape"),
            message_id=row.message_id,
            properties=bytes(row.properties),
            body=bytes(row.body),
            mandatory=bool(row.mandatory),
        )
        for row in await connection.execute(asked)
    ]


async def forget(connection: AsyncConnection, queue: str, key: str) -> None:
    """All that a message wanted to publish is published."""
    await connection.execute(delete(outbox).where(outbox.c.queue == queue, outbox.c.key == key))


async def clean(connection: AsyncConnection, *, now_ms: int) -> None:
    """Forget what is older than the mark of its message: nobody would ask for it any more."""
    await connection.execute(delete(outbox).where(outbox.c.until_ms <= now_ms))
