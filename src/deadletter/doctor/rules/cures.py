"""Commands that put a shape right, with the names filled in.

Two things make a policy that looks right do nothing or too much. Arguments are frozen when a queue is
declared, and no policy overrides them. And only one user policy applies to a queue: a new one takes away what
the present one sets. So every policy written here carries the present one's settings along and stands above
it, and where an argument is in the way the cure says so.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from deadletter.core.letter.field_table import Value
from deadletter.core.topology import rabbitmq_commands
from deadletter.core.topology.look_cost import no_limit_arguments
from deadletter.core.topology.merging import BrokerPolicy
from deadletter.core.topology.queue_arguments import X_DELIVERY_LIMIT, X_QUEUE_TYPE, as_argument
from deadletter.core.topology.vhost import Queue
from deadletter.doctor.rules.case import Case


def set_policy(case: Case, queue: Queue, **settings: Value) -> str:
    """A policy for this queue alone; `dead_letter_exchange="x"` stands for `dead-letter-exchange`."""
    wanted = {name.replace("_", "-"): value for name, value in settings.items()}
    frozen = [name for name, value in wanted.items() if _is_frozen(queue, name, value)]
    if frozen:
        return declare_anew(queue, wanted)
    present = next((p for p in case.topology.policies if not p.operator and p.name == queue.policy), None)
    definition = {**(present.definition if present is not None else {}), **wanted}
    policy = BrokerPolicy(
        name=f"dlq-{queue.name}",
        pattern=rabbitmq_commands.named(queue.name),
        definition=definition,
        apply_to="queues",
        priority=0 if present is None else present.priority + 1,
    )
    return rabbitmq_commands.set_policy(policy, case.topology.vhost)


def declare_anew(queue: Queue, settings: Mapping[str, Value]) -> str:
    """What to do where an argument is in the way."""
    frozen = ", ".join(as_argument(name) for name in settings if as_argument(name) in queue.arguments)
    wanted = ", ".join(f"{as_argument(name)}={_spelled(value)}" for name, value in settings.items())
    return (
        f"{frozen} was given when {queue.name} was declared, and no policy overrides an argument: "
        f"empty the queue, delete it, and declare it again with {wanted}"
    )


def take_off(case: Case, queue: Queue, *names: str) -> str:
    """How to take settings off a queue, wherever they come from."""
    declared = [name for name in names if as_argument(name) in queue.arguments]
    by_policy = [
        name for name in names if as_argument(name) not in queue.arguments and name in queue.effective
    ]
    told = []
    if declared:
        arguments = ", ".join(as_argument(name) for name in declared)
        told.append(
            f"{arguments} was given when {queue.name} was declared and no policy takes it off: "
            "empty the queue, delete it, and declare it again without"
        )
    for name in by_policy:
        owner = next((p for p in case.topology.policies if _sets(p, queue) and name in p.definition), None)
        kind = "operator policy" if owner is not None and owner.operator else "policy"
        of = f" of {kind} {owner.name}" if owner is not None else ""
        told.append(f"take {name} out{of}, or let its pattern not match {queue.name}")
    return "; ".join(told)


def no_limit(case: Case, queue: Queue) -> str:
    """How to take the delivery limit off: before 4.0 by not setting it, since then by saying -1."""
    limit = queue.arguments.get(X_DELIVERY_LIMIT)
    frozen = isinstance(limit, int) and limit >= 0
    imposed = any(
        p.operator and _sets(p, queue) and "delivery-limit" in p.definition for p in case.topology.policies
    )
    if not case.traits.unlimited_by_minus_one or frozen or imposed:
        return take_off(case, queue, "delivery-limit")
    return set_policy(case, queue, delivery_limit=-1)


def own_dlq(case: Case, queue: Queue) -> str:
    """A dead-letter queue of its own, reached by the default exchange: no binding to forget, and no other
    queue gets a copy."""
    dlq = f"{queue.name}.dlq"
    policy = set_policy(case, queue, dead_letter_exchange="", dead_letter_routing_key=dlq)
    if dlq in case.topology.queues:
        return policy
    return f"{declare_queue(case, dlq, queue.type)} && {policy}"


def declare_queue(case: Case, name: str, kind: str) -> str:
    """A durable queue; a quorum queue without a delivery limit, for it is to keep what it gets."""
    if kind != "quorum":
        return admin(case, "declare queue", name=name, durable="true")
    arguments: dict[str, Value] = {**no_limit_arguments(case.version)}
    if case.traits.new_admin_tool:
        return admin(
            case, "declare queue", name=name, type=kind, durable="true", arguments=json.dumps(arguments)
        )
    arguments[X_QUEUE_TYPE] = kind
    return admin(case, "declare queue", name=name, durable="true", arguments=json.dumps(arguments))


def declare_exchange(case: Case, name: str, kind: str) -> str:
    return admin(case, "declare exchange", name=name, type=kind, durable="true")


def bind(case: Case, exchange: str, queue: str, key: str) -> str:
    return admin(
        case,
        "declare binding",
        source=exchange,
        destination_type="queue",
        destination=queue,
        routing_key=key,
    )


def admin(case: Case, what: str, **options: str) -> str:
    """A rabbitmqadmin command."""
    return rabbitmq_commands.admin(case.traits, case.topology.vhost, what, **options)


def _is_frozen(queue: Queue, name: str, wanted: Value) -> bool:
    return as_argument(name) in queue.arguments and queue.arguments[as_argument(name)] != wanted


def _sets(policy: BrokerPolicy, queue: Queue) -> bool:
    return policy.name == (queue.operator_policy if policy.operator else queue.policy)


def _spelled(value: Value) -> str:
    return '""' if value == "" else str(value)
