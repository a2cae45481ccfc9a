"""A letter as the store keeps it: exact bytes, what can be listed and searched, and its group.

Made once, from the letter alone, when it is taken into the store. Nothing that is read here changes the bytes
that are kept: a replay gives back the very same message.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from hashlib import blake2b
from typing import Final, NamedTuple

from deadletter.core.deciding.deaths import Death
from deadletter.core.deciding.failure import Failure, read_failure
from deadletter.core.deciding.letter_view import gist
from deadletter.core.grouping.dictionaries import PackedContent
from deadletter.core.grouping.fingerprint import Fingerprint, Symptom
from deadletter.core.grouping.grouping_rules import GROUPED_BY_DEFAULT, Grouping
from deadletter.core.letter import header_values, message, names, wrapping
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.message import View
from deadletter.core.letter.parking import Cause
from deadletter.core.letter.same_letter import likeness, not_ours
from deadletter.errors import MessageError

TEXT_BYTES: Final = 16 * 1024
"""So much of a body can be searched."""
WORDING: Final = 2
"""Goes up with every change of what is searched in: an index of words has to be told what it was given."""
HEADER_CHARS: Final = 200
_ERROR_CHARS: Final = 300
_NAME_CHARS: Final = 255
_JSON_TYPES: Final = ("application/json", "text/json")
UNKNOWN_ORIGIN: Final = "(unknown)"
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
    packed: PackedContent | None = None
    """Its bytes, where whoever read it has packed them, too."""
    words: str | None = None
    """The words of its text, each once, where whoever read it has divided that as well. Then there is no text
    beside them."""


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
    queue, reason, aside, failure, death = gist(headers, body)
    origin = header_values.name(headers.get(names.ORIGIN_QUEUE)) or queue or UNKNOWN_ORIGIN
    cause = header_values.text(outer.get(names.CAUSE), _NAME_CHARS) or aside
    attempt = header_values.count(headers.get(names.ATTEMPT))
    undecodable = _undecodable(properties, body, cause, failure)
    found = grouping.of(Symptom(origin, reason, cause, failure, undecodable, headers, vhost))
    error = ": ".join(filter(None, (failure.error_type, failure.message))) if failure else ""
    return StoredLetter(
        letter_id=letter_id,
        same=_same(vhost, letter_id, headers, attempt, death, alike),
        message=_message_key(letter, outer),
        vhost=vhost,
        queue=letter.source,
        origin=origin,
        exchange=letter.exchange,
        routing_key=header_values.name(headers.get(names.ORIGIN_ROUTING_KEY)) or letter.routing_key,
        reason=reason,
        cause=cause,
        attempt=attempt or 0,
        died_at_ms=_died_at_ms(outer, failure, death, now_ms),
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
    return searched_inside(read_inside(letter))


def searched_inside(read: Inside) -> str:
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


def unwrapped(letter: Letter) -> Letter:
    """The letter itself, or the one inside it. MessageError: its properties cannot be read."""
    inside = wrapping.unwrap(letter.message)
    if inside is None:
        return letter
    came_by = wrapping.came_by(letter.message) or letter.came_by
    return Letter(source=letter.source, message=inside, came_by=came_by, redelivered=letter.redelivered)


def is_searched(header: str) -> bool:
    """Whether the values of this header are in what free text is looked for in: the application's own are."""
    return (
        not header.startswith("deadletter-") and header != names.X_DEATH and header not in names.DEATH_SUMMARY
    )


def _same(
    vhost: str,
    letter_id: str,
    headers: Mapping[str, object],
    attempt: int | None,
    death: Death | None,
    alike: bytes,
) -> bytes:
    told: tuple[object, ...] = (vhost, letter_id, attempt, death)
    if names.REPLAY in headers:  # it begins anew with each replay, and may fail in the same way
        told = (*told, header_values.count(headers[names.REPLAY]))
    return blake2b(repr(told).encode() + alike, digest_size=16).digest()


def _message_key(letter: Letter, outer: Mapping[str, object]) -> bytes | None:
    """Which publish of ours brought it, or when it was parked: a further delivery changes neither."""
    told = outer.get(names.MOVE), outer.get(names.PARKED_AT)
    if told == (None, None):
        return None
    return blake2b(repr(told).encode() + letter.body, digest_size=16).digest()


def _died_at_ms(
    outer: Mapping[str, object], failure: Failure | None, death: Death | None, now_ms: int
) -> int:
    """When it failed last, as near as anybody wrote it down."""
    at = header_values.moment(outer.get(names.PARKED_AT))
    if at is None and failure is not None:
        at = failure.at
    if at is None and death is not None:
        at = death.first_at
    return int(at.timestamp() * 1000) if at is not None else now_ms


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
    for name in not_ours(headers):
        if is_searched(name):
            said = header_values.text(headers[name], HEADER_CHARS)
            words.append(f"{name} {said}" if said else name)
    if failure is not None:
        words += [failure.error_type, (failure.message or "")[:_ERROR_CHARS]]
    with suppress(UnicodeDecodeError):
        words.append(body[:TEXT_BYTES].decode("utf-8", "strict" if len(body) <= TEXT_BYTES else "ignore"))
    return "\n".join(word for word in words if word).replace("\0", " ")
