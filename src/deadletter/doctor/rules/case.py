"""What every rule looks at: a topology, and the questions about it that several rules ask."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeAlias

from deadletter.core.letter import names
from deadletter.core.topology.merging import Chooser
from deadletter.core.topology.rabbitmq_versions import Traits, traits_of
from deadletter.core.topology.routing import Router
from deadletter.core.topology.vhost import Queue, Topology
from deadletter.doctor.finding import Evidence, Finding, Harm


@dataclass(frozen=True, kw_only=True)
class Case:
    """One vhost under examination. Not slotted: what it finds out it keeps."""

    topology: Topology
    now_ms: int
    """The time, for ages."""
    watched: frozenset[str] | None = None
    """The dead letter queues somebody takes care of, as far as the configuration says; None: not known."""
    delays_ms: Mapping[str, int] = field(default_factory=dict)
    """The delays that the configuration gives to queues, by queue."""
    router: Router = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "router", Router(self.topology))

    @property
    def version(self) -> str:
        return self.topology.version

    @property
    def traits(self) -> Traits:
        """What a broker of this version does."""
        return traits_of(self.version)

    @cached_property
    def chooser(self) -> Chooser:
        """Which policies apply to a name, and which would."""
        return Chooser(self.topology.policies, self.topology.version)

    @cached_property
    def dying_into(self) -> dict[str, tuple[Queue, ...]]:
        """The queues whose letters die into a queue, by its name."""
        found: dict[str, list[Queue]] = defaultdict(list)
        for queue in self.topology.queues.values():
            for target in self.router.dead_letter_queues(queue):
                found[target].append(queue)
        return {name: tuple(sources) for name, sources in found.items()}

    def is_dlq(self, queue: Queue) -> bool:
        """Whether it is where dead letters end: others die into it, and nothing takes them further."""
        if queue.name == names.PARKED:
            return True
        return queue.dead_letter_exchange is None and any(
            source.name != queue.name for source in self.dying_into.get(queue.name, ())
        )


Look: TypeAlias = Callable[[Case], Iterable[Evidence]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """One way in which a shape goes wrong. Made with `rule`."""

    id: str
    """Lower case words with dashes; what `--ignore` takes, and part of the public interface."""
    harm: Harm
    summary: str
    """One line: what is wrong."""
    why: str
    """A few sentences: what happens then, and on which versions."""
    live: bool = False
    """Whether it needs a live broker; such a rule finds nothing in a file."""
    look: Look

    def check(self, case: Case) -> Iterator[Finding]:
        """Every place where it is broken."""
        for found in self.look(case):
            yield Finding(
                rule=self.id,
                severity=found.severity,
                harm=found.harm or self.harm,
                subject=found.subject,
                path=found.path,
                why=found.why,
                fix=found.fix,
            )


def rule(name: str, harm: Harm, *, summary: str, why: str, live: bool = False) -> Callable[[Look], Rule]:
    """Make a rule of the decorated function, which yields the places where it is broken."""
    return lambda look: Rule(id=name, harm=harm, summary=summary, why=why, live=live, look=look)
