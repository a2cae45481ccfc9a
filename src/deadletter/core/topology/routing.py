"""Where a message goes from an exchange, and where the dead letters of a queue go, in a topology.

`Router.route` answers for one key as RabbitMQ routes it: through exchange-to-exchange bindings, and to the
alternate exchange where an exchange has nothing for the key. What it cannot know it says: bindings of a
headers exchange, and exchange types of plugins, *may* take a message.

A dead letter without a dead-letter routing key keeps the key it came by, which the topology does not tell;
but it tells by which keys letters can come into the queue: its bindings. So questions are about `Keys`, a
single one or all that a pattern matches, and answers say which queues some of them can reach, and whether
every one of them reaches a queue.

Thousands of queues share one exchange, so bindings are kept by key, and answers are remembered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from deadletter.core.topology.routing_keys import ANY_KEY, KeyIndex, Keys
from deadletter.core.topology.vhost import DEFAULT_EXCHANGE, Binding, DestinationKind, Queue, Topology

_CERTAIN_TYPES: Final = frozenset({"direct", "fanout", "topic"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """What becomes of messages that go to `exchange` with one of `keys`."""

    exchange: str
    keys: Keys
    queues: frozenset[str] = frozenset()
    """Every queue that some of them can reach."""
    complete: bool = False
    """Whether every one of them reaches a queue."""
    certain: bool = True
    """False where it depends on headers or on a plugin's exchange."""
    missing: str | None = None
    """An exchange on the way that does not exist; messages that go there are gone."""
    alternates: tuple[str, ...] = ()
    """Alternate exchanges that caught some of them."""


class Router:
    """Asks one topology. Make one and keep it: it remembers."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._tables = {name: _Table(exchange.type) for name, exchange in topology.exchanges.items()}
        self._arriving: dict[str, list[Binding]] = defaultdict(list)
        for binding in topology.bindings:
            if (table := self._tables.get(binding.source)) is not None and binding.source:
                table.add(binding)
            if binding.to is DestinationKind.QUEUE:
                self._arriving[binding.destination].append(binding)
        self._names: KeyIndex[str] = KeyIndex()
        for name in topology.queues:
            self._names.add(Keys(name), name)
        self._reach = lru_cache(maxsize=None)(self._compute)

    def bindings_into(self, queue: str) -> tuple[Binding, ...]:
        """The bindings that lead to a queue, the default exchange's aside."""
        return tuple(self._arriving.get(queue, ()))

    def bindings_from(self, exchange: str) -> Sequence[Binding]:
        table = self._tables.get(exchange)
        return table.all if table is not None else ()

    def route(self, exchange: str, keys: Keys) -> Reach:
        """What becomes of messages published there with one of these keys."""
        return self._reach(exchange, keys)

    def arriving_keys(
        self, queue: str, *, but: Callable[[str], bool] = lambda _exchange: False
    ) -> tuple[Keys, ...]:
        """The keys by which letters can come into a queue; its own name if by no other.

        `but`: exchanges that are left out.
        """
        found: dict[Keys, None] = {}
        for binding in self._arriving.get(queue, ()):
            source = self.topology.exchanges.get(binding.source)
            if source is not None and not but(binding.source):
                found[keys_of(binding, source.type)] = None
        return tuple(found) or (Keys(queue),)

    def fates(self, queue: Queue) -> tuple[Reach, ...]:
        """What becomes of letters that die in a queue, one answer per key they may have; empty: no DLX."""
        exchange = queue.dead_letter_exchange
        if exchange is None:
            return ()
        own = queue.dead_letter_key
        keys = self.arriving_keys(queue.name) if own is None else (Keys(own),)
        return tuple(self.route(exchange, each) for each in keys)

    def dead_letter_queues(self, queue: Queue) -> frozenset[str]:
        """Every queue that letters from this one can die into."""
        return frozenset(name for reach in self.fates(queue) for name in reach.queues)

    # -- one question ------------------------------------------------------------------------------------
    def _compute(self, exchange: str, keys: Keys) -> Reach:
        queues: set[str] = set()
        alternates: list[str] = []
        missing: list[str] = []
        certain = True
        complete = False
        pending, seen = [exchange], {exchange}
        while pending:
            name = pending.pop()
            if name == DEFAULT_EXCHANGE:
                found, covered = self._by_name(keys)
                queues |= found
                complete = complete or covered
                continue
            table = self._tables.get(name)
            if table is None:
                missing.append(name)
                continue
            certain = certain and table.type in _CERTAIN_TYPES
            taking = list(table.overlapping(keys))
            further = [b.destination for b in taking if b.to is DestinationKind.EXCHANGE]
            queues.update(
                b.destination
                for b in taking
                if b.to is DestinationKind.QUEUE and b.destination in self.topology.queues
            )
            # What a binding to another exchange promises, the exchange behind it has to keep.
            complete = complete or table.covers(keys, (b for b in taking if b.to is DestinationKind.QUEUE))
            alternate = self.topology.exchanges[name].alternate
            if alternate is not None and not table.covers(keys, taking):
                alternates.append(alternate)
                further.append(alternate)
            for there in further:
                if there not in seen:
                    seen.add(there)
                    pending.append(there)
        return Reach(
            exchange=exchange,
            keys=keys,
            queues=frozenset(queues),
            complete=complete,
            certain=certain,
            missing=missing[0] if missing else None,
            alternates=tuple(alternates),
        )

    def _by_name(self, keys: Keys) -> tuple[set[str], bool]:
        if not keys.pattern:
            return ({keys.text}, True) if keys.text in self.topology.queues else (set(), False)
        return set(self._names.meeting(keys)), False


class _Table:
    """The bindings of one exchange, ready to be asked."""

    __slots__ = ("_index", "all", "type")

    def __init__(self, kind: str) -> None:
        self.type = kind
        self.all: list[Binding] = []
        self._index: KeyIndex[Binding] = KeyIndex()

    def add(self, binding: Binding) -> None:
        self.all.append(binding)
        self._index.add(keys_of(binding, self.type), binding)

    def overlapping(self, keys: Keys) -> list[Binding]:
        """The bindings that take, or may take, some message with one of these keys."""
        return list(self._index.meeting(keys))

    def covers(self, keys: Keys, taking: Iterable[Binding]) -> bool:
        """Whether one of these bindings takes every message with one of these keys."""
        return any(keys.all_within(keys_of(binding, self.type)) for binding in taking)


def keys_of(binding: Binding, kind: str) -> Keys:
    """The keys a binding takes; any where the key does not decide."""
    match kind:
        case "direct":
            return Keys(binding.routing_key)
        case "topic":
            return Keys(binding.routing_key, pattern="*" in binding.routing_key or "#" in binding.routing_key)
        case _:
            return ANY_KEY
