"""One queue of the memory broker: classic or quorum.

A queue is a heap of places. A classic queue gives a message back its own place; a quorum queue puts what
comes back in front of all that never left, in the order in which it came back (3.x without a delivery limit:
at the very end). Only the head can expire: what waits behind it waits longer than its TTL.

Whatever changes, `run` makes true what should be: expired heads die, consumers with room get theirs in turn,
and a timer stands for the next head to expire.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Mapping
from typing import Final, Literal, Protocol
from weakref import WeakKeyDictionary

from deadletter.core.letter import message
from deadletter.core.letter.field_table import Value
from deadletter.core.topology.queue_arguments import X_SINGLE_ACTIVE_CONSUMER
from deadletter.core.topology.rabbitmq_versions import Traits
from deadletter.testing.memory.clock import Clock, Timer
from deadletter.testing.memory.contents.death_records import DELIVERY_LIMIT, EXPIRED, MAXLEN, REJECTED
from deadletter.testing.memory.contents.items import (
    Place,
    QueuedCopy,
    octet_property,
    presented,
    short_property,
)
from deadletter.testing.memory.contents.queue_rules import QUORUM, QueueBehaviour
from deadletter.testing.memory.contents.subscribers import QueueSubscribers, Subscriber

QUORUM_PREFETCH: Final = 2_000
"""What a consumer of a quorum queue gets at most when it sets no limit."""
_LOW_WATER: Final = 0.8
"""A quorum queue that was too long takes messages again below this part of its length."""
_RETURNED, _FRESH = 0, 1

Return = Literal["nack", "reject", "lost"]
"""How a message comes back: by a nack, by a reject, or because its consumer is gone."""


class House(Protocol):
    """What a queue needs of its broker."""

    clock: Clock
    traits: Traits

    def bury(self, queue: MemoryQueue, item: QueuedCopy, reason: str) -> None:
        """A message died; it goes on its way when the queue is done."""

    def carry(self) -> None:
        """Send the dead on their way."""

    def expire(self, queue: MemoryQueue) -> None:
        """Nobody used it for as long as its `x-expires` says: it goes, with all it holds."""


class MemoryQueue:
    """Made by a declaration."""

    def __init__(
        self,
        house: House,
        name: str,
        *,
        kind: str,
        durable: bool,
        owner: object | None,
        auto_delete: bool,
        arguments: Mapping[str, Value],
        rules: QueueBehaviour,
    ) -> None:
        self.name = name
        self.kind = kind
        self.durable = durable
        self.owner = owner
        """The connection of an exclusive queue."""
        self.auto_delete = auto_delete
        self.arguments = arguments
        self.rules = rules
        self.refusing = False
        """A test wants every publish refused."""
        self.subscribers: QueueSubscribers = QueueSubscribers(
            single_active=arguments.get(X_SINGLE_ACTIVE_CONSUMER) is True,
            by_priority=not self.quorum or house.traits.active_by_priority,
            overtaking=self.quorum and house.traits.active_by_priority,
        )
        self.unacked: int = 0
        self._house = house
        self._ready: list[tuple[Place, QueuedCopy]] = []
        self._ready_bytes = 0
        self._waiting: set[QueuedCopy] = set()
        self._numbers = itertools.count()
        self._timer: Timer | None = None
        self._used_at = house.clock.time()
        self._expiry_timer: Timer | None = None
        self._running = False
        self._stopped: WeakKeyDictionary[object, bool] = WeakKeyDictionary()
        self.gone: bool = False

    @property
    def quorum(self) -> bool:
        return self.kind == QUORUM

    @property
    def depth(self) -> int:
        """How many messages are ready to be delivered."""
        return len(self._ready)

    @property
    def consumer_count(self) -> int:
        """As the broker says it: a quorum queue counts only the active one, if there is to be one."""
        count = len(self.subscribers)
        return min(count, 1) if self.quorum and self.subscribers.single_active else count

    @property
    def delayed(self) -> int:
        """How many wait for their next try, by 4.3's delayed retries."""
        return len(self._waiting)

    def items(self) -> list[QueuedCopy]:
        """The ready messages, the head first."""
        return [item for _, item in sorted(self._ready, key=lambda entry: entry[0])]

    # -- in ----------------------------------------------------------------------------------------------
    def publish(self, item: QueuedCopy, publisher: object | None) -> bool:
        """Take a copy of a message; False when it is refused. None: a publisher nobody answers."""
        self.run()  # what should have expired by now makes room
        if self.refusing or self._is_full(publisher):
            if self.rules.overflow == "reject-publish-dlx" and not self.refusing:
                self._house.bury(self, item, MAXLEN)
                self._house.carry()
            return False
        item.expires_at = self._expiry(item)
        if self.quorum and self._house.traits.counts_go_on:
            item.delivery_count = item.carried
        item.place = (_FRESH, -self._priority(item), next(self._numbers))
        if not self._ready and (subscriber := self.subscribers.next()) is not None:
            # Before it could expire: a TTL of 0 means "now or never".
            self._hand(item, subscriber)
        else:
            self._push(item)
        self.run()
        return True

    def _expiry(self, item: QueuedCopy) -> float | None:
        own = short_property(item.properties, message.EXPIRATION)
        ttls_ms = [ttl for ttl in (self.rules.ttl_ms, None if own is None else int(own)) if ttl is not None]
        return self._house.clock.time() + min(ttls_ms) / 1000 if ttls_ms else None

    def _priority(self, item: QueuedCopy) -> int:
        most = self.rules.max_priority
        return 0 if most is None else min(octet_property(item.properties, message.PRIORITY) or 0, most)

    def _is_full(self, publisher: object | None) -> bool:
        rules = self.rules
        if rules.overflow == "drop-head":
            return False
        if not self.quorum:
            too_many = rules.max_length is not None and self.depth + 1 > rules.max_length
            return too_many or (rules.max_bytes is not None and self._ready_bytes > rules.max_bytes)
        # A quorum queue tells its publishers when to stop, and only those it knows.
        return publisher is not None and self._stopped.setdefault(publisher, self._over())

    def _push(self, item: QueuedCopy) -> None:
        heapq.heappush(self._ready, (item.place, item))
        self._ready_bytes += len(item.body)

    def _pop(self) -> QueuedCopy:
        _, item = heapq.heappop(self._ready)
        self._ready_bytes -= len(item.body)
        return item

    # -- out ---------------------------------------------------------------------------------------------
    def get(self) -> tuple[QueuedCopy, bytes, bool] | None:
        """The head, its properties as shown, and whether it was delivered before."""
        self.run()
        if not self._ready:
            return None
        item = self._pop()
        self.unacked += 1
        item.unacked = True
        properties, redelivered = presented(item, self._house.traits, quorum=self.quorum, by_get=True)
        self.run()
        return item, properties, redelivered

    def _hand(self, item: QueuedCopy, subscriber: Subscriber) -> None:
        self.subscribers.served(subscriber)
        self.unacked += 1
        item.unacked = True
        properties, redelivered = presented(item, self._house.traits, quorum=self.quorum, by_get=False)
        subscriber.hand(item, properties, redelivered=redelivered)

    # -- what becomes of what was handed out -------------------------------------------------------------
    def acked(self, item: QueuedCopy) -> None:
        self._take_back(item)

    def discarded(self, item: QueuedCopy, how: Return) -> None:
        """Given up: to the dead-letter exchange, if there is one."""
        self._take_back(item)
        self._remember(item, how, given_up=True)
        self._die(item, REJECTED)

    def returned(self, item: QueuedCopy, how: Return) -> None:
        """Given back. Call `run` when all of them are."""
        self._take_back(item)
        if self.gone:
            return
        traits = self._house.traits
        self._remember(item, how, given_up=False)
        if not self.quorum:
            item.redelivered = True
            self._push(item)
            return
        item.acquired_count += 1
        failed = how != "nack" or traits.nack_counts
        if failed:
            item.delivery_count += 1
        limit = self.rules.delivery_limit
        if limit is not None and item.delivery_count > limit:
            self._die(item, DELIVERY_LIMIT)
            return
        last = traits.returns_go_last and limit is None and how != "lost"
        item.place = (_FRESH if last else _RETURNED, 0, next(self._numbers))
        delay_ms = self.rules.retry_delay_ms(item.delivery_count, failed=how != "nack")
        if not delay_ms:
            self._push(item)
            return
        self._waiting.add(item)
        clock = self._house.clock
        clock.call_at(clock.time() + delay_ms / 1000, lambda: self._waited(item))

    def _remember(self, item: QueuedCopy, how: Return, *, given_up: bool) -> None:
        """Count what outlives a death: on 4.3 all but nacks, before only what quorum queues saw fail."""
        if self._house.traits.delivered_survives_death:
            item.carried += how != "nack"
        elif self.quorum:
            item.carried += given_up or how == "lost"

    def _waited(self, item: QueuedCopy) -> None:
        if item in self._waiting:
            self._waiting.remove(item)
            self._push(item)
            self.run()

    def _take_back(self, item: QueuedCopy) -> None:
        if item.unacked:
            item.unacked = False
            self.unacked -= 1

    def _die(self, item: QueuedCopy, reason: str) -> None:
        if not self.gone and self.rules.dead_letter_exchange is not None:
            self._house.bury(self, item, reason)

    # -- what should be true -----------------------------------------------------------------------------
    def run(self) -> None:
        """Expire, deliver, cut to length; then set the timer for the next head."""
        if self._running or self.gone:
            return
        self._running = True
        try:
            self._expire()
            while self._ready and (subscriber := self.subscribers.next()) is not None:
                self._hand(self._pop(), subscriber)
                self._expire()
            self._shorten()
        finally:
            self._running = False
        self._set_timer()
        self._set_expiry()
        self._house.carry()

    def _expire(self) -> None:
        now = self._house.clock.time()
        while self._ready:
            expires_at = self._ready[0][1].expires_at
            if expires_at is None or expires_at > now:
                return
            self._die(self._pop(), EXPIRED)

    def _shorten(self) -> None:
        if self.rules.overflow == "drop-head":
            while self._over():
                self._die(self._pop(), MAXLEN)
        elif self._over():
            self._tell_publishers(stop=True)
        elif not self._over(_LOW_WATER):
            self._tell_publishers(stop=False)

    def _tell_publishers(self, *, stop: bool) -> None:
        for publisher in list(self._stopped):
            self._stopped[publisher] = stop

    def _over(self, part: float = 1.0) -> bool:
        """Whether it is longer than this part of its limit."""
        rules = self.rules
        return (rules.max_length is not None and self.depth > int(rules.max_length * part)) or (
            rules.max_bytes is not None and self._ready_bytes > int(rules.max_bytes * part)
        )

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._ready and (expires_at := self._ready[0][1].expires_at) is not None:
            self._timer = self._house.clock.call_at(expires_at, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        self.run()

    # -- being used --------------------------------------------------------------------------------------
    def use(self) -> None:
        """Somebody asked for it: its `x-expires` begins anew."""
        self._used_at = self._house.clock.time()
        self._set_expiry()

    def leave(self, subscriber: Subscriber) -> None:
        """A consumer is gone. Call `run` when what it held is back."""
        self.subscribers.remove(subscriber)
        self.use()

    @property
    def _is_used(self) -> bool:
        # A quorum queue takes whoever has something of it for a consumer, a classic one does not.
        return bool(self.subscribers) or (self.quorum and self.unacked > 0)

    def _set_expiry(self) -> None:
        if self._expiry_timer is not None:
            self._expiry_timer.cancel()
            self._expiry_timer = None
        if self.rules.expires_ms is not None and not self._is_used and not self.gone:
            expires_at = self._used_at + self.rules.expires_ms / 1000
            self._expiry_timer = self._house.clock.call_at(expires_at, self._on_expiry)

    def _on_expiry(self) -> None:
        self._expiry_timer = None
        self._house.expire(self)

    # -- the end -----------------------------------------------------------------------------------------
    def purge(self) -> int:
        count = self.depth
        self._ready.clear()
        self._ready_bytes = 0
        self.run()
        return count

    def delete(self) -> int:
        """Gone, with all it holds; consumers are told."""
        count = self.purge()
        self._waiting.clear()
        self.gone = True
        self._set_expiry()
        for subscriber in self.subscribers:
            self.subscribers.remove(subscriber)
            subscriber.end()
        return count

    def restart(self) -> None:
        """What a broker's restart leaves: a classic queue loses what was not persistent."""
        if not self.quorum:
            kept = [
                entry
                for entry in self._ready
                if octet_property(entry[1].properties, message.DELIVERY_MODE) == 2
            ]
            heapq.heapify(kept)
            self._ready = kept
            self._ready_bytes = sum(len(item.body) for _, item in kept)
        self.use()
        self.run()
