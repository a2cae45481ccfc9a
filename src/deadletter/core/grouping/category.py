"""What kind of failure it is, as far as its name and its words tell: a guess, over which go what became
of it (`category_history`), a rule of the file, and a person's word.

The order matters: overload is often told as a timeout, and bad data as an error of a type.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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


class By(StrEnum):
    """Who says of which category a group is. The first of these that speaks is believed."""

    PERSON = "person"
    RULE = "rule"
    HISTORY = "history"
    GUESS = "guess"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Of which category a group is, who says so, and why."""

    category: Category
    by: By
    why: str


def guess(found: Fingerprint, *, message: str = "", cause: str = "", reason: str = "") -> Judgement:
    """By a rule; by why it was put aside, by its error's type, by its words. `message`: as it was, not
    masked."""
    if found.ruled:
        return Judgement(category=Category(found.ruled), by=By.RULE, why="a rule of the file says so")
    known = _BY_CAUSE.get(cause)
    if known is not None:
        return _guessed(known, f"it was put aside as {cause}")
    said = message.lower()
    if word := _held(said, _OVERLOADED.split("|")):
        return _guessed(Category.OVERLOAD, f"its error says {word!r}")
    types = [part.text for part in found.parts if part.kind is Kind.TYPE]
    for name in (found.error_type, *types):  # the last error, then its causes
        for category, fragments in _TYPES:
            if _held(name, fragments.split()):
                return _guessed(category, f"its error is a {name}")
    for category, words in _WORDS:
        if word := _held(said, words.split("|")):
            return _guessed(category, f"its error says {word!r}")
    if not types and reason in _BY_REASON:
        return _guessed(_BY_REASON[reason], f"it died as {reason}")
    return _guessed(Category.UNKNOWN, "neither type nor words of its error tell")


def _guessed(category: Category, why: str) -> Judgement:
    return Judgement(category=category, by=By.GUESS, why=why)


def _held(text: str, some: Sequence[str]) -> str:
    """The first of these that is in the text; empty: none."""
    return next((one for one in some if one in text), "")
