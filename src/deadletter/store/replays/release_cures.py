"""Which release cured a group: one of its service, told after it failed last and before a replay began that
brought nothing of it back. Within the caller's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.store.groups.group_services import services_of
from deadletter.store.letters.letter_tables import groups
from deadletter.store.replays.deploy_table import Deploy, deploy_of
from deadletter.store.replays.replay_tables import deploys

_LOOKED_AT: Final = 1_000
"""So many releases are looked at, the newest first."""


async def cured_by(connection: AsyncConnection, replay: Any, some: Sequence[int]) -> dict[int, Deploy]:
    """By group; those that no release cured are not among them. Of several releases the newest."""
    if replay.began_ms is None or not some:
        return {}
    told = select(deploys).where(deploys.c.at_ms <= replay.began_ms)
    rows = await connection.execute(told.order_by(deploys.c.id.desc()).limit(_LOOKED_AT))
    newest: dict[str, Deploy] = {}
    for row in rows:
        newest.setdefault(row.service, deploy_of(row))
    if not newest:
        return {}
    failed = {group: await _failed_ms(connection, group) for group in some}
    last_ms = max(one.at_ms for one in newest.values())
    late = [group for group in some if last_ms > failed[group]]
    found = {group: newest.get(service) for group, service in (await services_of(connection, late)).items()}
    return {group: one for group, one in found.items() if one is not None and one.at_ms > failed[group]}


async def _failed_ms(connection: AsyncConnection, group: int) -> int:
    of = or_(groups.c.id == group, groups.c.merged_into == group)
    return int(await connection.scalar(select(func.max(groups.c.last_ms)).where(of)) or 0)
