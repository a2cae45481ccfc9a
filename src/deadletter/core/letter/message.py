"""A message as it came: the bytes of its properties and of its body, and a view for those who must look.

A message is never decoded on its way through. `RawMessage` holds the content header's property part (flags
and values, as on the wire) and the body; `spans` says where each property stands in it; `view` decodes all
of it, for people and for rules. Nothing here writes: what a move changes is in `envelope`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from struct import Struct
from typing import Any, Final, NamedTuple

from deadletter.core.letter import field_table
from deadletter.core.letter.field_table import Value
from deadletter.errors import MessageError

_U16: Final = Struct(">H")
_U32: Final = Struct(">I")

# The property flags, in the order in which the values stand.
CONTENT_TYPE: Final = 0x8000
CONTENT_ENCODING: Final = 0x4000
HEADERS: Final = 0x2000
DELIVERY_MODE: Final = 0x1000
PRIORITY: Final = 0x0800
CORRELATION_ID: Final = 0x0400
REPLY_TO: Final = 0x0200
EXPIRATION: Final = 0x0100
MESSAGE_ID: Final = 0x0080
TIMESTAMP: Final = 0x0040
TYPE: Final = 0x0020
USER_ID: Final = 0x0010
APP_ID: Final = 0x0008
CLUSTER_ID: Final = 0x0004
_UNKNOWN: Final = 0x0003
"""Bit 0 announces a second flag word, bit 1 a fifteenth property: AMQP 0-9-1 has neither for messages."""

_ORDER: Final = (
    CONTENT_TYPE, CONTENT_ENCODING, HEADERS, DELIVERY_MODE, PRIORITY, CORRELATION_ID, REPLY_TO, EXPIRATION,
    MESSAGE_ID, TIMESTAMP, TYPE, USER_ID, APP_ID, CLUSTER_ID,
)  # fmt: skip
_FIXED_BYTES: Final = {DELIVERY_MODE: 1, PRIORITY: 1, TIMESTAMP: 8}
_NAMES: Final = {
    CONTENT_TYPE: "content_type",
    CONTENT_ENCODING: "content_encoding",
    HEADERS: "headers",
    DELIVERY_MODE: "delivery_mode",
    PRIORITY: "priority",
    CORRELATION_ID: "correlation_id",
    REPLY_TO: "reply_to",
    EXPIRATION: "expiration",
    MESSAGE_ID: "message_id",
    TIMESTAMP: "timestamp",
    TYPE: "type",
    USER_ID: "user_id",
    APP_ID: "app_id",
    CLUSTER_ID: "cluster_id",
}
"""As `View` has them."""
_FLAGS_KNOWN: Final = 256


class RawMessage(NamedTuple):
    """Properties and body, both exactly as they came off the wire."""

    properties: bytes
    body: bytes


class Span(NamedTuple):
    start: int
    end: int


def flags_of(properties: bytes) -> int:
    """The property flags; raises MessageError on what AMQP 0-9-1 does not know."""
    if len(properties) < 2:
        raise MessageError(f"message properties begin with two bytes of flags; {len(properties)} came")
    flags: int = _U16.unpack_from(properties)[0]
    if flags & _UNKNOWN:
        raise MessageError(f"message properties with unknown flags {flags & _UNKNOWN:#06x}")
    return flags


def spans(properties: bytes) -> dict[int, Span]:
    """Where each property that is present stands, by its flag."""
    flags = flags_of(properties)
    found: dict[int, Span] = {}
    position = 2
    for flag in _ORDER:
        if not flags & flag:
            continue
        if (fixed := _FIXED_BYTES.get(flag)) is not None:
            end = position + fixed
        elif flag == HEADERS:
            if position + 4 > len(properties):
                raise MessageError("the header table's length is cut off")
            end = position + 4 + int(_U32.unpack_from(properties, position)[0])
        else:
            if position >= len(properties):
                raise MessageError("a message property is cut off")
            end = position + 1 + properties[position]
        if end > len(properties):
            raise MessageError(f"a message property reaches {end - len(properties)} bytes past the end")
        found[flag] = Span(position, end)
        position = end
    if position != len(properties):
        raise MessageError(f"{len(properties) - position} bytes too many after the message properties")
    return found


def header_table(properties: bytes) -> bytes:
    """The raw header table (without its length); empty when the message has none."""
    span = spans(properties).get(HEADERS)
    return b"" if span is None else properties[span.start + 4 : span.end]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """A message's properties as Python values; `None` where a property is not set."""

    content_type: str | None = None
    content_encoding: str | None = None
    headers: Mapping[str, Value] | None = None
    delivery_mode: int | None = None
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None
    message_id: str | None = None
    timestamp: datetime | int | None = None
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None
    cluster_id: str | None = None


def view(properties: bytes) -> View:
    """All properties decoded. Text that is not UTF-8 is shown with its odd bytes escaped."""
    told: dict[str, Any] = {}
    headers: Span | None = None
    start, size = 2, len(properties)
    for flag, name, fixed in _present(flags_of(properties)):
        # as `spans` walks, which says what is wrong where something is
        if fixed:
            end = start + fixed
        elif flag == HEADERS:
            end = start + 4 + int.from_bytes(properties[start : start + 4])
        else:
            end = start + 1 + (properties[start] if start < size else 0)
        if end > size:
            spans(properties)
        if flag == HEADERS:
            headers = Span(start + 4, end)
        elif flag == TIMESTAMP:
            told[name] = field_table.decode_value(b"T" + properties[start:end])
        elif fixed:
            told[name] = properties[start]
        else:
            told[name] = properties[start + 1 : end].decode("utf-8", "backslashreplace")
        start = end
    if start != size:
        spans(properties)
    if headers is not None:
        told["headers"] = field_table.decode(properties[headers.start : headers.end])
    return View(**told)


@lru_cache(maxsize=_FLAGS_KNOWN)
def _present(flags: int) -> tuple[tuple[int, str, int], ...]:
    """The properties that these flags announce: flag, name, and its bytes where they are always as many."""
    return tuple((flag, _NAMES[flag], _FIXED_BYTES.get(flag, 0)) for flag in _ORDER if flags & flag)


def encode(view: View) -> bytes:
    """Properties from Python values: for messages of our own making, never for one that passes through."""
    flags = 0
    values: list[bytes] = []

    def put(flag: int, value: bytes | None) -> None:
        nonlocal flags
        if value is not None:
            flags |= flag
            values.append(value)

    put(CONTENT_TYPE, _short(view.content_type))
    put(CONTENT_ENCODING, _short(view.content_encoding))
    if view.headers is not None:
        raw = field_table.encode(view.headers)
        put(HEADERS, _U32.pack(len(raw)) + raw)
    put(DELIVERY_MODE, _octet("delivery_mode", view.delivery_mode))
    put(PRIORITY, _octet("priority", view.priority))
    put(CORRELATION_ID, _short(view.correlation_id))
    put(REPLY_TO, _short(view.reply_to))
    put(EXPIRATION, _short(view.expiration))
    put(MESSAGE_ID, _short(view.message_id))
    put(TIMESTAMP, None if view.timestamp is None else _timestamp(view.timestamp))
    put(TYPE, _short(view.type))
    put(USER_ID, _short(view.user_id))
    put(APP_ID, _short(view.app_id))
    put(CLUSTER_ID, _short(view.cluster_id))
    return _U16.pack(flags) + b"".join(values)


def _short(text: str | None) -> bytes | None:
    if text is None:
        return None
    raw = text.encode()
    if len(raw) > 255:
        raise MessageError(
            f"a message property has at most 255 bytes; this one has {len(raw)}: {text[:40]!r}…"
        )
    return bytes((len(raw),)) + raw


def _timestamp(when: datetime | int) -> bytes:
    return field_table.encode_seconds(when if isinstance(when, int) else int(when.timestamp()))


def _octet(name: str, value: int | None) -> bytes | None:
    if value is None:
        return None
    if not 0 <= value <= 255:
        raise MessageError(f"expected {name} to be from 0 to 255, got {value}")
    return bytes((value,))
