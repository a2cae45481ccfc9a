"""The shape of a vhost as a value: exchanges, queues, bindings, the policies over them, who may do what.

It is the same value whether it was read from the management API, from an exported definitions file, or
planned by a layout; so what we would declare, what is there and what the doctor looks at can be compared.

A queue's own arguments are frozen when it is declared; policies change them later. What counts is both
together, and `effective` says it the way RabbitMQ computes it (see `merging`). Rules and pictures read
`effective`, by its policy name without the `x-`; only plans and comparisons read `arguments`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from deadletter.core.letter.field_table import Value
from deadletter.core.topology import merging
from deadletter.core.topology.merging import BrokerPolicy
from deadletter.core.topology.rabbitmq_versions import traits_of

DEFAULT_EXCHANGE: Final = ""


class DestinationKind(Enum):
    """What a binding leads to."""

    QUEUE = "queue"
    EXCHANGE = "exchange"


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveConsumer:
    """One consumer of a queue, as far as a live broker tells."""

    tag: str
    prefetch: int
    """0: no limit."""
    ack_required: bool = True
    connection: str = ""
    """The connection's name as its client gave it, else its address."""
    user: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """What a live broker says of a queue at one moment."""

    ready: int = 0
    unacked: int = 0
    messages: int = 0
    """All of them: also those held by at-least-once dead-lettering, which are neither ready nor unacked."""
    consumers: tuple[LiveConsumer, ...] = ()
    consumer_count: int = 0
    """How many there are, also where nobody asked who they are."""
    growth_per_s: float = 0.0
    """How fast it gets longer, negative when it gets shorter; as the broker measured it."""
    oldest_at_ms: int | None = None
    """When the letter at its head was published, as far as the broker knows (its timestamp property)."""
    published_per_s: float = 0.0
    delivered_per_s: float = 0.0

    @property
    def in_per_s(self) -> float:
        """Dead letters are no publishes of a client, and the broker does not count them as such."""
        return max(self.published_per_s, self.growth_per_s + self.delivered_per_s, 0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    name: str
    type: str = "direct"
    durable: bool = True
    auto_delete: bool = False
    internal: bool = False
    arguments: Mapping[str, Value] = field(default_factory=dict)
    effective: Mapping[str, Value] = field(default_factory=dict)
    """Arguments and policies together, by policy name: `alternate-exchange`."""

    @property
    def alternate(self) -> str | None:
        return _text(self.effective.get("alternate-exchange"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Queue:
    name: str
    type: str = "classic"
    """classic, quorum, stream, or whatever a plugin calls it."""
    durable: bool = True
    auto_delete: bool = False
    exclusive: bool = False
    arguments: Mapping[str, Value] = field(default_factory=dict)
    """As declared, with their `x-`; `x-queue-type` is not among them: it is `type`."""
    effective: Mapping[str, Value] = field(default_factory=dict)
    """Arguments and policies together, by policy name: `message-ttl`, `dead-letter-exchange`, …"""
    policy: str | None = None
    operator_policy: str | None = None
    state: QueueState | None = None
    """None where nobody asked a live broker."""

    @property
    def dead_letter_exchange(self) -> str | None:
        """Where its dead letters go; None: nowhere, they are gone. The default exchange is the empty text."""
        return _text(self.effective.get("dead-letter-exchange"))

    @property
    def dead_letter_key(self) -> str | None:
        """The key they go with; None: each keeps its own."""
        return _text(self.effective.get("dead-letter-routing-key"))

    @property
    def ttl_ms(self) -> int | None:
        return _number(self.effective.get("message-ttl"))

    @property
    def expires_ms(self) -> int | None:
        """After how long without use the queue itself goes."""
        return _number(self.effective.get("expires"))

    @property
    def max_length(self) -> int | None:
        return _number(self.effective.get("max-length"))

    @property
    def max_length_bytes(self) -> int | None:
        return _number(self.effective.get("max-length-bytes"))

    @property
    def overflow(self) -> str:
        return _text(self.effective.get("overflow")) or "drop-head"

    @property
    def at_least_once(self) -> bool:
        """Whether it asks for at-least-once dead-lettering; whether it gets it is for a rule to say."""
        return self.type == "quorum" and self.effective.get("dead-letter-strategy") == "at-least-once"

    def as_declared(self) -> Queue:
        """Its declaration alone: declaring that again changes nothing."""
        return Queue(
            name=self.name,
            type=self.type,
            durable=self.durable,
            auto_delete=self.auto_delete,
            exclusive=self.exclusive,
            arguments=self.arguments,
        )

    def delivery_limit(self, version: str) -> int | None:
        """After how many deliveries a letter is thrown out; None: never. `version` is the broker's."""
        if self.type != "quorum":
            return None
        limit, traits = _number(self.effective.get("delivery-limit")), traits_of(version)
        if limit is None:
            return traits.default_delivery_limit
        if limit < 0:
            return None if traits.unlimited_by_minus_one else 0
        return limit


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Binding:
    source: str
    """An exchange; bindings of the default exchange are implicit and not listed."""
    destination: str
    to: DestinationKind = field(default=DestinationKind.QUEUE, compare=False)
    routing_key: str = ""
    arguments: Mapping[str, Value] = field(default_factory=dict, compare=False, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Permission:
    """What a user may do in the vhost: three regular expressions over names."""

    user: str
    configure: str = ""
    write: str = ""
    read: str = ""


PREDECLARED: Final = (
    ("", "direct"),
    ("amq.direct", "direct"),
    ("amq.fanout", "fanout"),
    ("amq.headers", "headers"),
    ("amq.match", "headers"),
    ("amq.rabbitmq.trace", "topic"),
    ("amq.topic", "topic"),
)
"""The exchanges every vhost has, whether or not a file lists them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """One vhost. Make it with `topology`, which fills in what RabbitMQ itself adds."""

    vhost: str = "/"
    version: str = ""
    """The broker's; empty where nobody said."""
    exchanges: Mapping[str, Exchange] = field(default_factory=dict)
    queues: Mapping[str, Queue] = field(default_factory=dict)
    bindings: tuple[Binding, ...] = ()
    policies: tuple[BrokerPolicy, ...] = ()
    permissions: tuple[Permission, ...] | None = None
    """None where they are not known; then no rule may conclude anything from them."""
    live: bool = False
    """Whether queue states are known."""


def topology(
    *,
    vhost: str = "/",
    version: str = "",
    exchanges: Iterable[Exchange] = (),
    queues: Iterable[Queue] = (),
    bindings: Iterable[Binding] = (),
    policies: Iterable[BrokerPolicy] = (),
    permissions: Iterable[Permission] | None = None,
    live: bool = False,
) -> Topology:
    """A vhost from its parts: the predeclared exchanges are added, `effective` is computed everywhere."""
    chooser = merging.Chooser(policies, version)
    every = {name: Exchange(name=name, type=kind) for name, kind in PREDECLARED}
    every |= {exchange.name: exchange for exchange in exchanges}
    return Topology(
        vhost=vhost,
        version=version,
        exchanges={
            exchange.name: replace(
                exchange,
                effective=merging.effective(
                    exchange.arguments, chooser.definition(exchange.name, "exchange"), "exchange"
                ),
            )
            for exchange in every.values()
        },
        queues={queue.name: _with_effective(queue, chooser) for queue in queues},
        bindings=tuple(bindings),
        policies=tuple(chooser.policies),
        permissions=None if permissions is None else tuple(permissions),
        live=live,
    )


def _with_effective(queue: Queue, chooser: merging.Chooser) -> Queue:
    chosen = chooser.choose(queue.name, queue.type)
    return replace(
        queue,
        effective=merging.effective(queue.arguments, chosen.definition, queue.type),
        policy=chosen.policy,
        operator_policy=chosen.operator_policy,
    )


def _text(value: Value) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: Value) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
