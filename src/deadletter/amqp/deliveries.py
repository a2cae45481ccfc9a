"""What a channel is handed by the broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from deadletter.core.letter.message import RawMessage


class Delivery(NamedTuple):
    """A message the broker handed us, to be acked or given back by its tag."""

    tag: int
    redelivered: bool
    exchange: bytes
    routing_key: bytes
    message: RawMessage


class ReturnedMessage(NamedTuple):
    """A mandatory message that reached no queue."""

    code: int
    text: str
    exchange: bytes
    routing_key: bytes
    message: RawMessage


class ChannelConsumer(NamedTuple):
    queue: str
    on_delivery: Callable[[Delivery], None]
    on_cancel: Callable[[], None]
    """The broker ended this consumer: what was unacked on it is no longer ours."""
