"""Two people on one group: whoever looked at it before the other changed it is told so."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.core.access.scope import WHOLE, Scope
from deadletter.errors import ChangedMeanwhile
from deadletter.store.groups.group_table import group_of
from deadletter.store.letters.letter_tables import audit, groups
from deadletter.store.letters.letter_views import GroupView


async def unchanged_group(
    connection: AsyncConnection, found: GroupView, version: str, *, now_ms: int, scope: Scope = WHOLE
) -> GroupView:
    """The group as it is, once nobody else can change it any more. ChangedMeanwhile unless it has this
    version; empty: any."""
    if not version:
        return found
    # On PostgreSQL somebody may have changed it while we waited for the lock: so it is read behind that.
    locked = select(groups.c.id).where(groups.c.id == found.id)
    await connection.execute(locked.with_for_update(key_share=True))
    group = await group_of(connection, str(found.id), now_ms=now_ms, scope=scope)
    if group.version == version:
        return group
    asked = select(audit.c.who, audit.c.action).where(audit.c.group_id == group.id)
    last = (await connection.execute(asked.order_by(audit.c.id.desc()).limit(1))).first()
    said = f"; last was {last.who}: {last.action}" if last is not None else ""
    raise ChangedMeanwhile(
        f"group {group.id} is no longer as you saw it: it is {group.state.value}, "
        f"{group.category.value}{said}; look again, nothing was changed"
    )
