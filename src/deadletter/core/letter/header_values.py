"""Reading header values that nobody vouches for.

A header may hold anything: the wrong type, a foreign charset, a number as a string, a megabyte where a
word was expected. Each function here returns the value in the type we want, or None; none of them raises,
and none does more work than its limit allows.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Final

from deadletter.core.text.safe_text import line

MAX_COUNT: Final = 2**63 - 1
MAX_NAME_BYTES: Final = 255  # an AMQP short string: no queue, exchange or routing key is longer
_MAX_DIGITS: Final = 19
_MAX_MOMENT_CHARS: Final = 64


def name(value: object) -> str | None:
    """A queue, exchange or routing key.

    Bytes that are not UTF-8 come through as surrogate escapes, because such a name must go back to the broker
    byte for byte (`encode("utf-8", "surrogateescape")`). Print it with `shown`.
    """
    if isinstance(value, bytes):
        return value.decode("utf-8", "surrogateescape") if len(value) <= MAX_NAME_BYTES else None
    if isinstance(value, str) and len(value) <= MAX_NAME_BYTES:
        return value
    return None


def shown(text: str, limit: int = 200) -> str:
    """A name or a foreign text in one line, bounded."""
    return line(text, limit)


def text(value: object, limit: int) -> str | None:
    """Text to show or to match: bytes decoded, numbers and booleans written as JSON writes them."""
    match value:
        case str():
            return value[:limit]
        case bytes():
            return value[:limit].decode("utf-8", "backslashreplace")[:limit]
        case bool():
            return "true" if value else "false"
        case int():
            return str(value) if abs(value) <= MAX_COUNT else None
        case float() | Decimal():
            return str(value)[:limit]
        case datetime():
            return value.isoformat()[:limit]
        case _:
            return None


def count(value: object) -> int | None:
    """A number of times: an integer, or one that a library wrote as text or as a double. Never negative."""
    match value:
        case bool():
            return None
        case int():
            return min(max(value, 0), MAX_COUNT)
        case float():
            return int(value) if 0 <= value < 2**53 and value.is_integer() else None
        case Decimal():
            # finite first: comparing a signalling NaN raises
            return int(value) if value.is_finite() and 0 <= value < 2**53 and value == int(value) else None
        case bytes():
            return count(value.decode("latin-1")) if len(value) <= _MAX_DIGITS + 2 else None
        case str():
            digits = value.strip() if len(value) <= _MAX_DIGITS + 2 else ""
            # isdigit alone says yes to "²", which int refuses
            return min(int(digits), MAX_COUNT) if digits.isascii() and digits.isdigit() else None
        case _:
            return None


def moment(value: object) -> datetime | None:
    """A point in time in UTC: an AMQP timestamp, ISO 8601, NServiceBus's own format, or milliseconds."""
    try:
        match value:
            case datetime():
                return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
            case bool():
                return None
            case int():
                return datetime.fromtimestamp(value / 1000, UTC)
            case str() if len(value) <= _MAX_MOMENT_CHARS:
                return moment(datetime.fromisoformat(_iso(value.strip())))
            case _:
                return None
    except (ValueError, OverflowError, OSError):
        return None


def _iso(value: str) -> str:
    """NServiceBus writes `2014-11-11 02:26:58:000462 Z`; the rest of the world a dot and no space."""
    bare = value.removesuffix("Z").rstrip()
    if bare.count(":") == 3 and "+" not in bare:
        bare = ".".join(bare.rsplit(":", 1))
    return bare + "+00:00" if value.endswith("Z") else bare
