"""What another RabbitMQ version refuses or quietly ignores.

What is refused here was tried on 3.10.8, 4.0.5 and 4.3.6; release notes and brokers do not always agree. Only
that 4.3.0 does not know the policy keys of delayed retries yet is from the documentation.

A thing that is refused stops an application at its start, or the import of a whole definitions file; a thing
that is ignored is worse where somebody counts on it: a delay that is none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from deadletter.core.letter.field_table import Value
from deadletter.core.topology import rabbitmq_commands
from deadletter.core.topology.merging import BrokerPolicy
from deadletter.core.topology.queue_arguments import (
    X_DELAYED_RETRY,
    X_QUEUE_MASTER_LOCATOR,
    X_QUEUE_MODE,
    X_QUEUE_VERSION,
)
from deadletter.core.topology.rabbitmq_versions import FOUR, FOUR_THREE, Version, version_of
from deadletter.core.topology.vhost import Queue
from deadletter.doctor.finding import Evidence, Harm, Severity
from deadletter.doctor.rules.case import Case, rule
from deadletter.doctor.rules.path_words import in_queue, queue_step
from deadletter.doctor.rules.routes import setting_step


class VersionEffect(Enum):
    """What a version does with a setting."""

    REFUSED = "refused"
    IGNORED = "ignored"


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionChange:
    """One setting that means something else from a version on."""

    since: Version
    outcome: VersionEffect
    effect: str
    """What happens then, as the end of a sentence."""
    instead: str

    def severity(self, version: str) -> Severity:
        """Refused: a warning before the upgrade, an error after it. Ignored is worth knowing."""
        if self.outcome is VersionEffect.IGNORED:
            return Severity.NOTE
        return Severity.ERROR if version_of(version) >= self.since else Severity.WARNING

    def when(self, version: str) -> str:
        since = f"{self.since.major}.{self.since.minor}"
        return f"RabbitMQ {version}" if version_of(version) >= self.since else f"RabbitMQ {since} and later"


_MIRRORS: Final = VersionChange(
    since=FOUR,
    outcome=VersionEffect.REFUSED,
    effect="refuses the policy and with it the whole definitions file; there are no mirrored queues any more",
    instead="quorum queues, declared with x-queue-type=quorum, and a policy without such keys",
)
_LOCATOR: Final = VersionChange(
    since=FOUR_THREE,
    outcome=VersionEffect.REFUSED,
    effect="refuses it by default; as an argument it costs the application its connection (541)",
    instead="queue-leader-locator with client-local or balanced",
)
_LAZY: Final = VersionChange(
    since=FOUR,
    outcome=VersionEffect.IGNORED,
    effect="takes it and does nothing: classic queues keep letters on disk anyway",
    instead="leave it out when the queue is declared anew; until then it does no harm",
)
_FIRST_STORE: Final = VersionChange(
    since=FOUR_THREE,
    outcome=VersionEffect.REFUSED,
    effect="refuses to declare the queue (406)",
    instead="x-queue-version=2, or leave it out",
)

POLICY_KEYS: Final[Mapping[str, VersionChange]] = {
    "ha-mode": _MIRRORS,
    "ha-params": _MIRRORS,
    "ha-sync-mode": _MIRRORS,
    "ha-sync-batch-size": _MIRRORS,
    "ha-promote-on-shutdown": _MIRRORS,
    "ha-promote-on-failure": _MIRRORS,
    "queue-master-locator": _LOCATOR,
    "queue-mode": _LAZY,
}
ARGUMENTS: Final[Mapping[str, VersionChange]] = {
    X_QUEUE_MASTER_LOCATOR: _LOCATOR,
    X_QUEUE_MODE: _LAZY,
}


# -- native-delay-ignored ----------------------------------------------------------------------------------
@rule(
    "native-delay-ignored",
    Harm.SPUN,
    summary="delayed retries asked of a broker that does not have them",
    why="Quorum queues delay retries by themselves from 4.3 on. Older brokers accept the arguments "
    "`x-delayed-retry-*` and ignore them, so a letter that is given back returns at once and spins; "
    "on 4.0 to 4.2 the delivery limit then throws it out. The policy keys are refused before 4.3.1, "
    "and the arguments are refused on other queue types from 4.3 on.",
)
def native_delay_ignored(case: Case) -> Iterator[Evidence]:
    for queue in case.topology.queues.values():
        if any(argument.startswith(X_DELAYED_RETRY) for argument in queue.arguments):
            if not case.traits.native_retry:
                yield _ignored_arguments(case, queue)
            elif queue.type != "quorum":
                yield _wrong_type(queue)
    if not case.traits.native_retry_policies:
        yield from _refused_policies(case)


def _ignored_arguments(case: Case, queue: Queue) -> Evidence:
    known = case.traits.is_known
    limit = queue.delivery_limit(case.version)
    end = "for ever" if limit is None else f"until the delivery limit of {limit} throws it out"
    return in_queue(
        queue,
        Severity.ERROR if known else Severity.WARNING,
        "rejected with requeue",
        f"{_delay_arguments(queue)} ignored",
        f"{queue_step(queue.name)} at once",
        why=(
            f"{queue.name} asks for delayed retries, which RabbitMQ knows from 4.3 on. "
            f"{f'RabbitMQ {case.version}' if known else 'An older one'} accepts the arguments and ignores "
            f"them: a letter that is given back returns at once, {end}."
        ),
        fix="upgrade to 4.3; until then retry through delay queues: dlq topology plan shows them. The "
        f"arguments are frozen in {queue.name}: delete it and declare it again without them",
    )


def _wrong_type(queue: Queue) -> Evidence:
    return in_queue(
        queue,
        Severity.ERROR,
        f"{queue.type} queue",
        f"{_delay_arguments(queue)} refused",
        harm=Harm.STUCK,
        why=f"Only quorum queues have delayed retries: declaring {queue.name} is refused (406).",
        fix=f"declare {queue.name} with x-queue-type=quorum, or without these arguments",
    )


def _refused_policies(case: Case) -> Iterator[Evidence]:
    known = case.traits.is_known
    for policy in case.topology.policies:
        keys = [key for key in policy.definition if key.startswith("delayed-retry-")]
        if keys:
            yield Evidence(
                severity=Severity.ERROR if known else Severity.WARNING,
                subject=policy.name,
                path=(f"policy {policy.name}", setting_step(keys[0], policy.definition[keys[0]]), "refused"),
                why=(
                    f"Policy {policy.name} asks for delayed retries; before 4.3.1 RabbitMQ refuses such a "
                    "policy, and with it the whole definitions file: letters are given back without a delay."
                ),
                fix="upgrade to 4.3.1 or later; until then retry through delay queues: dlq topology plan",
            )


def _delay_arguments(queue: Queue) -> str:
    return ", ".join(sorted(name for name in queue.arguments if name.startswith(X_DELAYED_RETRY)))


# -- refused-by-4 ------------------------------------------------------------------------------------------
@rule(
    "refused-by-4",
    Harm.STUCK,
    summary="settings that RabbitMQ 4 refuses or ignores",
    why="4.0 refuses policies for mirrored queues (`ha-*`), and a definitions file that has one; 4.3 "
    "also refuses `queue-master-locator` and queue version 1. `x-queue-mode` is taken and "
    "ignored. Transient queues that are not exclusive are deprecated, though 4.3 still "
    "takes them. A limit for a whole channel (global QoS) is not visible in a shape; 4.3 quietly "
    "applies it to each consumer.",
)
def refused_by_4(case: Case) -> Iterator[Evidence]:
    for policy in case.topology.policies:
        yield from _outdated_policy(case, policy)
    for queue in case.topology.queues.values():
        for argument, value in queue.arguments.items():
            if (change := _of_argument(argument, value)) is not None:
                yield _outdated_argument(case, queue, argument, change)
        if not queue.durable and not queue.exclusive:
            yield _transient(queue)


def _of_argument(argument: str, value: Value) -> VersionChange | None:
    if argument == X_QUEUE_VERSION:
        return _FIRST_STORE if value == 1 else None
    return ARGUMENTS.get(argument)


def _outdated_policy(case: Case, policy: BrokerPolicy) -> Iterator[Evidence]:
    told: list[VersionChange] = []
    for key, value in policy.definition.items():
        change = POLICY_KEYS.get(key)
        if change is None or change in told:
            continue  # one mirror policy has three keys of the same kind
        told.append(change)
        yield Evidence(
            severity=change.severity(case.version),
            harm=Harm.LOST if change is _MIRRORS else Harm.STUCK,
            subject=policy.name,
            path=(f"policy {policy.name}", setting_step(key, value), change.outcome.value),
            why=f"Policy {policy.name} sets {key}; {change.when(case.version)} {change.effect}.",
            fix=f"{change.instead}: {_without(case, policy, change)}",
        )


def _without(case: Case, policy: BrokerPolicy, change: VersionChange) -> str:
    """The command that takes such keys out of a policy; a policy without any key is refused, so it goes."""
    kept = {key: value for key, value in policy.definition.items() if POLICY_KEYS.get(key) is not change}
    if kept:
        return rabbitmq_commands.set_policy(replace(policy, definition=kept), case.topology.vhost)
    return rabbitmq_commands.clear_policy(policy.name, case.topology.vhost, operator=policy.operator)


def _outdated_argument(case: Case, queue: Queue, argument: str, change: VersionChange) -> Evidence:
    frozen = (
        ""
        if change.outcome is VersionEffect.IGNORED
        else f"; {argument} is frozen in {queue.name}: empty it, delete it, and declare it again"
    )
    return in_queue(
        queue,
        change.severity(case.version),
        setting_step(argument, queue.arguments[argument]),
        change.outcome.value,
        why=f"{queue.name} is declared with {argument}; {change.when(case.version)} {change.effect}.",
        fix=f"{change.instead}{frozen}",
    )


def _transient(queue: Queue) -> Evidence:
    return in_queue(
        queue,
        Severity.NOTE,
        "not durable, not exclusive",
        "node restarts",
        "gone",
        harm=Harm.LOST,
        why=(
            f"{queue.name} is transient: it and its letters are gone after a restart of its node. RabbitMQ 4 "
            "calls such queues deprecated; up to 4.3 it still takes them unless told otherwise "
            "(deprecated_features.permit.transient_nonexcl_queues), a later one will not."
        ),
        fix=f"declare {queue.name} durable, or exclusive if it belongs to one connection; durability is "
        "frozen, so delete it first",
    )
