"""What a move is asked and what it answers: the values around the courier.

A decision about a letter is a `Verdict`: send it there, or leave it. How a move goes about it are its
`Terms`; why it ended is one of `Ended`; a letter that should have gone and did not is a `Failure`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias

from deadletter.core.envelope import Deaths
from deadletter.core.table import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """Publish it there. To a queue by name: the default exchange, and the queue as routing key."""

    routing_key: str
    exchange: str = ""
    deaths: Deaths = Deaths.SET_ASIDE
    headers: Mapping[str, Value] = field(default_factory=dict)
    """Headers to add; one of the same name is replaced."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """It stays where it is."""


Verdict: TypeAlias = Send | Leave


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
class Failure:
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
