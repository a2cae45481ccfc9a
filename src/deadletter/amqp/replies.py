"""What a broker says to us: every method it may send, as a value.

`parse` takes a method frame's payload and returns one of the closed union `Reply`. A method we did not ask
for and do not know is an error: an unread word of the broker's may be the one that mattered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from struct import error as StructError  # noqa: N812 -- a class under a module's lower-case name
from typing import Final, NamedTuple, TypeAlias

from deadletter.core.letter import field_table
from deadletter.core.letter.field_table import Value
from deadletter.errors import FrameError, MessageError

_U16: Final = Struct(">H")
_U32: Final = Struct(">I")
_TUNE: Final = Struct(">HIH")
_CONFIRM: Final = Struct(">QB")
_unpack_confirm: Final = _CONFIRM.unpack_from
_unpack_delivery: Final = Struct(">QBB").unpack_from


_DAMAGED: Final = (StructError, IndexError, MessageError)


class Start(NamedTuple):
    server_properties: Mapping[str, Value]
    mechanisms: str


class Tune(NamedTuple):
    channel_max: int
    frame_max_bytes: int
    heartbeat_s: int


class OpenOk(NamedTuple):
    pass


class CloseConnection(NamedTuple):
    code: int
    text: str


class CloseConnectionOk(NamedTuple):
    pass


class Blocked(NamedTuple):
    reason: str


class Unblocked(NamedTuple):
    pass


class OpenChannelOk(NamedTuple):
    pass


class ChannelFlow(NamedTuple):
    active: bool


class CloseChannel(NamedTuple):
    code: int
    text: str


class CloseChannelOk(NamedTuple):
    pass


class MethodOk(NamedTuple):
    """An `-ok` that carries nothing we need: exchange declare and delete, bind, unbind, qos, confirm."""


class DeclareQueueOk(NamedTuple):
    queue: str
    message_count: int
    consumer_count: int


class Counted(NamedTuple):
    """Purge and delete: how many messages went."""

    message_count: int


class ConsumeOk(NamedTuple):
    tag: str


class CancelOk(NamedTuple):
    tag: str


class Cancel(NamedTuple):
    """The broker ends a consumer of ours."""

    tag: str


class Deliver(NamedTuple):
    consumer: bytes
    tag: int
    redelivered: bool
    exchange: bytes
    routing_key: bytes


class GetOk(NamedTuple):
    tag: int
    redelivered: bool
    exchange: bytes
    routing_key: bytes
    message_count: int


class GetEmpty(NamedTuple):
    pass


class Return(NamedTuple):
    code: int
    text: str
    exchange: bytes
    routing_key: bytes


class Confirm(NamedTuple):
    """`basic.ack` (ok) or `basic.nack` (not) of a publish."""

    tag: int
    multiple: bool
    ok: bool


Reply: TypeAlias = (
    Start
    | Tune
    | OpenOk
    | CloseConnection
    | CloseConnectionOk
    | Blocked
    | Unblocked
    | OpenChannelOk
    | ChannelFlow
    | CloseChannel
    | CloseChannelOk
    | MethodOk
    | DeclareQueueOk
    | Counted
    | ConsumeOk
    | CancelOk
    | Cancel
    | Deliver
    | GetOk
    | GetEmpty
    | Return
    | Confirm
)


def parse(payload: bytes) -> Reply:
    """The value of a method payload; raises FrameError, and nothing else, on any bytes."""
    known = _PARSERS.get(payload[:4])
    if known is None:
        raise FrameError(f"the broker sent a method we do not know: {payload[:4].hex()}")
    try:
        return known(payload)
    except _DAMAGED as error:
        raise FrameError(f"the broker sent a damaged {known.__name__.strip('_')}: {error}") from error


def deliver(payload: bytes) -> Deliver:
    """`parse` for a payload that begins with `DELIVER`: the method that comes with every letter."""
    try:
        return _deliver(payload)
    except _DAMAGED as error:
        raise FrameError(f"the broker sent a damaged deliver: {error}") from error


def confirm(payload: bytes) -> tuple[int, bool]:
    """Tag and `multiple` of a payload that begins with `CONFIRM`: nearly as many come as letters go."""
    try:
        tag, multiple = _unpack_confirm(payload, 4)
    except _DAMAGED as error:
        raise FrameError(f"the broker sent a damaged confirm: {error}") from error
    return tag, multiple & 1 == 1


def _short(payload: bytes, position: int) -> tuple[bytes, int]:
    end = position + 1 + payload[position]
    if end > len(payload):
        raise IndexError(f"a short string reaches {end - len(payload)} bytes past the method")
    return payload[position + 1 : end], end


def _text(payload: bytes, position: int) -> tuple[str, int]:
    raw, end = _short(payload, position)
    return raw.decode("utf-8", "backslashreplace"), end


def _long(payload: bytes, position: int) -> tuple[bytes, int]:
    end = position + 4 + int(_U32.unpack_from(payload, position)[0])
    if end > len(payload):
        raise IndexError(f"a long string reaches {end - len(payload)} bytes past the method")
    return payload[position + 4 : end], end


def _start(payload: bytes) -> Start:
    properties, position = _long(payload, 6)
    mechanisms, _ = _long(payload, position)
    return Start(field_table.decode(properties), mechanisms.decode("ascii", "backslashreplace"))


def _tune(payload: bytes) -> Tune:
    return Tune(*_TUNE.unpack_from(payload, 4))


def _closing(payload: bytes) -> tuple[int, str]:
    return _U16.unpack_from(payload, 4)[0], _text(payload, 6)[0]


def _close_connection(payload: bytes) -> CloseConnection:
    return CloseConnection(*_closing(payload))


def _close_channel(payload: bytes) -> CloseChannel:
    return CloseChannel(*_closing(payload))


def _blocked(payload: bytes) -> Blocked:
    return Blocked(_text(payload, 4)[0])


def _flow(payload: bytes) -> ChannelFlow:
    return ChannelFlow(payload[4] & 1 == 1)


def _declare_queue_ok(payload: bytes) -> DeclareQueueOk:
    queue, position = _text(payload, 4)
    return DeclareQueueOk(
        queue, _U32.unpack_from(payload, position)[0], _U32.unpack_from(payload, position + 4)[0]
    )


def _counted(payload: bytes) -> Counted:
    return Counted(_U32.unpack_from(payload, 4)[0])


def _consume_ok(payload: bytes) -> ConsumeOk:
    return ConsumeOk(_text(payload, 4)[0])


def _cancel_ok(payload: bytes) -> CancelOk:
    return CancelOk(_text(payload, 4)[0])


def _cancel(payload: bytes) -> Cancel:
    return Cancel(_text(payload, 4)[0])


def _deliver(payload: bytes) -> Deliver:
    end = 5 + payload[4]
    tag, redelivered, length = _unpack_delivery(payload, end)
    exchange = end + 10
    key = exchange + length
    stop = key + 1 + payload[key]
    if stop > len(payload):
        raise IndexError(f"a short string reaches {stop - len(payload)} bytes past the method")
    return Deliver(payload[5:end], tag, redelivered & 1 == 1, payload[exchange:key], payload[key + 1 : stop])


def _get_ok(payload: bytes) -> GetOk:
    tag, redelivered = _CONFIRM.unpack_from(payload, 4)
    exchange, position = _short(payload, 13)
    routing_key, position = _short(payload, position)
    return GetOk(tag, redelivered & 1 == 1, exchange, routing_key, _U32.unpack_from(payload, position)[0])


def _return(payload: bytes) -> Return:
    code = _U16.unpack_from(payload, 4)[0]
    text, position = _text(payload, 6)
    exchange, position = _short(payload, position)
    routing_key, _ = _short(payload, position)
    return Return(code, text, exchange, routing_key)


def _confirm_ack(payload: bytes) -> Confirm:
    tag, multiple = _CONFIRM.unpack_from(payload, 4)
    return Confirm(tag, multiple & 1 == 1, True)


def _confirm_nack(payload: bytes) -> Confirm:
    tag, flags = _CONFIRM.unpack_from(payload, 4)
    return Confirm(tag, flags & 1 == 1, False)


def _empty(kind: Callable[[], Reply]) -> Callable[[bytes], Reply]:
    value = kind()

    def parse_nothing(_payload: bytes) -> Reply:
        return value

    return parse_nothing


_done: Final = _empty(MethodOk)


def _key(class_id: int, method_id: int) -> bytes:
    return _U16.pack(class_id) + _U16.pack(method_id)


DELIVER: Final = _key(60, 60)
CONFIRM: Final = _key(60, 80)
CLOSE_CHANNEL_OK: Final = _key(20, 41)

_PARSERS: Final[Mapping[bytes, Callable[[bytes], Reply]]] = {
    _key(10, 10): _start,
    _key(10, 30): _tune,
    _key(10, 41): _empty(OpenOk),
    _key(10, 50): _close_connection,
    _key(10, 51): _empty(CloseConnectionOk),
    _key(10, 60): _blocked,
    _key(10, 61): _empty(Unblocked),
    _key(20, 11): _empty(OpenChannelOk),
    _key(20, 20): _flow,
    _key(20, 40): _close_channel,
    CLOSE_CHANNEL_OK: _empty(CloseChannelOk),
    _key(40, 11): _done,
    _key(40, 21): _done,
    _key(40, 31): _done,
    _key(40, 51): _done,
    _key(50, 11): _declare_queue_ok,
    _key(50, 21): _done,
    _key(50, 31): _counted,
    _key(50, 41): _counted,
    _key(50, 51): _done,
    _key(60, 11): _done,
    _key(60, 21): _consume_ok,
    _key(60, 30): _cancel,
    _key(60, 31): _cancel_ok,
    _key(60, 50): _return,
    DELIVER: _deliver,
    _key(60, 71): _get_ok,
    _key(60, 72): _empty(GetEmpty),
    CONFIRM: _confirm_ack,
    _key(60, 120): _confirm_nack,
    _key(85, 11): _done,
    _key(90, 11): _done,
    _key(90, 21): _done,
}
