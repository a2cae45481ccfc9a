"""Statements about replays that all of them use. All within the caller's transaction.

Whoever changes a replay or its letters holds the replay's row first, then letters of it in the order of their
numbers, then its counts, then the letters' own rows, then the tallies. Ingest, which marks what came back,
begins with the second. So nobody waits for one who waits for him.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Select, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.core.replaying.replay_pace import ReplayPace, ReplayStage, pace_from
from deadletter.core.replaying.replay_plan import selection_from
from deadletter.core.replaying.replay_states import ReplayState, SentState
from deadletter.core.replaying.replay_target import target_from
from deadletter.errors import NotStored
from deadletter.store.letters.letter_rows import Bulk, among, some_of
from deadletter.store.letters.letter_tables import names
from deadletter.store.replays.replay_tables import replay_counts, replay_letters, replays
from deadletter.store.replays.replay_views import ReplayCounts, ReplayView

_COUNTS: Final = Bulk(
    table="deadletter_replay_counts",
    columns=(("replay", "bigint"), ("state", "smallint"), ("letters", "bigint"), ("doubtful", "bigint")),
    then=(
        "ON CONFLICT (replay, state) DO UPDATE SET "
        "letters = deadletter_replay_counts.letters + excluded.letters, "
        "doubtful = deadletter_replay_counts.doubtful + excluded.doubtful"
    ),
)
_STATES: Final = tuple(SentState)
_WAITING: Final = SentState.WAITING.value
_VIEWS: Final = select(replays, names.c.name.label("vhost_name")).join(names, names.c.id == replays.c.vhost)


class SentRow(NamedTuple):
    """A letter of a replay, as it is now."""

    letter: int
    state: SentState
    doubtful: bool


async def row_of(connection: AsyncConnection, replay: int, *, held: bool = False) -> Any:
    """The row of a replay. `held`: nobody else changes it until we are done. NotStored: there is none."""
    asked = select(replays).where(replays.c.id == replay)
    row = (await connection.execute(asked.with_for_update(key_share=True) if held else asked)).one_or_none()
    if row is None:
        raise _no(replay)
    return row


def _no(replay: int) -> NotStored:
    return NotStored(f"replay {replay}: there is none of this number (dlq replays lists them)")


async def locked(connection: AsyncConnection, replay: int) -> Any:
    """The row of a replay, which nobody else changes until we are done."""
    return await row_of(connection, replay, held=True)


def is_held_by(row: Any, holder: str | None) -> bool:
    """Whether this instance has the lease of a replay; who gives no name does not ask."""
    return holder is None or row.holder == holder


async def view_of(connection: AsyncConnection, replay: int) -> ReplayView:
    """NotStored: there is none."""
    found = await views_of(connection, _VIEWS.where(replays.c.id == replay))
    if not found:
        raise _no(replay)
    return found[0]


def all_views() -> Select[Any]:
    """To be narrowed down, and given to `views_of`."""
    return _VIEWS


async def views_of(connection: AsyncConnection, asked: Select[Any]) -> list[ReplayView]:
    rows = (await connection.execute(asked)).all()
    counted = await counts_of(connection, [int(row.id) for row in rows])
    return [_view(row, counted.get(int(row.id), ReplayCounts())) for row in rows]


async def counts_of(connection: AsyncConnection, some: Sequence[int]) -> dict[int, ReplayCounts]:
    asked = select(replay_counts).where(replay_counts.c.replay.in_(list(some)))
    found: dict[int, dict[str, int]] = {}
    for replay, state, letters, doubtful in await connection.execute(asked):
        told = found.setdefault(int(replay), {"doubtful": 0})
        told[SentState(state).name.lower()] = int(letters)
        told["doubtful"] += int(doubtful)
    return {replay: ReplayCounts(**told) for replay, told in found.items()}


def _view(row: Any, counts: ReplayCounts) -> ReplayView:
    return ReplayView(
        id=int(row.id),
        vhost=row.vhost_name,
        made_ms=row.made_ms,
        who=row.who,
        why=row.why,
        state=ReplayState(row.state),
        selection=selection_from(json.loads(row.selection)),
        target=target_from(json.loads(row.target)),
        edit=row.edit,
        recipe=row.recipe,
        pace=pace_from(json.loads(row.pace)),
        stage=stage_from(row.stage),
        letters=int(row.letters),
        outcome_ms=int(row.outcome_ms),
        resolves=bool(row.resolves),
        overrules_guards=bool(row.overrules_guards),
        told=row.told,
        began_ms=row.began_ms,
        last_sent_ms=row.last_sent_ms,
        ended_ms=row.ended_ms,
        holder=row.holder,
        held_until_ms=int(row.held_until_ms),
        counts=counts,
    )


def pace_and_stage(row: Any) -> tuple[ReplayPace, ReplayStage]:
    """Both change together when a person chooses another pace."""
    return pace_from(json.loads(row.pace)), stage_from(row.stage)


def stage_from(told: str) -> ReplayStage:
    return ReplayStage(**json.loads(told)) if told else ReplayStage()


def stage_text(stage: ReplayStage) -> str:
    return json.dumps(asdict(stage))


# -- letters of a replay ----------------------------------------------------------------------------------
def seen_state(state: int, letter: int, marked_to: int) -> SentState:
    """The state of a letter whose row has this one."""
    if state == _WAITING and letter <= marked_to:
        return SentState.SENDING
    return _STATES[state]


def in_state(replay: int, state: SentState, marked_to: int = 0) -> tuple[ColumnElement[bool], ...]:
    """Letters of a replay in this state. `marked_to` matters for those that were not sent yet."""
    mine = replay_letters.c.replay == replay
    match state:
        case SentState.WAITING:
            return mine, replay_letters.c.state == _WAITING, replay_letters.c.letter > marked_to
        case SentState.SENDING:
            return mine, replay_letters.c.state == _WAITING, replay_letters.c.letter <= marked_to
        case _:
            return mine, replay_letters.c.state == state.value


async def held_rows(connection: AsyncConnection, replay: int, some: Iterable[int]) -> list[SentRow]:
    """These letters of a replay, which nobody else changes until we are done."""
    asked = (
        select(replay_letters.c.letter, replay_letters.c.state, replay_letters.c.doubtful)
        .where(replay_letters.c.replay == replay, text(among(connection, "letter")))
        .order_by(replay_letters.c.letter)
        .with_for_update()
    )
    rows = (await connection.execute(asked, {"some": some_of(connection, some)})).all()
    # Asked only now: who marks letters that somebody may know of holds them, and we hold them by now.
    marked_to = await connection.scalar(select(replays.c.marked_to).where(replays.c.id == replay)) or 0
    return [
        SentRow(letter, seen_state(state, letter, marked_to), bool(doubtful))
        for letter, state, doubtful in rows
    ]


async def put_into(
    connection: AsyncConnection,
    replay: int,
    rows: Sequence[SentRow],
    after: SentState,
    *,
    values: Mapping[str, object] | None = None,
) -> None:
    """Rows that we hold come into this state; `values`: further columns. The counts follow."""
    if not rows:
        return
    kept = SentState.WAITING if after is SentState.SENDING else after
    told = {"state": kept.value, **(values or {})}
    sets = ", ".join(f"{name} = :{name}" for name in told)
    await connection.execute(
        text(
            f"UPDATE deadletter_replay_letters SET {sets} "  # noqa: S608 -- names of ours
            f"WHERE replay = :replay AND {among(connection, 'letter')}"
        ),
        {**told, "replay": replay, "some": some_of(connection, [row.letter for row in rows])},
    )
    await count_changes(connection, replay, rows, after, doubted="doubtful" in told)


_HELD: Final = (
    "SELECT letter, state, doubtful FROM deadletter_replay_letters WHERE replay = :replay AND {mine}"
)
_SENT: Final = "state = {sent}, sent_ms = :at_ms"
_TOLD: Final = (
    "SELECT {letters}, count(*), coalesce(sum(CASE WHEN letter <= :marked_to THEN 1 END), 0), "
    "coalesce(sum(CASE WHEN doubtful THEN 1 END), 0), "
    "coalesce(sum(CASE WHEN doubtful AND letter <= :marked_to THEN 1 END), 0) "
)
_POSTGRES_SENT: Final = (
    f"WITH held AS MATERIALIZED ({_HELD} ORDER BY letter FOR UPDATE), "  # noqa: S608 -- names of ours
    f"changed AS (UPDATE deadletter_replay_letters r SET {_SENT} FROM held WHERE r.replay = :replay "
    "AND r.letter = held.letter AND held.state = {waiting} RETURNING r.letter, r.doubtful) "
    f"{_TOLD} FROM changed"
)
_SQLITE_SENT: Final = f"{_TOLD} FROM ({_HELD}) AS held WHERE held.state = {{waiting}}"


async def put_sent(connection: AsyncConnection, row: Any, some: Sequence[int], *, at_ms: int) -> list[int]:
    """Those of these letters that the broker was not known to have taken, and has; the counts follow. Many
    of them and often: so the database counts them, and their numbers come as one text."""
    if not some:
        return []
    told = {"replay": row.id, "marked_to": row.marked_to, "at_ms": at_ms, "some": some_of(connection, some)}
    on_postgres = connection.dialect.name == "postgresql"
    asked = (_POSTGRES_SENT if on_postgres else _SQLITE_SENT).format(
        mine=among(connection, "letter"),
        letters="string_agg(CAST(letter AS text), ',')" if on_postgres else "group_concat(letter)",
        waiting=_WAITING,
        sent=SentState.SENT.value,
    )
    if not on_postgres:
        del told["at_ms"]
    letters, number, sending, doubtful, sending_doubtful = (await connection.execute(text(asked), told)).one()
    if not number:
        return []
    gone: list[int] = json.loads(f"[{letters}]")
    if not on_postgres:
        change = (
            f"UPDATE deadletter_replay_letters SET {_SENT.format(sent=SentState.SENT.value)} "  # noqa: S608
            f"WHERE replay = :replay AND {among(connection, 'letter')}"
        )
        values = {"replay": row.id, "at_ms": at_ms, "some": some_of(connection, gone)}
        await connection.execute(text(change), values)
    states = {
        SentState.WAITING: (sending - number, sending_doubtful - doubtful),
        SentState.SENDING: (-sending, -sending_doubtful),
        SentState.SENT: (number, doubtful),
    }
    changed = Counter({(row.id, state.value): letters for state, (letters, _) in states.items() if letters})
    doubts = Counter({(row.id, state.value): letters for state, (_, letters) in states.items()})
    await add_counts(connection, changed, doubts)
    return gone


async def count_changes(
    connection: AsyncConnection,
    replay: int,
    rows: Sequence[SentRow],
    after: SentState,
    *,
    doubted: bool = False,
) -> None:
    """Rows come into this state. `doubted`: they are doubtful from now on."""
    changed, doubts = Counter[tuple[int, int]](), Counter[tuple[int, int]]()
    for (state, doubtful), number in Counter([(row.state, row.doubtful) for row in rows]).items():
        changed[replay, state.value] -= number
        changed[replay, after.value] += number
        doubts[replay, state.value] -= number * doubtful
        doubts[replay, after.value] += number * (doubtful or doubted)
    await add_counts(connection, changed, doubts)


async def add_counts(
    connection: AsyncConnection, changed: Counter[tuple[int, int]], doubts: Counter[tuple[int, int]]
) -> None:
    """So many letters more (or fewer) of a replay and a state."""
    rows = [(*place, number, doubts[place]) for place, number in sorted(changed.items())]
    if rows:
        await _COUNTS.put(connection, rows)
