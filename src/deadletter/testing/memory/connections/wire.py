"""The broker's side of AMQP 0-9-1: reading what our client says, and writing what a broker answers.

The client's side is `deadletter.amqp`; this is its mirror, as far as our client speaks.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from deadletter.core.letter import field_table
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.key_bytes import as_bytes, as_text

_U16: Final = Struct(">H")
_U32: Final = Struct(">I")
_U64: Final = Struct(">Q")


class MethodReader:
    """The arguments of one method, in their order. Names keep any bytes they are made of."""

    __slots__ = ("_payload", "_position")

    def __init__(self, payload: bytes) -> None:
        self._payload = payload
        self._position = 4

    def _take(self, size: int) -> bytes:
        start = self._position
        self._position += size
        return self._payload[start : self._position]

    def octet(self) -> int:
        return self._take(1)[0]

    def u16(self) -> int:
        return int(_U16.unpack(self._take(2))[0])

    def u32(self) -> int:
        return int(_U32.unpack(self._take(4))[0])

    def u64(self) -> int:
        return int(_U64.unpack(self._take(8))[0])

    def short(self) -> str:
        return as_text(self._take(self.octet()))

    def table(self) -> dict[str, Value]:
        return field_table.decode(self._take(self.u32()))

    def bits(self, count: int) -> tuple[bool, ...]:
        flags = self.octet()
        return tuple(bool(flags >> place & 1) for place in range(count))


def _short(text: str) -> bytes:
    raw = as_bytes(text)[:255]
    return bytes((len(raw),)) + raw


def _method(class_id: int, method_id: int, *arguments: bytes) -> bytes:
    return b"".join((_U16.pack(class_id), _U16.pack(method_id), *arguments))


# -- connection and channel ---------------------------------------------------------------------------------
CLOSE_CONNECTION_OK: Final = _method(10, 51)
UNBLOCKED: Final = _method(10, 61)
OPEN_CHANNEL_OK: Final = _method(20, 11, b"\0\0\0\0")
CLOSE_CHANNEL_OK: Final = _method(20, 41)


def close_connection(code: int, text: str) -> bytes:
    return _method(10, 50, _U16.pack(code), _short(text), b"\0\0\0\0")


def blocked(reason: str) -> bytes:
    return _method(10, 60, _short(reason))


def close_channel(code: int, text: str) -> bytes:
    return _method(20, 40, _U16.pack(code), _short(text), b"\0\0\0\0")


# -- shapes -------------------------------------------------------------------------------------------------
DECLARE_EXCHANGE_OK: Final = _method(40, 11)
DELETE_EXCHANGE_OK: Final = _method(40, 21)
BIND_EXCHANGE_OK: Final = _method(40, 31)
UNBIND_EXCHANGE_OK: Final = _method(40, 51)
BIND_OK: Final = _method(50, 21)
UNBIND_OK: Final = _method(50, 51)
QOS_OK: Final = _method(60, 11)
CONFIRMS_OK: Final = _method(85, 11)
TRANSACTIONS_OK: Final = _method(90, 11)
COMMIT_OK: Final = _method(90, 21)


def declare_queue_ok(queue: str, messages: int, consumers: int) -> bytes:
    return _method(50, 11, _short(queue), _U32.pack(messages), _U32.pack(consumers))


def purge_ok(messages: int) -> bytes:
    return _method(50, 31, _U32.pack(messages))


def delete_queue_ok(messages: int) -> bytes:
    return _method(50, 41, _U32.pack(messages))


# -- messages -----------------------------------------------------------------------------------------------
GET_EMPTY: Final = _method(60, 72, b"\0")


def consume_ok(tag: str) -> bytes:
    return _method(60, 21, _short(tag))


def cancel(tag: str) -> bytes:
    return _method(60, 30, _short(tag), b"\1")


def cancel_ok(tag: str) -> bytes:
    return _method(60, 31, _short(tag))


def deliver(consumer: str, tag: int, *, redelivered: bool, exchange: str, key: str) -> bytes:
    return _method(
        60, 60, _short(consumer), _U64.pack(tag), bytes((redelivered,)), _short(exchange), _short(key)
    )


def get_ok(tag: int, *, redelivered: bool, exchange: str, key: str, messages: int) -> bytes:
    return _method(
        60, 71, _U64.pack(tag), bytes((redelivered,)), _short(exchange), _short(key), _U32.pack(messages)
    )


def returned(exchange: str, key: str) -> bytes:
    return _method(60, 50, _U16.pack(312), _short("NO_ROUTE"), _short(exchange), _short(key))


def confirmed(tag: int, *, ok: bool) -> bytes:
    return _method(60, 80 if ok else 120, _U64.pack(tag), b"\0")
