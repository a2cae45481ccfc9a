"""Many letters come from one state into another, and the tallies follow: by the database alone.

A replay does this with each of its letters twice. Rows that come to us and tallies that go back cost more
than the change itself; so what is known of them stays there, and only their numbers come, as one text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.store.letters.letter_rows import TALLIED, some_of
from deadletter.store.letters.letter_tables import RowState

_TALLIES: Final = "INSERT INTO deadletter_tallies (group_id, vhost, queue, state, letters, bytes) "
_STATES: Final = "(SELECT {before} AS state, -1 AS sign UNION ALL SELECT {after}, 1) s"
# On PostgreSQL everybody in the same order; and nobody waits who only has to know that a letter is there.
# By their numbers alone: a database that is asked for more may look at all letters to find these.
_POSTGRES: Final = (
    "WITH held AS MATERIALIZED (SELECT id, state, copy_of FROM deadletter_letters "  # noqa: S608 -- ours
    "WHERE id = ANY(CAST(string_to_array(:some, ',') AS bigint[])) ORDER BY id FOR NO KEY UPDATE), "
    "changed AS (UPDATE deadletter_letters l SET state = {after} FROM held "
    "WHERE l.id = held.id AND held.state = {before} AND held.copy_of IS NULL "
    "RETURNING l.id, l.group_id, l.vhost, l.queue, l.bytes), "
    "places AS (SELECT group_id, vhost, queue, count(*) AS letters, sum(bytes) AS bytes "
    "FROM changed GROUP BY 1, 2, 3), "
    f"tallied AS ({_TALLIES} SELECT group_id, vhost, queue, s.state, s.sign * letters, s.sign * bytes "
    f"FROM places CROSS JOIN {_STATES} ORDER BY 1, 2, 3, 4 {TALLIED}) "
    "SELECT string_agg(CAST(id AS text), ',') FROM changed"
)
_MINE: Final = "{column} IN (SELECT value FROM json_each(:some))"
_SQLITE: Final = (
    "SELECT group_concat(id) FROM deadletter_letters "  # noqa: S608 -- names of ours
    f"WHERE {_MINE.format(column='id')} AND +state = {{before}} AND +copy_of IS NULL"
)
_SQLITE_TALLIES: Final = (
    f"{_TALLIES} SELECT group_id, vhost, queue, s.state, "  # noqa: S608 -- names of ours
    f"s.sign * count(*), s.sign * sum(bytes) FROM deadletter_letters l, {_STATES} "
    f"WHERE {_MINE.format(column='l.id')} GROUP BY 1, 2, 3, 4 {TALLIED}"
)


async def changed(
    connection: AsyncConnection, some: Sequence[int], before: RowState, after: RowState
) -> list[int]:
    """Those of these letters that really were in that state and are in the other one now, in their order;
    their copies go with them."""
    states = {"before": before.value, "after": after.value}
    told = {"some": some_of(connection, some)}
    if connection.dialect.name == "postgresql":
        gone = await connection.scalar(text(_POSTGRES.format(**states)), told)
        copies = "copy_of = ANY(CAST(string_to_array(:some, ',') AS bigint[]))"
    else:
        gone = await connection.scalar(text(_SQLITE.format(**states)), told)
        copies = _MINE.format(column="copy_of")
    if not gone:
        return []
    numbers = json.loads(f"[{gone}]")
    mine = {"some": some_of(connection, numbers)}
    change = f"UPDATE deadletter_letters SET state = {after.value} WHERE "  # noqa: S608 -- names of ours
    if connection.dialect.name != "postgresql":
        await connection.execute(text(_SQLITE_TALLIES.format(**states)), mine)
        await connection.execute(text(change + _MINE.format(column="id")), mine)
    await connection.execute(text(change + copies), mine)
    return sorted(numbers)
