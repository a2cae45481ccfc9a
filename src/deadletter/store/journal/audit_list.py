"""The audit, read: who did what, the newest first."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.core.grouping.letter_query import MAX_LIMIT
from deadletter.store.letters.letter_rows import clean
from deadletter.store.letters.letter_tables import audit, steps


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditQuery:
    """Which entries: all of it must hold. `after`: go on after this one."""

    who: str | None = None
    action: str | None = None
    letter: int | None = None
    group: int | None = None
    replay: int | None = None
    from_ms: int | None = None
    until_ms: int | None = None
    after: int | None = None
    limit: int = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """Somebody did something. `detail` is what was written down of it."""

    id: int
    at_ms: int
    who: str
    action: str
    letter: int | None
    group: int | None
    replay: int | None
    detail: dict[str, Any]


async def listed(connection: AsyncConnection, query: AuditQuery) -> list[AuditEntry]:
    """One more than `limit` where there are more."""
    asked = select(audit).where(*_conditions(query))
    if query.letter is not None:
        asked = asked.where(await _about_letter(connection, query.letter))
    asked = asked.order_by(audit.c.id.desc()).limit(min(query.limit, MAX_LIMIT) + 1)
    return [_entry(row) for row in await connection.execute(asked)]


def _conditions(query: AuditQuery) -> list[ColumnElement[bool]]:
    found: list[ColumnElement[bool]] = []
    if query.who is not None:
        found.append(audit.c.who == clean(query.who))
    if query.action is not None:
        found.append(audit.c.action == clean(query.action))
    if query.group is not None:
        found.append(audit.c.group_id == query.group)
    if query.replay is not None:
        found.append(audit.c.replay == query.replay)
    if query.from_ms is not None:
        found.append(audit.c.at_ms >= query.from_ms)
    if query.until_ms is not None:
        found.append(audit.c.at_ms < query.until_ms)
    if query.after is not None:
        found.append(audit.c.id < query.after)
    return found


async def _about_letter(connection: AsyncConnection, letter: int) -> ColumnElement[bool]:
    """Entries of this letter alone, and those of many letters that were a step of it, too."""
    asked = select(steps.c.at_ms, steps.c.step, steps.c.who).where(steps.c.letter == letter)
    taken = [
        (audit.c.at_ms == at_ms) & (audit.c.action == step) & (audit.c.who == who)
        for at_ms, step, who in await connection.execute(asked.order_by(steps.c.id.desc()).limit(MAX_LIMIT))
    ]
    return or_(audit.c.letter == letter, *taken)


def _entry(row: Any) -> AuditEntry:
    try:
        detail = json.loads(row.detail)
    except ValueError:
        detail = {"text": row.detail}
    return AuditEntry(
        id=int(row.id),
        at_ms=int(row.at_ms),
        who=row.who,
        action=row.action,
        letter=row.letter,
        group=row.group_id,
        replay=row.replay,
        detail=detail if isinstance(detail, dict) else {"text": row.detail},
    )
