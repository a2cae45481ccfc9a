"""What a move is asked and what it answers: the values around the courier.

A decision about a letter is a `Verdict`: send it there, leave it, drop it, or wait for an answer. How a move
goes about it are its `Terms`; why it ended is one of `Ended`; a letter that should have gone and did not is a
`MoveFailure`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, TypeAlias

from deadletter.core.letter.envelope import Deaths, Leg
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.parking import Cause


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Publish it there. To a queue by name: the default exchange, and the queue as routing key.

    Whoever sends many letters the same way gives the same object each time: what follows from it is
    computed once.
    """

    routing_key: str
    exchange: str = ""
    deaths: Deaths = Deaths.SET_ASIDE
    headers: Mapping[str, Value] = field(default_factory=dict)
    """Headers to add; one of the same name is replaced."""
    leg: Leg = Leg.PLAIN
    anew: bool = False
    """A new letter: the id and the deaths it carries are another's, whose headers an application copied."""
    circling: bool = False
    """The broker sends it round by itself: its id is the one it had before it died."""
    retried: bool = False
    """It was sent once already and found no queue there."""
    unwrap: bool = False
    """A letter that was wrapped because it could not travel goes as it was before, or stays."""
    fate: object = None
    """Whatever the caller wants to know it by, once it is safe."""


class Stamped(NamedTuple):
    """Publish it there, with headers of this letter alone, encoded. A tuple: there is one for each letter."""

    send: Send
    entries: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Wrap:
    """Publish it there whole inside another message: it cannot travel as it is (`core.letter.wrapping`)."""

    routing_key: str
    exchange: str = ""
    cause: Cause
    why: str
    at_ms: int
    fate: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """It stays where it is."""

    fate: object = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Drop:
    """It leaves its queue and is published nowhere: a policy throws it away, or its home is the store now."""

    fate: object = None


@dataclass(frozen=True, slots=True)
class Later:
    """Not known yet; the letter waits, unacked, until it is."""

    verdict: asyncio.Future[Verdict]


Verdict: TypeAlias = Send | Stamped | Wrap | Leave | Drop | Later


class Setback(Enum):
    """Why a publish did not reach a new home."""

    UNROUTABLE = "no queue takes it there (unroutable)"
    REFUSED = "the broker refused it (is the target full?)"
    UNFIT = "it cannot travel as it is"


class Ended(Enum):
    """Why a passage ended."""

    COMPLETE = "everything that was asked for was looked at"
    EMPTY = "the source is empty"
    STOPPED = "it was asked to stop"
    TIME = "its time was up"
    STALLED = (
        "the broker has letters but does not hand them out (another exclusive or single active consumer?)"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveFailure:
    """A letter that stays in its source although it should have gone."""

    id: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """How a passage goes about it."""

    prefetch: int = 1000
    rate_per_s: float | None = None
    confirm_timeout_s: float = 30.0
    blocked_patience_s: float = 300.0
    decision_patience_s: float = 0.0
    """At the end: how long decisions that are still to come are waited for. Whoever decides may have acted
    already, and what is given back then comes again."""
