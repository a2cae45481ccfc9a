"""What becomes of the letters of a replay, step by step. All within the caller's transaction.

A letter that is to be published is SENDING first, and that is committed: whatever happens then, somebody
knows that it may have gone. Letters go in the order of their numbers, so one number says it of all of them:
what waits up to `marked_to` is being sent. After the broker's word a letter is SENT or REFUSED.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import bindparam, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.core.replaying.replay_pace import ReplayStage
from deadletter.core.replaying.replay_states import ReplayState, SentState
from deadletter.store.letters.letter_changes import Change, change_rows
from deadletter.store.letters.letter_rows import clean
from deadletter.store.letters.letter_tables import RowState, letters
from deadletter.store.replays.replay_rows import (
    SentRow,
    count_changes,
    held_rows,
    in_state,
    is_held_by,
    locked,
    pace_and_stage,
    put_into,
    put_sent,
    stage_text,
)
from deadletter.store.replays.replay_tables import replay_letters, replays
from deadletter.store.replays.replay_views import ReplayView

PORTION_BYTES: Final = 16_000_000
"""Of bodies: more is not in memory at once, except where one letter is larger."""
AT_ONCE: Final = 1_000
_NOT_SENT: Final = frozenset({SentState.WAITING, SentState.SENDING})


async def next_waiting(connection: AsyncConnection, row: Any, limit: int) -> list[SentRow]:
    """The next letters that could be published. None unless the replay runs."""
    if row.state != ReplayState.RUNNING:
        return []
    asked = (
        select(replay_letters.c.letter, replay_letters.c.doubtful, func.coalesce(letters.c.bytes, 0))
        .outerjoin(letters, letters.c.id == replay_letters.c.letter)
        .where(*in_state(row.id, SentState.WAITING, row.marked_to), replay_letters.c.sent_ms == 0)
        .order_by(replay_letters.c.letter)
        .limit(limit)
    )
    rows: list[SentRow] = []
    size = 0
    for letter, doubtful, length in (await connection.execute(asked)).all():
        size += length
        if rows and size > PORTION_BYTES:
            break
        rows.append(SentRow(letter, SentState.WAITING, bool(doubtful)))
    return rows


async def mark_sending(
    connection: AsyncConnection,
    before: Any,
    rows: Sequence[SentRow],
    stage: ReplayStage | None,
    *,
    follows: ReplayView | None,
    holder: str | None,
    now_ms: int,
) -> set[int]:
    """These letters, which were the next ones, are to be published. Which of them: none where the replay was
    stopped meanwhile, somebody else marked, its pace is another than the one that `stage` follows from, or
    `holder` has not the lease; and not those of which somebody heard that they went."""
    row = await locked(connection, before.id)
    as_before = (row.state, row.marked_to) == (ReplayState.RUNNING, before.marked_to)
    if not as_before or not is_held_by(row, holder):
        return set()
    if follows is not None and pace_and_stage(row) != (follows.pace, follows.stage):
        return set()
    marked = {one.letter for one in rows}
    if doubtful := [one.letter for one in rows if one.doubtful]:  # nobody knows of the others yet
        held = await held_rows(connection, row.id, doubtful)
        marked -= {one.letter for one in held if one.state is not SentState.WAITING}
    values: dict[str, object] = {"told": "", "marked_to": rows[-1].letter}
    if row.began_ms is None:
        values["began_ms"] = now_ms
    if stage is not None:
        values["stage"] = stage_text(stage)
    await connection.execute(update(replays).where(replays.c.id == row.id).values(**values))
    await count_changes(connection, row.id, [one for one in rows if one.letter in marked], SentState.SENDING)
    return marked


async def settle(
    connection: AsyncConnection, row: Any, sent: Sequence[int], refused: Mapping[int, str], *, at_ms: int
) -> None:
    """What the broker said of letters. Those that are not being sent any more are left as they are: a letter
    that came back already was sent."""
    if refused:
        gone, kept = await _answered(connection, row, sent, refused, at_ms)
    else:
        gone, kept = await put_sent(connection, row, sent, at_ms=at_ms), []
    went = gone + await _went_unsettled(connection, row.id)
    changes: list[Change] = [
        (went, RowState.CLAIMED, RowState.REPLAYED),
        (kept, RowState.CLAIMED, RowState.OPEN),
    ]
    await change_rows(connection, [change for change in changes if change[0]], now_ms=at_ms)
    if gone:
        latest = update(replays).where(replays.c.id == row.id).values(last_sent_ms=at_ms)
        await connection.execute(latest)


async def _answered(
    connection: AsyncConnection, row: Any, sent: Sequence[int], refused: Mapping[int, str], at_ms: int
) -> tuple[list[int], list[int]]:
    """Those that went and those that stayed; held together, as everybody holds letters in their order."""
    rows = await held_rows(connection, row.id, {*sent, *refused})
    open_ = [one for one in rows if one.state in _NOT_SENT]
    gone = [one for one in open_ if one.letter not in refused]
    kept = [one for one in open_ if one.letter in refused]
    await put_into(connection, row.id, gone, SentState.SENT, values={"sent_ms": at_ms})
    await put_into(connection, row.id, kept, SentState.REFUSED, values={"ended_ms": at_ms})
    if kept:
        await connection.execute(
            update(replay_letters)
            .where(replay_letters.c.replay == row.id, replay_letters.c.letter == bindparam("number"))
            .values(why=bindparam("said")),
            [{"said": clean(refused[one.letter]), "number": one.letter} for one in kept],
        )
    return [one.letter for one in gone], [one.letter for one in kept]


async def doubt(connection: AsyncConnection, replay: int, some: Sequence[int]) -> None:
    """These may have gone, and are sent again."""
    rows = await held_rows(connection, replay, some)
    for state in {one.state for one in rows}:
        alike = [one for one in rows if one.state is state and not one.doubtful]
        await put_into(connection, replay, alike, state, values={"doubtful": True})


async def _went_unsettled(connection: AsyncConnection, replay: int) -> list[int]:
    """Letters of which a return or the consumer's word was seen before the broker's confirm: they went."""
    states = [SentState.RETURNED.value, SentState.DONE.value]
    went = (
        update(replay_letters)
        .where(replay_letters.c.replay == replay, replay_letters.c.state.in_(states))
        .where(replay_letters.c.sent_ms == 0)
        .values(sent_ms=replay_letters.c.ended_ms)
        .returning(replay_letters.c.letter)
    )
    return [int(letter) for (letter,) in await connection.execute(went)]


async def take_over(connection: AsyncConnection, row: Any, *, now_ms: int) -> int:
    """Whoever was sending these is gone: they may have been published or not."""
    rows = await _rows_in(connection, row, SentState.SENDING, limit=None)
    await put_into(connection, row.id, rows, SentState.WAITING, values={"doubtful": True})
    if rows:
        back = update(replays).where(replays.c.id == row.id).values(marked_to=rows[0].letter - 1)
        await connection.execute(back)
    await settle_returned(connection, row.id, now_ms=now_ms)
    return len(rows)


async def hand_back(connection: AsyncConnection, row: Any, some: Sequence[int]) -> int:
    """These were never published. One number says what is being sent: so nothing else may be, after them."""
    rows = await _rows_in(connection, row, SentState.SENDING, limit=None)
    after = [one for one in rows if one.letter >= min(some)]
    if {one.letter for one in after} - set(some):
        return 0
    await count_changes(connection, row.id, after, SentState.WAITING)
    if after:
        back = update(replays).where(replays.c.id == row.id).values(marked_to=after[0].letter - 1)
        await connection.execute(back)
    return len(after)


async def settle_returned(connection: AsyncConnection, replay: int, *, now_ms: int) -> None:
    """The rows of letters that went, which nobody settled."""
    if back := await _went_unsettled(connection, replay):
        await change_rows(connection, [(back, RowState.CLAIMED, RowState.REPLAYED)], now_ms=now_ms)


async def let_go(connection: AsyncConnection, row: Any, *, now_ms: int) -> int:
    """The next portion of letters that wait are open again."""
    rows = await _rows_in(connection, row, SentState.WAITING, limit=AT_ONCE)
    await put_into(connection, row.id, rows, SentState.LET_GO, values={"ended_ms": now_ms})
    if rows:
        freed = [one.letter for one in rows], RowState.CLAIMED, RowState.OPEN
        await change_rows(connection, [freed], now_ms=now_ms)
    return len(rows)


async def mark_quiet(connection: AsyncConnection, row: Any, *, now_ms: int) -> int:
    """The next portion of letters that did not come back in time."""
    asked = (
        select(replay_letters.c.letter)
        .where(*in_state(row.id, SentState.SENT), replay_letters.c.sent_ms <= now_ms - row.outcome_ms)
        .order_by(replay_letters.c.sent_ms, replay_letters.c.letter)
        .limit(AT_ONCE)
    )
    due = [int(letter) for (letter,) in await connection.execute(asked)]
    rows = [one for one in await held_rows(connection, row.id, due) if one.state is SentState.SENT]
    await put_into(connection, row.id, rows, SentState.QUIET, values={"ended_ms": now_ms})
    return len(rows)


async def mark_done(connection: AsyncConnection, replay: int, some: Sequence[int], *, now_ms: int) -> int:
    """The consumer said that it is done with these. What came back stays so."""
    rows = [
        one
        for one in await held_rows(connection, replay, some)
        if one.state in (SentState.SENDING, SentState.SENT, SentState.QUIET)
        or (one.state is SentState.WAITING and one.doubtful)
    ]
    await put_into(connection, replay, rows, SentState.DONE, values={"ended_ms": now_ms})
    await settle_returned(connection, replay, now_ms=now_ms)
    return len(rows)


async def _rows_in(
    connection: AsyncConnection, row: Any, state: SentState, *, limit: int | None
) -> list[SentRow]:
    asked = select(replay_letters.c.letter).where(*in_state(row.id, state, row.marked_to))
    asked = asked.where(replay_letters.c.sent_ms == 0).order_by(replay_letters.c.letter).limit(limit)
    some = [int(letter) for (letter,) in await connection.execute(asked)]
    return [one for one in await held_rows(connection, row.id, some) if one.state is state]
