"""What happens in a consumer, as facts. Logs and metrics listen; they cannot break the path of a message."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, TypeAlias

from deadletter.core.letter.letter import Letter

BROKER: Final = "broker"
"""What is lost with the connection."""
_log: Final = logging.getLogger("deadletter.consumer")


class Fate(StrEnum):
    """What became of a message."""

    DONE = "done"
    SKIPPED = "skipped"
    """It was done before, as its id says; acked without running the handler."""
    RETRIED = "retried"
    PARKED = "parked"
    DISCARDED = "discarded"
    STUCK = "stuck"
    """Its next place did not take it; it is tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handled:
    """What became of one message. A success says no more than how long it took."""

    queue: str
    fate: Fate
    attempt: int = 0
    delay_ms: int | None = None
    """Of a retry: how long it waits; None where the broker's own set-up decides that."""
    cause: str = ""
    why: str = ""
    error: str = ""
    """The type of the error, with its module."""
    seconds: float | None = None
    """How long the handler took; None when it did not run."""
    letter: Letter | None = None
    raised: BaseException | None = field(default=None, repr=False, compare=False)
    """What the handler failed with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """The broker is away, or a queue is, or something that a layout needs."""

    what: str
    """`broker`, `queue orders`, `exchange shop`."""
    why: str
    seconds: float
    """Until the next try; 0: it was away, and is there again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """Messages are taken from these queues now: all of them on a new connection, or one that was lost."""

    queues: tuple[str, ...]
    layouts: tuple[str, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused:
    """A health check says no: nothing is taken from this queue; it is asked again in `seconds`."""

    queue: str
    why: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """The health check says yes again."""

    queue: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    """The consumer was asked to end."""

    why: str


Event: TypeAlias = Handled | Lost | Ready | Paused | Resumed | Stopping
Listener: TypeAlias = Callable[[Event], None]


def regained(ready: Ready, lost: Iterable[str]) -> list[str]:
    """What of that which was lost is there again: with a new connection all of it, else these queues."""
    known = list(lost)
    if BROKER in known:
        return known
    queues = {f"queue {queue}" for queue in ready.queues}
    return [what for what in known if what in queues]


class Audience:
    """Everybody who listens. False while nobody was added: then no fact need be made of what went well."""

    __slots__ = ("_listeners", "_usual")

    def __init__(self, usual: Listener | None = None) -> None:
        self._listeners: list[Listener] = []
        self._usual = usual
        """Who hears of what went wrong, until somebody is added who writes all of it."""

    def add(self, listener: Listener, *, instead: bool = False) -> None:
        """`instead`: of the usual one."""
        self._listeners.append(listener)
        if instead:
            self._usual = None

    def has(self, kind: type[object]) -> bool:
        """Whether one of this kind was added."""
        return any(isinstance(one, kind) for one in self._listeners)

    def __bool__(self) -> bool:
        return bool(self._listeners)

    def __call__(self, event: Event) -> None:
        for listener in self._listeners if self._usual is None else (self._usual, *self._listeners):
            try:
                listener(event)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException:  # noqa: BLE001 -- whatever a listener raises, messages go on
                _log.exception("a listener failed; messages go on")
