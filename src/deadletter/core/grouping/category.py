"""What kind of failure it is, as far as its name and its words tell: a guess, which a person may change.

The order matters: overload is often told as a timeout, and bad data as an error of a type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final

from deadletter.core.grouping.fingerprint import Fingerprint, Kind
from deadletter.core.letter.parking import Cause


class Category(StrEnum):
    """What would help."""

    TRANSIENT = "transient"
    """Waiting: something it needs was not there."""
    OVERLOAD = "overload"
    """Going slower."""
    DATA = "data"
    """Another message: this one is not what the handler takes."""
    PERMANENT = "permanent"
    """Nothing here: what it asks for is refused or is not there."""
    BUG = "bug"
    """Another release."""
    UNKNOWN = "unknown"


_BY_CAUSE: Final[Mapping[str, Category]] = {
    Cause.UNDECODABLE: Category.DATA,
    Cause.UNREADABLE: Category.DATA,
    Cause.ORIGIN_FULL: Category.OVERLOAD,
    Cause.ORIGIN_MISSING: Category.PERMANENT,
    Cause.KILLED_ITS_CONSUMER: Category.BUG,
}
_BY_REASON: Final = {"maxlen": Category.OVERLOAD, "expired": Category.OVERLOAD}
_TYPES: Final = (
    (
        Category.OVERLOAD,
        (
            "TooManyRequests RateLimit Throttl PoolTimeout PoolExhausted OutOfMemory MemoryError "
            "ResourceExhausted QuotaExceeded"
        ),
    ),
    (
        Category.DATA,
        (
            "Validation JSONDecode JsonException JsonMapping JsonParse UnicodeDecode UnicodeEncode "
            "UnicodeError Decod Deserializ Serialization MalformedInput InvalidFormat NumberFormat "
            "SyntaxError IntegrityError ConstraintViolation DataError ParseError"
        ),
    ),
    (
        Category.TRANSIENT,
        (
            "Timeout TimedOut Connect BrokenPipe SocketException UnknownHost gaierror OperationalError "
            "Deadlock LockWait Unavailable Transient Temporary EOFError IncompleteRead ProtocolError "
            "Interrupted"
        ),
    ),
    (
        Category.PERMANENT,
        (
            "NotFound PermissionError Forbidden Unauthorized AccessDenied Authentication DoesNotExist "
            "NotSupported Unsupported"
        ),
    ),
    (
        Category.BUG,
        (
            "TypeError AttributeError NameError KeyError IndexError LookupError AssertionError ZeroDivision "
            "Recursion StackOverflow NullPointer NullReference ClassCast IllegalState IllegalArgument "
            "ReferenceError RangeError NotImplemented Unbound ImportError ArgumentError InvalidCast "
            "NoMethodError"
        ),
    ),
)
"""What a type's name holds, and what that means."""
_OVERLOADED: Final = "too many requests|rate limit|overload|pool is exhausted|pool exhausted"
_WORDS: Final = (
    (
        Category.TRANSIENT,
        (
            "service unavailable|gateway|timed out|timeout|connection refused|connection reset|"
            "connection aborted|try again|temporar|deadlock|server error"
        ),
    ),
    (
        Category.DATA,
        "invalid|malformed|unexpected token|could not parse|could not decode|unprocessable|bad request",
    ),
    (Category.PERMANENT, "not found|forbidden|unauthori|no such|client error"),
)
"""What a message holds, in small letters."""


def category_of(found: Fingerprint, *, message: str = "", cause: str = "", reason: str = "") -> Category:
    """By why it was put aside, by its error's type, by its words. `message`: as it was, not masked."""
    known = _BY_CAUSE.get(cause)
    if known is not None:
        return known
    said = message.lower()
    if _holds(said, _OVERLOADED.split("|")):
        return Category.OVERLOAD
    types = [part.text for part in found.parts if part.kind is Kind.TYPE]
    for name in (found.error_type, *types):  # the last error, then its causes
        for category, fragments in _TYPES:
            if _holds(name, fragments.split()):
                return category
    for category, words in _WORDS:
        if _holds(said, words.split("|")):
            return category
    return Category.UNKNOWN if types else _BY_REASON.get(reason, Category.UNKNOWN)


def _holds(text: str, some: Sequence[str]) -> bool:
    return any(one in text for one in some)
