"""A message that an application publishes, made of what it says: body, address, properties.

It is persistent and mandatory unless it says otherwise, and it always has a message id: by that a publish
that may have been made can be made again, and by that whoever takes it knows a copy.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import datetime, timedelta
from difflib import get_close_matches
from math import isfinite
from typing import Final, NamedTuple, TypedDict

from deadletter.amqp.channel import BODY_MAX_BYTES
from deadletter.consumer.publishing.bodies import encoded
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.key_bytes import as_bytes, is_utf8
from deadletter.core.letter.message import View, encode
from deadletter.errors import MessageError, UsageError

EXPIRATION_MAX_MS: Final = 2**32 - 1
NAME_BYTES: Final = 255


class PublishOptions(TypedDict, total=False):
    """What a publish may say beside its body and its address."""

    headers: Mapping[str, Value]
    message_id: str
    """Made up where none is given."""
    correlation_id: str | None
    reply_to: str | None
    type: str | None
    priority: int | None
    expiration: float | timedelta | None
    """How long it may wait in a queue, in seconds."""
    timestamp: datetime | None
    """Now, where none is given."""
    content_type: str | None
    """What the body is, unless said otherwise: JSON, text or bytes."""
    content_encoding: str | None
    app_id: str | None
    """The consumer's `service`, unless said otherwise."""
    persistent: bool
    """Whether it outlives a broker's restart: yes, unless said otherwise."""
    mandatory: bool
    """Whether it is an error that no queue takes it: yes, unless said otherwise."""


_OPTIONS: Final = frozenset(PublishOptions.__annotations__)
_ELSEWHERE: Final = {
    "delivery_mode": "persistent",
    "id": "message_id",
    "queue": "key",
    "routing_key": "key",
    "ttl": "expiration",
}
"""What other clients call it, where that is not near in letters."""


class Publication(NamedTuple):
    """Ready to go."""

    exchange: str
    routing_key: str
    message_id: str
    properties: bytes
    body: bytes
    mandatory: bool


def publication(body: object, *, exchange: str, key: str, options: PublishOptions) -> Publication:
    """Raises UsageError for what cannot be published. Its message id must be there."""
    if not options.keys() <= _OPTIONS:
        raise _stray(min(options.keys() - _OPTIONS))
    content, content_type = encoded(body)
    _checked(exchange, key, content)
    timestamp = options.get("timestamp")
    view = View(
        content_type=options.get("content_type") or content_type,
        content_encoding=options.get("content_encoding"),
        headers=options.get("headers"),
        delivery_mode=2 if options.get("persistent", True) else 1,
        priority=options.get("priority"),
        correlation_id=options.get("correlation_id"),
        reply_to=options.get("reply_to"),
        expiration=_expiration(options.get("expiration")),
        message_id=options["message_id"],
        timestamp=int(time.time()) if timestamp is None else timestamp,
        type=options.get("type"),
        app_id=options.get("app_id"),
    )
    try:
        properties = encode(view)
    except (MessageError, UnicodeError, TypeError, AttributeError) as error:
        raise UsageError(
            f"publish: expected properties that AMQP can carry, got one it cannot: {error}"
        ) from error
    mandatory = options.get("mandatory", True)
    return Publication(exchange, key, options["message_id"], properties, content, mandatory)


def _stray(name: str) -> UsageError:
    """An option that there is not: swallowed, a message would go elsewhere, or live for ever."""
    known = ["exchange", "key", *sorted(_OPTIONS)]
    close = get_close_matches(name.lower(), known, n=1)
    meant = _ELSEWHERE.get(name.lower()) or (close[0] if close else None)
    hint = f"did you mean {meant}?" if meant else f"there are {', '.join(known)}"
    return UsageError(f"publish: expected an option there is, got {name!r} ({hint})")


def _checked(exchange: str, key: str, content: bytes) -> None:
    if not exchange and not key:
        raise UsageError(
            "publish: expected exchange=… and key=…, or key=… alone for a queue of that name, got neither"
        )
    if not is_utf8(exchange) or len(exchange.encode()) > NAME_BYTES:
        raise UsageError(
            f"publish: exchange: expected a name of at most {NAME_BYTES} bytes, got {exchange[:40]!r}"
        )
    try:
        if len(as_bytes(key)) > NAME_BYTES:
            raise UsageError(f"publish: key: expected at most {NAME_BYTES} bytes, got {key[:40]!r}…")
    except UnicodeEncodeError as error:
        raise UsageError(f"publish: key: expected text, got {key[:40]!r}") from error
    if len(content) > BODY_MAX_BYTES:
        raise UsageError(f"publish: expected a body of at most {BODY_MAX_BYTES} bytes, got {len(content)}")


def _expiration(asked: float | timedelta | None) -> str | None:
    if asked is None:
        return None
    seconds = asked.total_seconds() if isinstance(asked, timedelta) else asked
    if not isfinite(seconds) or not 0 <= seconds * 1000 <= EXPIRATION_MAX_MS:
        raise UsageError(f"publish: expiration: expected seconds from 0 to 4294967, got {asked!r}")
    return str(round(seconds * 1000))
