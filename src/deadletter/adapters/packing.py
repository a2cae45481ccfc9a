"""A parcel as the bytes that are published: with all its headers, with fewer, or whole inside another one.

A header frame above the connection's maximum closes the connection and takes the neighbours with it, so the
size is looked at before. What does not fit loses the stack first. What does not fit even then travels whole
inside another message (`core.letter.wrapping`) to the place for those that failed for good.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from deadletter.adapters.rulings import Parcel
from deadletter.consumer.handlers.failure_details import slimmer
from deadletter.core.letter.envelope import EnvelopeRoute, ExchangeKey
from deadletter.core.letter.key_bytes import as_bytes
from deadletter.core.letter.message import RawMessage
from deadletter.core.letter.parking import Cause
from deadletter.core.letter.wrapping import wrap
from deadletter.errors import MoveFailed
from deadletter.move.verdict import Send

FRAME_BYTES: Final = 20
"""What a header frame has beside the properties."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packed:
    """Ready to be published, mandatory and confirmed."""

    exchange: str
    routing_key: str
    message: RawMessage


def pack(parcel: Parcel, *, run: str, number: int, user: str, frame_max_bytes: int, now_ms: int) -> Packed:
    """Publish number `number` of this run. Raises MoveFailed when there is no way for it."""
    send = parcel.send
    for candidate in (send, replace(send, headers=slimmer(dict(send.headers)))):
        properties = _properties(parcel, candidate, run=run, number=number, user=user)
        if len(properties) + FRAME_BYTES <= frame_max_bytes:
            message = RawMessage(properties, parcel.letter.body)
            return Packed(exchange=send.exchange, routing_key=send.routing_key, message=message)
    refuge = parcel.refuge
    if refuge is None:
        raise MoveFailed(f"its headers do not fit into a frame of {frame_max_bytes} bytes")
    wrapped = wrap(
        parcel.letter.message,
        source=parcel.letter.source,
        came_by=parcel.letter.came_by,
        move=f"{run}-{number}",
        cause=Cause.UNREADABLE,
        why=f"its headers do not fit into a frame of {frame_max_bytes} bytes; it failed with: {parcel.why}",
        at_ms=now_ms,
    )
    return Packed(exchange=refuge.exchange, routing_key=refuge.routing_key, message=wrapped)


def _properties(parcel: Parcel, send: Send, *, run: str, number: int, user: str) -> bytes:
    route = EnvelopeRoute(
        run=run,
        source=parcel.letter.source,
        user=user,
        target=ExchangeKey(send.exchange.encode(), as_bytes(send.routing_key)),
        deaths=send.deaths,
        leg=send.leg,
        anew=send.anew,
        circling=send.circling,
        add=send.headers,
    )
    return route.properties(parcel.letter.message, came_by=parcel.letter.came_by, number=number)
