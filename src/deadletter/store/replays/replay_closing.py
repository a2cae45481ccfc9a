"""The end of a replay, and what it means for the groups of its letters. Within the caller's transaction."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.core.grouping.group_states import GroupState
from deadletter.core.replaying.replay_plan import selection_from
from deadletter.core.replaying.replay_states import ReplayState, SentState
from deadletter.errors import NotAllowed, NotStored
from deadletter.store.groups import group_changes, group_table
from deadletter.store.letters import letter_changes
from deadletter.store.letters.letter_tables import RowState, groups, letters, tallies
from deadletter.store.replays.deploy_table import Deploy
from deadletter.store.replays.replay_tables import replay_letters, replays
from deadletter.store.replays.replay_views import ReplayView

RESOLVED_BY_RELEASE: Final = "resolved by release"
_WENT_WELL: Final = (SentState.DONE.value, SentState.QUIET.value)


async def groups_of(connection: AsyncConnection, replay: int) -> dict[int, bool]:
    """The groups of its letters, and whether all of each went and none came back."""
    root = func.coalesce(groups.c.merged_into, groups.c.id)
    asked = (
        select(root, replay_letters.c.state, func.count())
        .select_from(replay_letters)
        .join(letters, letters.c.id == replay_letters.c.letter)
        .join(groups, groups.c.id == letters.c.group_id)
        .where(replay_letters.c.replay == replay)
        .group_by(root, replay_letters.c.state)
    )
    went, others = Counter[int](), Counter[int]()
    for group, state, number in await connection.execute(asked):
        (went if state in _WENT_WELL else others)[int(group)] += int(number)
    return {group: not others[group] for group in (*went, *others)}


def is_over(view: ReplayView) -> bool:
    """Whether nothing waits and every outcome is known, and it has not ended yet."""
    awaited = view.counts.waiting + view.counts.sending + view.counts.sent
    is_at_work = view.state in (ReplayState.RUNNING, ReplayState.STOPPED, ReplayState.CANCELLED)
    return not awaited and is_at_work and view.ended_ms is None


async def close(
    connection: AsyncConnection,
    row: Any,
    cured: dict[int, bool],
    releases: Mapping[int, Deploy],
    *,
    now_ms: int,
) -> None:
    """It has ended, and so have those of its groups of which all went well. `releases`: what cured them."""
    ends = ReplayState.DONE.value if row.state == ReplayState.RUNNING else row.state
    values = {"state": ends, "ended_ms": now_ms, "holder": "", "held_until_ms": 0}
    if ends == ReplayState.DONE:
        values["told"] = ""
    await connection.execute(update(replays).where(replays.c.id == row.id).values(**values))
    for number, went_well in sorted(cured.items()):
        if went_well:
            await _close_group(connection, row, number, releases.get(number), now_ms)


async def _close_group(
    connection: AsyncConnection, row: Any, number: int, release: Deploy | None, now_ms: int
) -> None:
    """One that is resolved is closed: nothing of it is left and nothing came back. One that is open is
    resolved, where a release cured it or the person who started the replay asked for that. One with letters
    that this person does not see stays as it is: they could not say it either."""
    group = await group_table.group_of(connection, str(number), now_ms=now_ms)
    if group.open or await _claimed(connection, number) or not await _is_theirs(connection, row, group.id):
        return
    if group.state is GroupState.RESOLVED:
        action = "closed"
    elif group.state is GroupState.OPEN and (row.resolves or release is not None):
        action = GroupState.RESOLVED.value if release is None else RESOLVED_BY_RELEASE
        await group_changes.set_state(connection, group, GroupState.RESOLVED, now_ms=now_ms, until_ms=None)
    else:
        return
    detail: dict[str, object] = {"group": number, "replay": row.id}
    if release is not None:
        detail |= {"service": release.service, "release": release.release}
        by = f"{RESOLVED_BY_RELEASE} {release.release} of {release.service}"
        said = f"{by}: nothing of replay {row.id} came back"
        await group_changes.add_note(connection, group, said, author=row.who, now_ms=now_ms)
    await letter_changes.noted(
        connection, who=row.who, action=action, detail=json.dumps(detail), now_ms=now_ms
    )


async def _is_theirs(connection: AsyncConnection, row: Any, group: int) -> bool:
    """Whether whoever started this replay sees all of a group."""
    scope = selection_from(json.loads(row.selection)).scope
    try:
        await group_table.own_group(connection, str(group), now_ms=0, scope=scope)
    except (NotStored, NotAllowed):
        return False
    return True


async def _claimed(connection: AsyncConnection, group: int) -> bool:
    """Whether another replay has letters of it, or of those that were merged into it: they may stay."""
    members = select(groups.c.id).where(or_(groups.c.id == group, groups.c.merged_into == group))
    asked = select(func.coalesce(func.sum(tallies.c.letters), 0)).where(
        tallies.c.group_id.in_(members), tallies.c.state == RowState.CLAIMED.value
    )
    return bool(await connection.scalar(asked))
