"""The exchanges, queues, bindings and policies of a memory broker, and what it answers who touches them.

Texts and codes are RabbitMQ's: a program that reads them must not see a difference.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Final

from deadletter.core.letter.field_table import Value
from deadletter.core.topology.merging import BrokerPolicy
from deadletter.core.topology.rabbitmq_versions import Traits
from deadletter.errors import ChannelClosed, UsageError, channel_closed, connection_closed
from deadletter.testing.memory.connections.declare_refusals import (
    check_queue,
    check_same,
    check_same_arguments,
    precondition_failed,
)
from deadletter.testing.memory.contents.exchange_routing import (
    MATCHES,
    PREDECLARED,
    TYPES,
    X_MATCH,
    BoundKey,
    MemoryExchange,
)
from deadletter.testing.memory.contents.queue_rules import QueueBehaviour, rules_of
from deadletter.testing.memory.contents.queues import House, MemoryQueue

_RESERVED: Final = "amq."


class Shapes:
    """All that is declared in one vhost."""

    def __init__(self, house: House, vhost: str) -> None:
        self._house = house
        self._vhost = vhost
        self.queues: dict[str, MemoryQueue] = {}
        self.exchanges: dict[str, MemoryExchange] = {
            name: MemoryExchange(name=name, kind=kind) for name, kind in PREDECLARED.items()
        }
        self.policies: dict[str, BrokerPolicy] = {}

    # -- queues ------------------------------------------------------------------------------------------
    def queue(self, name: str, user: object) -> MemoryQueue:
        """A queue, for this connection to use."""
        found = self.queues.get(name)
        if found is None:
            raise self._not_found("queue", name)
        if found.owner is not None and found.owner is not user:
            raise self._locked(name)
        return found

    def declare_queue(
        self,
        name: str,
        user: object,
        *,
        durable: bool,
        exclusive: bool,
        auto_delete: bool,
        arguments: Mapping[str, Value],
    ) -> MemoryQueue:
        name = name or f"amq.gen-{secrets.token_urlsafe(16)}"
        where = self._where("queue", name)
        current = self.queues.get(name)
        if current is not None:
            self.queue(name, user)
            if exclusive is not (current.owner is not None):
                raise self._locked(name)
            check_same(where, "durable", durable, current.durable)
            check_same(where, "auto_delete", auto_delete, current.auto_delete)
            check_same_arguments(where, arguments, current.arguments)
            return current
        if name.startswith(_RESERVED) and not name.startswith("amq.gen-"):
            raise channel_closed(
                403, f"ACCESS_REFUSED - queue name '{name}' contains reserved prefix 'amq.*'"
            )
        traits = self._house.traits
        kind = check_queue(
            where, arguments, traits, durable=durable, exclusive=exclusive, auto_delete=auto_delete
        )
        queue = MemoryQueue(
            self._house,
            name,
            kind=kind,
            durable=durable,
            owner=user if exclusive else None,
            auto_delete=auto_delete,
            arguments=arguments,
            rules=self._rules(name, kind, arguments),
        )
        self.queues[name] = queue
        return queue

    def check_consumer(self, queue: MemoryQueue, *, exclusive: bool) -> None:
        """Raises what a broker answers to one consumer too many. Quorum queues let everybody in."""
        alone = exclusive and (len(queue.subscribers) or queue.subscribers.single_active)
        if not queue.quorum and (queue.subscribers.shut or alone):
            raise channel_closed(403, f"ACCESS_REFUSED - {self._where('queue', queue.name)} in exclusive use")

    def check_delete(self, queue: MemoryQueue, *, if_unused: bool, if_empty: bool) -> None:
        """Raises what a broker answers to conditions that are not so, or that it cannot tell."""
        where = self._where("queue", queue.name)
        for asked, flag, met, words in (
            (if_unused, "if-unused", not queue.subscribers, "in use"),
            (if_empty, "if-empty", queue.depth == 0, "not empty"),
        ):
            if asked and queue.quorum:
                raise connection_closed(
                    540,
                    f"NOT_IMPLEMENTED - cannot delete {where}. queue.delete operations with {flag} flag set "
                    "are not supported by quorum queues",
                )
            if asked and not met:
                raise precondition_failed(f"{where} {words}")

    def no_get(self, name: str) -> ChannelClosed:
        return channel_closed(
            405,
            f"RESOURCE_LOCKED - cannot obtain access to locked {self._where('queue', name)}. basic.get "
            "operations are not supported by quorum queues with single active consumer",
        )

    def remove_queue(self, name: str) -> int:
        """How many messages went with it."""
        queue = self.queues.pop(name, None)
        if queue is None:
            return 0
        for exchange in self.exchanges.values():
            exchange.bindings[:] = [
                bound for bound in exchange.bindings if bound.to_exchange or bound.to != name
            ]
        return queue.delete()

    # -- exchanges ---------------------------------------------------------------------------------------
    def exchange(self, name: str) -> MemoryExchange:
        found = self.exchanges.get(name)
        if found is None:
            raise self._not_found("exchange", name)
        return found

    def declare_exchange(
        self, name: str, kind: str, *, durable: bool, arguments: Mapping[str, Value]
    ) -> None:
        self._not_default(name)
        if kind not in TYPES:
            if self._house.traits.unknown_exchange_type_ends_connection:
                raise connection_closed(503, f"COMMAND_INVALID - unknown exchange type '{kind}'")
            raise precondition_failed(f"unknown exchange type '{kind}'")
        current = self.exchanges.get(name)
        if current is not None:
            where = self._where("exchange", name)
            check_same(where, "type", kind, current.kind)
            check_same(where, "durable", durable, current.durable)
            alternate = "alternate-exchange"
            check_same(where, alternate, arguments.get(alternate), current.arguments.get(alternate))
            return
        if name.startswith(_RESERVED):
            raise channel_closed(
                403, f"ACCESS_REFUSED - exchange name '{name}' contains reserved prefix 'amq.*'"
            )
        exchange = MemoryExchange(name=name, kind=kind, durable=durable, arguments=arguments)
        self.exchanges[name] = exchange
        self._rule_exchange(exchange)

    def delete_exchange(self, name: str, *, if_unused: bool) -> None:
        self._not_default(name)
        if name in PREDECLARED:
            where = self._where("system exchange", name)
            raise channel_closed(403, f"ACCESS_REFUSED - deletion of {where} not allowed")
        found = self.exchanges.get(name)
        if if_unused and found is not None and found.bindings:
            raise precondition_failed(f"{self._where('exchange', name)} in use")
        self.exchanges.pop(name, None)
        for exchange in self.exchanges.values():
            exchange.bindings[:] = [
                bound for bound in exchange.bindings if not bound.to_exchange or bound.to != name
            ]

    # -- bindings ----------------------------------------------------------------------------------------
    def bind(self, queue: str, exchange: str, key: str, arguments: Mapping[str, Value], user: object) -> None:
        self._not_default(exchange)
        self.queue(queue, user)
        self._bind(exchange, BoundKey(to=queue, key=key, arguments=arguments))

    def bind_exchange(self, to: str, exchange: str, key: str, arguments: Mapping[str, Value]) -> None:
        """What `exchange` would give to a queue that is bound so, it gives to the exchange `to`."""
        self._not_default(exchange)
        self._not_default(to)
        self.exchange(to)
        self._bind(exchange, BoundKey(to=to, key=key, arguments=arguments, to_exchange=True))

    def _bind(self, exchange: str, bound: BoundKey) -> None:
        found, key, arguments = self.exchange(exchange), bound.key, bound.arguments
        how = arguments.get(X_MATCH, "all")
        if found.kind == "headers" and how not in MATCHES:
            raise precondition_failed(
                f'Invalid x-match field value <<"{how}">>; expected all, any, all-with-x, or any-with-x'
            )
        self._check_topic(found, key)
        if bound not in found.bindings:
            found.bindings.append(bound)

    def _check_topic(self, exchange: MemoryExchange, key: str) -> None:
        most = self._house.traits.topic_wildcards_max
        count = key.split(".").count("#")
        if exchange.kind == "topic" and most is not None and count > most:
            raise precondition_failed(
                f"Topic binding key '{key}' uses {count} '#' wildcards, at most {most} are allowed"
            )

    def unbind(
        self, to: str, exchange: str, key: str, arguments: Mapping[str, Value], *, to_exchange: bool = False
    ) -> None:
        """Take a binding away; one that is not there is no error, as in RabbitMQ."""
        self._not_default(exchange)
        found = self.exchanges.get(exchange)
        bound = BoundKey(to=to, key=key, arguments=arguments, to_exchange=to_exchange)
        if found is not None and bound in found.bindings:
            found.bindings.remove(bound)

    # -- policies ----------------------------------------------------------------------------------------
    def set_policy(self, policy: BrokerPolicy) -> None:
        check_policy(policy, self._house.traits)
        self.policies[policy.name] = policy
        self._rule_all()

    def remove_policy(self, name: str) -> None:
        self.policies.pop(name, None)
        self._rule_all()

    def _rule_all(self) -> None:
        for queue in list(self.queues.values()):
            queue.rules = self._rules(queue.name, queue.kind, queue.arguments)
            queue.run()
        for exchange in self.exchanges.values():
            self._rule_exchange(exchange)

    def _rules(self, name: str, kind: str, arguments: Mapping[str, Value]) -> QueueBehaviour:
        traits = self._house.traits
        return rules_of(arguments, policy_for(self.policies, name, kind, traits), traits, kind)

    def _rule_exchange(self, exchange: MemoryExchange) -> None:
        policy = policy_for(self.policies, exchange.name, EXCHANGE, self._house.traits)
        alternate = exchange.arguments.get("alternate-exchange", policy.get("alternate-exchange"))
        exchange.alternate = alternate if isinstance(alternate, str) else None

    # -- a restart ---------------------------------------------------------------------------------------
    def restart(self) -> None:
        """What is not durable is gone: queues always, exchanges where the broker keeps its word."""
        for name in [queue.name for queue in self.queues.values() if not queue.durable]:
            self.remove_queue(name)
        if not self._house.traits.keeps_transient_exchanges:
            for name in [exchange.name for exchange in self.exchanges.values() if not exchange.durable]:
                del self.exchanges[name]
        for queue in list(self.queues.values()):
            queue.restart()

    # -- words -------------------------------------------------------------------------------------------
    def _where(self, what: str, name: str) -> str:
        return f"{what} '{name}' in vhost '{self._vhost}'"

    def _not_found(self, what: str, name: str) -> ChannelClosed:
        return channel_closed(404, f"NOT_FOUND - no {self._where(what, name)}")

    def _locked(self, name: str) -> ChannelClosed:
        return channel_closed(
            405,
            f"RESOURCE_LOCKED - cannot obtain exclusive access to locked {self._where('queue', name)}. "
            "It could be originally declared on another connection or the exclusive property value does not "
            "match that of the original declaration.",
        )

    def _not_default(self, exchange: str) -> None:
        if not exchange:
            raise channel_closed(403, "ACCESS_REFUSED - operation not permitted on the default exchange")


EXCHANGE: Final = "exchange"

_PLAYED: Final = frozenset(
    {
        "message-ttl",
        "expires",
        "max-length",
        "max-length-bytes",
        "overflow",
        "dead-letter-exchange",
        "dead-letter-routing-key",
        "dead-letter-strategy",
        "delivery-limit",
        "alternate-exchange",
    }
)
_WITHOUT_EFFECT_HERE: Final = frozenset(
    {
        "queue-mode",
        "queue-version",
        "max-in-memory-length",
        "max-in-memory-bytes",
        "max-age",
        "stream-max-segment-size-bytes",
        "initial-cluster-size",
        "target-group-size",
        "queue-leader-locator",
        "queue-master-locator",
    }
)
"""About disks and clusters, and streams: they change nothing a client of these queues could see, but which
policy counts."""
_RETRY: Final = frozenset({"delayed-retry-type", "delayed-retry-min", "delayed-retry-max"})


def policy_for(
    policies: Mapping[str, BrokerPolicy], name: str, kind: str, traits: Traits
) -> Mapping[str, Value]:
    """The definition of the one policy that counts; empty when none does. `kind`: a queue type, or
    `exchange`."""
    about = [policy for policy in policies.values() if policy.fits(name, kind, traits.version)]
    return max(about, key=lambda policy: policy.priority).definition if about else {}


def check_policy(policy: BrokerPolicy, traits: Traits) -> None:
    """Raises UsageError for what a broker refuses, or the memory broker does not play."""
    try:
        re.compile(policy.pattern)
    except re.error as error:
        raise UsageError(
            f"policy {policy.name!r}: the pattern {policy.pattern!r} is no regular expression"
        ) from error
    known = _PLAYED | _WITHOUT_EFFECT_HERE | (_RETRY if traits.native_retry else frozenset())
    if strange := sorted(policy.definition.keys() - known):
        raise UsageError(
            f"policy {policy.name!r}: {', '.join(strange)}: RabbitMQ {traits.version} does not know it, or "
            f"the memory broker does not play it; expected some of {', '.join(sorted(known))}"
        )
