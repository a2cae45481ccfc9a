"""Which permissions a user needs to declare a plan, as patterns that RabbitMQ takes.

As measured: a queue with a dead-letter exchange needs read on itself and write on that exchange; a binding
write on its destination and read on its source. Publishing by the default exchange is write on `amq.default`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from deadletter.core.letter.names import PREFIX
from deadletter.core.topology.drift import planned_exchanges
from deadletter.core.topology.queue_arguments import X_DEAD_LETTER_EXCHANGE
from deadletter.core.topology.vhost import Topology

DEFAULT_EXCHANGE: Final = "amq.default"
NOTHING: Final = "^$"


class PermissionPatterns(NamedTuple):
    """In RabbitMQ's order."""

    configure: str
    write: str
    read: str


def needed(plan: Topology) -> PermissionPatterns:
    """To declare all of it, with a binding to what is there already."""
    configure: set[str] = {*plan.queues, *(one.name for one in planned_exchanges(plan))}
    write: set[str] = set()
    read: set[str] = set()
    for queue in plan.queues.values():
        target = queue.arguments.get(X_DEAD_LETTER_EXCHANGE)
        if isinstance(target, str):
            read.add(queue.name)
            write.add(target or DEFAULT_EXCHANGE)
    for binding in plan.bindings:
        if binding.source:
            write.add(binding.destination)
            read.add(binding.source)
    return PermissionPatterns(pattern(configure), pattern(write), pattern(read))


def pattern(names: Iterable[str]) -> str:
    """A pattern for exactly these, ours all together."""
    choices = sorted({_escaped(PREFIX) if one.startswith(PREFIX) else f"{_escaped(one)}$" for one in names})
    if not choices:
        return NOTHING
    return f"^{choices[0]}" if len(choices) == 1 else f"^({'|'.join(choices)})"


def _escaped(name: str) -> str:
    return re.escape(name).replace(r"\-", "-")
