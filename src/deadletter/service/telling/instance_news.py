"""News between instances: what one learned about an origin, the others should know.

Deaths of one origin come to all instances, and one of them lets its held letters through: without being told,
it would see a fifth of what its probes come to. So while a gate is not open, each death at it is told to all,
and so is that a breaker closed or opened. A fanout exchange of ours, and an exclusive queue per instance that
is gone with its connection. News may be lost; then each instance decides by what it sees itself.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Final

from deadletter.amqp.channel import Channel, Delivery
from deadletter.broker.session import Link
from deadletter.core.letter import message
from deadletter.core.letter.message import View
from deadletter.core.letter.names import PREFIX

EXCHANGE: Final = f"{PREFIX}news"
MAX_BYTES: Final = 10_000


class What(StrEnum):
    DIED = "died"
    CLOSED = "closed"
    OPENED = "opened"


@dataclass(frozen=True, slots=True, kw_only=True)
class NewsItem:
    """One piece of news about a gate."""

    what: What
    origin: str
    group: str = ""
    letter_id: str = ""
    attempt: int = 0
    released_s: float | None = None
    """Of a death: as which attempt it had been released, and how long ago."""
    why: str = ""


class InstanceNews:
    """`tell` the others; `hear` is called with what they tell."""

    def __init__(self, hear: Callable[[NewsItem], None]) -> None:
        self._hear = hear
        self._me = secrets.token_hex(8)
        self._giving: Channel | None = None
        self._publishing = b""

    async def on(self, link: Link) -> None:
        """Begin to listen on this link."""
        taking = await link.channel("consume")
        await taking.declare_exchange(EXCHANGE, "fanout")
        queue = f"{EXCHANGE}.{self._me}"
        await taking.declare_queue(queue, durable=False, exclusive=True)
        await taking.bind_queue(queue, EXCHANGE)
        self._giving = await link.channel()
        self._publishing = self._giving.publishing(EXCHANGE, self._me, mandatory=False)

        def on_delivery(delivery: Delivery) -> None:
            taking.ack(delivery.tag)
            if delivery.routing_key != self._me.encode():
                self._read(delivery.message.body)

        await taking.consume(queue, on_delivery, lambda: None)

    def tell(self, item: NewsItem) -> None:
        """Not confirmed, not waited for."""
        if self._giving is not None and self._giving.error is None:
            body = json.dumps(asdict(item)).encode()
            self._giving.publish(self._publishing, message.encode(View(delivery_mode=1)), body)

    def _read(self, body: bytes) -> None:
        if len(body) > MAX_BYTES:
            return
        try:
            told = json.loads(body)
            item = NewsItem(
                what=What(told["what"]),
                origin=str(told["origin"]),
                group=str(told["group"]),
                letter_id=str(told["letter_id"]),
                attempt=int(told["attempt"]),
                released_s=None if told["released_s"] is None else float(told["released_s"]),
                why=str(told["why"]),
            )
        except (ValueError, KeyError, TypeError):
            return  # of a version that speaks otherwise; news may be missed
        self._hear(item)
