"""What happens in a consumer, as facts. Logs and metrics listen; they cannot break the path of a message."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from deadletter.core.letter import Letter


class Fate(StrEnum):
    """What became of a message."""

    DONE = "done"
    RETRIED = "retried"
    PARKED = "parked"
    DISCARDED = "discarded"
    STUCK = "stuck"
    """Its next place did not take it; it is tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handled:
    """One message; for successes one fact stands for all of a queue, and says nothing but that."""

    queue: str
    fate: Fate
    attempt: int = 0
    delay_ms: int | None = None
    cause: str = ""
    why: str = ""
    letter: Letter | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """The broker is away, or a queue is."""

    what: str
    why: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """Messages are taken from these queues now."""

    queues: tuple[str, ...]
    layouts: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    why: str


Event: TypeAlias = Handled | Lost | Ready | Stopping
Listener: TypeAlias = Callable[[Event], None]
