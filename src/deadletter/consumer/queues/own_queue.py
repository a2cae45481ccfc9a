"""The application's own queue, as the application says it: type, arguments, delivery limit, bindings.

Type and arguments are what it is declared with if it is not there yet; one that is there stays as it is, and
what is not as asked is noted. The delivery limit is part of the layout's policy, so it may change. Exchanges
that the application declares are made, others are expected; both over AMQP alone, in every layout.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from deadletter.broker.session import Link
from deadletter.core.letter.field_table import Value
from deadletter.core.topology.queue_arguments import X_DELIVERY_LIMIT, X_QUEUE_TYPE
from deadletter.core.topology.vhost import Queue, Topology
from deadletter.errors import (
    AccessRefused,
    ChannelClosed,
    NotFound,
    PreconditionFailed,
    ServiceRefused,
    UsageError,
)

QueueType: TypeAlias = Literal["quorum", "classic"]
QUEUE_TYPES: Final[tuple[QueueType, ...]] = ("quorum", "classic")
Bind: TypeAlias = tuple[str, str] | tuple[str, str, Mapping[str, Value]]
"""An exchange, a key, and for a headers exchange what it compares."""
LIMIT_MAX: Final = 65_535
_LAID: Final = ("x-dead-letter-", "x-delayed-retry-")
_NO_LIMIT: Final = {
    "loop": "a letter that dies by it would go round without a rejection, and the broker drops it",
    "native": "its limit is the number of retries",
    "external": "it declares nothing: set it with the queue",
}


class AppExchange(NamedTuple):
    """An exchange that the application declares."""

    name: str
    type: str
    arguments: Mapping[str, Value]


class QueueBinding(NamedTuple):
    exchange: str
    key: str
    arguments: Mapping[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnQueue:
    """What is said of one queue. Made with `own_queue`."""

    type: QueueType | None = None
    arguments: Mapping[str, Value] = field(default_factory=dict)
    delivery_limit: int | None = None
    bindings: tuple[QueueBinding, ...] = ()

    def foreseen(self, queue: str, live: Topology) -> Topology:
        """The vhost with the queue in it, as it would be declared."""
        if queue in live.queues:
            return live
        asked = Queue(name=queue, type=self.type or "quorum", arguments=self.arguments)
        return replace(live, queues={**live.queues, queue: asked})

    def notes(self, queue: str, live: Topology) -> tuple[str, ...]:
        """What is there and not as asked."""
        found = live.queues.get(queue)
        if found is None:
            return ()
        told = [] if self.type in (None, found.type) else [f"it is a {found.type} queue, not {self.type}"]
        told += [
            f"its {name} is {found.arguments.get(name, 'not set')!r}, not {value!r}"
            for name, value in self.arguments.items()
            if found.arguments.get(name) != value
        ]
        return tuple(f"queue {queue} is not as asked: {one}; see: dlq migrate" for one in told)


PLAIN: Final = OwnQueue()


def own_queue(
    queue: str,
    *,
    layout: str,
    queue_type: QueueType | None,
    arguments: Mapping[str, Value] | None,
    delivery_limit: int | None,
    bind: Iterable[Bind],
) -> OwnQueue:
    """Raises UsageError for what cannot be."""
    if queue_type is not None and queue_type not in QUEUE_TYPES:
        raise _refusal(queue, "queue_type", " or ".join(QUEUE_TYPES), queue_type)
    if layout == "external" and (queue_type is not None or arguments):
        raise _refusal(queue, "queue_type, arguments", "none of them in layout external", "some")
    for name in arguments or ():
        if name in (X_QUEUE_TYPE, X_DELIVERY_LIMIT):
            raise _refusal(queue, "arguments", "queue_type=… and delivery_limit=… for these", name)
        if name.startswith(_LAID):
            raise _refusal(queue, "arguments", "none that the layout decides (or layout external)", name)
    if delivery_limit is not None:
        if layout in _NO_LIMIT:
            raise _refusal(
                queue, "delivery_limit", f"none in layout {layout}: {_NO_LIMIT[layout]}", delivery_limit
            )
        if queue_type == "classic":
            raise _refusal(
                queue, "delivery_limit", "a quorum queue for it: a classic one has none", delivery_limit
            )
        if delivery_limit != -1 and not 1 <= delivery_limit <= LIMIT_MAX:
            raise _refusal(queue, "delivery_limit", f"from 1 to {LIMIT_MAX}, or -1 for none", delivery_limit)
    return OwnQueue(
        type=queue_type,
        arguments=dict(arguments or {}),
        delivery_limit=delivery_limit,
        bindings=tuple(_binding(queue, one) for one in bind),
    )


def _binding(queue: str, asked: Any) -> QueueBinding:
    expected = '("exchange", "key"), or ("exchange", "key", {…}) for a headers exchange'
    if isinstance(asked, str) or not isinstance(asked, Sequence) or len(asked) not in (2, 3):
        raise _refusal(queue, "bind", expected, asked)
    exchange, key, *more = asked
    if not exchange or not isinstance(exchange, str) or not isinstance(key, str):
        raise _refusal(queue, "bind", f"{expected}; the default exchange needs no binding", asked)
    return QueueBinding(exchange, key, dict(*more) if more else {})


def _refusal(queue: str, what: str, expected: str, got: object) -> UsageError:
    return UsageError(f"queue {queue}: {what}: expected {expected}, got {got!r}")


async def declare_exchanges(link: Link, exchanges: Iterable[AppExchange]) -> None:
    """Those of the application. Raises ServiceRefused."""
    for exchange in exchanges:
        try:
            async with await link.channel() as channel:
                await channel.declare_exchange(exchange.name, exchange.type, arguments=exchange.arguments)
        except PreconditionFailed as error:
            raise ServiceRefused(
                f"exchange {exchange.name!r} is there and is not what the application declares "
                f"({error.text}); declare what it is, or let somebody delete it"
            ) from error
        except ChannelClosed as error:
            raise ServiceRefused(
                f"exchange {exchange.name!r} cannot be declared as {exchange.type!r} ({error}); "
                f"the user needs configure on it"
            ) from error


async def bind(link: Link, queue: str, bindings: Iterable[QueueBinding]) -> None:
    """As often as one likes. Raises ServiceRefused."""
    for exchange, key, arguments in bindings:
        try:
            async with await link.channel() as channel:
                await channel.bind_queue(queue, exchange, key, arguments)
        except NotFound as error:
            raise ServiceRefused(
                f"queue {queue} cannot be bound to exchange {exchange!r} ({error.text}); declare it with "
                f'app.exchange("{exchange}", type=…), or start what declares it first'
            ) from error
        except AccessRefused as error:
            raise ServiceRefused(
                f"queue {queue} cannot be bound to exchange {exchange!r} ({error.text}); the user needs "
                "write on the queue and read on the exchange"
            ) from error
        except ChannelClosed as error:
            raise ServiceRefused(
                f"queue {queue} cannot be bound to exchange {exchange!r}: {error}"
            ) from error
