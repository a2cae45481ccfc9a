"""A message in a queue of the memory broker, and how it looks when it is handed out.

Properties and body stay the bytes that were published. What a broker adds, it adds at delivery and into the
header table alone, which is then sorted by name as RabbitMQ does it; nothing is decoded and encoded again.
"""

from __future__ import annotations

from dataclasses import dataclass
from struct import Struct
from typing import Final

from deadletter.core.letter import field_table, message, names
from deadletter.core.topology.rabbitmq_versions import Traits

_U16: Final = Struct(">H")
_U32: Final = Struct(">I")

DELIVERY_COUNT: Final = names.X_DELIVERY_COUNT.encode()
ACQUIRED_COUNT: Final = b"x-acquired-count"

Place = tuple[int, int, int]
"""Where it stands in its queue; the lowest is the head."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One {queue, reason} a message died of, as 4.x remembers it beside the message."""

    queue: str
    reason: str
    count: int
    time_s: int
    exchange: str
    keys: tuple[str, ...]
    original_expiration: bytes | None


@dataclass(slots=True, eq=False, kw_only=True)
class QueuedCopy:
    """One copy of a message, in one queue."""

    properties: bytes
    body: bytes
    exchange: str
    keys: tuple[str, ...]
    """The routing key, then those of `CC`."""
    blind_keys: tuple[str, ...] = ()
    """Those of `BCC`, which count for the publish alone."""
    deaths: tuple[Record, ...] = ()
    """Newest first; 3.x keeps them in the header instead."""
    carried: int = 0
    """How often a consumer failed with it, in this queue or before: it outlives a death on 4.x."""
    # -- of this queue only
    place: Place = (1, 0, 0)
    expires_at: float | None = None
    redelivered: bool = False
    delivery_count: int = 0
    acquired_count: int = 0
    unacked: bool = False

    def copy(self) -> QueuedCopy:
        """The same message for another queue."""
        return QueuedCopy(
            properties=self.properties,
            body=self.body,
            exchange=self.exchange,
            keys=self.keys,
            deaths=self.deaths,
            carried=self.carried,
        )


def presented(item: QueuedCopy, traits: Traits, *, quorum: bool, by_get: bool) -> tuple[bytes, bool]:
    """The properties as this delivery shows them, and whether it is marked redelivered."""
    added: dict[bytes, int] = {}
    redelivered = item.redelivered or (traits.delivered_survives_death and item.carried > 0)
    if quorum:
        carried = item.carried if traits.counts_survive_death else 0
        count = item.delivery_count or carried
        if count or (by_get and traits.first_count_shown):
            added[DELIVERY_COUNT] = count
        if traits.acquired_count and (acquired := item.acquired_count or carried):
            added[ACQUIRED_COUNT] = acquired
        redelivered = item.acquired_count > 0 or carried > 0
    has_headers = bool(message.flags_of(item.properties) & message.HEADERS)
    if not added and not (traits.sorts_headers and has_headers):
        return item.properties, redelivered
    entries = b"".join(
        field_table.raw_entry(name, field_table.encode_value(value)) for name, value in added.items()
    )
    headers = field_table.splice(message.header_table(item.properties), remove=frozenset(added), add=entries)
    return with_headers(item.properties, in_order(headers)), redelivered


def in_order(headers: bytes) -> bytes:
    """A header table sorted by name, the values untouched."""
    entries = field_table.walk(headers)
    return b"".join(headers[start:end] for _, start, _, end in sorted(entries, key=lambda entry: entry[0]))


def with_headers(properties: bytes, headers: bytes) -> bytes:
    """These properties with another header table."""
    where = message.spans(properties)
    sized = _U32.pack(len(headers)) + headers
    if (span := where.get(message.HEADERS)) is not None:
        return properties[: span.start] + sized + properties[span.end :]
    before = [where[flag].end for flag in (message.CONTENT_TYPE, message.CONTENT_ENCODING) if flag in where]
    start = max(before, default=2)
    flags = message.flags_of(properties) | message.HEADERS
    return _U16.pack(flags) + properties[2:start] + sized + properties[start:]


def without(properties: bytes, flag: int) -> bytes:
    """These properties without one of them."""
    span = message.spans(properties).get(flag)
    if span is None:
        return properties
    flags = message.flags_of(properties) & ~flag
    return _U16.pack(flags) + properties[2 : span.start] + properties[span.end :]


def short_property(properties: bytes, flag: int) -> bytes | None:
    """A property that is a short string, as bytes."""
    span = message.spans(properties).get(flag)
    return None if span is None else properties[span.start + 1 : span.end]


def octet_property(properties: bytes, flag: int) -> int | None:
    span = message.spans(properties).get(flag)
    return None if span is None else properties[span.start]
