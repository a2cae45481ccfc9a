"""A letter as one line of JSON, for grep, jq and eyes. What it says cannot be imported: it is not exact."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime
from decimal import Decimal
from typing import NoReturn

from deadletter.core.deciding.failure import read_failure
from deadletter.core.grouping.stored_letter import stored_letter
from deadletter.core.letter.archive_format import StoreKeys
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.message import View
from deadletter.core.text.safe_text import exact_json
from deadletter.errors import MessageError


def letter_line(letter: Letter, stored: StoreKeys | None, *, now_ms: int) -> str:
    """`now_ms`: stands for the time of a death that nobody wrote down."""
    read = stored_letter(letter, now_ms=now_ms if stored is None else stored.died_ms)
    unreadable: str | None = None
    try:
        view, headers = letter.view, letter.headers
        failure = read_failure(headers, letter.body)
    except MessageError as error:
        view, headers, failure, unreadable = View(), dict[str, Value](), None, str(error)
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
        "unreadable": unreadable,
        "properties": {
            one.name: _plain(value)
            for one in fields(View)
            if one.name != "headers" and (value := getattr(view, one.name)) is not None
        },
        "headers": _plain(headers),
        "body_bytes": len(letter.body),
        **_body(letter.body, view.content_type or ""),
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
            return {"body": json.loads(text, parse_constant=_no_json)}
        except (ValueError, RecursionError):
            pass  # it looks like JSON and is none: shown as it is
    return {"body_text": text}


def _no_json(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


def _moment(at_ms: int) -> str | None:
    try:
        return datetime.fromtimestamp(at_ms / 1000, UTC).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return None


def _plain(value: Value) -> object:
    """What JSON has no word for."""
    match value:
        case bytes():
            return {"base64": base64.b64encode(value).decode()}
        case float() if not math.isfinite(value):
            return str(value)
        case datetime():
            return value.isoformat()
        case Decimal():
            return str(value)
        case Mapping():
            return {name: _plain(one) for name, one in value.items()}
        case None | bool() | int() | float() | str():
            return value
        case _:
            return [_plain(one) for one in value]
