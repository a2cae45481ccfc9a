"""Why something became of a letter, what is written on one that is parked, and on each that is on its way.

A parked letter says why, for machines (`deadletter-cause`) and for people (`deadletter-why`), and since when
(`deadletter-parked-at`). Whoever parks (the service, the consumer library, an adapter, the safe move itself)
takes the cause from `Cause` and the headers from here.
"""

from __future__ import annotations

from enum import StrEnum
from struct import Struct
from typing import Final

from deadletter.core.letter import names
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.header_values import shown

WHY_CHARS: Final = 500
"""So much of a reason stands on a letter; all of it is in the log."""


class Cause(StrEnum):
    """Why, for machines: headers, metrics and tests."""

    # a policy, or the rules of a queue
    RETRIES_LEFT = "retries-left"
    RETRIES_EXHAUSTED = "retries-exhausted"
    NO_RETRIES = "no-retries"
    DEADLINE_PASSED = "deadline-passed"
    CONDITION_UNANSWERED = "condition-unanswered"
    # its origin
    ORIGIN_UNKNOWN = "origin-unknown"
    ORIGIN_AMBIGUOUS = "origin-ambiguous"
    ORIGIN_CLAIMED = "origin-claimed"
    ORIGIN_UNPROVEN = "origin-unproven"
    ORIGIN_FULL = "origin-full"
    ORIGIN_MISSING = "origin-missing"
    # the letter itself
    COPY = "copied-by-fanout"
    UNREADABLE = "unreadable"
    DECISION_FAILED = "decision-failed"
    NO_DELIVERIES_LEFT = "no-deliveries-left"
    """Given back once more its queue might destroy it, and takes it in no other way."""
    KILLED_ITS_CONSUMER = "killed-its-consumer"
    # the application's handler
    UNDECODABLE = "undecodable"
    HANDLER = "handler"
    """The handler itself said so."""
    PERMANENT_ERROR = "permanent-error"
    """A rule says that this error is not worth another try."""
    DISCARD = "discard"
    BY_HAND = "by-hand"
    """A person parked it."""
    ALREADY_DONE = "already-done"


MEANINGS: Final[dict[Cause, str]] = {
    Cause.RETRIES_LEFT: "it is tried again",
    Cause.RETRIES_EXHAUSTED: "it was tried as often as its policy allows",
    Cause.NO_RETRIES: "its policy, or the rule for its error, allows no retry",
    Cause.DEADLINE_PASSED: "the next retry would come after its policy's deadline",
    Cause.CONDITION_UNANSWERED: "the body condition of its policy could not be evaluated within its limits",
    Cause.ORIGIN_UNKNOWN: "nothing says which queue it failed in",
    Cause.ORIGIN_AMBIGUOUS: "its deaths fit more than one queue",
    Cause.ORIGIN_CLAIMED: "only a header says which queue it failed in, no death",
    Cause.ORIGIN_UNPROVEN: "letters that die in the queue it names do not come to where it was found",
    Cause.ORIGIN_FULL: "its origin was full, and nobody could see whether it has room now",
    Cause.ORIGIN_MISSING: "its origin is not there any more",
    Cause.COPY: "a shared fanout made it; another copy goes back",
    Cause.UNREADABLE: "its properties are not what AMQP says, or do not fit into a frame with ours",
    Cause.DECISION_FAILED: "an error of ours while deciding",
    Cause.NO_DELIVERIES_LEFT: "given back once more its queue might have destroyed it",
    Cause.KILLED_ITS_CONSUMER: "it was delivered too often, and its consumer never came to an end with it",
    Cause.UNDECODABLE: "its body is not what the handler takes",
    Cause.HANDLER: "the handler parked it",
    Cause.PERMANENT_ERROR: "a rule says that its error is permanent",
    Cause.BY_HAND: "a person parked it while it waited",
    Cause.DISCARD: "the handler, or a rule for its error, threw it away",
    Cause.ALREADY_DONE: "its id was done before",
}
"""Each in a few words, for the pages of the manual."""


def reasons(cause: str, why: str) -> dict[str, Value]:
    """The headers that say why: of a parked letter its cause, of a held one the guard that keeps it."""
    return {names.CAUSE: str(cause), names.WHY: shown(why, WHY_CHARS)}


def parked_headers(cause: Cause, why: str, at_ms: int) -> dict[str, Value]:
    """All that a parked letter says about being parked."""
    return {**reasons(cause, why), names.PARKED_AT: at_ms}


_pack: Final = Struct(">q").pack


def moment(name: str) -> bytes:
    """The encoded header up to its value: see `at`."""
    encoded = name.encode()
    return bytes((len(encoded),)) + encoded + b"l"


DUE_AT: Final = moment(names.DUE_AT)
PARKED_AT: Final = moment(names.PARKED_AT)
RELEASED_AT: Final = moment(names.RELEASED_AT)


def at(which: bytes, now_ms: int) -> bytes:
    """One of the moments above as an encoded header: each letter's own, so it is added to encoded headers."""
    return which + _pack(now_ms)


def carried(
    *,
    queue: str,
    exchange: str | None,
    routing_key: str | None,
    attempt: int,
    policy: str,
    parent_id: str = "",
) -> dict[str, Value]:
    """What every letter of ours carries on its way: where it belongs, which attempt, whose policy.

    They are the same in every layout, so a letter may pass from one to another, and from the service to the
    consumer library and back. `parent_id`: of the letter whose headers an application copied into this one.
    """
    headers: dict[str, Value] = {
        names.ORIGIN_QUEUE: queue,
        names.ORIGIN_EXCHANGE: exchange or "",
        names.ORIGIN_ROUTING_KEY: routing_key or "",
        names.ATTEMPT: attempt,
        names.POLICY: policy,
    }
    if parent_id:
        headers[names.PARENT_ID] = parent_id
    return headers
