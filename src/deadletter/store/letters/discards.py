"""Which letters one discard threw away. A person says it once; it may have been many transactions.

Each of them is an entry in the audit, with the name of the run that it is part of. Its letters were changed
in the same millisecond, and the step of each says by whom.
"""

from __future__ import annotations

import json
from typing import Any, Final

from sqlalchemy import ColumnElement, false, select
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.store.letters.letter_rows import clean
from deadletter.store.letters.letter_tables import audit, letters, steps
from deadletter.store.letters.letter_views import DiscardTold

STEP: Final = "discarded"
_ENTRIES: Final = 10_000
"""So far back entries of a run are looked for: ten million letters, if somebody does nothing else."""


async def last_discard(connection: AsyncConnection, who: str) -> DiscardTold | None:
    """The last one of this person; None: there was none."""
    asked = select(audit.c.id).where(audit.c.action == STEP, audit.c.who == clean(who))
    number = await connection.scalar(asked.order_by(audit.c.id.desc()).limit(1))
    if number is None:
        return None
    entries = await _entries(connection, int(number))
    return DiscardTold(
        discard=int(number),
        who=who,
        at_ms=min(at_ms for at_ms, _ in entries),
        letters=sum(int(detail.get("letters", 0)) for _, detail in entries),
        why=str(entries[0][1].get("why", "")),
    )


async def thrown_away_by(connection: AsyncConnection, number: int) -> ColumnElement[bool]:
    """What holds of letters that this discard threw away, and that nobody took back."""
    who = await connection.scalar(select(audit.c.who).where(audit.c.id == number, audit.c.action == STEP))
    if who is None:
        return false()
    moments = sorted({at_ms for at_ms, _ in await _entries(connection, number)})
    by_them = select(steps.c.letter).where(
        steps.c.letter == letters.c.id,
        steps.c.at_ms == letters.c.discarded_ms,
        steps.c.step == STEP,
        steps.c.who == who,
    )
    return (
        letters.c.discarded_ms.between(moments[0], moments[-1])
        & letters.c.discarded_ms.in_(moments)
        & by_them.exists()
    )


async def _entries(connection: AsyncConnection, number: int) -> list[tuple[int, dict[str, Any]]]:
    """When each entry of its run was made, and what it says; the last one first."""
    who = select(audit.c.who).where(audit.c.id == number).scalar_subquery()
    asked = select(audit.c.id, audit.c.at_ms, audit.c.detail).where(
        audit.c.id <= number, audit.c.action == STEP, audit.c.who == who
    )
    rows = (await connection.execute(asked.order_by(audit.c.id.desc()).limit(_ENTRIES))).all()
    found = [(int(one.id), int(one.at_ms), json.loads(one.detail)) for one in rows]
    run = found[0][2].get("run")
    return [
        (at_ms, detail) for one, at_ms, detail in found if one == number or (run and detail.get("run") == run)
    ]
