"""What the desk needs from the service: its state as values, and a way to ask for a sweep.

These values are the JSON of `/api/status` and `/api/sweeps`, field by field; times are in UTC.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStatus:
    """A queue that a watch takes care of, or one of ours (then `mode` is empty)."""

    queue: str
    vhost: str
    """Empty where nobody said it."""
    mode: str
    depth: int
    consumers: int
    growth_per_s: float
    growing_since: datetime | None
    """Since it was seen to get longer, by this instance, without falling back; None: it was not."""
    oldest_s: float | None
    last_sweep_at: datetime | None
    last_sweep: str
    """What it did, in a sentence; empty before the first."""
    next_sweep_at: datetime | None
    held_by: str
    """Of a queue of held letters: the guard that keeps them, and why; else empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchStatus:
    """A watch as it is configured; `queues` are those its pattern names now."""

    dlq: str
    vhost: str
    mode: str
    layout: str
    queues: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GateStatus:
    gate: str
    origin: str
    guard: str
    state: str
    why: str
    since: datetime
    held: int
    """Letters that wait for it in `held_in`, as far as was seen."""
    held_in: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseStatus:
    lease: str
    held: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetStatus:
    """`policy` is empty for the budget over all."""

    policy: str
    used: int
    limit: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyStatus:
    """How many policies are in force, where they come from, and which rows were ignored."""

    count: int
    where: str
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TroubleStatus:
    what: str
    why: str
    since: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingStatus:
    rule: str
    subject: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The service now."""

    instance: str
    version: str
    stage: str
    broker: str
    broker_version: str
    """Empty until it has been reached once."""
    started_at: datetime
    uptime_s: float
    watches: tuple[WatchStatus, ...]
    queues: tuple[QueueStatus, ...]
    gates: tuple[GateStatus, ...]
    """Those that are not open."""
    leases: tuple[LeaseStatus, ...]
    budgets: tuple[BudgetStatus, ...]
    policies: PolicyStatus
    findings: tuple[FindingStatus, ...]
    troubles: tuple[TroubleStatus, ...]


class SweepState(StrEnum):
    SWEPT = "swept"
    """Done; the numbers say what was done."""
    STARTED = "started"
    """Under way, or about to be."""
    ELSEWHERE = "elsewhere"
    """Another instance does it."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepAnswer:
    """What became of one wish for a sweep."""

    dlq: str
    state: SweepState
    seen: int = 0
    moved: int = 0
    left: int = 0
    failed: int = 0
    seconds: float = 0.0
    why: str = ""
    """Why it failed, who does it, or which gates keep what is left."""


def anywhere(_vhost: str) -> bool:
    return True


class ServiceView(Protocol):
    """The service, seen from the desk."""

    async def sweep(
        self, dlqs: Sequence[str], *, in_vhost: Callable[[str], bool] = anywhere
    ) -> list[SweepAnswer]:
        """One answer per queue. None named: all whose watch does not consume. A name is swept in each vhost
        that has it, of those that `in_vhost` says.

        UsageError for a name that no watch takes care of there, before anything is swept.
        """
        ...

    def status(self) -> Status: ...
