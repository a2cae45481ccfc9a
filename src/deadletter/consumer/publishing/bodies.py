"""What an application publishes, as bytes: the other way round of what a handler's annotation asks for.

bytes go as they are and str as UTF-8; everything else is JSON: what pydantic, msgspec or a dataclass make of
their own kind, and plain Python values with what JSON has no word for (dates, UUIDs, decimals, enums, sets)
as pydantic writes it.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from deadletter.errors import UsageError

JSON: Final = "application/json"
_PLAIN: Final = (dict, list, tuple, int, float, bool, type(None))
_write_json: Final = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode


class EncodedBody(NamedTuple):
    """A body, and what to say of it."""

    content: bytes
    content_type: str


def encoded(body: object) -> EncodedBody:
    """Raises UsageError for what cannot be a body."""
    if isinstance(body, bytes):
        return EncodedBody(body, "application/octet-stream")
    if isinstance(body, str):
        try:
            return EncodedBody(body.encode(), "text/plain")
        except UnicodeEncodeError as error:
            raise _refusal(body, error) from error
    if isinstance(body, bytearray | memoryview):
        return EncodedBody(bytes(body), "application/octet-stream")
    if type(body) in _PLAIN:
        try:
            return EncodedBody(_write_json(body).encode(), JSON)
        except (TypeError, ValueError, RecursionError):
            pass  # something in it is not JSON's; whoever knows more kinds says whether it can be
    return EncodedBody(_written(body), JSON)


def _written(body: object) -> bytes:
    import pydantic_core

    if is_struct(type(body)):
        return _written_struct(body)
    try:
        if not _holds_a_value(body):
            raise TypeError("an iterator is gone once it is read")
        return pydantic_core.to_json(body, fallback=_inside, inf_nan_mode="strings")
    except (TypeError, ValueError, RecursionError) as error:
        raise _refusal(body, error) from error


def _written_struct(body: object) -> bytes:
    import msgspec

    try:
        return msgspec.json.encode(body)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise _refusal(body, error) from error


def _inside(value: Any) -> Any:
    """What pydantic does not know, somewhere in a body."""
    if is_struct(type(value)):
        import msgspec

        return msgspec.to_builtins(value)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def _holds_a_value(body: object) -> bool:
    return not hasattr(body, "__next__")


def is_struct(kind: type) -> bool:
    """Whether it is a class of msgspec's, which need not be installed."""
    return any(base.__module__.startswith("msgspec") for base in kind.__mro__)


def _refusal(body: object, error: Exception) -> UsageError:
    return UsageError(
        "publish: expected as a body bytes, str, a pydantic model, a msgspec struct, a dataclass or what "
        f"JSON can say, got {type(body).__name__}: {str(error)[:200]}"
    )
