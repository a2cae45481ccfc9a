"""Rows of letters as lists show them: nothing of a letter is unpacked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import bindparam, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.core.grouping.letter_query import LetterOrder, LetterState
from deadletter.store.letters.letter_ids import id_of
from deadletter.store.letters.letter_rows import ASKED_AT_ONCE
from deadletter.store.letters.letter_tables import RowState, groups, letters, names
from deadletter.store.letters.letter_views import LetterRow

ROW_STATES: Final = {
    LetterState.OPEN: RowState.OPEN,
    LetterState.DISCARDED: RowState.DISCARDED,
    LetterState.CLAIMED: RowState.CLAIMED,
    LetterState.REPLAYED: RowState.REPLAYED,
}
_STATES: Final = {kept.value: state for state, kept in ROW_STATES.items()}
_vhost = names.alias("vhost_name")
_queue = names.alias("queue_name")
_origin = names.alias("origin_name")
_cause = names.alias("cause_name")
_type = names.alias("type_name")
_key = names.alias("key_name")
_copy = letters.alias("copy")
_COPIES: Final = (
    select(func.count()).select_from(_copy).where(_copy.c.copy_of == letters.c.id).scalar_subquery()
)
_ROWS: Final = (
    select(
        letters.c.id,
        letters.c.same,
        _vhost.c.name.label("vhost"),
        _queue.c.name.label("queue"),
        _origin.c.name.label("origin"),
        func.coalesce(groups.c.merged_into, groups.c.id).label("group"),
        letters.c.state,
        _cause.c.name.label("cause"),
        letters.c.attempt,
        letters.c.died_ms,
        letters.c.stored_ms,
        letters.c.bytes,
        letters.c.message_id,
        _type.c.name.label("type"),
        _key.c.name.label("routing_key"),
        letters.c.error,
        _COPIES.label("copies"),
    )
    .select_from(letters)
    .join(groups, groups.c.id == letters.c.group_id)
    .join(_vhost, _vhost.c.id == letters.c.vhost)
    .join(_queue, _queue.c.id == letters.c.queue)
    .join(_origin, _origin.c.id == groups.c.origin)
    .join(_cause, _cause.c.id == letters.c.cause)
    .join(_type, _type.c.id == letters.c.type)
    .join(_key, _key.c.id == letters.c.routing_key)
)


async def rows_of(
    connection: AsyncConnection, ids: Sequence[int], order: LetterOrder = LetterOrder.NEWEST
) -> tuple[LetterRow, ...]:
    """The rows of these letters."""
    found: list[LetterRow] = []
    asked = _ROWS.where(letters.c.id.in_(bindparam("some", expanding=True)))
    for start in range(0, len(ids), ASKED_AT_ONCE):
        rows = await connection.execute(asked, {"some": list(ids[start : start + ASKED_AT_ONCE])})
        found += [_row(row) for row in rows]
    found.sort(key=lambda row: row.id, reverse=order is LetterOrder.NEWEST)
    return tuple(found)


def _row(row: Any) -> LetterRow:
    told = dict(row._mapping)  # noqa: SLF001 -- SQLAlchemy's public name for it
    same = bytes(told.pop("same"))
    return LetterRow(**{**told, "letter_id": id_of(same), "state": _STATES[told["state"]]})
