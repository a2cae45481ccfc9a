"""A letter as one line of JSON, for grep, jq and eyes. What it says cannot be imported: it is not exact."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from math import isfinite
from typing import NoReturn

from deadletter.core.deciding.failure import read_failure
from deadletter.core.grouping.stored_letter import read_inside, stored_letter
from deadletter.core.letter.archive_format import StoreKeys
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.plain_values import plain_properties, plain_table
from deadletter.core.text.safe_text import exact_json


def letter_line(letter: Letter, stored: StoreKeys | None, *, now_ms: int) -> str:
    """`now_ms`: stands for the time of a death that nobody wrote down."""
    known = (now_ms, "") if stored is None else (stored.died_ms, stored.vhost)
    read = stored_letter(letter, now_ms=known[0], vhost=known[1])
    inside = read_inside(letter)
    failure = read_failure(inside.headers, inside.body)
    told: dict[str, object] = {
        "id": read.letter_id if stored is None else stored.letter_id,
        "queue": read.queue,
        "origin": read.origin,
        "exchange": _text(letter.came_by.exchange),
        "routing_key": _text(letter.came_by.routing_key),
        "group": {"key": read.fingerprint.key, "title": read.fingerprint.title},
        "cause": read.cause,
        "reason": read.reason,
        "attempt": read.attempt,
        "error": None
        if failure is None
        else {"type": failure.error_type, "message": failure.message, "stack": failure.stack},
        "host": read.host,
        "release": read.release,
        "died_at": _moment(read.died_at_ms),
        "stored_at": None if stored is None else _moment(stored.stored_ms),
        "unreadable": inside.unreadable or None,
        "properties": plain_properties(inside.properties),
        "headers": plain_table(inside.headers),
        "body_bytes": len(inside.body),
        **_body(inside.body, inside.properties.content_type or ""),
    }
    return exact_json(told)


def _body(body: bytes, content_type: str) -> dict[str, object]:
    """`body`: a JSON value. `body_text`: any other text. `body_base64`: the rest."""
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return {"body_base64": base64.b64encode(body).decode()}
    if "json" in content_type or text[:1] in ("{", "["):
        try:
            return {"body": json.loads(text, parse_constant=_no_json, parse_float=_finite)}
        except (ValueError, RecursionError):
            pass  # it looks like JSON and is none: shown as it is
    return {"body_text": text}


def _no_json(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _finite(number: str) -> float:
    """One that Python cannot hold would be written as Infinity, which nobody else can read."""
    found = float(number)
    if not isfinite(found):
        _no_json(number)
    return found


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


def _moment(at_ms: int) -> str | None:
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return None
