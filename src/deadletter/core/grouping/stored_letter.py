"""A letter as the store keeps it: exact bytes, what can be listed and searched, and its group.

Made once, from the letter alone, when it is taken into the store. Nothing that is read here changes the bytes
that are kept: a replay gives back the very same message.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from datetime import datetime
from hashlib import blake2b
from typing import Final, NamedTuple

from deadletter.core.deciding.deaths import Death
from deadletter.core.deciding.failure import Failure, read_failure
from deadletter.core.deciding.letter_view import LetterView, view_letter
from deadletter.core.grouping.fingerprint import Fingerprint, Symptom
from deadletter.core.grouping.grouping_rules import GROUPED_BY_DEFAULT, Grouping
from deadletter.core.letter import header_values, message, names, wrapping
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.message import View
from deadletter.core.letter.parking import Cause
from deadletter.core.letter.same_letter import likeness
from deadletter.errors import MessageError

TEXT_BYTES: Final = 16 * 1024
"""So much of a body can be searched."""
WORDING: Final = 2
"""Goes up with every change of what is searched in: an index of words has to be told what it was given."""
HEADER_CHARS: Final = 200
_ERROR_CHARS: Final = 300
_NAME_CHARS: Final = 255
_JSON_TYPES: Final = ("application/json", "text/json")
_UNKNOWN: Final = "(unknown)"
"""The origin of a letter that does not say it."""


class StoredLetter(NamedTuple):
    """One letter, ready for the store. Times are milliseconds since 1970."""

    letter_id: str
    same: bytes
    """Sixteen bytes, equal for this letter and its copies: same id, same death, same content."""
    message: bytes | None
    """Sixteen bytes, equal for this very message when it is delivered again; None: nothing tells it from an
    equal one, so it is never taken for one that is stored already."""
    vhost: str
    """Empty where it is not known. Queues of two vhosts may have one name."""
    queue: str
    origin: str
    exchange: str
    routing_key: str
    reason: str
    cause: str
    attempt: int
    died_at_ms: int
    message_id: str
    type: str
    error: str
    host: str
    release: str
    fingerprint: Fingerprint
    text: str
    """What free text is looked for in."""
    letter: Letter


def stored_letter(
    letter: Letter, *, now_ms: int, vhost: str = "", grouping: Grouping = GROUPED_BY_DEFAULT
) -> StoredLetter:
    """Reads a letter for the store, whatever it holds. A wrapped one is read as the one inside."""
    outer, properties, headers, body, _, _ = read_inside(letter)
    try:
        alike, letter_id = likeness(letter), letter.id
    except MessageError:
        alike = blake2b(letter.message.properties + letter.body, digest_size=16).digest()
        letter_id = alike.hex()
    view = view_letter(
        headers, broker_keeps_client_deaths=False, content_type=properties.content_type, body=body
    )
    origin = header_values.name(headers.get(names.ORIGIN_QUEUE)) or (view.origin.queue if view.origin else "")
    aside = view.put_aside
    cause = header_values.text(outer.get(names.CAUSE), _NAME_CHARS) or (aside.cause if aside else "")
    failure = view.failure
    found = grouping.of(
        Symptom(
            origin=origin or _UNKNOWN,
            reason=view.reason or "",
            cause=cause,
            failure=failure,
            undecodable=_undecodable(properties, body, cause, failure),
            headers=headers,
        )
    )
    error = ": ".join(filter(None, (failure.error_type, failure.message))) if failure else ""
    return StoredLetter(
        letter_id=letter_id,
        same=_same(vhost, letter_id, headers, view, alike),
        message=_message_key(letter, outer),
        vhost=vhost,
        queue=letter.source,
        origin=origin or _UNKNOWN,
        exchange=letter.exchange,
        routing_key=header_values.name(headers.get(names.ORIGIN_ROUTING_KEY)) or letter.routing_key,
        reason=view.reason or "",
        cause=cause,
        attempt=header_values.count(headers.get(names.ATTEMPT)) or 0,
        died_at_ms=_died_at_ms(outer, view, now_ms),
        message_id=(properties.message_id or "")[:_NAME_CHARS],
        type=(properties.type or "")[:_NAME_CHARS],
        error=error[:_ERROR_CHARS],
        host=(failure.host or "") if failure else "",
        release=(failure.release or "") if failure else "",
        fingerprint=found,
        text=_text(properties, headers, body, failure),
        letter=letter,
    )


def searched_text(letter: Letter) -> str:
    """What free text is looked for in: the same, whenever it is asked."""
    read = read_inside(letter)
    return _text(read.properties, read.headers, read.body, read_failure(read.headers, read.body))


class Inside(NamedTuple):
    """What can be read of a letter: the headers of the message, and properties, headers and body of the
    letter in it, which is another one where it is wrapped."""

    outer: Mapping[str, Value]
    properties: View
    headers: Mapping[str, Value]
    body: bytes
    wrapped: bool = False
    unreadable: str = ""
    """What is wrong with its bytes; empty: nothing."""


def read_inside(letter: Letter) -> Inside:
    """Of what cannot be read there is the body."""
    outer: Mapping[str, Value] = {}
    body, wrapped = letter.body, False
    try:
        outer = letter.headers
        inside = wrapping.unwrap(letter.message)
        if inside is None:
            return Inside(outer, letter.view, outer, body)
        body, wrapped = inside.body, True
        properties = message.view(inside.properties)
    except MessageError as error:
        return Inside(outer, View(), {}, body, wrapped, str(error))
    return Inside(outer, properties, properties.headers or {}, body, wrapped)


def is_searched(header: str) -> bool:
    """Whether the values of this header are in what free text is looked for in: the application's own are."""
    return (
        not header.startswith("deadletter-") and header != names.X_DEATH and header not in names.DEATH_SUMMARY
    )


def _same(vhost: str, letter_id: str, headers: Mapping[str, object], view: LetterView, alike: bytes) -> bytes:
    death: Death | None = view.history.recent[0] if view.history.recent else None
    told = (vhost, letter_id, header_values.count(headers.get(names.ATTEMPT)), death)
    return blake2b(repr(told).encode() + alike, digest_size=16).digest()


def _message_key(letter: Letter, outer: Mapping[str, object]) -> bytes | None:
    """Which publish of ours brought it, or when it was parked: a further delivery changes neither."""
    told = outer.get(names.MOVE), outer.get(names.PARKED_AT)
    if told == (None, None):
        return None
    return blake2b(repr(told).encode() + letter.body, digest_size=16).digest()


def _died_at_ms(outer: Mapping[str, object], view: LetterView, now_ms: int) -> int:
    """When it failed last, as near as anybody wrote it down."""
    failed: datetime | None = view.failure.at if view.failure else None
    moments = (
        header_values.moment(outer.get(names.PARKED_AT)),
        failed,
        view.history.recent[0].first_at if view.history.recent else None,
    )
    first = next((at for at in moments if at is not None), None)
    return int(first.timestamp() * 1000) if first is not None else now_ms


def _undecodable(properties: View, body: bytes, cause: str, failure: Failure | None) -> str:
    """The content type that a body does not keep. Where the error is known, that says what was wrong."""
    kind = (properties.content_type or "").partition(";")[0].strip().lower()
    if cause == Cause.UNDECODABLE:
        return kind or "what the handler takes"
    if failure is not None and (failure.error_type or failure.stack):
        return ""
    if properties.content_encoding or not (kind in _JSON_TYPES or kind.endswith("+json")):
        return ""
    try:
        json.loads(body)
    except (ValueError, RecursionError):
        return kind
    return ""


def _text(properties: View, headers: Mapping[str, object], body: bytes, failure: Failure | None) -> str:
    """Ids, the application's own headers, the error, and the beginning of a body that is text."""
    words = [properties.message_id, properties.correlation_id, properties.type]
    for name in headers:
        if not name.startswith("deadletter-") and is_searched(name):
            said = header_values.text(headers[name], HEADER_CHARS)
            words.append(f"{name} {said}" if said else name)
    if failure is not None:
        words += [failure.error_type, (failure.message or "")[:_ERROR_CHARS]]
    with suppress(UnicodeDecodeError):
        words.append(body[:TEXT_BYTES].decode("utf-8", "strict" if len(body) <= TEXT_BYTES else "ignore"))
    return "\n".join(word for word in words if word).replace("\0", " ")
