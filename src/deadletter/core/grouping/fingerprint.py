"""Same failure, same fingerprint.

Each error of a chain counts by its type, by the application's own innermost frame with its source line where
the stack shows it, and by what it says, masked. Two exceptions:

* where that line is a `raise`, it stands for the message, whatever names and numbers were put into it;
* where no frame is the application's, the innermost three of any count.

A letter without an error counts by the reason of its death and by why it was put aside; a body that is not
what it says it is by that. The origin always counts: another queue is another handler, and so another fix. So
does its vhost, where it is known: queues of one name in two vhosts are two, often of two teams, and who sees
one of them must not be told of the other.

What counted and what did not is kept in `parts`, so that a person can be told why two letters are together.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b
from typing import Final, NamedTuple

from deadletter.core.deciding.failure import Failure
from deadletter.core.grouping.in_app import BY_DEFAULT, OwnCode
from deadletter.core.grouping.masks import mask
from deadletter.core.grouping.stacks import Frame, Raised, read_stack

VERSION: Final = 2
"""Goes into every key: another way of counting makes other groups, and says so."""
_FOREIGN_FRAMES: Final = 3
_RECURSION: Final = 5
_CALLERS: Final = 1
_SHOWN_CHARS: Final = 200
_MAX_CHAIN: Final = 8
_KNOWN_STACKS: Final = 4_096
_KNOWN_CHARS: Final = 4_000
_TYPE_ONLY: Final = re.compile(r"[A-Za-z_][\w.]{0,200}: ")


class Kind(StrEnum):
    """What a part of a fingerprint is."""

    RULE = "rule"
    VHOST = "vhost"
    ORIGIN = "origin"
    REASON = "reason"
    CAUSE = "cause"
    TASK = "task"
    BODY = "body"
    TYPE = "error type"
    FRAME = "frame"
    SOURCE = "source line"
    MESSAGE = "message"
    MASK = "mask"


class Part(NamedTuple):
    """One thing that was looked at; `counted` says whether it is in the key."""

    kind: Kind
    text: str
    counted: bool = True


class Symptom(NamedTuple):
    """What is known of a letter's failure when it is grouped."""

    origin: str
    reason: str = ""
    """Of the death that decides: rejected, expired, …"""
    cause: str = ""
    """Why it was put aside."""
    failure: Failure | None = None
    undecodable: str = ""
    """The content type that its body does not keep, where that is so."""
    headers: Mapping[str, object] | None = None
    vhost: str = ""
    """Of the origin; empty where it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """The key of a group, its title for people, and what it was made of."""

    key: str
    title: str
    culprit: str
    error_type: str
    parts: tuple[Part, ...]
    ruled: str = ""
    """The category that a rule of the file gives it; empty: none does."""


def fingerprint(symptom: Symptom, own: OwnCode = BY_DEFAULT) -> Fingerprint:
    """What this failure is called, without any rule of the user's."""
    failure = symptom.failure
    head = _head(failure.stack or "", failure.message or "") if failure is not None else ""
    if failure is None or not head:
        return _made(symptom, own)
    told = (
        symptom.vhost,
        symptom.origin,
        symptom.reason,
        symptom.cause,
        symptom.undecodable,
        failure.task,
        failure.error_type,
    )
    kind = (*told, head, mask(failure.message or ""), own)
    found = _known.get(kind)
    if found is None:
        if len(_known) >= _KNOWN_STACKS:
            _known.clear()
        found = _known[kind] = _made(symptom, own)
    return found


_known: Final[dict[object, Fingerprint]] = {}
"""What was made for one letter holds for the next that differs in nothing but what is masked."""


def _made(symptom: Symptom, own: OwnCode) -> Fingerprint:
    parts = list(place_of(symptom))
    failure = symptom.failure
    chain = _chain(failure)
    culprit = ""
    if not chain:
        parts.append(Part(Kind.REASON, symptom.reason or "unknown"))
        if failure is not None and failure.task:
            parts.append(Part(Kind.TASK, failure.task))
        if symptom.cause:
            parts.append(Part(Kind.CAUSE, symptom.cause))
    if symptom.undecodable:
        parts.append(Part(Kind.BODY, f"not {symptom.undecodable}"))
    for raised in chain:
        made, where = _of_error(raised, own)
        parts += made
        culprit = where or culprit
    last = chain[-1] if chain else None
    error_type = last.error_type if last else ""
    said = mask(last.message).text if last else ""
    title = ": ".join(filter(None, (_short(error_type), said))) if last else _without_error(symptom)
    return Fingerprint(
        key=key_of(parts),
        title=title[:_SHOWN_CHARS],
        culprit=culprit[:_SHOWN_CHARS],
        error_type=error_type[:_SHOWN_CHARS],
        parts=tuple(parts),
    )


def place_of(symptom: Symptom) -> tuple[Part, ...]:
    """Where it failed, which counts in every key: a rule cannot join what is of two places."""
    origin = Part(Kind.ORIGIN, symptom.origin)
    return (Part(Kind.VHOST, symptom.vhost), origin) if symptom.vhost else (origin,)


def key_of(parts: Sequence[Part]) -> str:
    """Sixteen bytes of those that counted, as text."""
    digest = blake2b(str(VERSION).encode(), digest_size=16)
    for part in parts:
        if part.counted:
            digest.update(f"\0{part.kind}\1{part.text}".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def grouping_digest(told: str) -> str:
    """Which way of counting this is, where `told` are the rules."""
    return blake2b(f"{VERSION}\0{told}".encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


def _chain(failure: Failure | None) -> tuple[Raised, ...]:
    """The errors, the root cause first. Type and message of the last are what the framework says of it."""
    if failure is None or not (failure.error_type or failure.message or failure.stack):
        return ()
    read = _read(failure.stack or "", failure.message or "")
    if len(read) > _MAX_CHAIN:
        read = (read[0], *read[1 - _MAX_CHAIN :])
    if any(raised.of_group for raised in read):
        return _together(read, failure)
    *before, last = read or (Raised("", "", ()),)
    told = Raised(last.error_type or failure.error_type or "", failure.message or last.message, last.frames)
    return (*dict.fromkeys(before), told)


def _head(stack: str, message: str) -> str:
    """A stack without what its last error says, which is told beside it, where its last line is nothing but a
    type and that; else nothing. Such stacks are one, whatever was said."""
    if len(stack) <= _KNOWN_CHARS and message.isprintable():
        whole = stack.rstrip("\n")
        head = whole[: -len(message)] if message and whole.endswith(message) else ""
        before, line, last = head.rpartition("\n")
        if before and line and _TYPE_ONLY.fullmatch(last):
            return head
    return ""


def _read(stack: str, message: str) -> tuple[Raised, ...]:
    """The errors of a stack."""
    head = _head(stack, message)
    return _read_known(f"{head}x") if head else read_stack(stack)


_read_known: Final = lru_cache(maxsize=_KNOWN_STACKS)(read_stack)


def _together(read: tuple[Raised, ...], failure: Failure) -> tuple[Raised, ...]:
    """Errors that were raised together: each kind once, in one order, without what each says; then the group
    itself. How many there were differs from time to time, and so does where a long stack was cut."""
    kinds = {
        (raised.error_type, raised.frames[-1:]): replace(raised, message="")
        for raised in read
        if not raised.error_type.endswith("Group")
    }
    group = Raised(failure.error_type or "", failure.message or "", ())
    return (*(kinds[kind] for kind in sorted(kinds, key=repr)), group)


def _of_error(raised: Raised, own: OwnCode) -> tuple[list[Part], str]:
    """What of one error counts, and where in the application it happened."""
    parts = [Part(Kind.TYPE, _short(raised.error_type))] if raised.error_type else []
    place, passed = _frames(raised.frames, own)
    frame = None if place is None else raised.frames[place]
    masked = mask(raised.message)
    source = frame.line if frame is not None else ""
    thrown_here = frame is not None and frame is raised.frames[-1]
    # Where the application raised it, the line, or else a type of its own, says more than the words.
    by_source = thrown_here and (_is_whole_raise(source) if source else own.names(raised.error_type))
    parts += passed
    if source:
        parts.append(Part(Kind.SOURCE, source))
    if masked.text:
        parts.append(Part(Kind.MESSAGE, masked.text, counted=not by_source))
        parts += [Part(Kind.MASK, name, counted=False) for name in masked.masks]
    return parts, str(frame) if frame is not None else ""


@lru_cache(maxsize=_KNOWN_STACKS)
def _frames(frames: tuple[Frame, ...], own: OwnCode) -> tuple[int | None, tuple[Part, ...]]:
    """Where the application's own innermost frame is, and what is told of all of them."""
    place = _innermost_own(frames, own)
    if place is None:
        return None, tuple(Part(Kind.FRAME, str(passed)) for passed in frames[-_FOREIGN_FRAMES:])
    counted = _counted(frames, frames[place], own)
    shown = [*(one for one in counted if one not in frames[-8:]), *frames[-8:]]
    return place, tuple(Part(Kind.FRAME, str(passed), counted=passed in counted) for passed in shown)


def _innermost_own(frames: tuple[Frame, ...], own: OwnCode) -> int | None:
    """Where the last frame of the application's is; of a recursion the last function that came to it anew."""
    ours = [place for place, frame in enumerate(frames) if own.has(frame)]
    if not ours:
        return None
    times: dict[str, int] = {}
    for place in ours:
        times[str(frames[place])] = times.get(str(frames[place]), 0) + 1
    if times[str(frames[ours[-1]])] <= _RECURSION:
        return ours[-1]
    newest = list(times)[-1]
    return next(place for place in ours if str(frames[place]) == newest)


def _counted(frames: tuple[Frame, ...], innermost: Frame, own: OwnCode) -> tuple[Frame, ...]:
    """The innermost frame of the application's own and the one that called it: a helper fails for many."""
    ours = [frame for frame in frames if own.has(frame)]
    callers = [frame for frame in ours[: ours.index(innermost)] if str(frame) != str(innermost)]
    return (*callers[-_CALLERS:], innermost)


def _is_whole_raise(source: str) -> bool:
    """Whether this line raises, and is not the first of several: Python shows one."""
    return source.startswith("raise ") and source.count("(") == source.count(")")


def _short(error_type: str) -> str:
    """Without its module: the same class is told with and without it."""
    return error_type.replace("\\", ".").replace("::", ".").rpartition(".")[2]


def _without_error(symptom: Symptom) -> str:
    if symptom.undecodable:
        return f"body is not {symptom.undecodable}"
    task = symptom.failure.task if symptom.failure else None
    return ", ".join(filter(None, (task, symptom.reason, symptom.cause))) or "unknown"
