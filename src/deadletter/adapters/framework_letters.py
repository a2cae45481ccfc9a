"""From the properties a framework hands out to a letter.

A framework gives decoded properties; the bytes are gone. They are encoded once here, and from there on the
rules for moved letters hold as for everybody else (`core.letter.envelope`). What decoding lost stays lost:
the width of integers, `f` against `d`, text that is not UTF-8 (it comes as bytes and goes as a byte array),
an empty header table against none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from deadletter.core.letter import field_table, message
from deadletter.core.letter.envelope import ExchangeKey
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.key_bytes import as_bytes
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.message import RawMessage, View
from deadletter.errors import MessageError

_ODD_CHARS: Final = 2_000


def letter_of(
    queue: str,
    view: View,
    body: bytes,
    *,
    exchange: str,
    routing_key: str | bytes,
    redelivered: bool,
    circling: bool,
) -> Letter:
    """The letter that a framework delivered; `circling` when the broker sends it round by itself.

    A key that is not UTF-8 comes as bytes from pika; aio-pika cannot take such a message at all.
    """
    key = routing_key if isinstance(routing_key, bytes) else as_bytes(routing_key)
    headers = None if not view.headers else {name: _kept(value) for name, value in view.headers.items()}
    return Letter(
        source=queue,
        message=RawMessage(message.encode(replace(view, headers=headers)), body),
        came_by=ExchangeKey(exchange.encode(), key),
        redelivered=redelivered,
        circling=circling,
    )


def view_from(found: Any) -> View:
    """Properties by their usual names, from whatever a library keeps them in."""
    return View(
        content_type=found.content_type,
        content_encoding=found.content_encoding,
        headers=_headers(found.headers),
        delivery_mode=found.delivery_mode,
        priority=found.priority,
        correlation_id=found.correlation_id,
        reply_to=found.reply_to,
        expiration=found.expiration,
        message_id=found.message_id,
        timestamp=found.timestamp,
        type=found.type,
        user_id=found.user_id,
        app_id=found.app_id,
        cluster_id=found.cluster_id,
    )


def _headers(found: object) -> Mapping[str, Value] | None:
    return {str(name): value for name, value in found.items()} if isinstance(found, Mapping) else None


def _kept(value: Value) -> Value:
    """A value that AMQP can hold; one that our codec cannot write becomes its text, rather than nothing."""
    try:
        field_table.encode_value(value)
    except (MessageError, TypeError, ValueError, AttributeError):
        return repr(value)[:_ODD_CHARS]
    return value
