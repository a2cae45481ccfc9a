"""What stands against replacing a queue: looked at before anything is touched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from deadletter.core.topology import migration
from deadletter.core.topology.merging import BrokerPolicy
from deadletter.core.topology.migration import waiting_name
from deadletter.core.topology.vhost import Queue, Topology, topology

_HARMFUL: Final = frozenset(
    {"message-ttl", "expires", "max-length", "max-length-bytes", "dead-letter-exchange", "delivery-limit"}
)


def obstacle(planned: Queue, old: Queue, live: Topology, depths: Mapping[str, int]) -> str:
    """Why this migration must not begin; empty: nothing stands against it."""
    name, state = old.name, old.state
    if old.type not in ("classic", "quorum") or planned.type not in ("classic", "quorum"):
        return (
            f"{name} is of type {old.type} and planned as {planned.type}; letters can be moved only between "
            "classic and quorum queues"
        )
    if old.exclusive or old.auto_delete:
        return (
            f"{name} is exclusive or auto-delete: it goes with whoever uses it, and then it can be declared"
        )
    assert state is not None
    if state.consumers:
        who = ", ".join(sorted({consumer.connection or consumer.tag for consumer in state.consumers})[:3])
        return (
            f"{name} has {len(state.consumers)} consumers ({who}); they would lose their queue: stop them "
            "and run this again"
        )
    then = topology(queues=[planned], policies=live.policies).queues[name]
    letters = max(state.messages, depths[name]) + depths.get(waiting_name(name), 0)
    if then.max_length is not None and letters > then.max_length:
        return (
            f"{name} holds {letters} letters and is planned to hold {then.max_length} at most; "
            "take some out first"
        )
    for feeder in migration.feeders(name, live):
        busy = live.queues[feeder].state
        if busy is None or busy.consumers or busy.messages or depths[feeder]:
            return (
                f"dead letters of {feeder} come to {name} by its name and would be lost while it is away; "
                f"stop the consumers of {feeder} and empty it, or let it dead-letter through an exchange"
            )
    return ""


def harm(queues: Sequence[Queue], policies: Sequence[BrokerPolicy]) -> list[str]:
    """Settings of policies that could destroy letters in these queues."""
    return sorted(
        {
            key
            for queue in topology(queues=queues, policies=policies).queues.values()
            for key, value in queue.effective.items()
            if key in _HARMFUL and not (key == "delivery-limit" and isinstance(value, int) and value < 0)
        }
    )
