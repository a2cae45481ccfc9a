"""All bytes of a letter as one stream, and the letter again: what is packed, and what was unpacked."""

from __future__ import annotations

from struct import Struct
from typing import Final

from deadletter.core.grouping.compression import KNOWN_MAX_BYTES
from deadletter.core.letter.envelope import ExchangeKey
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.message import RawMessage

_LENGTHS: Final = Struct(">BBI")


def framed(letter: Letter) -> bytes:
    """All that makes it the letter it is: exchange, routing key, properties, body."""
    exchange, key = letter.came_by
    properties, body = letter.message
    return b"".join(
        (_LENGTHS.pack(len(exchange), len(key), len(properties)), exchange, key, properties, body)
    )


def dictionary_of(letter: Letter) -> bytes:
    """What others of its group are likely to have, too. The beginning of a body: there is its shape."""
    return framed(letter)[:KNOWN_MAX_BYTES]


def unframed(data: bytes, queue: str) -> Letter:
    """ValueError for what was not framed."""
    if len(data) < _LENGTHS.size:
        raise ValueError("stored bytes are damaged: no letter is in them")
    exchange, key, properties = _LENGTHS.unpack_from(data)
    key_at = _LENGTHS.size + exchange
    properties_at = key_at + key
    body_at = properties_at + properties
    return Letter(
        source=queue,
        message=RawMessage(data[properties_at:body_at], data[body_at:]),
        came_by=ExchangeKey(data[_LENGTHS.size : key_at], data[key_at:properties_at]),
        redelivered=False,
    )
