"""Where the dead letters of each queue go, as a topology says: what `place` holds a letter's deaths against.

Possible is enough, because a letter must not be parked for a way that it may have taken: where letters keep
their own keys, every key counts by which the bindings let one into the queue, and its name.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property

from deadletter.core.letter.names import is_ours
from deadletter.core.topology.routing import Router
from deadletter.core.topology.routing_keys import Keys
from deadletter.core.topology.vhost import Topology


class Descent:
    """Asks one topology, and remembers: make one for each."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._into: dict[str, frozenset[str]] = {}
        self._far: dict[str, frozenset[str]] = {}

    def knows(self, queue: str) -> bool:
        """Whether there is such a queue. The others answer for one that is known."""
        return queue in self._topology.queues

    def exchange_of(self, queue: str) -> str | None:
        """The exchange its dead letters go by."""
        return self._topology.queues[queue].dead_letter_exchange

    def key_of(self, queue: str) -> str | None:
        """The key its dead letters go with; None: each keeps its own."""
        return self._topology.queues[queue].dead_letter_key

    def into(self, queue: str) -> frozenset[str]:
        """Every queue that letters which die in this one can come into; where keys decide, by any of them."""
        found = self._into.get(queue)
        if found is None:
            found = self._into[queue] = self._find(queue)
        return found

    def reaches(self, queue: str, targets: Collection[str]) -> bool:
        """Whether letters that die in this one can come into a target, dying again on the way."""
        far = self._far.get(queue)
        if far is None:
            pending, seen = [queue], set[str]()
            while pending:
                fresh = self.into(pending.pop()) - seen
                seen |= fresh
                pending += fresh
            far = self._far[queue] = frozenset(seen)
        return not far.isdisjoint(targets)

    def same_as(self, other: Descent) -> bool:
        """Whether both answer alike."""
        return self._topology is other._topology or self._essence == other._essence

    @cached_property
    def _router(self) -> Router:
        return Router(self._topology)

    @cached_property
    def _essence(self) -> tuple[object, ...]:
        shape = self._topology
        return (
            {name: (q.dead_letter_exchange, q.dead_letter_key) for name, q in shape.queues.items()},
            {name: (exchange.type, exchange.alternate) for name, exchange in shape.exchanges.items()},
            frozenset((b.source, b.destination, b.to, b.routing_key) for b in shape.bindings),
        )

    def _find(self, queue: str) -> frozenset[str]:
        there = self._topology.queues.get(queue)
        if there is None or there.dead_letter_exchange is None:
            return frozenset()
        if there.dead_letter_key is not None:
            keys = {Keys(there.dead_letter_key)}
        else:
            # By its name it can always be reached. What comes by a return exchange of ours keeps its own key.
            keys = {Keys(queue), *self._router.arriving_keys(queue, but=is_ours)}
        exchange = there.dead_letter_exchange
        return frozenset(name for each in keys for name in self._router.route(exchange, each).queues)
