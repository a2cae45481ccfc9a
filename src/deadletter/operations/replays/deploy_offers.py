"""Which open groups a release may have cured: those whose letters say that they failed in its service."""

from __future__ import annotations

from typing import Final

from deadletter.core.grouping.group_query import GroupQuery
from deadletter.operations.replays.replay_told import OfferedGroup
from deadletter.store.letters.letter_store import LetterStore
from deadletter.store.replays.deploy_table import DeployStore

LOOKED_AT: Final = 500
"""So many open groups are looked at, those that failed last first."""
NOTED_MS: Final = 24 * 3_600_000
"""A release that was told longer ago is no news."""


async def offered(store: LetterStore, service: str) -> tuple[OfferedGroup, ...]:
    """Open groups of this service that have letters."""
    found = [group for group in await store.groups(GroupQuery(limit=LOOKED_AT)) if group.open]
    services = await store.services([group.id for group in found])
    mine = [group for group in found if services[group.id] == service]
    releases = await store.releases([group.id for group in mine]) if mine else {}
    return tuple(
        OfferedGroup(
            group=group.id,
            title=group.title,
            origin=group.origin,
            open=group.open,
            release=releases.get(group.id, ""),
        )
        for group in mine
    )


async def note_offers(store: LetterStore, *, after: int) -> int:
    """Every open group of a service of which a release was told gets a note: a canary is offered. `after`:
    deploys up to this one were looked at; returns up to which they are now. A group gets each note once."""
    since_ms = store.now_ms() - NOTED_MS
    told = await DeployStore(store).all(since_ms=since_ms, limit=LOOKED_AT)
    for deploy in reversed([one for one in told if one.id > after]):
        for group in await offered(store, deploy.service):
            detail = await store.group(str(group.group))
            text = (
                f"release {deploy.release} of {deploy.service} was told (deploy {deploy.id}): "
                f"dlq replay --group {group.group} --pace canary tries it"
            )
            if detail.group.last_ms <= deploy.at_ms:
                await store.add_note(str(group.group), text, who=deploy.who, once=True)
    return max([after, *(one.id for one in told)])
