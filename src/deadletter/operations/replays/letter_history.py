"""What the store knows of letters before a replay: whether one sent them before, in which releases they
failed and what was deployed since, whether they make copies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from deadletter.core.deciding.failure import read_failure
from deadletter.core.grouping.letter_query import LetterOrder, LetterQuery
from deadletter.core.grouping.stored_letter import read_inside
from deadletter.core.letter import names
from deadletter.core.replaying.preflight import Deployed
from deadletter.operations.records.exact_letters import PORTION_BYTES
from deadletter.store.finding.searching import Where
from deadletter.store.letters.letter_store import LetterStore
from deadletter.store.replays.deploy_table import DeployStore
from deadletter.store.replays.replay_store import ReplayStore

LOOKED_AT: Final = 200
"""So many letters are looked into, those that came last."""
_COPYING: Final = frozenset({"CC", "BCC", names.CC, names.BCC})


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterHistory:
    """Of as many letters as were looked at: `preflight.ReplayFacts` says what each means."""

    looked_at: int = 0
    copied: int = 0
    replayed_before: int = 0
    most_replays: int = 0
    failing_releases: tuple[str, ...] = ()
    deployed: tuple[Deployed, ...] = ()


async def history_of(store: LetterStore, query: LetterQuery, *, where: Where | None = None) -> LetterHistory:
    """Of letters of this selection."""
    newest = replace(query, order=LetterOrder.NEWEST, limit=LOOKED_AT, after=None)
    rows = (await store.find(newest, where=where)).letters
    if not rows:
        return LetterHistory()
    found = await store.whole([row.id for row in rows], most_bytes=PORTION_BYTES)
    copied = 0
    failed: dict[str, int] = {}
    releases: dict[str, None] = {}
    for row in rows:
        letter, _ = found.get(row.id, (None, None))
        if letter is None:
            continue
        read = read_inside(letter)
        copied += not _COPYING.isdisjoint(read.headers)
        failure = read_failure(read.headers, read.body)
        service = (failure.service if failure is not None else None) or row.origin
        failed[service] = max(failed.get(service, 0), row.died_ms)
        if failure is not None and failure.release:
            releases[failure.release] = None
    again = await ReplayStore(store).came_back({row.letter_id for row in rows})
    return LetterHistory(
        looked_at=len(found),
        copied=copied,
        replayed_before=sum(row.letter_id in again for row in rows),
        most_replays=max(again.values(), default=0),
        failing_releases=tuple(sorted(releases)),
        deployed=await _deployed(store, failed.items()),
    )


async def _deployed(store: LetterStore, failed: Iterable[tuple[str, int]]) -> tuple[Deployed, ...]:
    """The newest release of each service, and how long after its last failure it was told."""
    told: list[Deployed] = []
    for service, failed_ms in sorted(failed):
        newest = await DeployStore(store).all(service=service, limit=1)
        told += [
            Deployed(service=service, release=one.release, after_ms=one.at_ms - failed_ms) for one in newest
        ]
    return tuple(told)
