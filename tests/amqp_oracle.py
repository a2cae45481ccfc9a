"""AMQP 0-9-1 written down a second time, for the tests: values that know their own bytes.

Nothing here imports our codec. A `Field` is made by the function named for its type and carries what stands
on the wire and what a reader should see; tables, properties, methods and frames are joined from them. Where
our code and this page disagree, one of the two has misread the specification.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import NamedTuple, TypeAlias


class Field(NamedTuple):
    """One typed value: its type octet and bytes, and what a reader is shown."""

    wire: bytes
    seen: object


Entries: TypeAlias = Sequence[tuple[bytes, Field]]


# -- the types, in the order of RabbitMQ's list -------------------------------------------------------------
def boolean(value: bool) -> Field:
    return Field(b"t\x01" if value else b"t\x00", value)


def _integer(kind: bytes, width: int, value: int, *, signed: bool) -> Field:
    return Field(kind + value.to_bytes(width, "big", signed=signed), value)


def int8(value: int) -> Field:
    return _integer(b"b", 1, value, signed=True)


def uint8(value: int) -> Field:
    return _integer(b"B", 1, value, signed=False)


def int16(value: int) -> Field:
    return _integer(b"s", 2, value, signed=True)


def int16_of_the_specification(value: int) -> Field:
    return _integer(b"U", 2, value, signed=True)


def uint16(value: int) -> Field:
    return _integer(b"u", 2, value, signed=False)


def int32(value: int) -> Field:
    return _integer(b"I", 4, value, signed=True)


def uint32(value: int) -> Field:
    return _integer(b"i", 4, value, signed=False)


def int64(value: int) -> Field:
    return _integer(b"l", 8, value, signed=True)


def int64_of_the_specification(value: int) -> Field:
    return _integer(b"L", 8, value, signed=True)


def float32(value: float) -> Field:
    raw = struct.pack("!f", value)
    return Field(b"f" + raw, struct.unpack("!f", raw)[0])


def float64(value: float) -> Field:
    return Field(b"d" + struct.pack("!d", value), value)


def decimal(places: int, unscaled: int) -> Field:
    digits = tuple(int(digit) for digit in str(unscaled))
    wire = b"D" + places.to_bytes(1, "big") + unscaled.to_bytes(4, "big")
    return Field(wire, Decimal((0, digits, -places)))


def text(raw: bytes) -> Field:
    """A long string. One that is not UTF-8 is shown as the bytes it is."""
    try:
        return Field(b"S" + long(raw), raw.decode("utf-8"))
    except UnicodeDecodeError:
        return Field(b"S" + long(raw), raw)


def binary(raw: bytes) -> Field:
    return Field(b"x" + long(raw), raw)


def timestamp(seconds: int) -> Field:
    wire = b"T" + seconds.to_bytes(8, "big")
    if seconds < 253402300800:  # the year 10000
        return Field(wire, datetime.fromtimestamp(seconds, UTC))
    return Field(wire, seconds)


def void() -> Field:
    return Field(b"V", None)


def array(elements: Sequence[Field]) -> Field:
    raw = b"".join(element.wire for element in elements)
    return Field(b"A" + long(raw), [element.seen for element in elements])


def table(entries: Entries) -> Field:
    return Field(b"F" + long(table_bytes(entries)), seen(entries))


def entry(name: bytes, value: Field) -> bytes:
    return short(name) + value.wire


def table_bytes(entries: Entries) -> bytes:
    """A table without its length."""
    return b"".join(entry(name, value) for name, value in entries)


def seen(entries: Entries) -> dict[str, object]:
    """What a reader is shown; of entries with one name the last."""
    return {name.decode("utf-8", "backslashreplace"): value.seen for name, value in entries}


# -- properties ---------------------------------------------------------------------------------------------
def short(raw: bytes) -> bytes:
    return len(raw).to_bytes(1, "big") + raw


def long(raw: bytes) -> bytes:
    return len(raw).to_bytes(4, "big") + raw


def properties(
    *,
    content_type: bytes | None = None,
    content_encoding: bytes | None = None,
    headers: bytes | None = None,
    delivery_mode: int | None = None,
    priority: int | None = None,
    correlation_id: bytes | None = None,
    reply_to: bytes | None = None,
    expiration: bytes | None = None,
    message_id: bytes | None = None,
    timestamp_s: int | None = None,
    kind: bytes | None = None,
    user_id: bytes | None = None,
    app_id: bytes | None = None,
    cluster_id: bytes | None = None,
) -> bytes:
    """The property part of a content header; what is None is not set."""

    def string(raw: bytes | None) -> bytes | None:
        return None if raw is None else short(raw)

    def octet(value: int | None) -> bytes | None:
        return None if value is None else value.to_bytes(1, "big")

    values = (
        string(content_type),
        string(content_encoding),
        None if headers is None else long(headers),
        octet(delivery_mode),
        octet(priority),
        string(correlation_id),
        string(reply_to),
        string(expiration),
        string(message_id),
        None if timestamp_s is None else timestamp_s.to_bytes(8, "big"),
        string(kind),
        string(user_id),
        string(app_id),
        string(cluster_id),
    )
    flags = 0
    for place, value in enumerate(values):
        if value is not None:
            flags |= 1 << (15 - place)
    return flags.to_bytes(2, "big") + b"".join(value for value in values if value is not None)


# -- methods and frames -------------------------------------------------------------------------------------
METHOD, HEADER, BODY, HEARTBEAT = 1, 2, 3, 8


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    return kind.to_bytes(1, "big") + channel.to_bytes(2, "big") + long(payload) + b"\xce"


def method(class_id: int, method_id: int, *arguments: bytes) -> bytes:
    """A method's payload."""
    return class_id.to_bytes(2, "big") + method_id.to_bytes(2, "big") + b"".join(arguments)


def content(channel: int, props: bytes, body: bytes, *, parts: Iterable[bytes] | None = None) -> bytes:
    """Header frame and body frames; one body frame unless told the parts."""
    header = b"\x00\x3c\x00\x00" + len(body).to_bytes(8, "big") + props
    pieces = list(parts) if parts is not None else [body] if body else []
    return frame(HEADER, channel, header) + b"".join(frame(BODY, channel, piece) for piece in pieces)


def closing(class_id: int, method_id: int, code: int, why: bytes) -> bytes:
    """`connection.close` (10, 50) and `channel.close` (20, 40)."""
    return method(class_id, method_id, code.to_bytes(2, "big"), short(why), b"\0\0\0\0")


def start(mechanisms: bytes = b"PLAIN AMQPLAIN", *, version: bytes = b"0.0.1") -> bytes:
    about = table_bytes([(b"product", text(b"Oracle")), (b"version", text(version))])
    return method(10, 10, b"\x00\x09", long(about), long(mechanisms), long(b"en_US"))


def tune(channel_max: int, frame_max: int, heartbeat_s: int) -> bytes:
    return method(10, 30, struct.pack("!HIH", channel_max, frame_max, heartbeat_s))


OPEN_OK = method(10, 41, b"\0")
CLOSE_CONNECTION_OK = method(10, 51)
UNBLOCKED = method(10, 61)
OPEN_CHANNEL_OK = method(20, 11, b"\0\0\0\0")
CLOSE_CHANNEL_OK = method(20, 41)
QOS_OK = method(60, 11)
CONFIRM_OK = method(85, 11)
BIND_OK = method(50, 21)


def blocked(why: bytes) -> bytes:
    return method(10, 60, short(why))


def declare_ok(queue: bytes, messages: int, consumers: int) -> bytes:
    return method(50, 11, short(queue), struct.pack("!II", messages, consumers))


def consume_ok(tag: bytes) -> bytes:
    return method(60, 21, short(tag))


def cancel(tag: bytes) -> bytes:
    return method(60, 30, short(tag), b"\x01")


def deliver(consumer: bytes, tag: int, exchange: bytes, key: bytes, *, redelivered: bool = False) -> bytes:
    marks = tag.to_bytes(8, "big") + bytes((redelivered,))
    return method(60, 60, short(consumer), marks, short(exchange), short(key))


def ack(tag: int, *, multiple: bool = False) -> bytes:
    return method(60, 80, tag.to_bytes(8, "big"), bytes((multiple,)))
