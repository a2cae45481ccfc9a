"""What a layout is asked: for which queue, with which delays, on which broker.

`there` is the vhost as it is now, where somebody has looked. A layout needs it for one thing: to undo
nothing. RabbitMQ applies one policy per queue, so a policy of ours takes the place of the one that holds now,
and has to carry its settings on; and what was frozen into a queue at its declaration no policy can change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from deadletter.core.deciding.backoff import Schedule
from deadletter.core.layouts.naming import MAX_NAME_BYTES
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.names import is_ours
from deadletter.core.topology.rabbitmq_versions import Traits, traits_of
from deadletter.core.topology.vhost import Queue, Topology
from deadletter.errors import UsageError

MAX_QUEUES: Final = 100
"""Of one layout for one queue."""
_NOTHING: Final[Mapping[str, Value]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Checked when it is made: a layout may rely on what stands here."""

    queue: str
    schedule: Schedule
    version: str
    """As the broker says it: 4.3.6."""
    queue_type: str = "quorum"
    """Of the application's queue where `there` does not tell."""
    declare_queue: bool = False
    """Whether the application's queue belongs to the plan; else it is the application's to declare."""
    more_levels_ms: frozenset[int] = frozenset()
    """Delays beside the schedule's: those of error rules, and of other policies."""
    there: Topology | None = None
    delivery_limit: int | None = None
    """Of the application's queue, in layouts whose policy can carry one; -1: none, also where RabbitMQ has
    one by itself. None: nothing is said of it."""

    def __post_init__(self) -> None:
        size = len(self.queue.encode())
        if not 0 < size <= MAX_NAME_BYTES:
            raise UsageError(
                f"queue: expected a name of 1 to {MAX_NAME_BYTES} bytes, got {size}; name a queue"
            )
        if is_ours(self.queue):
            raise UsageError(
                f"queue: expected an application's queue, got {self.queue!r}, one of ours; "
                "name the queue whose letters die"
            )
        if self.queue.startswith("amq."):
            raise UsageError(
                f"queue: expected a queue with a name of its own, got {self.queue!r}: RabbitMQ reserves "
                "amq. for names it makes up; give the queue a name"
            )
        if not self.traits.at_least_once:
            raise UsageError(
                f"version: expected RabbitMQ 3.10 or later, as in 4.3.6, got {self.version!r}; "
                "older ones can lose a letter between a delay and the queue behind it: upgrade"
            )
        if self.type not in ("classic", "quorum"):
            raise UsageError(
                f"queue {self.queue}: expected a classic or a quorum queue, got type {self.type!r}, "
                "which does not dead-letter; name a queue that does"
            )

        if self.delivery_limit is not None and self.type != "quorum":
            raise UsageError(
                f"queue {self.queue}: delivery_limit: expected a quorum queue, got a {self.type} one, which "
                "has no such limit; leave it out"
            )

    @property
    def traits(self) -> Traits:
        """What a broker of this version does."""
        return traits_of(self.version)

    @property
    def found(self) -> Queue | None:
        """The application's queue as it is."""
        return self.at(self.queue)

    @property
    def type(self) -> str:
        return self.found.type if self.found is not None else self.queue_type

    @property
    def frozen(self) -> Mapping[str, Value]:
        """What the application's queue was declared with."""
        return self.found.arguments if self.found is not None else _NOTHING

    def at(self, queue: str) -> Queue | None:
        return self.there.queues.get(queue) if self.there is not None else None


def steps(layout: str, request: Request, *, others: str) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """The delays of a schedule as numbered steps, for the layouts that have one queue per step:
    one delay per step, the last for all further retries, and what there is to say about them.

    `others`: what becomes of delays beside those, which jitter and error rules ask for.
    """
    delays_ms = request.schedule.typical_delays_ms
    if len(delays_ms) > MAX_QUEUES:
        raise UsageError(
            f"layout {layout}: expected at most {MAX_QUEUES} different steps, each is a queue, got "
            f"{len(delays_ms)}; lower the retries or the cap, or take the layout return"
        )
    if (request.schedule.levels_ms | request.more_levels_ms) <= set(delays_ms):
        return delays_ms, ()
    return delays_ms, (f"{layout} declares one delay per retry, the middle one of its jitter. {others}",)


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """Where a layout differs from the document it is named after, and why."""

    document_says: str
    we_declare: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The planned part of a vhost: `topology` holds nothing but what this layout would declare."""

    layout: str
    """return, levels, sweep, ladder, loop or native; never auto: that is resolved."""
    queue: str
    topology: Topology
    notes: tuple[str, ...] = ()
    """What a person should know: why `auto` chose this, what is not declared and why."""
    corrections: tuple[Correction, ...] = ()
