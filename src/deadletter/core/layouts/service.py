"""What the service declares for itself, whatever queues it looks after.

The ways back and the queues for held letters come later, each with the first letter that needs it: which
origins there are, the letters tell.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from deadletter.core.deciding.backoff import NO_RETRIES
from deadletter.core.layouts import levels, returning
from deadletter.core.layouts.naming import DUE, lifting_policy_name
from deadletter.core.layouts.pieces import delay_queue, exact_policy, policy_now, towards
from deadletter.core.layouts.request import Request
from deadletter.core.topology.merging import BrokerPolicy, Chooser
from deadletter.core.topology.queue_arguments import X_DELIVERY_LIMIT
from deadletter.core.topology.rabbitmq_versions import traits_of
from deadletter.core.topology.vhost import Queue, Topology

_NOBODY: str = "-"
"""A request is about an application's queue, and here is none: nothing that is planned depends on it."""


def serving(there: Topology, *, levels_ms: Iterable[int], numbered_ms: Sequence[int] | None) -> Topology:
    """Levels, due and parked; with `numbered_ms` also the processor's retry queue and numbered delays."""
    request = _request(there)
    parts = returning.shared(request, levels_ms)
    if numbered_ms is not None:
        parts += levels.shared(request, numbered_ms)
    return parts.topology(there.vhost, there.version)


def level(delay_ms: int, name: str) -> Queue:
    """One level, also one that nobody planned: a handler asked for this very delay."""
    return delay_queue(name, {**towards(DUE), "message-ttl": delay_ms})


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """A watched dead-letter queue that counts deliveries and throws letters away."""

    queue: str
    limit: int
    policy: BrokerPolicy | None
    """The policy that takes the limit off; None where it is frozen into the queue."""


def limit_of(there: Topology, queue: Queue) -> Limit | None:
    """The delivery limit of a queue: each crash of ours spends a delivery of what we hold."""
    if queue.type != "quorum" or (limit := queue.delivery_limit(there.version)) is None:
        return None
    frozen = queue.arguments.get(X_DELIVERY_LIMIT)
    if isinstance(frozen, int) and (frozen >= 0 or not traits_of(there.version).unlimited_by_minus_one):
        return Limit(
            queue=queue.name, limit=limit, policy=None
        )  # RabbitMQ takes the argument over a policy's -1
    request = _request(there)
    policy = exact_policy(queue, {"delivery-limit": -1}, policy_now(request, queue))
    return Limit(queue=queue.name, limit=limit, policy=policy)


def lifting(limit: Limit, there: Topology, queue: Queue) -> BrokerPolicy | None:
    """The same for as long as a command runs: above the policy that holds, whoever set it, with its settings.

    None where no policy helps: the limit is an argument of the queue, or an operator's.
    """
    operators = Chooser(policy for policy in there.policies if policy.operator)
    if limit.policy is None or "delivery-limit" in operators.definition(queue.name, queue.type):
        return None
    holding = next((one for one in there.policies if one.name == queue.policy and not one.operator), None)
    name = lifting_policy_name(queue.name)
    return replace(exact_policy(queue, {"delivery-limit": -1}, holding), name=name)


def _request(there: Topology) -> Request:
    return Request(queue=_NOBODY, schedule=NO_RETRIES, version=there.version, there=there)
