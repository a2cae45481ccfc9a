"""`dlq replays`, and what people do with one that goes: pause, resume, cancel, another pace."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from deadletter.cli.letters.asking import now_ms
from deadletter.cli.letters.letter_filters import word
from deadletter.cli.letters.record_options import ChangeWish, RecordsWish
from deadletter.cli.replays.asking_replays import replay_number, with_desk
from deadletter.cli.replays.replay_text import (
    detail_text,
    next_text,
    outcomes_text,
    page_text,
)
from deadletter.cli.replays.watching import watch
from deadletter.cli.terminal.output import Exit, data, result
from deadletter.core.replaying.replay_pace import ReplayPace
from deadletter.core.replaying.replay_states import ReplayState
from deadletter.core.text.safe_text import line
from deadletter.operations.records.records import json_of
from deadletter.operations.replays.at_hand import DeskAtHand
from deadletter.operations.replays.replay_told import ReplayTold
from deadletter.operations.replays.replays import Replays
from deadletter.operations.wording import turning
from deadletter.operations.wording.pace_words import pace_words
from deadletter.operations.wording.replay_words import OUTCOMES, OutcomeWord, counts_words


# -- looking ---------------------------------------------------------------------------------------------
def list_replays(wish: RecordsWish, states: Sequence[str], *, after: int | None, limit: int) -> Exit:
    wanted = tuple(word(ReplayState, "--state", one, also="any") for one in states if one != "any")

    async def work(desk: DeskAtHand) -> Exit:
        page = await desk.replays.replays(() if "any" in states else wanted, after=after, limit=limit)
        if wish.as_json:
            data(json_of(page))
        else:
            result(page_text(page, now_ms=now_ms()))
        return Exit.DONE

    return with_desk(wish, work)


def one_replay(wish: RecordsWish, name: str) -> Exit:
    number = replay_number(name)

    async def work(desk: DeskAtHand) -> Exit:
        detail = await desk.replays.replay(number)
        if wish.as_json:
            data(json_of(detail))
        else:
            result(detail_text(detail, now_ms=now_ms()))
        return Exit.DONE

    return with_desk(wish, work)


def watch_replay(wish: RecordsWish, name: str) -> Exit:
    number = replay_number(name)

    async def work(desk: DeskAtHand) -> Exit:
        return await watch(desk.replays, number, as_json=wish.as_json)

    return with_desk(wish, work)


def list_outcomes(wish: RecordsWish, name: str, said: str, *, after: int | None, limit: int) -> Exit:
    number, wanted = replay_number(name), word(OutcomeWord, "--outcomes", said)

    async def work(desk: DeskAtHand) -> Exit:
        detail = await desk.replays.replay(number, newcomers=False)
        page = await desk.replays.outcomes(
            number,
            OUTCOMES.get(wanted),
            doubtful=wanted is OutcomeWord.DOUBTFUL,
            after=after,
            limit=limit,
        )
        if wish.as_json:
            data(json_of(page))
        else:
            result(outcomes_text(detail.replay, page, wanted.value, now_ms=now_ms()))
        return Exit.DONE

    return with_desk(wish, work)


# -- changing --------------------------------------------------------------------------------------------
def turn(wish: ChangeWish, name: str, to: turning.Turn) -> Exit:
    return _change(
        wish,
        name,
        lambda replays, number: turning.turn(replays, number, to, who=wish.named),
        turning.TURNED[to],
    )


def set_pace(wish: ChangeWish, name: str, pace: ReplayPace) -> Exit:
    return _change(
        wish,
        name,
        lambda replays, number: replays.set_pace(number, pace, who=wish.named),
        f"from now on {pace_words(pace)}",
    )


def _change(
    wish: ChangeWish, name: str, change: Callable[[Replays, int], Awaitable[ReplayTold]], done: str
) -> Exit:
    number = replay_number(name)

    async def work(desk: DeskAtHand) -> Exit:
        replay = await change(desk.replays, number)
        if wish.as_json:
            data(json_of(replay))
        else:
            said = [line(f"replay {replay.id}: {done}"), f"   {counts_words(replay)}", next_text(replay)]
            result("\n".join(part for part in said if part))
        return Exit.DONE

    return with_desk(wish, work)
