"""Letters of replays found by their id: those that come back, and those a consumer is done with.

A letter that a replay sent says so in a header, which comes back with it; where that is gone, its id is
enough while its outcome is waited for. Within the transaction that stores it: it is never back and not told.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.core.grouping.stored_letter import StoredLetter
from deadletter.core.letter import header_values, names
from deadletter.core.replaying.replay_states import SentState
from deadletter.errors import MessageError
from deadletter.store.letters.letter_ids import id_of
from deadletter.store.letters.letter_rows import ASKED_AT_ONCE, span_of
from deadletter.store.replays.replay_rows import held_rows, put_into, seen_state

_REPLAY: Final = frozenset({names.REPLAY.encode()})
_AWAITED: Final = (SentState.SENDING, SentState.SENT)
_LATE: Final = (SentState.QUIET, SentState.DONE)
_ANY_REPLAY: Final = text(
    "SELECT max(id), EXISTS (SELECT 1 FROM deadletter_replays WHERE ended_ms IS NULL) FROM deadletter_replays"
)
_POSTGRES: Final = (
    "SELECT l.same, r.replay, r.letter, r.state, p.marked_to, r.doubtful, r.sent_ms "
    "FROM unnest($1::bytea[], $2::bytea[]) AS w(first, last) CROSS JOIN LATERAL "
    "(SELECT same, id FROM deadletter_letters WHERE same BETWEEN w.first AND w.last "
    "ORDER BY same LIMIT 1000) l "
    "JOIN deadletter_replay_letters r ON r.letter = l.id "
    "JOIN deadletter_replays p ON p.id = r.replay"
)
_SQLITE: Final = (
    "WITH w(first, last) AS (VALUES {wanted}) "
    "SELECT l.same, r.replay, r.letter, r.state, p.marked_to, r.doubtful, r.sent_ms "
    "FROM w CROSS JOIN deadletter_letters l ON l.same BETWEEN w.first AND w.last "
    "CROSS JOIN deadletter_replay_letters r ON r.letter = l.id "
    "CROSS JOIN deadletter_replays p ON p.id = r.replay"
)


class Visit(NamedTuple):
    """A letter of an id in a replay."""

    letter_id: str
    replay: int
    letter: int
    state: SentState
    doubtful: bool
    sent_ms: int


async def visits_of(connection: AsyncConnection, ids: Iterable[str]) -> dict[str, list[Visit]]:
    """In which replays letters of these ids are or were; who was sent first comes first."""
    found: dict[str, list[Visit]] = {}
    wanted = sorted(set(ids))
    for start in range(0, len(wanted), ASKED_AT_ONCE):
        some = wanted[start : start + ASKED_AT_ONCE]
        for same, replay, letter, kept, marked_to, doubtful, sent_ms in await _visits(connection, some):
            state = seen_state(kept, letter, marked_to)
            one = Visit(id_of(bytes(same)), replay, letter, state, bool(doubtful), sent_ms)
            found.setdefault(one.letter_id, []).append(one)
    for visits in found.values():
        visits.sort(key=lambda one: (one.sent_ms, one.letter))
    return found


async def _visits(connection: AsyncConnection, some: Sequence[str]) -> list[Any]:
    spans = [span_of(letter_id) for letter_id in some]
    if connection.dialect.name == "postgresql":
        told: tuple[object, ...] = ([first for first, _ in spans], [last for _, last in spans])
        return list(await connection.exec_driver_sql(_POSTGRES, told))
    asked = _SQLITE.format(wanted=", ".join(["(?, ?)"] * len(spans)))
    return list(await connection.exec_driver_sql(asked, tuple(edge for span in spans for edge in span)))


async def mark(
    connection: AsyncConnection, came: Sequence[tuple[int, int, StoredLetter]], *, now_ms: int
) -> int:
    """`came`: the numbers, groups and letters that were stored just now. How many a replay had sent."""
    newest, awaits = (await connection.execute(_ANY_REPLAY)).one()
    if newest is None:
        return 0
    said = [(row, group, one.letter_id, _replay_of(one)) for row, group, one in came]
    asked = {letter_id for _, _, letter_id, replay in said if awaits or replay is not None}
    if not asked:
        return 0
    visits = await visits_of(connection, asked)
    returned: dict[int, dict[int, tuple[int, int]]] = {}
    for row, group, letter_id, replay in said:
        mine = visits.get(letter_id, [])
        fitting = [one for one in mine if _may_be(one, replay)]
        if fitting:
            one = min(fitting, key=lambda fits: fits.state in _LATE)
            mine.remove(one)
            returned.setdefault(one.replay, {})[one.letter] = row, group
    marked = 0
    for replay, some in sorted(returned.items()):
        marked += await _mark(connection, replay, some, now_ms)
    return marked


def _replay_of(one: StoredLetter) -> int | None:
    try:
        return header_values.count(one.letter.select(_REPLAY).get(names.REPLAY))
    except MessageError:
        return None


def _may_be(one: Visit, replay: int | None) -> bool:
    """Whether the letter that came is this one: by its header, or, without any, because it is awaited."""
    if replay is None:
        return one.state in _AWAITED
    is_out = one.state in (*_AWAITED, *_LATE) or (one.state is SentState.WAITING and one.doubtful)
    return one.replay == replay and is_out


async def _mark(
    connection: AsyncConnection, replay: int, some: dict[int, tuple[int, int]], now_ms: int
) -> int:
    rows = [
        one
        for one in await held_rows(connection, replay, some)
        if one.state in (*_AWAITED, *_LATE) or (one.state is SentState.WAITING and one.doubtful)
    ]
    await put_into(connection, replay, rows, SentState.RETURNED, values={"ended_ms": now_ms})
    if rows:
        await connection.execute(
            text(
                "UPDATE deadletter_replay_letters SET returned_letter = :row, returned_group = :group_id "
                "WHERE replay = :replay AND letter = :letter"
            ),
            [
                {
                    "row": some[one.letter][0],
                    "group_id": some[one.letter][1],
                    "replay": replay,
                    "letter": one.letter,
                }
                for one in rows
            ],
        )
    return len(rows)
