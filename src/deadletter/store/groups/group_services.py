"""Which service the letters of a group failed in. Within the caller's transaction.

A group tells no service of its own; its newest letter does, as the framework that handled it wrote. Of one
that names none the origin counts: a queue is often called as the service that consumes it.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.core.deciding.failure import read_failure
from deadletter.core.grouping.stored_letter import read_inside
from deadletter.store.letters.letter_contents import contents_of
from deadletter.store.letters.letter_tables import groups, letters, names


async def services_of(connection: AsyncConnection, some: Sequence[int]) -> dict[int, str]:
    """By group. A group stands for those that were merged into it."""
    return {group: await _service_of(connection, group) for group in some}


async def _service_of(connection: AsyncConnection, group: int) -> str:
    members = select(groups.c.id).where(or_(groups.c.id == group, groups.c.merged_into == group))
    newest = [
        await connection.scalar(
            select(letters.c.id).where(letters.c.group_id == int(one)).order_by(letters.c.id.desc()).limit(1)
        )
        for (one,) in (await connection.execute(members)).all()
    ]
    found = await contents_of(connection, sorted(one for one in newest if one is not None)[-1:])
    for letter in found.values():
        read = read_inside(letter)
        failure = read_failure(read.headers, read.body)
        if failure is not None and failure.service:
            return failure.service
    asked = select(names.c.name).join(groups, groups.c.origin == names.c.id).where(groups.c.id == group)
    return str(await connection.scalar(asked) or "")
