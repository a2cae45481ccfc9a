"""What follows the delivery mode in the properties of a message, cut and checked as bytes."""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Final

from deadletter.core.letter import field_table, names
from deadletter.core.letter.message import (
    APP_ID,
    CLUSTER_ID,
    CORRELATION_ID,
    EXPIRATION,
    MESSAGE_ID,
    PRIORITY,
    REPLY_TO,
    TIMESTAMP,
    TYPE,
    USER_ID,
)
from deadletter.core.letter.message import spans as spans_of

EXPIRATION_HEADER: Final = names.EXPIRATION.encode()
USER_ID_HEADER: Final = names.USER_ID.encode()
_pack_u16: Final = Struct(">H").pack
_pack_u32: Final = Struct(">I").pack
_TAIL: Final = (
    PRIORITY, CORRELATION_ID, REPLY_TO, EXPIRATION, MESSAGE_ID, TIMESTAMP, TYPE, USER_ID, APP_ID, CLUSTER_ID,
)  # fmt: skip
_TAIL_FLAGS: Final = sum(_TAIL)


def set_aside(flags: int, rest: bytes, user: bytes, kept: dict[bytes, bytes]) -> tuple[int, bytes]:
    """Cut `expiration` and a foreign `user_id` out of what follows the delivery mode."""
    raw = _pack_u16(flags & _TAIL_FLAGS) + rest
    where = spans_of(raw)
    pieces, position = [], 2
    if (span := where.get(EXPIRATION)) is not None:
        kept[EXPIRATION_HEADER] = _text_entry(EXPIRATION_HEADER, raw[span.start + 1 : span.end])
        pieces.append(raw[position : span.start])
        position = span.end
        flags &= ~EXPIRATION
    if (span := where.get(USER_ID)) is not None and (found := raw[span.start + 1 : span.end]) != user:
        kept[USER_ID_HEADER] = _text_entry(USER_ID_HEADER, found)
        pieces.append(raw[position : span.start])
        position = span.end
        flags &= ~USER_ID
    pieces.append(raw[position:])
    return flags, b"".join(pieces)


def check(flags: int, rest: bytes) -> None:
    """What follows the delivery mode must be as long as it says: damage must not reach the broker."""
    position = 0
    try:
        for fixed in _tail_shape(flags & _TAIL_FLAGS):
            position += fixed or 1 + rest[position]
    except IndexError:
        position = -1
    if position != len(rest):
        spans_of(_pack_u16(flags & _TAIL_FLAGS) + rest)  # raises, and says what is wrong


def tail_shape(flags: int) -> tuple[int, ...]:
    """The bytes of each property after the delivery mode, 0 for a short string, which says itself."""
    return _tail_shape(flags & _TAIL_FLAGS)


@lru_cache(maxsize=1024)
def _tail_shape(flags: int) -> tuple[int, ...]:
    fixed = {PRIORITY: 1, TIMESTAMP: 8}
    return tuple(fixed.get(flag, 0) for flag in _TAIL if flags & flag)


def _text_entry(name: bytes, value: bytes) -> bytes:
    return field_table.raw_entry(name, b"S" + _pack_u32(len(value)) + value)
