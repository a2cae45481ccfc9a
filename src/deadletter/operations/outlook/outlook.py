"""What can be asked about a broker, and what is answered. Every answer is JSON as it stands.

`vhost` empty: the broker's own. UsageError for one that the service does not look after.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, Protocol

from deadletter.doctor.finding import Finding
from deadletter.drawing.graph import Arrow, DrawnNode
from deadletter.operations.queue_list import Growth
from deadletter.operations.waiting import LetOut, WaitingChoice, WaitingKind, WaitingQueue

LOOKED_AT: Final = 1_000
"""So many letters of each queue are read by one look at what waits, at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingTold:
    """What waits. `looked_at` letters were read, and the kinds are of those; `at_ms`: when that was."""

    vhost: str
    at_ms: int
    letters: int
    queues: tuple[WaitingQueue, ...]
    kinds: tuple[WaitingKind, ...]
    looked_at: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueTold:
    """One queue. null: nobody told. As `dlq queues --json` tells it."""

    name: str
    type: str | None
    ready: int
    unacked: int | None
    messages: int | None
    consumers: int
    oldest_s: float | None
    """Estimated, by the timestamp that the publisher wrote."""
    in_per_s: float | None
    out_per_s: float | None
    dead_from: tuple[str, ...] | None
    ours: bool
    watch: int | None
    watch_mode: str
    taken: bool
    stored: int | None
    growing_since: datetime | None
    growth: Growth | None
    dead: bool
    """Whether dead letters come here, as far as is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuePage:
    """By name. `more`: where to go on; None: that was all."""

    vhost: str
    queues: tuple[QueueTold, ...]
    notes: tuple[str, ...]
    """What is not known, and why."""
    more: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingsTold:
    """What the doctor found at his last look at this vhost. `at_ms` None: nobody looked yet."""

    vhost: str
    at_ms: int | None
    seconds: float
    version: str
    """Of RabbitMQ."""
    queues: int
    exchanges: int
    bindings: int
    findings: tuple[Finding, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyTold:
    """The picture of a vhost before anybody thinks about where things stand."""

    vhost: str
    version: str
    nodes: tuple[DrawnNode, ...]
    arrows: tuple[Arrow, ...]


class Drawing(StrEnum):
    SVG = "svg"
    MERMAID = "mermaid"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueQuery:
    """Which queues. `*` in a name stands for any run. `after`: go on after so many."""

    vhost: str = ""
    names: tuple[str, ...] = ()
    dead: bool = False
    """Only those into which dead letters come."""
    after: int = 0
    limit: int = 100


class Outlook(Protocol):
    def vhosts(self) -> tuple[str, ...]:
        """Those that the service looks after."""
        ...

    async def waiting(self, choice: WaitingChoice, *, vhost: str, most: int) -> WaitingTold:
        """What waits. `most`: so many letters of each queue are read, taken and given back; 0: none is."""
        ...

    async def let_out(self, choice: WaitingChoice, *, vhost: str, park: str | None) -> LetOut:
        """Send home now what matches; with `park`, the reason, park it. One at a time."""
        ...

    async def queues(self, query: QueueQuery) -> QueuePage: ...

    async def findings(self, *, vhost: str) -> FindingsTold:
        """As the doctor saw it last; nobody is asked."""
        ...

    async def examine(self, *, vhost: str) -> FindingsTold:
        """Have the doctor look now; whoever asks while he does has the same answer."""
        ...

    async def topology(self, *, vhost: str, around: tuple[str, ...]) -> TopologyTold: ...

    async def drawn(self, *, vhost: str, around: tuple[str, ...], form: Drawing) -> str: ...
