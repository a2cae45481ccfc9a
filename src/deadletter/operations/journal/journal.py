"""What can be asked of the desk's journal, and what is answered. Every answer is JSON as it stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from deadletter.store.journal.answers import KeptAnswer
from deadletter.store.journal.audit_list import AuditEntry, AuditQuery
from deadletter.store.journal.door_store import KnownKey
from deadletter.store.journal.instances import InstanceSeen
from deadletter.store.journal.samples import QueueSeries
from deadletter.store.journal.view_table import SavedView

THERE_MS: Final = 150_000
"""Who was seen within this is there: an instance says so every minute."""
POINTS: Final = 500
"""So many points a chart has, at most;"""
QUEUES: Final = 100
"""and so many queues are told at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditPage:
    """The newest first. `more`: where to go on; None: that was all."""

    entries: tuple[AuditEntry, ...]
    more: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleQuery:
    """How queues were between two moments. `points`: about so many of each. `after`: go on after so many
    queues."""

    vhost: str | None = None
    queue: str | None = None
    from_ms: int | None = None
    """None: a day before `until_ms`."""
    until_ms: int | None = None
    """None: now."""
    points: int = 120
    after: int = 0
    limit: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplePage:
    """Each point is about `step_ms`; where nobody sampled there is none. `more`: where to go on."""

    from_ms: int
    until_ms: int
    step_ms: int
    queues: tuple[QueueSeries, ...]
    more: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceTold(InstanceSeen):
    """`there`: it was seen within the last minutes."""

    there: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class InstancesTold:
    """Instances that use this store, of the last day; those seen last first."""

    instances: tuple[InstanceTold, ...]


class Journal(Protocol):
    async def instances(self) -> InstancesTold: ...

    async def audit(self, query: AuditQuery) -> AuditPage: ...

    async def samples(self, query: SampleQuery) -> SamplePage: ...

    async def noted(self, who: str, action: str, detail: Mapping[str, object]) -> None:
        """Write down what somebody did that the store does not see: to the broker, say."""
        ...

    async def revision(self) -> str:
        """Another one as soon as anything in the store changed, whoever changed it."""
        ...

    # -- requests that come twice ------------------------------------------------------------------------
    async def take_key(self, actor: str, key: str, digest: str) -> KeptAnswer | None:
        """None: the key is whose who asks; else what is known of the request that had it."""
        ...

    async def keep_answer(self, actor: str, key: str, *, status: int, kind: str, body: bytes) -> None: ...

    async def give_up_key(self, actor: str, key: str) -> None: ...

    # -- views -------------------------------------------------------------------------------------------
    async def views(self, owner: str, *, others: bool) -> tuple[SavedView, ...]:
        """Their own first. `others`: also what others share."""
        ...

    async def save_view(self, view: SavedView) -> SavedView:
        """In place of theirs of this name."""
        ...

    async def remove_view(self, owner: str, name: str) -> SavedView:
        """NotStored: they have none of this name."""
        ...

    # -- the door ----------------------------------------------------------------------------------------
    async def end_session(self, session: str, until_ms: int) -> None:
        """For every instance, until it would be over by itself."""
        ...

    async def ended_sessions(self) -> frozenset[str]: ...

    async def keys_seen(self, now: Sequence[KnownKey], *, who: str) -> None:
        """These tokens are in force; what came, changed or went is written down."""
        ...
