"""What is told of replays and of the letters in them. Nothing is changed."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, func, literal_column, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.core.deciding.states import Step
from deadletter.core.replaying.replay_pace import SECOND_MS, Auto, ReplaySeen
from deadletter.core.replaying.replay_states import GONE, ReplayState, SentState
from deadletter.store.letters.letter_ids import id_of
from deadletter.store.letters.letter_tables import groups, letters, names
from deadletter.store.letters.letter_views import REFUSED, LetterStep
from deadletter.store.replays.replay_rows import all_views, in_state, seen_state, view_of, views_of
from deadletter.store.replays.replay_tables import replay_letters, replays
from deadletter.store.replays.replay_views import ReplayedLetter, ReplayView
from deadletter.store.replays.returned_letters import visits_of

_IS_DOUBTFUL: Final[ColumnElement[bool]] = literal_column("deadletter_replay_letters.doubtful")
"""Written as the index of those has it."""
_OUTCOMES: Final = {
    SentState.REFUSED: REFUSED,
    SentState.RETURNED: "returned",
    SentState.DONE: Step.DONE.value,
    SentState.QUIET: "not returned",
    SentState.LET_GO: Step.LET_GO.value,
}
_back = letters.alias("back")
_own_group = groups.alias("own_group")
_back_group = groups.alias("back_group")
_LETTERS: Final = (
    select(
        replay_letters,
        letters.c.same,
        func.coalesce(_own_group.c.merged_into, _own_group.c.id).label("own"),
        func.coalesce(_back_group.c.merged_into, _back_group.c.id).label("other"),
    )
    .outerjoin(letters, letters.c.id == replay_letters.c.letter)
    .outerjoin(_own_group, _own_group.c.id == letters.c.group_id)
    .outerjoin(_back, _back.c.id == replay_letters.c.returned_letter)
    .outerjoin(
        _back_group, _back_group.c.id == func.coalesce(_back.c.group_id, replay_letters.c.returned_group)
    )
)


async def listed(
    connection: AsyncConnection, *, states: Sequence[ReplayState], after: int | None, limit: int
) -> list[ReplayView]:
    """The newest first."""
    asked = all_views().order_by(replays.c.id.desc()).limit(limit)
    if states:
        asked = asked.where(replays.c.state.in_([state.value for state in states]))
    if after is not None:
        asked = asked.where(replays.c.id < after)
    return await views_of(connection, asked)


async def outcomes(
    connection: AsyncConnection,
    replay: int,
    *,
    state: SentState | None,
    doubtful: bool,
    after: int | None,
    limit: int,
) -> list[ReplayedLetter]:
    """Letters of a replay: of one state in the order in which they were sent, else by their numbers."""
    columns = replay_letters.c
    marked_to = await connection.scalar(select(replays.c.marked_to).where(replays.c.id == replay)) or 0
    asked = _LETTERS.where(columns.replay == replay)
    if doubtful:
        asked = asked.where(_IS_DOUBTFUL)
    if state is None:
        asked = asked.order_by(columns.letter)
        asked = asked if after is None else asked.where(columns.letter > after)
    else:
        asked = asked.where(*in_state(replay, state, marked_to)).order_by(columns.sent_ms, columns.letter)
        if after is not None:
            last = select(columns.sent_ms).where(columns.replay == replay, columns.letter == after)
            sent_ms = int(await connection.scalar(last) or 0)
            asked = asked.where(tuple_(columns.sent_ms, columns.letter) > tuple_(sent_ms, after))
    return [_told(row, marked_to) for row in await connection.execute(asked.limit(limit))]


def _told(row: Any, marked_to: int) -> ReplayedLetter:
    return ReplayedLetter(
        letter=int(row.letter),
        letter_id=id_of(bytes(row.same)) if row.same is not None else "",
        state=seen_state(row.state, int(row.letter), marked_to),
        sent_ms=row.sent_ms or None,
        ended_ms=row.ended_ms,
        doubtful=bool(row.doubtful),
        why=row.why or "",
        returned_letter=row.returned_letter,
        returned_group=row.other,
        same_group=None if row.own is None or row.other is None else row.own == row.other,
    )


async def seen(
    connection: AsyncConnection,
    replay: int,
    *,
    depth: int | None,
    consumers: int | None,
    now_ms: int,
) -> tuple[ReplayView, ReplaySeen]:
    """A replay, and what its pace has to know: the counts of the store, the queue as the caller saw it."""
    view = await view_of(connection, replay)
    counts = view.counts
    window_sent = window_returned = 0
    if isinstance(view.pace, Auto):
        since = await _sent_since(connection, replay, now_ms - view.outcome_ms)
        window_sent, window_returned = sum(since.values()), since.get(SentState.RETURNED, 0)
    lately = await _sent_since(connection, replay, now_ms - SECOND_MS)
    return view, ReplaySeen(
        waiting=counts.waiting,
        sending=counts.sending,
        sent=counts.sent,
        returned=counts.returned,
        done=counts.done,
        quiet=counts.quiet,
        stage=view.stage,
        last_sent_ms=view.last_sent_ms,
        depth=depth,
        consumers=consumers,
        released_lately=sum(lately.values()),
        window_sent=window_sent,
        window_returned=window_returned,
    )


async def _sent_since(connection: AsyncConnection, replay: int, since_ms: int) -> dict[SentState, int]:
    asked = (
        select(replay_letters.c.state, func.count())
        .where(
            replay_letters.c.replay == replay,
            replay_letters.c.state.in_([state.value for state in GONE]),
            replay_letters.c.sent_ms > since_ms,
        )
        .group_by(replay_letters.c.state)
    )
    return {SentState(state): int(letters_) for state, letters_ in await connection.execute(asked)}


async def origins(connection: AsyncConnection, replay: int) -> tuple[str, ...]:
    """The queues that its letters failed in; `(unknown)` among them where some do not say it."""
    asked = (
        select(names.c.name)
        .join(groups, groups.c.origin == names.c.id)
        .where(
            groups.c.id.in_(
                select(letters.c.group_id)
                .join(replay_letters, replay_letters.c.letter == letters.c.id)
                .where(replay_letters.c.replay == replay)
            )
        )
        .distinct()
        .order_by(names.c.name)
    )
    return tuple(str(name) for (name,) in await connection.execute(asked))


async def came_back(connection: AsyncConnection, letter_ids: Collection[str]) -> dict[str, int]:
    """From how many replays letters of these ids came back, where they did."""
    found = await visits_of(connection, letter_ids)
    times = {one: sum(v.state is SentState.RETURNED for v in visits) for one, visits in found.items()}
    return {one: number for one, number in times.items() if number}


async def steps_of(connection: AsyncConnection, letter: int) -> list[LetterStep]:
    """What replays did with a letter."""
    asked = (
        select(replay_letters, replays.c.made_ms, replays.c.who, replays.c.why.label("reason"))
        .join(replays, replays.c.id == replay_letters.c.replay)
        .where(replay_letters.c.letter == letter)
        .order_by(replay_letters.c.replay)
    )
    steps: list[LetterStep] = []
    for row in await connection.execute(asked):
        who, replay = row.who, f"replay {row.replay}"
        claimed = f"{replay}: {row.reason}" if row.reason else replay
        steps.append(LetterStep(at_ms=row.made_ms, step=Step.CLAIMED.value, who=who, why=claimed))
        if row.sent_ms:
            twice = f"{replay}; may have gone twice" if row.doubtful else replay
            steps.append(LetterStep(at_ms=row.sent_ms, step=Step.REPLAYED.value, who=who, why=twice))
        outcome = _OUTCOMES.get(SentState(row.state))
        if outcome is not None:
            why = f"{replay}: {row.why}" if row.why else replay
            if row.returned_letter is not None:
                why = f"{replay}, as letter {row.returned_letter}"
            steps.append(LetterStep(at_ms=row.ended_ms or row.made_ms, step=outcome, who=who, why=why))
    return steps
