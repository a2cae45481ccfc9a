"""Permissions that make retries fail, on the day they are needed.

RabbitMQ does not ask for a permission when a letter dies: the broker moves it by itself. It asks when a queue
with a dead-letter exchange is *created*: configure and read on the queue, write on that exchange; declaring
again a queue that exists needs less. So a user without write on the exchange works for years, until the queue
has to be made anew, on a new broker or after a deletion, and then the application does not start (403).

A policy that sets the exchange needs nothing of the application's user. Measured on 3.10, 4.0 and 4.3.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final

from deadletter.core.letter import names
from deadletter.core.topology import rabbitmq_commands
from deadletter.core.topology.queue_arguments import X_DEAD_LETTER_EXCHANGE
from deadletter.core.topology.vhost import DEFAULT_EXCHANGE, Permission, Queue
from deadletter.doctor.finding import Evidence, Harm, Severity
from deadletter.doctor.rules.case import Case, rule
from deadletter.doctor.rules.path_words import exchange_step, in_queue

_DEFAULT_BY_NAME: Final = "amq.default"
"""What the default exchange is called where permissions are checked."""


@rule(
    "retry-permissions",
    Harm.STUCK,
    summary="a user who may not do what dead-lettering or retrying needs",
    why="Creating a queue with a dead-letter exchange needs write on that exchange (`amq.default` for "
    "the default one). A user without it is not refused while the queue exists, only when it has to "
    "be created anew: then the application does not start. Deadletter's own user needs write on "
    "`amq.default` and configure and write on `deadletter.`. Said only where permissions are known; "
    "in a file only where no user at all could create the queue. The same on 3.10, 4.0 and 4.3.",
)
def retry_permissions(case: Case) -> Iterator[Evidence]:
    if case.topology.permissions is None:
        return
    permissions = {each.user: each for each in case.topology.permissions}
    yield from _service(case, permissions)
    for queue in case.topology.queues.values():
        exchange = queue.arguments.get(X_DEAD_LETTER_EXCHANGE)
        if not isinstance(exchange, str) or names.is_ours(queue.name) or queue.exclusive:
            continue
        if queue.state is None:
            if permissions and not any(_creates(each, queue, exchange) for each in permissions.values()):
                yield _nobody(queue, exchange)
            continue
        for user in sorted({consumer.user for consumer in queue.state.consumers}):
            own = permissions.get(user)
            if own is not None and may_configure(own, queue.name) and not may_write(own, exchange):
                yield _cannot_create(case, queue, exchange, own)


def _creates(permission: Permission, queue: Queue, exchange: str) -> bool:
    return (
        may_write(permission, exchange)
        and may_configure(permission, queue.name)
        and _allows(permission.read, queue.name)
    )


def _cannot_create(case: Case, queue: Queue, exchange: str, permission: Permission) -> Evidence:
    wanted = _resource(exchange)
    return in_queue(
        queue,
        Severity.WARNING,
        "deleted, or on a new broker",
        f"user {permission.user} declares it",
        exchange_step(exchange),
        "no write permission: 403",
        why=(
            f"User {permission.user} consumes {queue.name} and may declare it, but not with the dead-letter "
            f"exchange it has: that needs write on {wanted}. While the queue exists nobody notices; when it "
            "has to be created anew, the application is refused and does not start."
        ),
        fix=_grant(case, permission, write=wanted),
    )


def _nobody(queue: Queue, exchange: str) -> Evidence:
    wanted = _resource(exchange)
    return in_queue(
        queue,
        Severity.WARNING,
        "deleted, or on a new broker",
        exchange_step(exchange),
        "nobody may declare it: 403",
        why=(
            f"No user of the vhost has configure and read on {queue.name} together with write on {wanted}, "
            "which creating it with its dead-letter exchange needs."
        ),
        fix=(
            f"give the user that declares {queue.name} write on {wanted} (rabbitmqctl set_permissions), or "
            "set the dead-letter exchange by policy, which needs no permission of that user"
        ),
    )


# -- our own service ---------------------------------------------------------------------------------------
def _service(case: Case, permissions: dict[str, Permission]) -> Iterator[Evidence]:
    """Who consumes a queue of ours is our service; what it cannot do without is known."""
    ours = [queue for queue in case.topology.queues.values() if names.is_ours(queue.name)]
    for user in sorted({c.user for queue in ours if queue.state for c in queue.state.consumers}):
        own = permissions.get(user)
        if own is None:
            continue
        queue = next(q for q in ours if q.state and any(c.user == user for c in q.state.consumers))
        if not may_write(own, DEFAULT_EXCHANGE):
            yield _service_lacks(case, queue, own, "write", _DEFAULT_BY_NAME, "publishes to its queues by it")
        if not may_write(own, queue.name):
            yield _service_lacks(case, queue, own, "write", names.PREFIX, "binds its queues")
        if not may_configure(own, queue.name):
            yield _service_lacks(case, queue, own, "configure", names.PREFIX, "declares its queues")


def _service_lacks(
    case: Case, queue: Queue, permission: Permission, kind: str, wanted: str, use: str
) -> Evidence:
    return in_queue(
        queue,
        Severity.ERROR if wanted == _DEFAULT_BY_NAME else Severity.WARNING,
        f"user {permission.user}",
        f"no {kind} on {wanted}: 403",
        why=(
            f"User {permission.user} runs Deadletter's service, which {use}; without {kind} permission on "
            f"{wanted} letters are not retried, they stay where they are."
        ),
        fix=_grant(case, permission, **{kind: wanted}),
    )


# -- what a permission allows ------------------------------------------------------------------------------
def may_write(permission: Permission, name: str) -> bool:
    return _allows(permission.write, _resource(name))


def may_configure(permission: Permission, name: str) -> bool:
    return _allows(permission.configure, name)


def _resource(name: str) -> str:
    return _DEFAULT_BY_NAME if name == DEFAULT_EXCHANGE else name


def _allows(pattern: str, name: str) -> bool:
    compiled = _compiled(pattern)
    return compiled is None or compiled.search(name) is not None


@lru_cache(maxsize=1024)
def _compiled(pattern: str) -> re.Pattern[str] | None:
    """None for what Python does not understand and RabbitMQ may: then we accuse nobody."""
    try:
        return re.compile(pattern or "^$")  # an empty one allows nothing
    except re.error:
        return None


def _grant(
    case: Case, permission: Permission, *, write: str | None = None, configure: str | None = None
) -> str:
    patterns = (
        _widened(permission.configure, configure),
        _widened(permission.write, write),
        permission.read or "^$",
    )
    return _command(case, permission.user, patterns)


def _widened(pattern: str, name: str | None) -> str:
    if name is None:
        return pattern or "^$"
    end = "" if name == names.PREFIX else "$"
    wanted = f"^{re.escape(name)}{end}"
    return f"{pattern}|{wanted}" if pattern else wanted


def _command(case: Case, user: str, patterns: Sequence[str]) -> str:
    return rabbitmq_commands.set_permissions(user, case.topology.vhost, patterns)
