"""What we say to a broker: one function per method, each returning the method's payload.

Written by hand because the ready codec refuses names that RabbitMQ allows (anything outside
`[a-zA-Z0-9-_.:@#,/+ ]`, or past 127 characters): a dead letter queue may be called `größe|retry`.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Final

from deadletter.core.letter import field_table
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.key_bytes import as_bytes
from deadletter.errors import UsageError

_U16: Final = Struct(">H")
_U32: Final = Struct(">I")
_RESERVED: Final = b"\0\0"
_NO_ARGUMENTS: Final[Mapping[str, Value]] = {}


def short(text: str) -> bytes:
    """A short string: at most 255 bytes."""
    return _short(text.encode(), text)


def _short(raw: bytes, text: str) -> bytes:
    if len(raw) > 255:
        raise UsageError(f"a name on a broker has at most 255 bytes; this one has {len(raw)}: {text[:60]!r}…")
    return bytes((len(raw),)) + raw


def long(raw: bytes) -> bytes:
    return _U32.pack(len(raw)) + raw


def _table(values: Mapping[str, Value]) -> bytes:
    return long(field_table.encode(values))


def _bits(*flags: bool) -> bytes:
    return bytes((sum(flag << place for place, flag in enumerate(flags)),))


def _method(class_id: int, method_id: int, *arguments: bytes) -> bytes:
    return b"".join((_U16.pack(class_id), _U16.pack(method_id), *arguments))


# -- connection -------------------------------------------------------------------------------------------
def start_ok(properties: Mapping[str, Value], mechanism: str, response: bytes) -> bytes:
    return _method(10, 11, _table(properties), short(mechanism), long(response), short("en_US"))


def tune_ok(channel_max: int, frame_max_bytes: int, heartbeat_s: int) -> bytes:
    return _method(10, 31, Struct(">HIH").pack(channel_max, frame_max_bytes, heartbeat_s))


def open_connection(vhost: str) -> bytes:
    return _method(10, 40, short(vhost), b"\0\0")


def close_connection(code: int = 200, text: str = "") -> bytes:
    return _method(10, 50, _U16.pack(code), short(text), b"\0\0\0\0")


CLOSE_CONNECTION_OK: Final = _method(10, 51)

# -- channel ----------------------------------------------------------------------------------------------
OPEN_CHANNEL: Final = _method(20, 10, b"\0")
CLOSE_CHANNEL_OK: Final = _method(20, 41)
SELECT_CONFIRMS: Final = _method(85, 10, b"\0")
SELECT_TRANSACTIONS: Final = _method(90, 10)
COMMIT: Final = _method(90, 20)


def flow_ok(*, active: bool) -> bytes:
    return _method(20, 21, _bits(active))


def close_channel(code: int = 200, text: str = "") -> bytes:
    return _method(20, 40, _U16.pack(code), short(text), b"\0\0\0\0")


# -- shapes -----------------------------------------------------------------------------------------------
def declare_exchange(
    exchange: str,
    kind: str,
    *,
    passive: bool = False,
    durable: bool = True,
    auto_delete: bool = False,
    internal: bool = False,
    arguments: Mapping[str, Value] = _NO_ARGUMENTS,
) -> bytes:
    flags = _bits(passive, durable, auto_delete, internal, False)
    return _method(40, 10, _RESERVED, short(exchange), short(kind), flags, _table(arguments))


def delete_exchange(exchange: str, *, if_unused: bool = False) -> bytes:
    return _method(40, 20, _RESERVED, short(exchange), _bits(if_unused, False))


def bind_exchange(
    destination: str, source: str, routing_key: str, arguments: Mapping[str, Value] = _NO_ARGUMENTS
) -> bytes:
    names = short(destination), short(source), short(routing_key)
    return _method(40, 30, _RESERVED, *names, b"\0", _table(arguments))


def unbind_exchange(
    destination: str, source: str, routing_key: str, arguments: Mapping[str, Value] = _NO_ARGUMENTS
) -> bytes:
    names = short(destination), short(source), short(routing_key)
    return _method(40, 40, _RESERVED, *names, b"\0", _table(arguments))


def declare_queue(
    queue: str,
    *,
    passive: bool = False,
    durable: bool = True,
    exclusive: bool = False,
    auto_delete: bool = False,
    arguments: Mapping[str, Value] = _NO_ARGUMENTS,
) -> bytes:
    flags = _bits(passive, durable, exclusive, auto_delete, False)
    return _method(50, 10, _RESERVED, short(queue), flags, _table(arguments))


def bind_queue(
    queue: str, exchange: str, routing_key: str, arguments: Mapping[str, Value] = _NO_ARGUMENTS
) -> bytes:
    names = short(queue), short(exchange), short(routing_key)
    return _method(50, 20, _RESERVED, *names, b"\0", _table(arguments))


def unbind_queue(
    queue: str, exchange: str, routing_key: str, arguments: Mapping[str, Value] = _NO_ARGUMENTS
) -> bytes:
    return _method(50, 50, _RESERVED, short(queue), short(exchange), short(routing_key), _table(arguments))


def purge_queue(queue: str) -> bytes:
    return _method(50, 30, _RESERVED, short(queue), b"\0")


def delete_queue(queue: str, *, if_unused: bool = False, if_empty: bool = False) -> bytes:
    return _method(50, 40, _RESERVED, short(queue), _bits(if_unused, if_empty, False))


# -- messages ---------------------------------------------------------------------------------------------
def qos(prefetch: int) -> bytes:
    return _method(60, 10, Struct(">IHB").pack(0, prefetch, 0))


def consume(
    queue: str, tag: str, *, exclusive: bool = False, arguments: Mapping[str, Value] = _NO_ARGUMENTS
) -> bytes:
    flags = _bits(False, False, exclusive, False)
    return _method(60, 20, _RESERVED, short(queue), short(tag), flags, _table(arguments))


def cancel(tag: str) -> bytes:
    return _method(60, 30, short(tag), b"\0")


def publish(exchange: str, routing_key: str, *, mandatory: bool) -> bytes:
    # Of all names a message's key alone may be any bytes; on another the broker closes the connection.
    key = _short(as_bytes(routing_key), routing_key)
    return _method(60, 40, _RESERVED, short(exchange), key, _bits(mandatory, False))


def get(queue: str) -> bytes:
    return _method(60, 70, _RESERVED, short(queue), b"\0")


_ACK: Final = Struct(">HHQB")


def ack(tag: int, *, multiple: bool = False) -> bytes:
    return _ACK.pack(60, 80, tag, multiple)


def reject(tag: int, *, requeue: bool) -> bytes:
    return _ACK.pack(60, 90, tag, requeue)


def nack(tag: int, *, multiple: bool = False, requeue: bool) -> bytes:
    return _ACK.pack(60, 120, tag, multiple | requeue << 1)
