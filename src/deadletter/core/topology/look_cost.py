"""What it costs a letter to be taken and given back, and when it must not be given back any more.

To look at a letter one has to take it, and to leave it one has to give it back. On classic queues that is
free. A quorum queue counts deliveries, and destroys (or dead-letters) a letter whose count exceeds its limit:
20 by default from 4.0 on, none by default before. Measured on 3.10, 4.0 and 4.3, a letter with `count` that
is given back lives when *count + cost* is not above the limit:

- 3.x and 4.0 to 4.2: every return costs one, however it is made.
- 4.3 and later: a nack costs nothing; a reject, a closed channel and a crash cost one. But a letter that died
  of a delivery limit brings its count along (21 of 20) into the next quorum queue: there even a nack, which
  adds nothing, destroys it.

So whoever looks every minute destroys everything in twenty minutes on 4.0, and on 4.3 some letters with the
first look. A letter that has not many deliveries left is therefore not given back but *renewed*: published
to the same queue, confirmed, and then acked. It gets a new place at the end and a new count, and it lives.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from deadletter.core.topology import rabbitmq_commands
from deadletter.core.topology.merging import BrokerPolicy
from deadletter.core.topology.queue_arguments import X_DELIVERY_LIMIT
from deadletter.core.topology.rabbitmq_versions import DEFAULT_LIMIT, traits_of
from deadletter.core.topology.vhost import Queue


class LookCost(Enum):
    """What leaving a letter costs on a quorum queue."""

    FREE = "nothing"
    A_DELIVERY = "one of its deliveries"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliveries:
    """How a queue counts deliveries, as far as we know."""

    limit: int | None
    """A letter whose count exceeds it is destroyed; None: no letter is, or the queue does not count."""
    nack_costs: bool = True
    """Whether a nack is counted; whatever else returns a letter always is."""
    counts: bool = True
    """Whether the queue counts deliveries at all: a quorum queue, or one of which that is not known."""
    known: bool = False
    """Told by the management API; otherwise what the version does by default."""
    lifted: bool = False
    """The limit does not hold now, and will again when we are done: what stays must not exceed it then."""

    @property
    def strikes(self) -> bool:
        """Whether a crash of ours may destroy letters."""
        return self.limit is not None and not self.lifted

    @property
    def closing_costs_more(self) -> bool:
        """Whether a closed channel costs what it holds more than a nack would."""
        return self.counts and not self.nack_costs

    @property
    def cost(self) -> LookCost:
        """What a look costs that gives the letter back with a nack."""
        return LookCost.A_DELIVERY if self.limit is not None and self.nack_costs else LookCost.FREE

    @property
    def renew_at(self) -> int | None:
        """From this count on a letter is renewed rather than given back; None: never.

        Where a nack costs something, at half of the limit: the other half is for what we cannot see, other
        consumers, other tools, a crash of ours. Where it is free, as soon as a crash would destroy it.
        """
        if self.limit is None:
            return None
        return (self.limit + 1) // 2 if self.nack_costs else self.limit

    def must_renew(self, count: int) -> bool:
        """Whether a letter that is to stay must be renewed instead of given back."""
        return self.limit is not None and count >= ((self.limit + 1) // 2 if self.nack_costs else self.limit)

    def is_last(self, count: int) -> bool:
        """Whether a crash of ours would destroy it."""
        return self.strikes and self.limit is not None and count >= self.limit

    def left(self, count: int) -> int | None:
        """How many deliveries a letter with this count has left; None where there is no limit."""
        return None if self.limit is None else max(0, self.limit - count)


UNLIMITED: Final = Deliveries(limit=None, nack_costs=False, counts=False, known=True)
"""Of a queue that does not count."""


def deliveries_of(server_version: str, limit: int | None) -> Deliveries:
    """Of a queue whose limit we were told."""
    return Deliveries(limit=limit, nack_costs=traits_of(server_version).nack_counts, known=True)


def deliveries_there(queue: Queue, server_version: str) -> Deliveries:
    """Of a queue that was seen.

    One that counts goes on doing so where it has no limit, and is no less late with what it was told last:
    taken for a classic one it is not waited for, and letters may be in both places.
    """
    if queue.type == "classic":
        return UNLIMITED
    return deliveries_of(server_version, queue.delivery_limit(server_version))


def deliveries_by_default(server_version: str) -> Deliveries:
    """Of a queue of which we know nothing; the worse where the version is not known either."""
    traits = traits_of(server_version)
    limit = traits.default_delivery_limit if traits.is_known else DEFAULT_LIMIT
    return Deliveries(limit=limit, nack_costs=traits.nack_counts)


def look_cost(server_version: str) -> LookCost:
    """What a look costs on this broker where nobody set a limit; the worse where the version is not known."""
    return deliveries_by_default(server_version).cost


def no_limit_arguments(server_version: str) -> dict[str, int]:
    """The argument that takes the limit off a quorum queue; on 3.x the same one destroys letters."""
    return {X_DELIVERY_LIMIT: -1} if traits_of(server_version).unlimited_by_minus_one else {}


def advice(queue: str, vhost: str) -> str:
    """What to do about a queue on which looks are expensive: for this once, or for good."""
    policy = BrokerPolicy(
        name=f"no-limit-{queue}",
        pattern=rabbitmq_commands.named(queue),
        definition={"delivery-limit": -1},
        apply_to="quorum_queues",
    )
    command = rabbitmq_commands.set_policy(policy, vhost)
    return f"take the limit off for this run with --lift-limit, or for good: {command}"
