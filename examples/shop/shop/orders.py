"""The consumer: which queues there are, who handles what, and what happens when it fails."""

from __future__ import annotations

import os
import re
from typing import Annotated

from pydantic import BaseModel, Field

from deadletter import Consumer, Depends, Message, StoreIds, Transaction, exponential, park
from shop.gateway import CardRefused, Gateway, open_gateway

TABLE = "CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY, cents INTEGER NOT NULL)"


class Order(BaseModel):
    number: int
    cents: Annotated[int, Field(gt=0)]
    card: str


class Mail(BaseModel):
    to: str
    text: str


SENT: list[Mail] = []
_CARD = re.compile(r"\b\d{4}\b")


def without_cards(text: str) -> str:
    """What goes into logs and onto failed messages shows no card."""
    return _CARD.sub("****", text)


def shop(broker: str, *, api: str | None = None, database: str) -> Consumer:
    """The shop's consumer on this broker, with its orders in this database."""
    app = Consumer(broker, api=api, service="shop", redact=without_cards)
    app.exchange("shop", type="topic")

    @app.queue("orders", idempotent=StoreIds(database))
    async def place(order: Order, message: Message, transaction: Transaction) -> None:
        """The row and the news of it are one: what is rolled back was never told to anybody."""
        await transaction.execute(TABLE, {})
        await transaction.execute(
            "INSERT INTO orders (number, cents) VALUES (:number, :cents)",
            {"number": order.number, "cents": order.cents},
        )
        await message.publish(order, exchange="shop", key="order.placed", type="order.placed")

    @app.queue(
        "payments",
        bind=[("shop", "order.placed")],
        retries=8,
        backoff=exponential(1, cap=600),
        on={CardRefused: park},
    )
    async def pay(order: Order, message: Message, gateway: Annotated[Gateway, Depends(open_gateway)]) -> None:
        await gateway.charge(order.number, order.cents, order.card)
        await message.publish(
            Mail(to="customer", text=f"order {order.number} is paid"), key="mails", type="mail.paid"
        )

    mails = app.queue("mails")

    @mails.on(type="mail.paid")
    async def paid(mail: Mail) -> None:
        SENT.append(mail)

    return app


app = shop(
    os.environ.get("SHOP_BROKER", "amqp://guest:guest@127.0.0.1:5672"),
    api=os.environ.get("SHOP_API"),
    database=os.environ.get("SHOP_DATABASE", "sqlite:///shop.db"),
)
