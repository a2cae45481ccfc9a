"""Whether letters are safe in queues of ours: what holds there by policy, beside what must hold.

Somebody may set a policy at any time. One user policy and one operator policy apply to a name, and what they
say holds at once: a TTL destroys every letter that comes later, a length drops the oldest, `expires` deletes
a queue with all it holds. Against a user policy ours can stand higher; an operator's wins always. So it is
looked at again and again, and where letters are not safe nothing may be brought there.

What was given at a declaration is no intrusion: compared is what holds with what would hold if the policies
of our plan were the only ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from deadletter.core.letter import names
from deadletter.core.letter.field_table import Value
from deadletter.core.text.durations import duration_text
from deadletter.core.topology import merging, rabbitmq_commands
from deadletter.core.topology.drift import said
from deadletter.core.topology.merging import BrokerPolicy
from deadletter.core.topology.vhost import Exchange, Queue, Topology, topology

_LENGTHS: Final = ("max-length", "max-length-bytes")
_WHERE: Final = ("dead-letter-exchange", "dead-letter-routing-key")
_SHOWN: Final = 3


class Risk(Enum):
    LOST = "lost"
    """Letters vanish."""
    ASTRAY = "astray"
    """They go elsewhere, or at another time than they should."""
    STUCK = "stuck"
    """They never come out."""
    REFUSED = "refused"
    """New ones are not taken; what is there is safe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Danger:
    """One setting of a queue or exchange, and what it does to letters."""

    key: str
    risk: Risk
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What the broker itself says applies to a queue; its figures are seconds old."""

    policy: str | None
    operator_policy: str | None
    definition: Mapping[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Threat:
    """One policy, or one of ours that is missing, and what it does to names of ours."""

    policy: str
    operator: bool
    subjects: tuple[str, ...]
    dangers: tuple[Danger, ...]
    ours: BrokerPolicy | None
    """The policy of ours that has to be set; None: theirs has to go."""
    command: str
    """What mends it."""

    @property
    def only_refuses(self) -> bool:
        return all(danger.risk is Risk.REFUSED for danger in self.dangers)

    def __str__(self) -> str:
        shown = ", ".join(self.subjects[:_SHOWN])
        more = f" and {len(self.subjects) - _SHOWN} more" if len(self.subjects) > _SHOWN else ""
        whys = "; ".join(dict.fromkeys(danger.why for danger in self.dangers))
        kind = "operator policy" if self.operator else "policy"
        return f"{kind} {self.policy!r} over {shown}{more}: {whys}"


# -- one queue --------------------------------------------------------------------------------------------
def dangers(expected: Queue, found: Queue, version: str) -> tuple[Danger, ...]:
    """What holds for `found` that should not, or does not and should."""
    return tuple(_dangers(expected, found, version))


def _dangers(expected: Queue, found: Queue, version: str) -> Iterator[Danger]:
    yield from _times(expected, found)
    yield from _lengths(expected, found)
    yield from _ways(expected, found)
    limit = found.delivery_limit(version)
    if limit is not None and limit != expected.delivery_limit(version) and expected.ttl_ms is None:
        why = f"a letter is destroyed after {limit} deliveries, and each crash of a consumer is one"
        yield Danger(key="delivery-limit", risk=Risk.LOST, why=why)


def _times(expected: Queue, found: Queue) -> Iterator[Danger]:
    wanted, ttl = expected.ttl_ms, found.ttl_ms
    if wanted is not None and ttl is None:
        why = "it has no TTL, so letters that wait there never come out"
        yield Danger(key="message-ttl", risk=Risk.STUCK, why=why)
    elif ttl is not None and wanted is not None and ttl != wanted:
        why = f"letters wait {duration_text(ttl)} instead of {duration_text(wanted)} (message-ttl {ttl})"
        yield Danger(key="message-ttl", risk=Risk.ASTRAY, why=why)
    elif ttl is not None and wanted is None:
        lost = found.dead_letter_exchange is None
        fate = "destroyed" if lost else "sent on"
        why = f"letters are {fate} after {duration_text(ttl)} (message-ttl {ttl})"
        yield Danger(key="message-ttl", risk=Risk.LOST if lost else Risk.ASTRAY, why=why)
    if found.expires_ms is not None and found.expires_ms != expected.expires_ms:
        after = duration_text(found.expires_ms)
        why = f"the queue is deleted with all its letters when nobody consumes it for {after} (expires)"
        yield Danger(key="expires", risk=Risk.LOST, why=why)


def _lengths(expected: Queue, found: Queue) -> Iterator[Danger]:
    for key in _LENGTHS:
        limit = found.effective.get(key)
        if limit is None or limit == expected.effective.get(key):
            continue
        if found.overflow == "reject-publish":
            why = f"it refuses letters when it is full ({key} {said(limit)})"
            yield Danger(key=key, risk=Risk.REFUSED, why=why)
        else:
            why = f"it drops letters when it is full ({key} {said(limit)}, overflow {found.overflow})"
            yield Danger(key=key, risk=Risk.LOST, why=why)


def _ways(expected: Queue, found: Queue) -> Iterator[Danger]:
    if expected.dead_letter_exchange is None:
        return  # nothing dies there, wherever it would go
    for key in _WHERE:
        wanted, there = expected.effective.get(key), found.effective.get(key)
        if wanted != there:
            why = f"its letters go on with {key} {said(there)} instead of {said(wanted)}"
            yield Danger(key=key, risk=Risk.ASTRAY, why=why)
    if expected.at_least_once and expected.overflow == "reject-publish":
        if not found.at_least_once:
            why = "its letters go on at most once: one that the next queue cannot take is lost"
            yield Danger(key="dead-letter-strategy", risk=Risk.LOST, why=why)
        elif found.overflow != "reject-publish":
            why = f"its letters go on at most once, for overflow is {found.overflow}: what is held is lost"
            yield Danger(key="overflow", risk=Risk.LOST, why=why)


def _hiding(exchange: Exchange) -> Iterator[Danger]:
    alternate = exchange.alternate
    if alternate is not None and "alternate-exchange" not in exchange.arguments:
        why = f"a letter that finds no queue goes to exchange {alternate!r} and nobody is told"
        yield Danger(key="alternate-exchange", risk=Risk.LOST, why=why)


# -- a layout that was laid, or found ------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Shortfall:
    """A queue of a plan for which something else holds than planned."""

    queue: str
    danger: Danger

    @property
    def grave(self) -> bool:
        """Whether a retry would never come back, or come out elsewhere."""
        return self.danger.risk is Risk.STUCK or self.danger.key in _WHERE

    def __str__(self) -> str:
        return f"{self.queue}: {self.danger.why}"


def shortfalls(plan: Topology, live: Topology) -> tuple[Shortfall, ...]:
    """Where what holds now is not what was planned, whoever declared the queues. What is missing is no
    matter of this. Of the application's own queue only where its dead letters go is ours to say."""
    return tuple(_shortfalls(plan, live))


def _shortfalls(plan: Topology, live: Topology) -> Iterator[Shortfall]:
    for name, planned in plan.queues.items():
        if (found := live.queues.get(name)) is not None:
            for danger in dangers(planned, found, live.version):
                yield Shortfall(queue=name, danger=danger)
    others = [
        queue
        for name, queue in live.queues.items()
        if name not in plan.queues
        and not names.is_ours(name)
        and any(policy.means(name, queue.type) for policy in plan.policies)
    ]
    meant = topology(
        version=live.version, queues=map(Queue.as_declared, others), policies=plan.policies
    ).queues
    for queue in others:
        for danger in _ways(meant[queue.name], queue):
            yield Shortfall(queue=queue.name, danger=danger)


# -- a vhost ----------------------------------------------------------------------------------------------
def threats(plan: Topology, live: Topology, told: Mapping[str, Told] | None = None) -> tuple[Threat, ...]:
    """What takes letters from queues and exchanges of ours. `told` is believed beside what we compute."""
    found: dict[tuple[str, bool], list[tuple[str, Danger]]] = {}

    def blame(policy: tuple[str, bool], subject: str, danger: Danger) -> None:
        pairs = found.setdefault(policy, [])
        if (subject, danger) not in pairs:
            pairs.append((subject, danger))

    ours = [queue for queue in live.queues.values() if _keeps_letters(queue, plan)]
    expected = topology(
        version=live.version, queues=map(Queue.as_declared, ours), policies=plan.policies
    ).queues
    for queue in ours:
        for view in _views(queue, (told or {}).get(queue.name)):
            for danger in dangers(expected[queue.name], view, live.version):
                blame(_culprit(view, danger.key, plan, live), queue.name, danger)
    for exchange in live.exchanges.values():
        if names.is_ours(exchange.name):
            for danger in _hiding(exchange):
                chosen = merging.Chooser(live.policies, live.version).choose(exchange.name, "exchange")
                blame((chosen.policy or "", False), exchange.name, danger)
    return tuple(
        Threat(
            policy=name,
            operator=operator,
            subjects=tuple(dict.fromkeys(subject for subject, _ in pairs)),
            dangers=tuple(dict.fromkeys(danger for _, danger in pairs)),
            ours=(policy := None if operator else _named(plan.policies, name, operator=False)),
            command=rabbitmq_commands.clear_policy(name, plan.vhost, operator=operator)
            if policy is None
            else rabbitmq_commands.set_policy(policy, plan.vhost),
        )
        for (name, operator), pairs in sorted(found.items())
    )


def _keeps_letters(queue: Queue, plan: Topology) -> bool:
    """Leases and news are exclusive, and hold none."""
    return (names.is_ours(queue.name) or queue.name in plan.queues) and not queue.exclusive


def _views(queue: Queue, told: Told | None) -> Iterable[Queue]:
    if told is None:
        return (queue,)
    seen = replace(
        queue,
        effective=merging.effective(queue.arguments, told.definition, queue.type),
        policy=told.policy,
        operator_policy=told.operator_policy,
    )
    return (queue, seen)


def _culprit(queue: Queue, key: str, plan: Topology, live: Topology) -> tuple[str, bool]:
    """The policy to blame: the operator's where it says it; else ours where it is missing; else the user's
    that applies in its place."""
    planned = merging.Chooser(plan.policies, plan.version).choose(queue.name, queue.type).policy
    applied = _named(live.policies, queue.policy, operator=False)
    if queue.operator_policy is not None and key in queue.effective:
        operator = _named(live.policies, queue.operator_policy, operator=True)
        # Not everybody may read operator policies: then it says what no policy of users does.
        says = (operator or applied or BrokerPolicy(name="", pattern="")).definition.get(key)
        if (says == queue.effective[key]) is (operator is not None):
            return queue.operator_policy, True
    missing = planned is not None and _named(live.policies, planned, operator=False) is None
    return (planned if missing else queue.policy or planned) or "", False


def _named(policies: Iterable[BrokerPolicy], name: str | None, *, operator: bool) -> BrokerPolicy | None:
    return next((one for one in policies if one.name == name and one.operator is operator), None)
