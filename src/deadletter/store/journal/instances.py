"""The instances of the service that use this store: each says now and then that it is there. All within the
caller's transaction."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Final

from sqlalchemy import delete, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.store.journal.journal_tables import instances
from deadletter.store.letters.letter_rows import clean

KEPT_MS: Final = 24 * 60 * 60 * 1000
_MOST: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceSeen:
    """One instance, as it said when it was seen last."""

    name: str
    broker: str
    broker_version: str
    """Empty: it has not reached it."""
    version: str
    stage: str
    started_ms: int
    seen_ms: int


async def put(connection: AsyncConnection, one: InstanceSeen) -> None:
    """In place of what it said before; who said nothing for a day is forgotten."""
    gone = (instances.c.name == clean(one.name)) | (instances.c.seen_ms < one.seen_ms - KEPT_MS)
    await connection.execute(delete(instances).where(gone))
    told = {key: clean(value) if isinstance(value, str) else value for key, value in asdict(one).items()}
    await connection.execute(insert(instances).values(told))


async def listed(connection: AsyncConnection) -> list[InstanceSeen]:
    """Those seen last first."""
    asked = select(instances).order_by(instances.c.seen_ms.desc(), instances.c.name).limit(_MOST)
    return [InstanceSeen(**row._mapping) for row in await connection.execute(asked)]  # noqa: SLF001 -- its name
