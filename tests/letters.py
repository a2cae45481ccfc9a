"""Messages for tests of the service, made and read with our own client: thousands of them take no time."""

from __future__ import annotations

from deadletter.amqp.channel import Delivery
from deadletter.core.letter import message
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.message import RawMessage, View


def letter(body: bytes, **properties: object) -> RawMessage:
    """A persistent message; `headers=` and every other property as in `View`."""
    return RawMessage(message.encode(View(**{"delivery_mode": 2, **properties})), body)  # type: ignore[arg-type]


def letters(prefix: str, count: int, **properties: object) -> list[RawMessage]:
    """So many that differ in their bodies alone: `prefix-0`, `prefix-1`, …"""
    made = letter(b"", **properties).properties
    return [RawMessage(made, f"{prefix}-{number}".encode()) for number in range(count)]


def headers_of(delivery: Delivery) -> dict[str, Value]:
    return dict(message.view(delivery.message.properties).headers or {})
