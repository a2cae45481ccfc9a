"""One letter, told whole: what happened to it and when, why it failed, what is in it.

Its timeline is put together from what different hands wrote: the broker's deaths (each pair of queue and
reason with how often and when first), the application's error, our own headers, and the steps in the store.
Whoever wrote no time stands where the order of the deaths puts it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from deadletter.core.access.field_masks import MASKED, NO_MASKS, FieldMasks
from deadletter.core.deciding.failure import Failure
from deadletter.core.deciding.letter_view import LetterView, view_letter
from deadletter.core.grouping.in_app import BY_DEFAULT, OwnCode
from deadletter.core.grouping.stacks import read_stack
from deadletter.core.grouping.stored_letter import Inside, read_inside
from deadletter.core.letter import header_values, names
from deadletter.core.letter.parking import MEANINGS, Cause
from deadletter.core.letter.plain_values import plain_properties, plain_table, utf8
from deadletter.core.replaying.masked_letter import hidden, masked
from deadletter.store.letters.letter_views import REFUSED, GroupView, LetterDetail, LetterRow, LetterStep

BODY_BYTES: Final = 64 * 1024
"""So much of a body is told with a letter; all of it is had apart."""
_STACK_CHARS: Final = 64 * 1024
_WHY_CHARS: Final = 2_000


class BodyKind(StrEnum):
    TEXT = "text"
    """`text` is its beginning, as it stands."""
    BYTES = "bytes"
    """`base64` is its beginning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyTold:
    """A body, or its beginning: `whole` says which."""

    bytes: int
    kind: BodyKind
    whole: bool
    text: str = ""
    base64: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Happening:
    """Something that happened to a letter. `at_ms` None: nobody wrote down when."""

    at_ms: int | None
    what: str
    """died, failed, sent back, parked, stored, discarded, …"""
    where: str = ""
    times: int = 1
    who: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameTold:
    """A function of a stack. `own`: it is the application's."""

    name: str
    line: str
    own: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RaisedTold:
    """One error of a chain; frames from the outermost to where it was raised."""

    type: str
    message: str
    frames: tuple[FrameTold, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorTold:
    """Why it failed, as the framework that handled it wrote."""

    framework: str
    type: str
    message: str
    service: str
    release: str
    host: str
    at_ms: int | None
    first_ms: int | None
    chain: tuple[RaisedTold, ...]
    """The root cause first; empty where its stack is none that can be read."""
    stack: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterTold:
    """A letter with all that is known of it."""

    letter: LetterRow
    group: GroupView
    exchange: str
    routing_key: str
    """By which it came into the queue it was taken from."""
    why: str
    """Why it is here, in a sentence."""
    unreadable: str
    """What is wrong with its bytes; empty: nothing."""
    wrapped: bool
    """Whether the letter was found inside another one, which could not carry our headers."""
    timeline: tuple[Happening, ...]
    """The oldest first."""
    error: ErrorTold | None
    properties: dict[str, Any]
    headers: dict[str, Any]
    body: BodyTold
    earlier: tuple[LetterRow, ...]
    """The same letter, when it was here before: same id, other death."""


def tell(
    detail: LetterDetail, group: GroupView, own: OwnCode = BY_DEFAULT, masks: FieldMasks = NO_MASKS
) -> LetterTold:
    """Whatever its bytes hold. `masks`: what is not told, nor where something else quotes it."""
    seen = masked(read_inside(detail.letter), masks)
    if masks:
        detail = replace(detail, steps=tuple(map(_wordless, detail.steps)))
    if seen.unknown and detail.row.error:
        detail = replace(detail, row=replace(detail.row, error=MASKED))
    return hidden(_told(detail, group, own, seen.inside), seen.secrets)


def _wordless(step: LetterStep) -> LetterStep:
    """jq and schemas quote of a letter what they do not like, in part."""
    return replace(step, why=MASKED) if step.step == REFUSED and step.why else step


def _told(detail: LetterDetail, group: GroupView, own: OwnCode, inside: Inside) -> LetterTold:
    letter = detail.letter
    read = view_letter(
        inside.headers,
        broker_keeps_client_deaths=False,
        content_type=inside.properties.content_type,
        body=inside.body,
    )
    failure = read.failure
    return LetterTold(
        letter=detail.row,
        group=group,
        exchange=utf8(letter.exchange),
        routing_key=utf8(letter.routing_key),
        why=_why(detail.row, read, inside.outer),
        unreadable=inside.unreadable,
        wrapped=inside.wrapped,
        timeline=tuple(_in_order(_happenings(detail.row, read, inside.outer, detail.steps))),
        error=None if failure is None else _error(failure, own),
        properties=plain_properties(inside.properties),
        headers=plain_table(inside.headers),
        body=body_told(inside.body),
        earlier=detail.earlier,
    )


def body_told(body: bytes) -> BodyTold:
    cut = body[:BODY_BYTES]
    whole = len(cut) == len(body)
    try:
        text = cut.decode()
    except UnicodeDecodeError as error:
        if whole or error.start < len(cut) - 3:
            encoded = base64.b64encode(cut).decode()
            return BodyTold(bytes=len(body), kind=BodyKind.BYTES, whole=whole, base64=encoded)
        text = cut[: error.start].decode()  # cut in the middle of a character
    return BodyTold(bytes=len(body), kind=BodyKind.TEXT, whole=whole, text=text)


def _why(row: LetterRow, read: LetterView, outer: Mapping[str, Any]) -> str:
    """In the words of whoever parked it; else by its cause; else by its death."""
    said = header_values.text(outer.get(names.WHY), _WHY_CHARS)
    if said:
        return utf8(said)
    if read.put_aside is not None and read.put_aside.why:
        return utf8(read.put_aside.why)
    if row.cause in set(Cause):
        return MEANINGS[Cause(row.cause)]
    if read.history.recent:
        death = read.history.recent[0]
        return utf8(f"it died in {death.queue} ({death.reason})")
    return f"it was in {row.queue}, and says nothing of why"


# -- the timeline ----------------------------------------------------------------------------------------
def _happenings(
    row: LetterRow, read: LetterView, outer: Mapping[str, Any], steps: tuple[LetterStep, ...]
) -> Iterator[Happening]:
    """In the order in which it must have been, as far as no time says otherwise."""
    for death in reversed(read.history.all):
        yield Happening(
            at_ms=_ms(death.first_at),
            what="died",
            where=utf8(death.queue),
            times=death.count,
            why=utf8(death.reason),
        )
    if (failure := read.failure) is not None:
        said = ": ".join(filter(None, (failure.error_type, failure.message)))
        who = " ".join(filter(None, (failure.service, failure.release, failure.host)))
        if failure.first_at is not None and failure.first_at != failure.at:
            yield Happening(at_ms=_ms(failure.first_at), what="failed first", who=utf8(who))
        yield Happening(at_ms=_ms(failure.at), what="failed", who=utf8(who), why=utf8(said[:_WHY_CHARS]))
    if row.attempt:
        at = header_values.moment(read.headers.get(names.RELEASED_AT))
        yield Happening(at_ms=_ms(at), what="sent back", where=row.origin, times=row.attempt)
    parked = header_values.moment(outer.get(names.PARKED_AT))
    if parked is not None or row.cause:
        yield Happening(at_ms=_ms(parked), what="parked", where=row.queue, why=row.cause)
    yield Happening(at_ms=row.stored_ms, what="stored", times=1 + row.copies)
    for step in steps:
        yield Happening(at_ms=step.at_ms, what=step.step, who=step.who, why=step.why)


def _in_order(some: Iterator[Happening]) -> list[Happening]:
    """By time; what has none stays behind what it came after."""
    placed: list[tuple[int, int, Happening]] = []
    last_ms = 0
    for number, one in enumerate(some):
        last_ms = one.at_ms if one.at_ms is not None else last_ms
        placed.append((last_ms, number, one))
    return [one for _, _, one in sorted(placed, key=lambda each: each[:2])]


def _error(failure: Failure, own: OwnCode) -> ErrorTold:
    stack = (failure.stack or "")[:_STACK_CHARS]
    return ErrorTold(
        framework=failure.framework.value,
        type=utf8(failure.error_type or ""),
        message=utf8(failure.message or ""),
        service=utf8(failure.service or ""),
        release=utf8(failure.release or ""),
        host=utf8(failure.host or ""),
        at_ms=_ms(failure.at),
        first_ms=_ms(failure.first_at),
        chain=tuple(
            RaisedTold(
                type=utf8(raised.error_type),
                message=utf8(raised.message),
                frames=tuple(
                    FrameTold(name=utf8(str(frame)), line=utf8(frame.line), own=own.has(frame))
                    for frame in raised.frames
                ),
            )
            for raised in read_stack(stack)
        ),
        stack=utf8(stack),
    )


def _ms(at: datetime | None) -> int | None:
    return None if at is None else int(at.timestamp() * 1000)
