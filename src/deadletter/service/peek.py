"""Looking at letters without keeping one: taken, read, given back.

The same care as everywhere: no more letters are taken than are shown, each is given back in the way that
costs least on this broker, and one that has few deliveries left is renewed rather than spent
(`core.looking`). Nothing is asked of the management API.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from deadletter.amqp.address import Address
from deadletter.broker.courier import Bounds, Courier, Deaths, Event, Leave, Letter, Send, Verdict
from deadletter.broker.session import Connected, Link, supervise
from deadletter.core import looking, names
from deadletter.core.lenient import MAX_NAME_BYTES, shown
from deadletter.core.letter_view import LetterView, view_letter
from deadletter.core.looking import LookCost
from deadletter.core.message import View
from deadletter.core.shown import block
from deadletter.errors import MessageError


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
    """How many it has left, if nobody set another limit; None where there is none by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """What was seen, and what seeing it did."""

    queue: str
    letters: tuple[Peeked, ...]
    unreadable: int
    renewed: int
    server_version: str
    cost: LookCost
    counted: bool
    """Whether the queue counts deliveries: a quorum queue."""


async def peek(addresses: Sequence[Address], queue: str, *, limit: int) -> Look:
    """The first letters of a queue, all of them still there afterwards."""

    async def ask_version(link: Link) -> str:
        return (await link.connection("consume")).server_version

    version = await supervise(addresses, ask_version)
    eye = _Eye(queue, version)
    await Courier(
        addresses, source=queue, decide=eye.decide, bounds=Bounds(count=limit), on_event=eye.hear
    ).run()
    return Look(
        queue=queue,
        letters=tuple(eye.letters),
        unreadable=eye.unreadable,
        renewed=eye.renewed,
        server_version=version,
        cost=eye.cost,
        counted=eye.counted,
    )


class _Eye:
    """Reads every letter that comes by, and leaves it."""

    def __init__(self, queue: str, version: str) -> None:
        self.cost = looking.look_cost(version)
        self.letters: list[Peeked] = []
        self.unreadable = 0
        self.renewed = 0
        self.counted = False
        self._version = version
        self._renew = Send(routing_key=queue, deaths=Deaths.KEEP)

    def hear(self, event: Event) -> None:
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
        if looking.must_renew(self.cost, seen.delivery_count or 0):
            self.renewed += 1
            return self._renew
        return Leave()

    def _read(self, letter: Letter) -> Peeked:
        headers = dict(letter.headers)
        counts = names.DELIVERY_COUNTS & headers.keys()
        self.counted = self.counted or bool(counts)
        spent = letter.delivery_count if counts or letter.redelivered else None
        limited = spent is not None and looking.limits_deliveries(self._version)
        return Peeked(
            id=letter.id,
            exchange=shown(letter.exchange, MAX_NAME_BYTES),
            routing_key=shown(letter.routing_key, 4 * MAX_NAME_BYTES),
            redelivered=letter.redelivered,
            properties=letter.view,
            letter=view_letter(
                headers,
                broker_keeps_client_deaths=looking.version_of(self._version) < (4, 0),
                content_type=letter.view.content_type,
                body=letter.body,
            ),
            body=letter.body,
            delivery_count=spent if counts else None,
            remaining_deliveries=looking.DEFAULT_LIMIT - (spent or 0) if limited and counts else None,
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
