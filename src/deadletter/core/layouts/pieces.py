"""What all layouts are made of.

**Arguments or policy?** What says where a letter goes, and how safely, is frozen into the queues that are a
layout's own: dead-letter exchange, at-least-once, reject-publish. Somebody who deletes a policy would
otherwise turn a delay into a trap, and RabbitMQ throws away what is under way when at-least-once is taken
off a queue. What may change is a policy: a delay whose queue is not named after it (frozen, the next
deployment would end in 406), limits, and everything on the application's own queue, which is not ours.

**No delivery limit.** RabbitMQ 4 destroys a letter after 20 deliveries, and each crash of whoever holds it is
one. A policy says -1 there and not an argument: 3.x takes `x-delivery-limit: -1` and then drops the letter
after its first return, refuses the policy, and has no limit anyway; and a queue that was declared on 3.x gets
a policy after the upgrade, whereas arguments would no longer match.

**Refuse rather than drop, twice.** Where letters rest that is our policy and an argument: should the policy
be deleted, or another one go before it, a length in that one refuses letters and does not drop them.

**No key too many.** One key that a queue's type does not take makes a whole policy void on it, and classic
queues take no delivery limit: a policy of ours has only keys that the queue takes as it is.

**Nothing undone.** One policy applies per queue. Ours for a single queue therefore stands above the one that
holds there now and carries its settings on, as far as `there` tells. On a layout's own queues it leaves out
what would take letters away: a `.*` policy with a length or a TTL was not meant for them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

from deadletter.core.layouts import naming
from deadletter.core.layouts.request import Correction, Plan, Request
from deadletter.core.letter import names
from deadletter.core.letter.field_table import Value
from deadletter.core.topology.merging import LIMITS, BrokerPolicy, Chooser, void_keys
from deadletter.core.topology.queue_arguments import X_OVERFLOW, as_argument
from deadletter.core.topology.vhost import DEFAULT_EXCHANGE, Binding, Exchange, Queue, Topology, topology
from deadletter.errors import UsageError

OURS_PRIORITY: Final = 999
"""Above a `.*` policy of users; measured, `max-length: 10` in one leaves 10 of 50 parked letters. Higher
where one of them stands as high."""
EXACT_PRIORITY: Final = 100
"""Of a policy for one queue, unless one that stands higher has to be carried on."""
SAFELY: Final[Mapping[str, Value]] = MappingProxyType(
    {"dead-letter-strategy": "at-least-once", "overflow": "reject-publish"}
)
"""Without reject-publish RabbitMQ silently takes at-least-once for at-most-once."""
REFUSING: Final[Mapping[str, Value]] = MappingProxyType({X_OVERFLOW: "reject-publish"})
"""What every queue of ours is declared with where letters rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a layout declares, before it is a plan."""

    exchanges: tuple[Exchange, ...] = ()
    queues: tuple[Queue, ...] = ()
    bindings: tuple[Binding, ...] = ()
    policies: tuple[BrokerPolicy, ...] = ()
    notes: tuple[str, ...] = ()

    def __add__(self, other: Parts) -> Parts:
        return Parts(
            exchanges=self.exchanges + other.exchanges,
            queues=self.queues + other.queues,
            bindings=self.bindings + other.bindings,
            policies=self.policies + other.policies,
            notes=self.notes + other.notes,
        )

    def topology(self, vhost: str, version: str) -> Topology:
        """All of it, and nothing else."""
        return topology(
            vhost=vhost,
            version=version,
            exchanges=self.exchanges,
            queues=self.queues,
            bindings=self.bindings,
            policies=self.policies,
        )


def plan_of(layout: str, request: Request, parts: Parts, corrections: tuple[Correction, ...]) -> Plan:
    """The plan; with the application's queue first when it was asked for."""
    if any(queue.name == request.queue for queue in parts.queues):
        raise UsageError(
            f"layout {layout}: expected an application's queue, got {request.queue!r}, which the layout "
            "declares itself; name the queue whose letters die"
        )
    if request.declare_queue:
        own = request.found.as_declared() if request.found else Queue(name=request.queue, type=request.type)
        parts = Parts(queues=(own,)) + parts
    return Plan(
        layout=layout,
        queue=request.queue,
        topology=parts.topology(request.there.vhost if request.there else "/", request.version),
        notes=parts.notes,
        corrections=corrections,
    )


def ours(request: Request) -> Parts:
    """The policy over everything named like us. Over exchanges too: an alternate exchange by somebody's `.*`
    policy would hide that a letter found no queue on its way back."""
    policy = BrokerPolicy(
        name=naming.OURS_POLICY,
        pattern=naming.OURS_PATTERN,
        definition=resting(request),
        apply_to="all",
        priority=_above_all(request),
    )
    return Parts(policies=(policy,))


def _above_all(request: Request) -> int:
    """Above every policy of others that means a name of ours. Ours is never lowered: who looks at another
    moment would raise it again."""
    there = request.there
    if there is None:
        return OURS_PRIORITY
    meant = {(name, queue.type) for name, queue in there.queues.items() if names.is_ours(name)}
    meant |= {(name, "exchange") for name in there.exchanges if names.is_ours(name)}
    meant |= {(name, "quorum") for name in (naming.DUE, naming.PARKED, naming.HELD, naming.level_name(0))}
    meant.add((naming.return_exchange_name("-"), "exchange"))
    heights = [OURS_PRIORITY]
    for policy in there.policies:
        if policy.operator:
            continue
        if policy.name == naming.OURS_POLICY:
            heights.append(policy.priority)
        elif any(policy.fits(name, kind, there.version) for name, kind in meant):
            heights.append(policy.priority + 1)
    return max(heights)


def resting(request: Request) -> Mapping[str, Value]:
    """The settings of a queue where letters rest: refuse rather than drop, and never count them out."""
    return {"overflow": "reject-publish", **unlimited(request)}


def unlimited(request: Request) -> Mapping[str, Value]:
    return {"delivery-limit": -1} if request.traits.limits_deliveries else {}


def parked(request: Request) -> Parts:
    return ours(request) + Parts(queues=(resting_place(request, naming.PARKED),))


def resting_place(request: Request, name: str) -> Queue:
    """A queue of ours where letters rest. One that is there without the argument stays as it is."""
    there = request.at(name)
    bare = there is not None and X_OVERFLOW not in there.arguments
    return Queue(name=name, type="quorum", arguments={} if bare else REFUSING)


def resting_queue(request: Request, name: str) -> Parts:
    """A queue for letters outside our names. One that is there already serves as it is, whatever its type."""
    there = request.at(name)
    queue = there.as_declared() if there is not None else Queue(name=name, type="quorum")
    if queue.type == "stream":
        raise UsageError(
            f"queue {name}: expected a classic or quorum queue for dead letters, got a stream, from which "
            "none can be taken; delete or rename it"
        )
    return Parts(queues=(queue,)) + own_policy(request, queue, resting(request))


def delay_queue(name: str, settings: Mapping[str, Value]) -> Queue:
    """A queue that nobody consumes: a letter waits its TTL and goes on, at least once."""
    frozen = {as_argument(key): value for key, value in {**settings, **SAFELY}.items()}
    return Queue(name=name, type="quorum", arguments=frozen)


def adjustable_delay(request: Request, name: str, delay_ms: int, onwards: Mapping[str, Value]) -> Parts:
    """A delay whose name does not tell it, so that it may change: the TTL is a policy."""
    queue = delay_queue(name, onwards)
    settings: dict[str, Value] = {"message-ttl": delay_ms, **unlimited(request)}
    return Parts(queues=(queue,)) + own_policy(request, queue, settings)


def way_back(request: Request) -> Parts:
    """A fanout exchange bound to the origin alone: the letter keeps its key, and `CC` cannot copy it."""
    name = naming.return_exchange_name(request.queue)
    return Parts(
        exchanges=(Exchange(name=name, type="fanout"),),
        bindings=(Binding(source=name, destination=request.queue),),
    )


def own_policy(request: Request, queue: Queue, settings: Mapping[str, Value]) -> Parts:
    """A policy for one of the layout's own queues, without anything that would take letters out of it."""
    queue = request.at(queue.name) or queue  # the type it has now says which keys it takes
    holding = policy_now(request, queue)
    if holding is None:
        return Parts(policies=(exact_policy(queue, settings, None),))
    harmless = {key: value for key, value in holding.definition.items() if not _takes_letters(key)}
    left_out = sorted(key for key in holding.definition if _takes_letters(key) and key not in settings)
    note = (
        f"policy {holding.name!r} would hold for {queue.name}; ours takes its place without its "
        f"{', '.join(left_out)}: letters must not vanish there."
    )
    policy = exact_policy(queue, settings, replace(holding, definition=harmless))
    return Parts(policies=(policy,), notes=(note,) if left_out else ())


def _takes_letters(key: str) -> bool:
    return key in LIMITS or key.startswith(("dead-letter", "delayed-retry")) or key == "overflow"


def exact_policy(queue: Queue, settings: Mapping[str, Value], holding: BrokerPolicy | None) -> BrokerPolicy:
    """A policy of ours for exactly this queue, above the one that holds there now, with its settings."""
    definition = {**(holding.definition if holding is not None else {}), **settings}
    void = void_keys(queue.type, definition)
    return BrokerPolicy(
        name=naming.policy_name(queue.name),
        pattern=naming.exactly(queue.name),
        definition={key: value for key, value in definition.items() if key not in void},
        apply_to="queues",
        priority=EXACT_PRIORITY if holding is None else max(EXACT_PRIORITY, holding.priority + 1),
    )


def policy_now(request: Request, queue: Queue) -> BrokerPolicy | None:
    """The policy that holds for this queue, one of ours from an earlier plan left out."""
    if request.there is None:
        return None
    name = naming.policy_name(queue.name)
    others = [p for p in request.there.policies if not p.operator and p.name != name]
    chosen = Chooser(others, request.version).choose(queue.name, queue.type).policy
    return next((p for p in others if p.name == chosen), None)


def towards(key: str, *, exchange: str = DEFAULT_EXCHANGE) -> dict[str, Value]:
    """Dead letters go there, each with this key. Always with one: of a policy that holds now, another's key
    would otherwise be carried on, and join our exchange."""
    return {"dead-letter-exchange": exchange, "dead-letter-routing-key": key}
