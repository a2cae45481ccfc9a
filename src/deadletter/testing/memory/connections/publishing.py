"""A publish as the broker takes it: what it refuses, and by which keys the message goes."""

from __future__ import annotations

from typing import Final, NamedTuple

from deadletter.core.letter import field_table, message
from deadletter.core.letter.key_bytes import as_text
from deadletter.testing.memory.connections.declare_refusals import precondition_failed
from deadletter.testing.memory.contents.items import QueuedCopy, short_property, with_headers

_EXPIRATION_MAX_MS: Final = 2**32 - 1
_CC: Final = b"CC"
_BCC: Final = b"BCC"


class Publish(NamedTuple):
    """What comes before the message itself."""

    exchange: str
    key: str
    mandatory: bool


def check(properties: bytes, body: bytes, *, user: str, body_max_bytes: int) -> None:
    """Raises what a broker answers to a message it does not take."""
    if len(body) > body_max_bytes:
        raise precondition_failed(
            f"message size {len(body)} is larger than configured max size {body_max_bytes}"
        )
    claimed = short_property(properties, message.USER_ID)
    if claimed is not None and as_text(claimed) != user:
        raise precondition_failed(
            f"user_id property set to '{as_text(claimed)}' but authenticated user was '{user}'"
        )
    expiration = short_property(properties, message.EXPIRATION)
    if expiration is not None:
        _check_expiration(as_text(expiration))
    headers = message.header_table(properties)
    for name, _, value, _ in field_table.find(headers, frozenset({_CC, _BCC})):
        if headers[value] != ord("A"):
            raise precondition_failed(f'invalid message: {{unacceptable_type_in_header,"{name.decode()}"}}')


def _check_expiration(text: str) -> None:
    why = None
    try:
        number = int(text)
    except ValueError:
        why = "no_integer"
    else:
        if number < 0:
            why = f"{{value_negative,{number}}}"
        elif number > _EXPIRATION_MAX_MS:
            why = f"{{value_too_large,{number}}}"
    if why is not None:
        raise precondition_failed(f"invalid expiration '{text}': {why}")


def addressed(publish: Publish, properties: bytes, body: bytes) -> QueuedCopy:
    """The message with all its keys; `BCC` is not for those who get it."""
    headers = message.header_table(properties)
    open_keys, blind_keys = _keys(headers, _CC), _keys(headers, _BCC)
    if field_table.find(headers, frozenset({_BCC})):
        properties = with_headers(properties, field_table.splice(headers, remove=frozenset({_BCC})))
    return QueuedCopy(
        properties=properties,
        body=body,
        exchange=publish.exchange,
        keys=(publish.key, *open_keys),
        blind_keys=blind_keys,
    )


def _keys(headers: bytes, name: bytes) -> tuple[str, ...]:
    return tuple(
        as_text(element[5:])
        for _, _, value, end in field_table.find(headers, frozenset({name}))
        for element in field_table.elements(headers[value + 5 : end])
        if element[:1] == b"S"
    )
