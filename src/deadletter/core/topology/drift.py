"""What is planned beside what is there: where the two differ, and what to do about it.

Only what the plan names is compared. Whatever else is on the broker is somebody else's, and no drift. What a
broker adds to a queue by itself (where its leader sits) is none either.

Each kind of drift has its own cure. A thing is *missing*: declare it. It is *different*: what is frozen (a
queue, an exchange) is migrated, what is not (a policy) is set. It is declared as planned and *overruled* all
the same, by a policy that goes before ours: that one only its owner can solve. And one kind is left behind by
ourselves: a migration that was *interrupted*.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, assert_never

from deadletter.core.letter import names
from deadletter.core.letter.field_table import Value
from deadletter.core.topology import migration, rabbitmq_commands
from deadletter.core.topology.merging import BrokerPolicy
from deadletter.core.topology.queue_arguments import (
    X_QUEUE_LEADER_LOCATOR,
    X_QUEUE_MASTER_LOCATOR,
    X_QUEUE_TYPE,
    X_QUEUE_VERSION,
    X_QUORUM_INITIAL_GROUP_SIZE,
    as_argument,
)
from deadletter.core.topology.vhost import (
    PREDECLARED,
    Binding,
    DestinationKind,
    Exchange,
    Queue,
    Topology,
    topology,
)

Planned: TypeAlias = Exchange | Queue | Binding | BrokerPolicy

PLACEMENT: Final = frozenset(
    {X_QUEUE_LEADER_LOCATOR, X_QUEUE_MASTER_LOCATOR, X_QUORUM_INITIAL_GROUP_SIZE, X_QUEUE_VERSION}
)
"""Arguments about where and how a queue is kept; they change nothing about its letters."""
_THERE_ALWAYS: Final = frozenset(name for name, _ in PREDECLARED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One setting: what is planned, what is there; None: not set."""

    key: str
    planned: Value
    found: Value

    def __str__(self) -> str:
        return f"{self.key}: planned {said(self.planned)}, found {said(self.found)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Missing:
    planned: Planned


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferentExchange:
    planned: Exchange
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferentQueue:
    """Its arguments were frozen when it was declared."""

    planned: Queue
    found: Queue
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DifferentPolicy:
    planned: BrokerPolicy
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overruled:
    """The queue is declared as planned, and something else holds: another policy goes before ours."""

    planned: Queue
    differences: tuple[Difference, ...]
    by: tuple[str, ...]
    """The policies that apply instead, operator policies said so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interrupted:
    """A migration of this queue began and did not end: letters may wait in `waiting`."""

    planned: Queue
    waiting: str


Drift: TypeAlias = Missing | DifferentExchange | DifferentQueue | DifferentPolicy | Overruled | Interrupted


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """A drift as a person reads it."""

    kind: str
    subject: str
    planned: str
    found: str
    steps: tuple[str, ...]


def compare(plan: Topology, live: Topology) -> tuple[Drift, ...]:
    """Every drift, in the order in which things are declared. Empty: what is planned is there."""
    return tuple(_drifts(plan, live))


def _drifts(plan: Topology, live: Topology) -> Iterator[Drift]:
    there = {(policy.name, policy.operator): policy for policy in live.policies}
    for policy in plan.policies:
        found_policy = there.get((policy.name, policy.operator))
        if found_policy is None:
            yield Missing(planned=policy)
        elif differences := _between(_policy_settings(policy), _policy_settings(found_policy)):
            yield DifferentPolicy(planned=policy, differences=differences)
    for exchange in planned_exchanges(plan):
        found_exchange = live.exchanges.get(exchange.name)
        if found_exchange is None:
            yield Missing(planned=exchange)
        elif differences := _between(_exchange_settings(exchange), _exchange_settings(found_exchange)):
            yield DifferentExchange(planned=exchange, differences=differences)
    for queue in plan.queues.values():
        yield from _queue_drifts(queue, plan, live)
    bound = {_key(binding) for binding in live.bindings}
    for binding in plan.bindings:
        if binding.source and _key(binding) not in bound:
            yield Missing(planned=binding)


def planned_exchanges(plan: Topology) -> list[Exchange]:
    """The exchanges a plan would declare: not those that every vhost has."""
    return [exchange for exchange in plan.exchanges.values() if exchange.name not in _THERE_ALWAYS]


def _queue_drifts(queue: Queue, plan: Topology, live: Topology) -> Iterator[Drift]:
    found = live.queues.get(queue.name)
    waiting = migration.waiting_name(queue.name)
    if found is None:
        yield Missing(planned=queue)
    elif differences := frozen_differences(queue, found):
        yield DifferentQueue(planned=queue, found=found, differences=differences)
    elif overruled := _overruled(queue, found, plan, live):
        yield overruled
    if waiting in live.queues:
        yield Interrupted(planned=queue, waiting=waiting)


def frozen_differences(planned: Queue, found: Queue) -> tuple[Difference, ...]:
    """Where a queue was declared otherwise than planned; no policy can change that any more."""
    return _between(_queue_settings(planned), _queue_settings(found))


def _overruled(queue: Queue, found: Queue, plan: Topology, live: Topology) -> Overruled | None:
    """What would hold once all policies of the plan are there; that they are missing is said elsewhere."""
    ours = {(policy.name, policy.operator) for policy in plan.policies}
    others = [policy for policy in live.policies if (policy.name, policy.operator) not in ours]
    then = topology(version=live.version, queues=[found], policies=[*plan.policies, *others])
    held = then.queues[queue.name]
    governed = any(policy.fits(queue.name, queue.type) for policy in plan.policies)
    differences = tuple(
        one for one in _between(queue.effective, held.effective) if as_argument(one.key) not in PLACEMENT
    )
    if not governed and not names.is_ours(queue.name):
        # Somebody's own queue, which the plan only mentions: their policies on it are their business.
        differences = tuple(one for one in differences if one.key in queue.effective)
    if not differences:
        return None
    planned_names = {policy.name for policy in plan.policies}
    by = [held.policy] if held.policy is not None and held.policy not in planned_names else []
    by += [f"{held.operator_policy} (operator policy)"] if held.operator_policy is not None else []
    return Overruled(planned=queue, differences=differences, by=tuple(by))


def _between(planned: Mapping[str, Value], found: Mapping[str, Value]) -> tuple[Difference, ...]:
    return tuple(
        Difference(key=key, planned=planned.get(key), found=found.get(key))
        for key in sorted({*planned, *found})
        if planned.get(key) != found.get(key)
    )


def _queue_settings(queue: Queue) -> dict[str, Value]:
    flags = {"durable": queue.durable, "auto-delete": queue.auto_delete, "exclusive": queue.exclusive}
    arguments = {
        key: value for key, value in queue.arguments.items() if key not in PLACEMENT and key != X_QUEUE_TYPE
    }
    return {"type": queue.type, **flags, **arguments}


def _exchange_settings(exchange: Exchange) -> dict[str, Value]:
    flags = {"durable": exchange.durable, "auto-delete": exchange.auto_delete, "internal": exchange.internal}
    return {"type": exchange.type, **flags, **exchange.arguments}


def _policy_settings(policy: BrokerPolicy) -> dict[str, Value]:
    own: dict[str, Value] = {
        "pattern": policy.pattern,
        "apply-to": policy.apply_to,
        "priority": policy.priority,
    }
    return {**own, **policy.definition}


def same_binding(one: Binding, other: Binding) -> bool:
    """Whether both take the same letters from the same exchange, wherever they lead."""
    return _key(replace(one, destination=other.destination, to=other.to)) == _key(other)


def _key(binding: Binding) -> tuple[str, str, DestinationKind, str, str]:
    arguments = json.dumps(dict(binding.arguments), sort_keys=True, default=repr)
    return binding.source, binding.destination, binding.to, binding.routing_key, arguments


# -- words ------------------------------------------------------------------------------------------------
def words(drift: Drift, live: Topology) -> Words:
    """What is planned, what is there, and the steps from one to the other."""
    match drift:
        case Missing(planned=planned):
            return Words(
                kind="missing",
                subject=subject(planned),
                planned=describe(planned),
                found="nothing",
                steps=("dlq topology apply declares it",),
            )
        case DifferentExchange() | DifferentQueue() | DifferentPolicy() | Overruled():
            return Words(
                kind="overruled" if isinstance(drift, Overruled) else "different",
                subject=subject(drift.planned),
                planned=", ".join(f"{one.key} {said(one.planned)}" for one in drift.differences),
                found=", ".join(f"{one.key} {said(one.found)}" for one in drift.differences),
                steps=_cure(drift, live),
            )
        case Interrupted(planned=queue, waiting=waiting):
            return Words(
                kind="interrupted",
                subject=subject(queue),
                planned=f"no queue {waiting}",
                found=f"{waiting}, left by a migration that did not end; letters may wait in it",
                steps=("dlq topology apply --migrate goes on where it stopped",),
            )
        case _:
            assert_never(drift)


def subject(planned: Planned) -> str:
    match planned:
        case Exchange(name=name):
            return f"exchange {name}"
        case Queue(name=name):
            return f"queue {name}"
        case BrokerPolicy(name=name, operator=operator):
            return f"operator policy {name}" if operator else f"policy {name}"
        case Binding(source=source, destination=destination, to=to, routing_key=key):
            return f"binding {source} → {to.value} {destination}" + (f" ({key})" if key else "")
        case _:
            assert_never(planned)


def describe(planned: Planned) -> str:
    """One thing of a plan in one line."""
    match planned:
        case Exchange(type=kind) | Queue(type=kind):
            return _joined(kind, planned.arguments)
        case BrokerPolicy(pattern=pattern, priority=priority, apply_to=apply_to):
            return _joined(f"{pattern} on {apply_to}, priority {priority}", planned.definition)
        case Binding(routing_key=key):
            return _joined(f"key {key}" if key else "without a key", planned.arguments)
        case _:
            assert_never(planned)


def _joined(first: str, arguments: Mapping[str, Value]) -> str:
    settings = [f"{key.removeprefix('x-')} {said(value)}" for key, value in arguments.items()]
    return ", ".join([first, *settings])


def said(value: Value) -> str:
    match value:
        case None:
            return "(not set)"
        case "":
            return '""'
        case str():
            return value
        case _:
            return json.dumps(value, default=repr)


def _cure(
    drift: DifferentExchange | DifferentQueue | DifferentPolicy | Overruled, live: Topology
) -> tuple[str, ...]:
    match drift:
        case DifferentExchange(planned=exchange):
            return _exchange_steps(exchange, live)
        case DifferentQueue(planned=queue):
            return migration.steps(queue, live)
        case DifferentPolicy(planned=policy):
            return (rabbitmq_commands.set_policy(policy, live.vhost), "or: dlq topology apply --migrate")
        case Overruled(planned=queue, by=by):
            who = " and ".join(by) or "a policy"
            cure = (
                f"{who} goes before what is planned: narrow its pattern so that it does not match "
                f"{queue.name}, or give it a lower priority; nothing of ours changes other policies"
            )
            return (cure,)
        case _:
            assert_never(drift)


def _exchange_steps(exchange: Exchange, live: Topology) -> tuple[str, ...]:
    """An exchange holds no letters, but publishers that find none, or another type, stop. So: by hand."""
    bound = sum(exchange.name in (b.source, b.destination) for b in live.bindings)
    list_bindings = rabbitmq_commands.list_bindings(live.vhost)
    return (
        f"stop whoever publishes to {exchange.name}; without it their channels are closed (404)",
        f"note its {bound} binding{'' if bound == 1 else 's'}: {list_bindings}",
        f"delete exchange {exchange.name}, then dlq topology apply declares it as planned",
        "bind again what the plan does not name",
        "dlq topology apply deletes no exchange, with --migrate or without",
    )
