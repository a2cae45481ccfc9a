"""A letter written down as JSON: by hand, by `rabbitmqadmin get`, by the management API.

By hand, every key optional::

    {"queue": "orders", "reason": "rejected", "exchange": "shop", "routing_key": "order.new",
     "headers": {"x-exception-message": "…"}, "content_type": "application/json", "body": {"total": 101}}

`body` is a text, or a JSON value that stands for itself; `body_base64` is for anything else. Without
`x-death` among the headers, `queue` stands for one death there, just now, for `reason` (default: rejected).

What the management API returns has `payload`, `payload_encoding` and `properties`; a list of one is one.
Times in `x-death`, seconds in JSON, become times again.
"""

from __future__ import annotations

import base64
import binascii
import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final

from deadletter.core.deciding.deaths import REASONS
from deadletter.core.letter import header_values, names
from deadletter.errors import UsageError

MAX_FILE_BYTES: Final = 64 * 1024 * 1024
_OURS: Final = frozenset(
    {"body", "body_base64", "content_type", "exchange", "headers", "queue", "reason", "routing_key"}
)
_THEIRS: Final = frozenset(
    {"message_count", "payload", "payload_bytes", "payload_encoding", "properties", "redelivered"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What a policy can look at in one letter, wherever it was taken from."""

    headers: Mapping[str, object]
    content_type: str | None
    body: bytes


def read(path: Path, now: datetime) -> Sample:
    """The letter in a file, or on stdin for `-`. Raises UsageError with what was expected."""
    try:
        raw = sys.stdin.buffer.read(MAX_FILE_BYTES + 1) if str(path) == "-" else _bytes(path)
    except OSError as error:
        raise UsageError(f"{path}: expected a letter as JSON, got {error.strerror}") from error
    if len(raw) > MAX_FILE_BYTES:
        raise UsageError(f"{path}: expected at most {MAX_FILE_BYTES} bytes, got more")
    try:
        letter = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: expected a letter as JSON, got {error}") from error
    try:
        return sample(letter, now)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def _bytes(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(MAX_FILE_BYTES + 1)


def sample(letter: object, now: datetime) -> Sample:
    """The letter in a JSON value."""
    if isinstance(letter, list):
        if len(letter) != 1:
            raise UsageError(f"expected one letter, got a list of {len(letter)}")
        letter = letter[0]
    if not isinstance(letter, dict):
        raise UsageError(f"expected a letter as a JSON object, got {type(letter).__name__}")
    for key in letter:
        if key not in _OURS | _THEIRS:
            known = sorted(_OURS | _THEIRS)
            meant = get_close_matches(key, known, n=1)
            hint = f"did you mean {meant[0]}?" if meant else f"there are {', '.join(known)}"
            raise UsageError(f"{header_values.shown(key)}: expected a key of a letter ({hint})")
    # the management API says [] where there are none
    properties = _table(letter.get("properties") or {}, "properties")
    headers = _table(letter.get("headers") or properties.get("headers") or {}, "headers")
    content_type = _text(letter, "content_type") or _text(properties, "content_type")
    timed = {
        key: _timed(value) if key in (names.X_DEATH, names.DEATHS) else value
        for key, value in headers.items()
    }
    if names.X_DEATH not in timed and (queue := _text(letter, "queue")) is not None:
        timed[names.X_DEATH] = [_death(letter, queue, now)]
    return Sample(headers=timed, content_type=content_type, body=_body(letter))


def _death(letter: dict[str, Any], queue: str, now: datetime) -> dict[str, object]:
    reason = _text(letter, "reason") or REASONS[0]
    if reason not in REASONS:
        raise UsageError(f"reason: expected one of {', '.join(REASONS)}, got {header_values.shown(reason)!r}")
    key = _text(letter, "routing_key")
    return {
        "queue": queue,
        "reason": reason,
        "count": 1,
        "time": now,
        "exchange": _text(letter, "exchange") or "",
        "routing-keys": [queue if key is None else key],
    }


def _timed(deaths: object) -> object:
    """Entries of x-death with their time as one: seconds in what the API returns, ISO 8601 by hand."""
    if not isinstance(deaths, list):
        return deaths
    return [
        {**death, "time": _moment(death["time"])} if isinstance(death, dict) and "time" in death else death
        for death in deaths
    ]


def _moment(value: object) -> object:
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return datetime.fromtimestamp(value, UTC)
        except (ValueError, OverflowError, OSError):
            return value
    return header_values.moment(value) if isinstance(value, str) else value


def _body(letter: dict[str, Any]) -> bytes:
    given = [key for key in ("body", "body_base64", "payload") if key in letter]
    if len(given) > 1:
        raise UsageError(f"expected one body, got {' and '.join(given)}")
    match given:
        case ["body"] if not isinstance(letter["body"], str):
            return json.dumps(letter["body"]).encode()
        case ["body"]:
            return _encoded(letter, "body")
        case ["payload"] if letter.get("payload_encoding") != "base64":
            return _encoded(letter, "payload")
        case [key]:
            try:
                return base64.b64decode(_encoded(letter, key), validate=True)
            except binascii.Error as error:
                raise UsageError(f"{key}: expected base64 ({error})") from error
        case _:
            return b""


def _encoded(letter: dict[str, Any], key: str) -> bytes:
    return (_text(letter, key) or "").encode("utf-8", "surrogatepass")


def _table(value: object, key: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise UsageError(f"{key}: expected an object, got {type(value).__name__}")
    return value


def _text(table: dict[str, Any], key: str) -> str | None:
    value = table.get(key)
    if value is not None and not isinstance(value, str):
        raise UsageError(f"{key}: expected a text, got {type(value).__name__}")
    return value
