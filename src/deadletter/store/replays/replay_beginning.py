"""A replay is written down: what was asked for, and by whom. Within the caller's transaction."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.core.replaying.replay_pace import pace_json
from deadletter.core.replaying.replay_plan import ReplayPlan, selection_json
from deadletter.core.replaying.replay_states import ReplayState
from deadletter.core.replaying.replay_target import target_json
from deadletter.errors import UsageError
from deadletter.store.letters.letter_rows import clean, name_ids, unless_there
from deadletter.store.letters.letter_tables import letters
from deadletter.store.replays.replay_tables import replays

_MAY_CHANGE: Final = frozenset({"pace"})
"""While it runs."""


async def begin(
    connection: AsyncConnection, plan: ReplayPlan, *, who: str, why: str, run: str, now_ms: int
) -> tuple[int, bool]:
    """The number of the replay, and whether it is a new one: who began one with this `run` before has that
    one again. UsageError where that was of another plan."""
    selection = plan.selection
    if plan.vhost and selection.vhost not in (None, plan.vhost):
        raise UsageError(
            f"vhost: expected letters of {plan.vhost}, where they are sent, got {selection.vhost}"
        )
    if plan.vhost:
        selection = replace(selection, vhost=plan.vhost)
    vhosts = await name_ids(connection, [clean(plan.vhost)])
    up_to = await connection.scalar(select(func.max(letters.c.id)))
    asked = {
        "selection": clean(json.dumps(selection_json(selection))),
        "target": clean(json.dumps(target_json(plan.target))),
        "edit": clean(plan.edit),
        "pace": json.dumps(pace_json(plan.pace)),
        "outcome_ms": plan.outcome_ms,
        "resolves": plan.resolves,
        "overrules_guards": plan.overrules_guards,
    }
    made = unless_there(connection, replays, ["run"]).values(
        **asked,
        run=clean(run) or None,
        vhost=vhosts[clean(plan.vhost)],
        made_ms=now_ms,
        who=clean(who),
        why=clean(why),
        state=ReplayState.FREEZING.value,
        recipe=clean(plan.recipe),
        up_to=up_to or 0,
        frozen_to=0,
        marked_to=0,
        letters=0,
        stage="",
        told="",
        holder="",
        held_until_ms=0,
    )
    number = await connection.scalar(made.returning(replays.c.id))
    if number is None:
        return await _begun(connection, clean(run), asked), False
    return int(number), True


async def _begun(connection: AsyncConnection, run: str, asked: Mapping[str, object]) -> int:
    """The replay of this run, which was begun before."""
    row = (await connection.execute(select(replays).where(replays.c.run == run))).mappings().one()
    other = [name for name, value in asked.items() if row[name] != value and name not in _MAY_CHANGE]
    if other:
        raise UsageError(
            f"run {run}: expected what it was asked for before, which is replay {row['id']}, got "
            f"another {', '.join(other)}"
        )
    return int(row["id"])
