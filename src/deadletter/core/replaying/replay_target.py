"""Where the letters of a replay go."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, assert_never

from deadletter.core.letter.header_values import shown
from deadletter.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class ToOrigin:
    """Each to the queue it failed in, and to that alone: by the return exchange."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToQueue:
    """All of them to this queue, and to that alone."""

    queue: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToExchange:
    """All of them to this exchange, and wherever it leads. `key` None: each by the key it had."""

    exchange: str
    key: str | None = None


ReplayTarget: TypeAlias = ToOrigin | ToQueue | ToExchange
HOME: Final = ToOrigin()


def queue_to(target: ReplayTarget, origin: str) -> str:
    """The queue that a letter of this origin goes to; empty where nobody can say."""
    match target:
        case ToOrigin():
            return origin
        case ToQueue(queue=queue):
            return queue
        case ToExchange():
            return ""
        case _:
            assert_never(target)


def target_json(target: ReplayTarget) -> dict[str, object]:
    """As the store keeps it."""
    match target:
        case ToOrigin():
            return {"to": "origin"}
        case ToQueue(queue=queue):
            return {"to": "queue", "queue": queue}
        case ToExchange(exchange=exchange, key=key):
            return {"to": "exchange", "exchange": exchange, "key": key}
        case _:
            assert_never(target)


def target_from(told: Mapping[str, object]) -> ReplayTarget:
    """UsageError for what is no target."""
    match told:
        case {"to": "origin"}:
            return HOME
        case {"to": "queue", "queue": str(queue)} if queue:
            return ToQueue(queue=queue)
        case {"to": "exchange", "exchange": str(exchange)}:
            key = told.get("key")
            if key is None or isinstance(key, str):
                return ToExchange(exchange=exchange, key=key)
        case _:
            pass
    raise UsageError(
        f"target {shown(str(dict(told)))}: expected origin, a queue with its name, or an exchange and its key"
    )


def target_words(target: ReplayTarget) -> str:
    """For people."""
    match target:
        case ToOrigin():
            return "the queues they failed in"
        case ToQueue(queue=queue):
            return f"queue {shown(queue)}"
        case ToExchange(exchange=exchange, key=key):
            by = "each by its own key" if key is None else f"by key {shown(key)}"
            return f"exchange {shown(exchange)}, {by}"
        case _:
            assert_never(target)
