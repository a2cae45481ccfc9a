"""A letter that cannot travel as it is, whole inside another one.

Some letters cannot be given our headers: their properties are not what AMQP says they are, or headers and
ours together do not fit into one frame. They are not dropped and not left to be taken again and again: the
letter, properties and body byte for byte, becomes the body of a parked message that says why.

    b"DLW1" | length of the properties, 4 bytes | properties | body

The exchange and key by which it came stand in the headers of the message around it. `unwrap` gives it back as
it was; whoever moves it on to a queue of an application does that first.
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct
from struct import error as StructError  # noqa: N812 -- a class under a module's lower-case name
from typing import Final

from deadletter.core.letter import field_table, header_values, message, names
from deadletter.core.letter.envelope import ExchangeKey
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.key_bytes import as_bytes, as_text
from deadletter.core.letter.message import RawMessage, View
from deadletter.core.letter.parking import Cause, parked_headers
from deadletter.errors import MessageError

CONTENT_TYPE: Final = "application/vnd.deadletter.wrapped"
_MARK: Final = b"DLW1"
_LENGTH: Final = Struct(">I")
_ANNOUNCED: Final = bytes((len(CONTENT_TYPE),)) + CONTENT_TYPE.encode()
"""The content type as it stands after the flags: it is the first property of all."""
_EXCHANGE: Final = names.SOURCE_EXCHANGE.encode()
_KEY: Final = names.SOURCE_ROUTING_KEY.encode()
_CAME_BY: Final = frozenset({_EXCHANGE, _KEY})


def wrap(
    letter: RawMessage, *, source: str, came_by: ExchangeKey, move: str, cause: Cause, why: str, at_ms: int
) -> RawMessage:
    """The parked message that holds this letter."""
    digest = blake2b(source.encode() + b"\0" + letter.properties, digest_size=16)
    digest.update(letter.body)
    headers: dict[str, Value] = {
        names.ID: digest.hexdigest(),
        names.SOURCE: source,
        names.SOURCE_EXCHANGE: as_text(came_by.exchange),
        names.SOURCE_ROUTING_KEY: as_text(came_by.routing_key),
        names.MOVE: move,
        **parked_headers(cause, why, at_ms),
    }
    properties = message.encode(View(content_type=CONTENT_TYPE, delivery_mode=2, headers=headers))
    body = b"".join((_MARK, _LENGTH.pack(len(letter.properties)), letter.properties, letter.body))
    return RawMessage(properties, body)


def is_wrapped(parked: RawMessage) -> bool:
    """Whether another letter is in it."""
    return parked.body.startswith(_MARK) and parked.properties.startswith(_ANNOUNCED, 2)


def unwrap(parked: RawMessage) -> RawMessage | None:
    """The letter inside, also of several wrappings; None when this is no wrapped letter.

    Raises MessageError when it is one, and not whole.
    """
    if not is_wrapped(parked):
        return None
    inside = _inside(parked.body)
    while is_wrapped(inside):
        inside = _inside(inside.body)
    return inside


def came_by(parked: RawMessage) -> ExchangeKey | None:
    """How the letter inside a wrapped one came; None where nobody wrote it down."""
    headers = message.header_table(parked.properties)
    found = {
        name: field_table.decode_value(headers[value:end])
        for name, _, value, end in field_table.find(headers, _CAME_BY)
    }
    exchange, key = (header_values.name(found.get(name)) for name in (_EXCHANGE, _KEY))
    return None if exchange is None or key is None else ExchangeKey(as_bytes(exchange), as_bytes(key))


def _inside(body: bytes) -> RawMessage:
    start = len(_MARK) + _LENGTH.size
    try:
        end = start + int(_LENGTH.unpack_from(body, len(_MARK))[0])
    except StructError:
        end = len(body) + 1
    if end > len(body):
        raise MessageError("a wrapped letter is shorter than it says; it was cut after it was parked")
    return RawMessage(body[start:end], body[end:])
