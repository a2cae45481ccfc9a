"""Frames: cutting the byte stream into them, and putting our own together.

A frame is a type, a channel, a size, that many bytes, and the octet 0xCE. `FrameReader` is fed whatever the
socket had and hands out whole frames; it holds back at most one incomplete frame, whose announced size it
checks before it waits for it, so no peer can make it hoard.

A delivery is mostly here whole: its method, its content header and its body in one frame. Such a one comes
out as one (`DELIVERY`), already read: three frames would be looked at one after the other, by three hands.

Frames above the negotiated maximum are accepted up to `INCOMING_FRAME_MAX_BYTES`: RabbitMQ itself sends
them, when a header table that just fitted has grown by the entries of a death.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Final, TypeAlias, cast

from deadletter.amqp.deliveries import Delivery
from deadletter.core.letter.message import RawMessage
from deadletter.errors import FrameError

METHOD: Final = 1
HEADER: Final = 2
BODY: Final = 3
HEARTBEAT: Final = 8
DELIVERY: Final = 0
"""No frame of AMQP: a delivery that came whole."""
_KINDS: Final = frozenset({METHOD, HEADER, BODY, HEARTBEAT})

FRAME_END: Final = b"\xce"
_END: Final = 0xCE
OVERHEAD_BYTES: Final = 8
"""Type, channel, size and the end octet."""
INCOMING_FRAME_MAX_BYTES: Final = 4 * 1024 * 1024
PROTOCOL_HEADER: Final = b"AMQP\x00\x00\x09\x01"
HEARTBEAT_FRAME: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"

_PREFIX: Final = Struct(">BHI")
_unpack_prefix: Final = _PREFIX.unpack_from
_CONTENT: Final = Struct(">BHIHHQ")
_pack_content: Final = _CONTENT.pack
_unpack_content: Final = _CONTENT.unpack_from
_CONTENT_BYTES: Final = _CONTENT.size
_BASIC: Final = 60
_DELIVER: Final = b"\x00\x3c\x00\x3c"
_unpack_delivery: Final = Struct(">QBB").unpack_from

RawFrame: TypeAlias = tuple[int, int, bytes]
"""Type, channel and payload."""
WholeDelivery: TypeAlias = tuple[bytes, Delivery]
"""The tag of the consumer, and what it is handed."""


class FrameReader:
    """Bytes in, whole frames out, at any boundary."""

    __slots__ = ("_limit_bytes", "_rest")

    def __init__(self, *, limit_bytes: int = INCOMING_FRAME_MAX_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._rest = b""

    @property
    def held_bytes(self) -> int:
        """How much is held back: never more than one frame that is not whole yet."""
        return len(self._rest)

    def feed(self, data: bytes) -> Iterator[RawFrame]:
        """Every frame that is whole now."""
        return cast("Iterator[RawFrame]", self._read(data, deliveries=False))

    def feed_client(self, data: bytes) -> Iterator[tuple[int, int, bytes | WholeDelivery]]:
        """The same, with every delivery that is whole now as one."""
        return self._read(data, deliveries=True)

    def _read(self, data: bytes, *, deliveries: bool) -> Iterator[tuple[int, int, bytes | WholeDelivery]]:
        if self._rest:
            data = self._rest + data
            self._rest = b""
        position, size = 0, len(data)
        limit = self._limit_bytes
        while size - position >= 7:
            kind, channel, length = _unpack_prefix(data, position)
            if kind not in _KINDS or length > limit:
                raise _unreadable(data[position:], kind, length, limit)
            start = position + 7
            end = start + length
            if end >= size:
                break
            if data[end] != _END:
                raise FrameError(
                    f"a frame ends with {data[end]:#04x} where AMQP has 0xce: the stream is damaged"
                )
            if deliveries and channel and kind == METHOD and data.startswith(_DELIVER, start):
                whole = _whole(data, start, end, channel, size)
                if whole is not None:
                    position = whole[0]
                    yield DELIVERY, channel, whole[1]
                    continue
            position = end + 1
            yield kind, channel, data[start:end]
        else:
            if size > position and data[position] not in _KINDS:
                raise _unreadable(data[position:], data[position], 0, limit)
        self._rest = data[position:]


def _whole(data: bytes, start: int, end: int, channel: int, size: int) -> tuple[int, WholeDelivery] | None:
    """The delivery whose method stands there, and where the next frame begins. None: it is not here whole, or
    not as it mostly is; then its frames are taken one by one, and what is wrong with one is said."""
    header = end + 1
    if header + _CONTENT_BYTES > size:
        return None
    kind, same, length, _, _, body_bytes = _unpack_content(data, header)
    properties_end = header + 7 + length
    body = properties_end + 8
    stop = body + body_bytes
    if kind != HEADER or same != channel or not body_bytes or length < 14 or stop >= size:
        return None
    kind, same, length = _unpack_prefix(data, properties_end + 1)
    if kind != BODY or same != channel or length != body_bytes:
        return None
    if data[properties_end] != _END or data[stop] != _END:
        return None
    consumer_end = start + 5 + data[start + 4]
    exchange = consumer_end + 10
    if exchange >= end:
        return None
    tag, redelivered, exchange_bytes = _unpack_delivery(data, consumer_end)
    key = exchange + exchange_bytes
    if key >= end or key + 1 + data[key] != end:
        return None
    message = RawMessage(data[header + _CONTENT_BYTES : properties_end], data[body:stop])
    return stop + 1, (
        data[start + 5 : consumer_end],
        Delivery(tag, redelivered & 1 == 1, data[exchange:key], data[key + 1 : end], message),
    )


def _unreadable(data: bytes, kind: int, length: int, limit: int) -> FrameError:
    if kind in _KINDS:
        return FrameError(f"a frame of {length} bytes was announced; at most {limit} are accepted")
    first = bytes(data[:8])
    return FrameError(f"this is not AMQP: a frame begins with {first!r}", first_bytes=first)


def method_frame(channel: int, payload: bytes) -> bytes:
    return _PREFIX.pack(METHOD, channel, len(payload)) + payload + FRAME_END


def publish_frames(
    channel: int, publishing: bytes, properties: bytes, body: bytes, frame_max_bytes: int
) -> tuple[bytes, ...]:
    """All frames of a publish; `publishing` is the first of them. In one piece where the body takes one
    frame: to join a few thousand bytes is quicker than to carry six pieces about."""
    size = len(body)
    if not 0 < size <= frame_max_bytes - OVERHEAD_BYTES:
        return (publishing, *content_frames(channel, properties, body, frame_max_bytes))
    header = _pack_content(HEADER, channel, len(properties) + 12, _BASIC, 0, size)
    between = _END_AND_PREFIX(FRAME_END, BODY, channel, size)
    return (b"".join((publishing, header, properties, between, body, FRAME_END)),)


def content_frames(channel: int, properties: bytes, body: bytes, frame_max_bytes: int) -> list[bytes]:
    """The header frame and as many body frames as it takes; an empty body takes none."""
    size = len(body)
    pieces = [
        _pack_content(HEADER, channel, len(properties) + 12, _BASIC, 0, size),
        properties,
        FRAME_END,
    ]
    most = frame_max_bytes - OVERHEAD_BYTES
    for start in range(0, size, most):
        part = body[start : start + most]
        pieces += (_PREFIX.pack(BODY, channel, len(part)), part, FRAME_END)
    return pieces


_END_AND_PREFIX: Final = Struct(">cBHI").pack


def content_header(payload: bytes) -> tuple[int, bytes]:
    """The announced body size and the properties of a content header frame."""
    if len(payload) < 14:
        raise FrameError(f"a content header has at least 14 bytes; {len(payload)} came")
    return int.from_bytes(payload[4:12], "big"), payload[12:]
