"""What can be asked about policies, and what is answered. Every answer is JSON as it stands."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from deadletter.core.access.field_masks import NO_MASKS, FieldMasks


class PolicyFrom(StrEnum):
    TABLE = "table"
    """A row of `dlq_event_config` in the store."""
    FILE = "file"


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchTold:
    """Which letters; what is empty asks for nothing."""

    queue: str | None
    routing_key: str | None
    reason: tuple[str, ...]
    error_type: tuple[str, ...]
    header: dict[str, str]
    content_type: str | None
    body: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TreatmentTold:
    """For letters of these errors (of none: of all others): the retry after each failure may wait any of
    these, in milliseconds; the last rung counts for all that follow."""

    error_types: tuple[str, ...]
    retries: int
    rungs_ms: tuple[tuple[int, ...], ...]
    then: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyTold:
    """One policy. The first that fits decides, and the last of them fits everything."""

    name: str
    source: PolicyFrom
    match: MatchTold
    treatments: tuple[TreatmentTold, ...]
    deadline_ms: int | None
    budget_per_minute: int | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTold:
    """A row of the table."""

    routing_key: str
    max_retries: int

    @property
    def version(self) -> str:
        """Another one as soon as anybody changed it."""
        return row_version(self.routing_key, self.max_retries)


def row_version(routing_key: str, max_retries: int | None) -> str:
    """None: there is no such row."""
    return hashlib.sha256(repr((routing_key, max_retries)).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowRemoved:
    routing_key: str
    removed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PoliciesTold:
    """In the order in which they are asked."""

    policies: tuple[PolicyTold, ...]
    rows: tuple[RowTold, ...]
    file: str | None
    store: str | None
    store_error: str | None
    ignored: tuple[str, ...]
    """Rows that are not in force, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsideredTold:
    policy: str
    refusal: str | None
    """Why it did not apply; None: it decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTold:
    """One verdict, so long from now if every retry fails at once."""

    after_ms: int
    decision: str
    attempt: int
    policy: str | None
    cause: str | None
    why: str
    delay_ms: int | None
    choices_ms: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplanationTold:
    """What the policies in force would do to a stored letter that goes back to its origin and fails again."""

    letter: int
    provenance: str
    origin: str | None
    reason: str | None
    error_type: str | None
    attempt: int
    """Retries that it had."""
    considered: tuple[ConsideredTold, ...]
    schedule: str
    steps: tuple[StepTold, ...]
    left_out: int
    """So many steps are not listed; the last one always is."""


class Rulebook(Protocol):
    async def policies(self) -> PoliciesTold: ...

    async def explain(self, letter: str, masks: FieldMasks = NO_MASKS) -> ExplanationTold:
        """NotStored: there is no such letter. `masks`: what is decided by, but not told."""
        ...

    async def row(self, routing_key: str) -> RowTold:
        """NotStored: there is none."""
        ...

    async def set_row(self, routing_key: str, max_retries: int, *, who: str, version: str = "") -> RowTold:
        """`version`: of the row as it was looked at; ChangedMeanwhile where it is another one now."""
        ...

    async def remove_row(self, routing_key: str, *, who: str, version: str = "") -> RowRemoved: ...
