"""Looking at letters without keeping one: taken, read, given back.

The same care as everywhere: no more letters are taken than are shown, each is given back in the way that
costs least on this broker, and one with few deliveries left is renewed rather than spent
(`core.topology.look_cost`). The management API is asked for the queue's limit, where it answers; without it
the default is assumed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deadletter.amqp.address import Address
from deadletter.broker.session import Connected
from deadletter.core.deciding.letter_view import LetterView, view_letter
from deadletter.core.letter import names
from deadletter.core.letter.header_values import MAX_NAME_BYTES, shown
from deadletter.core.letter.message import View
from deadletter.core.text.safe_text import block
from deadletter.core.topology.look_cost import Deliveries, LookCost
from deadletter.core.topology.rabbitmq_versions import traits_of
from deadletter.errors import MessageError
from deadletter.move.courier import Bounds, Courier, Leave, Letter, MoveEvent, Verdict
from deadletter.operations.lifting import Taking, taking


@dataclass(frozen=True, slots=True, kw_only=True)
class Peeked:
    """One letter as a person wants to see it."""

    id: str
    exchange: str
    routing_key: str
    redelivered: bool
    properties: View
    letter: LetterView
    body: bytes
    delivery_count: int | None
    """How many deliveries it has spent; None on a queue that does not count."""
    remaining_deliveries: int | None
    """How many it has left; None where there is no limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeekResult:
    """What was seen, and what seeing it did."""

    queue: str
    letters: tuple[Peeked, ...]
    unreadable: int
    renewed: int
    parked: Mapping[str, int]
    """Why letters were put into `deadletter.parked`: they could neither be given back nor stay."""
    endangered: Mapping[str, int]
    """Why letters were given back although that may have destroyed them."""
    server_version: str
    deliveries: Deliveries
    advice: str
    notes: tuple[str, ...]
    counted: bool
    """Whether the queue counts deliveries: a quorum queue."""

    @property
    def cost(self) -> LookCost:
        return self.deliveries.cost


async def peek(
    addresses: Sequence[Address], queue: str, *, limit: int, api: str | None = None, lift: bool = False
) -> PeekResult:
    """The first letters of a queue, all of them still there afterwards."""
    async with taking(addresses, queue, api=api, lift=lift) as asked:
        eye = _Eye(asked)
        tally = await Courier(
            addresses,
            source=queue,
            decide=eye.decide,
            bounds=Bounds(count=limit),
            limits=asked.limits,
            on_event=eye.hear,
        ).run()
    return PeekResult(
        queue=queue,
        letters=tuple(eye.letters),
        unreadable=eye.unreadable,
        renewed=tally.renewed,
        parked=tally.sheltered,
        endangered=tally.endangered,
        server_version=asked.server_version,
        deliveries=asked.deliveries,
        advice=asked.advice,
        notes=tuple(asked.notes),
        counted=eye.counted,
    )


class _Eye:
    """Reads every letter that comes by, and leaves it."""

    def __init__(self, asked: Taking) -> None:
        self.letters: list[Peeked] = []
        self.unreadable = 0
        self.counted = False
        self._asked = asked

    def hear(self, event: MoveEvent) -> None:
        """After a lost connection the same letters are seen again."""
        if isinstance(event, Connected):
            self.letters.clear()

    def decide(self, letter: Letter) -> Verdict:
        try:
            seen = self._read(letter)
        except MessageError:
            self.unreadable += 1
            return Leave()
        self.letters.append(seen)
        return Leave()

    def _read(self, letter: Letter) -> Peeked:
        headers = dict(letter.headers)
        counts = names.DELIVERY_COUNTS & headers.keys()
        self.counted = self.counted or bool(counts)
        spent = letter.delivery_count if counts else None
        return Peeked(
            id=letter.id,
            exchange=shown(letter.exchange, MAX_NAME_BYTES),
            routing_key=shown(letter.routing_key, 4 * MAX_NAME_BYTES),
            redelivered=letter.redelivered,
            properties=letter.view,
            letter=view_letter(
                headers,
                broker_keeps_client_deaths=traits_of(self._asked.server_version).believes_clients,
                content_type=letter.view.content_type,
                body=letter.body,
            ),
            body=letter.body,
            delivery_count=spent,
            remaining_deliveries=None if spent is None else self._asked.deliveries.left(spent),
        )


def body_text(body: bytes, content_type: str | None, *, most: int) -> str:
    """A body for people: JSON as JSON, text as text, the rest as a hex dump; at most `most` bytes."""
    cut = body[:most]
    more = f"\n… {len(body) - most:,} bytes more" if len(body) > most else ""
    if "json" in (content_type or "") or body[:1] in (b"{", b"["):
        try:
            return block(json.dumps(json.loads(body), ensure_ascii=False, indent=2)[:most]) + more
        except ValueError:
            pass  # it says JSON and is none: shown as it is
    try:
        text = cut.decode()
    except UnicodeDecodeError as error:
        if error.start < len(cut) - 4 or len(body) <= most:
            return f"{len(body):,} bytes: {cut[:64].hex(' ')}{' …' if len(body) > 64 else ''}"
        text = cut[: error.start].decode()  # cut in the middle of a character
    return block(text) + more
