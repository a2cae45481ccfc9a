"""Declaring what a plan names and the broker lacks. Nothing is deleted, and nothing that is there is changed.

Policies come first, through the management API: a queue that was there for a moment without its policy would
for that moment have somebody else's limits. Then exchanges, queues and bindings over AMQP, each on a channel
of its own: a refusal (403, 406) closes the channel it came on, and must close no other. One thing that is
refused does not stop the rest; what became of each is said.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, assert_never

from deadletter.amqp.channel import Channel
from deadletter.amqp.connection import Connection
from deadletter.broker.management import Management, management
from deadletter.broker.session import Link
from deadletter.core.layouts import permissions
from deadletter.core.topology import drift, rabbitmq_commands
from deadletter.core.topology.definitions_export import declared_arguments
from deadletter.core.topology.merging import BrokerPolicy
from deadletter.core.topology.queue_arguments import X_DEAD_LETTER_EXCHANGE
from deadletter.core.topology.vhost import Binding, DestinationKind, Exchange, Queue, Topology
from deadletter.errors import (
    AccessRefused,
    ChannelClosed,
    ManagementRefused,
    NotFound,
    PreconditionFailed,
)

_NEED: Final = "policies are set there: give its address (DLQ_API, --api)"


class DeclareOutcome(Enum):
    CREATED = "created"
    CHANGED = "changed"
    """A policy that was set, a queue that was migrated; only where that was asked for."""
    THERE = "already there"
    DIFFERENT = "different"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredItem:
    """What became of one thing of the plan."""

    planned: drift.Planned
    outcome: DeclareOutcome
    why: str = ""
    """Why it is different or refused: what came, and what to do."""

    @property
    def subject(self) -> str:
        return drift.subject(self.planned)


async def declare(
    link: Link, api: str | None, plan: Topology, live: Topology, *, change_policies: bool = False
) -> tuple[DeclaredItem, ...]:
    """Declare what is missing. Policies that are there and different change only when that is asked for."""
    drifts = drift.compare(plan, live)
    missing = [found.planned for found in drifts if isinstance(found, drift.Missing)]
    others: list[tuple[drift.Planned, drift.Drift]] = [
        (found.planned, found) for found in drifts if not isinstance(found, drift.Missing)
    ]
    away = {found.planned.name for found in drifts if isinstance(found, drift.Interrupted)}
    items: list[DeclaredItem] = []
    connection = await link.connection("declare")
    async with management(link.address, api, need=_NEED) as asked:
        for planned in _everything(plan):
            found = next((found for other, found in others if other is planned), None)
            if isinstance(planned, Binding) and planned.destination in away:
                # Bound now, letters would come to this queue and to the one where its letters wait.
                why = f"a migration of {planned.destination} was interrupted; it binds it when it goes on"
                items.append(DeclaredItem(planned=planned, outcome=DeclareOutcome.DIFFERENT, why=why))
            elif any(planned is one for one in missing):
                items.append(await _create(planned, connection, asked, link, plan))
            elif isinstance(found, drift.DifferentPolicy) and change_policies:
                items.append(await _set(found.planned, asked, DeclareOutcome.CHANGED))
            else:
                items.append(_seen(planned, found))
    return tuple(items)


def _everything(plan: Topology) -> list[drift.Planned]:
    """Every part of a plan, in the order in which things are declared."""
    bindings = [binding for binding in plan.bindings if binding.source]
    return [*plan.policies, *drift.planned_exchanges(plan), *plan.queues.values(), *bindings]


def _seen(planned: drift.Planned, found: drift.Drift | None) -> DeclaredItem:
    match found:
        case None | drift.Interrupted():
            return DeclaredItem(planned=planned, outcome=DeclareOutcome.THERE)
        case drift.Missing():
            raise AssertionError("what is missing is created")
        case drift.DifferentExchange() | drift.DifferentQueue() | drift.DifferentPolicy() | drift.Overruled():
            why = "; ".join(map(str, found.differences))
            if isinstance(found, drift.Overruled):
                why += f"; by {' and '.join(found.by) or 'another policy'}"
            return DeclaredItem(planned=planned, outcome=DeclareOutcome.DIFFERENT, why=why)
        case _:
            assert_never(found)


async def _create(
    planned: drift.Planned, connection: Connection, asked: Management, link: Link, plan: Topology
) -> DeclaredItem:
    if isinstance(planned, BrokerPolicy):
        return await _set(planned, asked, DeclareOutcome.CREATED)
    if why := _unspoken(planned):
        return DeclaredItem(planned=planned, outcome=DeclareOutcome.REFUSED, why=why)
    try:
        async with await connection.channel() as channel:
            await _declare(channel, planned)
    except ChannelClosed as error:
        return _refused(planned, error, link, plan)
    return DeclaredItem(planned=planned, outcome=DeclareOutcome.CREATED)


async def _declare(channel: Channel, planned: Exchange | Queue | Binding) -> None:
    match planned:
        case Exchange(name=name, type=kind):
            await channel.declare_exchange(name, kind, durable=planned.durable, arguments=planned.arguments)
        case Queue(name=name):
            await channel.declare_queue(
                name,
                durable=planned.durable,
                auto_delete=planned.auto_delete,
                arguments=declared_arguments(planned),
            )
        case Binding(source=source, destination=destination, routing_key=key):
            await channel.bind_queue(destination, source, key, planned.arguments)
        case _:
            assert_never(planned)


def _unspoken(planned: Exchange | Queue | Binding) -> str:
    """What no layout asks for and our client does not say; better refused than declared half."""
    match planned:
        case Exchange(auto_delete=True) | Exchange(internal=True):
            return "auto-delete and internal exchanges are not declared by us; import the definitions instead"
        case Binding(to=DestinationKind.EXCHANGE):
            return "bindings between exchanges are not declared by us; import the definitions instead"
        case Queue(exclusive=True):
            return "an exclusive queue is gone with the connection that declared it; its owner must do it"
        case _:
            return ""


async def _set(policy: BrokerPolicy, asked: Management, outcome: DeclareOutcome) -> DeclaredItem:
    try:
        await put_policy(asked, policy)
    except ManagementRefused as error:
        by_hand = rabbitmq_commands.set_policy(policy, asked.vhost)
        why = f"{error}; or somebody who may sets it once: {by_hand}"
        return DeclaredItem(planned=policy, outcome=DeclareOutcome.REFUSED, why=why)
    return DeclaredItem(planned=policy, outcome=outcome)


async def put_policy(asked: Management, policy: BrokerPolicy) -> None:
    content: Mapping[str, object] = {
        "pattern": policy.pattern,
        "definition": dict(policy.definition),
        "priority": policy.priority,
        "apply-to": policy.apply_to,
    }
    await asked.put("operator-policies" if policy.operator else "policies", policy.name, content)


def _refused(
    planned: Exchange | Queue | Binding, error: ChannelClosed, link: Link, plan: Topology
) -> DeclaredItem:
    said = f"{error.code} {error.text}"
    if isinstance(error, PreconditionFailed):
        why = f"it is there and differs ({said}); see: dlq topology diff"
        return DeclaredItem(planned=planned, outcome=DeclareOutcome.DIFFERENT, why=why)
    if isinstance(error, AccessRefused):
        user = link.address.user
        grant = rabbitmq_commands.set_permissions(user, link.address.vhost, permissions.needed(plan))
        why = (
            f"user {user!r} needs {_needs(planned)} ({said}); an administrator grants it, for all that is "
            f"planned and instead of the patterns the user has: {grant}"
        )
        return DeclaredItem(planned=planned, outcome=DeclareOutcome.REFUSED, why=why)
    if isinstance(error, NotFound):
        said += (
            "; what it leads from or to must be there first (the application's own queue: --declare-queue)"
        )
    return DeclaredItem(planned=planned, outcome=DeclareOutcome.REFUSED, why=said)


def _needs(planned: Exchange | Queue | Binding) -> str:
    """Which permissions, as measured: a queue with a dead-letter exchange needs more than configure."""
    match planned:
        case Exchange(name=name):
            return f"configure on {name!r}"
        case Queue(name=name):
            target = planned.arguments.get(X_DEAD_LETTER_EXCHANGE)
            return f"configure on {name!r}" + (
                f", read on it, and write on {target!r}" if target is not None else ""
            )
        case Binding(source=source, destination=destination):
            return f"write on {destination!r} and read on {source!r}"
        case _:
            assert_never(planned)
