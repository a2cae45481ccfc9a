"""A letter that cannot travel as it is, whole inside another one.

Some letters cannot be given our headers: their properties are not what AMQP says they are, or headers and
ours together do not fit into one frame. They are not dropped and not left to be taken again and again: the
letter, properties and body byte for byte, becomes the body of a parked message that says why.

    b"DLW1" | length of the properties, 4 bytes | properties | body
"""

from __future__ import annotations

from hashlib import blake2b
from struct import Struct
from struct import error as StructError  # noqa: N812 -- a class under a module's lower-case name
from typing import Final

from deadletter.core import message, names
from deadletter.core.message import Message, View
from deadletter.core.table import Value
from deadletter.errors import MessageError

CONTENT_TYPE: Final = "application/vnd.deadletter.wrapped"
_MARK: Final = b"DLW1"
_LENGTH: Final = Struct(">I")
_SHOWN_CHARS: Final = 500


def wrap(letter: Message, *, source: str, move: str, cause: str, why: str, at_ms: int) -> Message:
    """The parked message that holds this letter."""
    digest = blake2b(source.encode() + b"\0" + letter.properties, digest_size=16)
    digest.update(letter.body)
    headers: dict[str, Value] = {
        names.ID: digest.hexdigest(),
        names.SOURCE: source,
        names.MOVE: move,
        names.CAUSE: cause,
        names.WHY: why[:_SHOWN_CHARS],
        names.PARKED_AT: at_ms,
    }
    properties = message.encode(View(content_type=CONTENT_TYPE, delivery_mode=2, headers=headers))
    body = b"".join((_MARK, _LENGTH.pack(len(letter.properties)), letter.properties, letter.body))
    return Message(properties, body)


def unwrap(parked: Message) -> Message | None:
    """The letter inside; None when this is no wrapped letter."""
    body = parked.body
    if not body.startswith(_MARK):
        return None
    start = len(_MARK) + _LENGTH.size
    try:
        end = start + int(_LENGTH.unpack_from(body, len(_MARK))[0])
    except StructError:
        end = len(body) + 1
    if end > len(body):
        raise MessageError("a wrapped letter is shorter than it says; it was cut after it was parked")
    return Message(body[start:end], body[end:])
