"""Which letters a replay has: claimed in portions, from the oldest to the newest that was there at its start.

A letter is claimed by changing its row from open to claimed, and only who really changed it has it: so it is
in at most one replay that runs, whoever claims at the same time. How far a replay came is kept with each
portion; after a crash it goes on there. Looking into letters happens before, where nobody waits for it.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import func, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.core.grouping.letter_query import LetterOrder, LetterQuery
from deadletter.core.replaying.replay_plan import selection_from
from deadletter.core.replaying.replay_states import ReplayState, SentState
from deadletter.errors import UsageError
from deadletter.store.finding import searching
from deadletter.store.finding.searching import Portion, SearchPlan, Where
from deadletter.store.letters.letter_changes import change_rows
from deadletter.store.letters.letter_rows import numbers, some_of
from deadletter.store.letters.letter_tables import RowState, letters
from deadletter.store.replays.replay_rows import add_counts, locked
from deadletter.store.replays.replay_tables import replays

FROZEN_AT_ONCE: Final = 1_000
NEWCOMERS_MOST: Final = 10_000
"""Newcomers are counted up to this many where they have to be looked into."""


def is_answerable(selection: LetterQuery, where: Where | None) -> None:
    """UsageError: it has a jq program, and nobody to run it."""
    if selection.where and where is None:
        raise UsageError("the selection of this replay has a jq program, which cannot be run here")


async def looked_for(connection: AsyncConnection, row: Any, where: Where | None) -> Portion:
    """The next letters of the selection, as far as `after`; None: as far as there are any."""
    selection = selection_from(json.loads(row.selection))
    is_answerable(selection, where)
    plan = await searching.plan_of(connection, selection)
    if plan is None:
        return Portion(ids=[], after=None)
    return await _portion(connection, _between(plan, up_to=row.up_to), selection, row.frozen_to, where)


async def _portion(
    connection: AsyncConnection, plan: SearchPlan, selection: LetterQuery, after: int, where: Where | None
) -> Portion:
    found = await searching.next_portion(connection, plan, LetterOrder.OLDEST, after, FROZEN_AT_ONCE)
    if not selection.looks_inside:
        return found
    wanted = await searching.wanted_of(connection, found.ids, selection, where if selection.where else None)
    return replace(found, ids=[number for number in found.ids if number in wanted])


def _between(plan: SearchPlan, *, up_to: int) -> SearchPlan:
    return replace(plan, conditions=(*plan.conditions, letters.c.id <= up_to))


async def freeze(connection: AsyncConnection, before: Any, found: Portion, *, now_ms: int) -> None:
    """These come into the replay, unless somebody else has them. Nothing happens where somebody else froze,
    paused or cancelled it since it was looked at."""
    row = await locked(connection, before.id)
    if (row.state, row.frozen_to) != (ReplayState.FREEZING, before.frozen_to):
        return
    claimed = [(found.ids, RowState.OPEN, RowState.CLAIMED)]
    (ours,) = await change_rows(connection, claimed, now_ms=now_ms)
    if ours:
        waiting = SentState.WAITING.value
        into = (
            "INSERT INTO deadletter_replay_letters (replay, letter, state, sent_ms, doubtful) "  # noqa: S608
            "SELECT CAST(:replay AS bigint), CAST(value AS bigint), CAST(:state AS smallint), 0, false "
            f"FROM {numbers(connection)}"
        )
        told = {"replay": row.id, "state": waiting, "some": some_of(connection, ours)}
        await connection.execute(text(into), told)
        await add_counts(connection, Counter({(row.id, waiting): len(ours)}), Counter())
    is_over = found.after is None or found.after >= row.up_to
    reached = row.up_to if found.after is None else found.after
    await connection.execute(
        update(replays)
        .where(replays.c.id == row.id)
        .values(
            letters=replays.c.letters + len(ours),
            frozen_to=reached,
            frozen_ms=now_ms if is_over else None,
            state=(ReplayState.RUNNING if is_over else ReplayState.FREEZING).value,
        )
    )


async def newcomers(connection: AsyncConnection, row: Any, where: Where | None) -> int:
    """Open letters that match the selection and came after it was frozen."""
    selection = selection_from(json.loads(row.selection))
    is_answerable(selection, where)
    plan = await searching.plan_of(connection, selection)
    if plan is None:
        return 0
    if not (plan.words or plan.error or selection.looks_inside):
        asked = select(func.count()).select_from(letters).where(*plan.conditions, letters.c.id > row.up_to)
        return int(await connection.scalar(asked) or 0)
    came, after = 0, row.up_to
    while after is not None and came < NEWCOMERS_MOST:
        portion = await _portion(connection, plan, selection, after, where)
        came, after = came + len(portion.ids), portion.after
    return came
