"""A replay from its selection to its end: frozen, sent, settled, what became of each letter, who did what.

About `store.replays.replay_store`, `store.replays.freezing`, `store.replays.replay_progress`,
`store.replays.claimed_letters`, `store.replays.replay_list`, `store.replays.replay_views`,
`store.replays.replay_beginning`, `store.replays.replay_closing`, `store.replays.replay_rows`,
`store.replays.replay_tables`, `store.letters.letter_connections`, `store.letters.letter_contents`,
`store.letters.state_changes`, `store.replays.under_way`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import event, text
from sqlalchemy.ext.asyncio import AsyncConnection
from tests.store.grounds import Ground
from tests.store.parked import MINUTE_MS, NOON_MS, Clock, letters_at, parked, stored
from tests.store.replayed import EVERYTHING, books_agree, frozen

from deadletter.core.grouping.group_query import GroupQuery
from deadletter.core.grouping.group_states import GroupState
from deadletter.core.grouping.letter_query import LetterQuery, LetterState
from deadletter.core.grouping.retention import Retention
from deadletter.core.letter import names
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.letter import Letter
from deadletter.core.replaying.replay_pace import AllAtOnce, Auto, Canary, ReplayStage
from deadletter.core.replaying.replay_plan import OUTCOME_MS, ReplayPlan
from deadletter.core.replaying.replay_states import ReplayState, SentState
from deadletter.core.replaying.replay_target import ToQueue
from deadletter.errors import NotStored, UsageError
from deadletter.store.letters import letter_contents
from deadletter.store.letters.letter_contents import KnownDictionaries
from deadletter.store.letters.letter_store import LetterStore
from deadletter.store.replays import claimed_letters, under_way
from deadletter.store.replays.claimed_letters import DAMAGED, GONE
from deadletter.store.replays.freezing import FROZEN_AT_ONCE
from deadletter.store.replays.replay_rows import SentRow
from deadletter.store.replays.replay_store import ReplayStore
from deadletter.store.replays.replay_views import ReplayCounts, ReplayView


async def _states(store: LetterStore) -> dict[LetterState, int]:
    rows = (await store.find(LetterQuery(state=None, limit=1_000))).letters
    found = [row.state for row in rows]
    return {state: found.count(state) for state in LetterState if state in found}


async def test_from_the_selection_to_the_end(ground: Ground) -> None:
    clock = Clock()
    async with letters_at(ground, clock) as store:
        replays = ReplayStore(store)
        sent = [parked(n, body=bytes(range(n))) for n in range(20)]
        await store.ingest(
            stored(*sent, parked(100, origin="bills"), parked(3, move="copy", body=bytes(range(3))))
        )
        plan = ReplayPlan(
            selection=LetterQuery(origin="orders"), target=ToQueue(queue="elsewhere"), edit=".body"
        )
        replay = await frozen(replays, plan)
        assert (replay.state, replay.letters, replay.counts) == (
            ReplayState.RUNNING,
            20,
            ReplayCounts(waiting=20),
        )
        assert (replay.target, replay.edit, replay.who) == (plan.target, ".body", "ann")
        await store.ingest(stored(parked(50), parked(101, origin="bills")))
        assert await replays.newcomers(replay.id) == 1
        assert await _states(store) == {LetterState.OPEN: 3, LetterState.CLAIMED: 20}
        books_agree(ground)

        first = await replays.next_portion(replay.id, 15)
        assert [one.letter.message for one in first] == [letter.message for letter in sent[:15]]
        assert [one.letter_id for one in first] == [f"{n:032x}" for n in range(15)]
        assert {one.origin for one in first} == {"orders"}
        assert not any(one.doubtful for one in first)
        assert (await replays.view(replay.id)).counts == ReplayCounts(waiting=5, sending=15)
        books_agree(ground)
        refused = {first[4].row: "no queue took it\0"}
        await replays.settled(
            replay.id, [one.row for one in first if one.row not in refused], refused, at_ms=NOON_MS + 5
        )
        books_agree(ground)
        rest = await replays.next_portion(replay.id, 15)
        assert len(rest) == 5
        assert await replays.next_portion(replay.id, 15) == []
        await replays.settled(replay.id, [one.row for one in rest], {}, at_ms=NOON_MS + 7)
        view = await replays.view(replay.id)
        assert view.counts == ReplayCounts(sent=19, refused=1)
        assert (view.began_ms, view.last_sent_ms) == (NOON_MS, NOON_MS + 7)
        assert await _states(store) == {LetterState.OPEN: 4, LetterState.REPLAYED: 19}
        (told,) = await replays.outcomes(replay.id, SentState.REFUSED)
        assert (told.letter, told.why, told.sent_ms) == (first[4].row, "no queue took it\ufffd", None)
        assert (await replays.finish(replay.id)).ended_ms is None

        clock.now_ms += OUTCOME_MS
        assert await replays.quiet(replay.id, now_ms=clock.now_ms) == 0
        assert await replays.quiet(replay.id, now_ms=clock.now_ms + 6) == 14
        assert await replays.quiet(replay.id, now_ms=clock.now_ms + 7) == 5
        assert await replays.quiet(replay.id, now_ms=clock.now_ms + 7) == 0
        ended = await replays.finish(replay.id)
        assert (ended.state, ended.ended_ms) == (ReplayState.DONE, clock.now_ms)
        assert ended.counts == ReplayCounts(quiet=19, refused=1)
        books_agree(ground)
        steps = (await store.letter(str(first[0].row))).steps
        assert [(step.step, step.who) for step in steps] == [
            ("claimed", "ann"),
            ("sent", "ann"),
            ("not returned", "ann"),
        ]


def _back(number: int, replay: int | None, *, at_ms: int, error: str | None = None) -> Letter:
    """The letter, after it failed again: parked by a later run, perhaps with another error."""
    said: dict[str, Value] = {} if replay is None else {names.REPLAY: replay}
    move = f"again-{number}-{at_ms}"
    if error is None:
        return parked(number, move=move, at_ms=at_ms, headers=said)
    return parked(number, move=move, at_ms=at_ms, headers=said, error=error, kind="KeyError")


async def _sent(replays: ReplayStore, replay: ReplayView, *, at_ms: int = NOON_MS + 5) -> list[int]:
    found = await replays.next_portion(replay.id, 1_000)
    await replays.settled(replay.id, [one.row for one in found], {}, at_ms=at_ms)
    return [one.row for one in found]


async def test_what_came_back_is_told_with_its_group(ground: Ground) -> None:
    clock = Clock()
    async with letters_at(ground, clock) as store:
        replays = ReplayStore(store)
        await store.ingest(stored(*(parked(n) for n in range(6))))
        replay = await frozen(replays)
        rows = await _sent(replays, replay)
        clock.now_ms += MINUTE_MS
        at_ms = clock.now_ms
        await store.ingest(
            stored(
                _back(0, replay.id, at_ms=at_ms),
                _back(1, replay.id, at_ms=at_ms, error="another"),
                _back(2, None, at_ms=at_ms),  # somebody took the header off
                _back(3, replay.id + 7, at_ms=at_ms),  # of another replay
                parked(77),
            )
        )
        books_agree(ground)
        back = await replays.outcomes(replay.id, SentState.RETURNED)
        assert [(one.letter, one.ended_ms, one.same_group) for one in back] == [
            (rows[0], at_ms, True),
            (rows[1], at_ms, False),
            (rows[2], at_ms, True),
        ]
        first = await store.letter(str(back[0].returned_letter))
        assert (first.row.letter_id, first.row.state) == (f"{0:032x}", LetterState.OPEN)
        assert first.row.copies == 0
        # the very same delivery once more, and a copy of it, say nothing new
        await store.ingest(stored(_back(0, replay.id, at_ms=at_ms)))
        assert (await replays.view(replay.id)).counts == ReplayCounts(sent=3, returned=3)
        # one that was given up for quiet may still come back
        clock.now_ms += OUTCOME_MS
        assert await replays.quiet(replay.id, now_ms=clock.now_ms) == 3
        assert (await replays.finish(replay.id)).state is ReplayState.DONE
        await store.ingest(stored(_back(4, replay.id, at_ms=clock.now_ms)))
        await store.ingest(stored(_back(5, None, at_ms=clock.now_ms)))  # nobody waits: it is another failure
        assert (await replays.view(replay.id)).counts == ReplayCounts(quiet=2, returned=4)
        books_agree(ground)


async def test_the_same_failure_again_is_no_copy_of_what_was_sent(ground: Ground) -> None:
    """Parked by the consumer itself after as many attempts, with the same content and no death: it is back,
    and must be seen."""
    async with letters_at(ground) as store:
        replays = ReplayStore(store)
        await store.ingest(stored(parked(1)))
        replay = await frozen(replays)
        await _sent(replays, replay)
        await store.ingest(stored(_back(1, replay.id, at_ms=NOON_MS)))
        (row,) = (await store.find(LetterQuery())).letters
        assert row.copies == 0
        assert (await replays.view(replay.id)).counts == ReplayCounts(returned=1)
        again = await frozen(replays)
        assert again.letters == 1


async def test_two_visits_of_one_letter_come_back_one_by_one(ground: Ground) -> None:
    async with letters_at(ground) as store:
        replays = ReplayStore(store)
        await store.ingest(stored(parked(1), parked(1, headers={names.ATTEMPT: 9}, move="other")))
        replay = await frozen(replays)
        assert replay.letters == 2
        await _sent(replays, replay)
        for expected in (1, 2, 2):
            await store.ingest(stored(_back(1, replay.id, at_ms=NOON_MS + expected)))
            assert (await replays.view(replay.id)).counts.returned == min(expected, 2)
            await store.ingest(stored(_back(2, replay.id, at_ms=NOON_MS + expected)))
        books_agree(ground)


async def test_the_consumers_word(ground: Ground) -> None:
    clock = Clock()
    async with letters_at(ground, clock) as store:
        replays = ReplayStore(store)
        await store.ingest(stored(*(parked(n) for n in range(5))))
        replay = await frozen(replays)
        rows = await _sent(replays, replay)
        notes = [(f"{n:032x}", replay.id, NOON_MS + 9) for n in (0, 1, 2)]
        wrong = [(f"{3:032x}", replay.id + 1, NOON_MS), ("never seen", replay.id, NOON_MS)]
        assert await replays.done_by_consumer([*notes, *wrong]) == 3
        assert await replays.done_by_consumer(notes) == 0
        clock.now_ms += OUTCOME_MS + 5
        assert await replays.quiet(replay.id, now_ms=clock.now_ms) == 2
        assert await replays.done_by_consumer([(f"{3:032x}", replay.id, clock.now_ms)]) == 1  # late
        view = await replays.finish(replay.id)
        assert (view.state, view.counts) == (ReplayState.DONE, ReplayCounts(done=4, quiet=1))
        books_agree(ground)
        assert [one.letter for one in await replays.outcomes(replay.id, SentState.DONE)] == rows[:4]


async def test_an_outcome_that_is_quicker_than_the_confirm(ground: Ground) -> None:
    """The consumer failed, or was done, before anybody settled the portion."""
    async with letters_at(ground) as store:
        replays = ReplayStore(store)
        await store.ingest(stored(*(parked(n) for n in range(4))))
        replay = await frozen(replays)
        found = await replays.next_portion(replay.id, 10)
        await store.ingest(stored(_back(0, replay.id, at_ms=NOON_MS + 1)))
        assert await replays.done_by_consumer([(f"{1:032x}", replay.id, NOON_MS)]) == 1
        books_agree(ground)
        await replays.settled(replay.id, [one.row for one in found], {}, at_ms=NOON_MS + 2)
        assert (await replays.view(replay.id)).counts == ReplayCounts(sent=2, returned=1, done=1)
        assert await _states(store) == {LetterState.OPEN: 1, LetterState.REPLAYED: 4}
        books_agree(ground)


async def test_who_takes_over_sends_again_and_says_so(ground: Ground) -> None:
    async with letters_at(ground) as store:
        replays = ReplayStore(store)
        await store.ingest(stored(*(parked(n) for n in range(6))))
        replay = await frozen(replays)
        assert [one.id for one in await replays.leased("a", now_ms=1_000, lease_ms=500)] == [replay.id]
        found = await replays.next_portion(replay.id, 3)
        assert await replays.leased("b", now_ms=1_400, lease_ms=500) == []
        assert len(await replays.leased("a", now_ms=1_450, lease_ms=500)) == 1  # renewed: nothing is doubtful
        assert (await replays.view(replay.id)).counts == ReplayCounts(waiting=3, sending=3)
        (taken,) = await replays.leased("b", now_ms=2_000, lease_ms=500)
        assert (taken.holder, taken.counts) == ("b", ReplayCounts(waiting=6, doubtful=3))
        assert await replays.leased("a", now_ms=2_100, lease_ms=500) == []
        # one of them comes back, so it was sent: it is not sent once more
        await store.ingest(stored(_back(0, replay.id, at_ms=NOON_MS)))
        # the one who was thought dead hears a confirm: neither is that one
        await replays.settled(replay.id, [found[1].row], {}, at_ms=NOON_MS + 1)
        again = await replays.next_portion(replay.id, 10)
        assert [(one.row, one.doubtful) for one in again] == [(found[2].row, True)] + [
            (found[2].row + n, False) for n in (1, 2, 3)
        ]
        await replays.settled(replay.id, [one.row for one in again], {}, at_ms=NOON_MS + 2)
        assert (await replays.view(replay.id)).counts == ReplayCounts(sent=5, returned=1, doubtful=3)
        listed = await replays.outcomes(replay.id, doubtful=True)
        assert [one.letter for one in listed] == [one.row for one in found]
        books_agree(ground)
        await replays.give_up("b")
        assert len(await replays.leased("a", now_ms=2_101, lease_ms=500)) == 1


async def test_what_is_heard_while_the_next_ones_are_read(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Letters are read before they are marked: those that went meanwhile are not marked, and of two who read
    the same ones one has them."""
    async with letters_at(ground) as store:
        replays = ReplayStore(store)
        await store.ingest(stored(*(parked(n) for n in range(8))))
        replay = await frozen(replays)
        found = await replays.next_portion(replay.id, 5)
        assert await replays.taken_over(replay.id) == 5
        read = claimed_letters.whole

        async def and_meanwhile(
            connection: AsyncConnection, rows: Sequence[SentRow], known: KnownDictionaries
        ) -> Any:
            told = await read(connection, rows, known)
            monkeypatch.setattr(claimed_letters, "whole", read)
            await store.ingest(stored(_back(0, replay.id, at_ms=NOON_MS)))
            await replays.settled(replay.id, [found[4].row], {found[1].row: "full"}, at_ms=NOON_MS + 1)
            return told

        monkeypatch.setattr(claimed_letters, "whole", and_meanwhile)
        again = await replays.next_portion(replay.id, 6)
        assert [one.row for one in again] == [found[2].row, found[3].row, found[4].row + 1]
        counts = ReplayCounts(waiting=2, sending=3, sent=1, returned=1, refused=1, doubtful=5)
        assert (await replays.view(replay.id)).counts == counts
        sending = await replays.outcomes(replay.id, SentState.SENDING)
        assert [(one.letter, one.state) for one in sending] == [(one.row, SentState.SENDING) for one in again]
        waiting = await replays.outcomes(replay.id, SentState.WAITING)
        assert [one.letter for one in waiting] == [again[-1].row + 1, again[-1].row + 2]
        books_agree(ground)

        async def and_another_too(
            connection: AsyncConnection, rows: Sequence[SentRow], known: KnownDictionaries
        ) -> Any:
            monkeypatch.setattr(claimed_letters, "whole", read)
            assert len(await replays.next_portion(replay.id, 1)) == 1
            return await read(connection, rows, known)

        monkeypatch.setattr(claimed_letters, "whole", and_another_too)
        assert await replays.next_portion(replay.id, 2) == []
        assert len(await replays.next_portion(replay.id, 2)) == 1
        books_agree(ground)


async def test_what_was_marked_and_not_published_waits_again(ground: Ground) -> None:
    async with letters_at(ground) as store:
        replays = ReplayStore(store)
        await store.ingest(stored(*(parked(n) for n in range(10))))
        replay = await frozen(replays)
        first, second, *rest = [one.row for one in await replays.next_portion(replay.id, 6)]
        assert await replays.handed_back(replay.id, rest) == 4, "the first two are before them"
        assert (await replays.view(replay.id)).counts == ReplayCounts(waiting=8, sending=2)
        await replays.settled(replay.id, [first], {second: "full"}, at_ms=NOON_MS)
        books_agree(ground)
        again = await replays.next_portion(replay.id, 10)
        assert [(one.row, one.doubtful) for one in again][:4] == [(row, False) for row in rest]
        assert await replays.handed_back(replay.id, [again[0].row]) == 0, "others after it are being sent"
        assert await replays.handed_back(replay.id, [again[-1].row], holder="nobody") == 0
        await replays.settled(replay.id, [one.row for one in again], {}, at_ms=NOON_MS)
        assert (await replays.view(replay.id)).counts == ReplayCounts(sent=9, refused=1)
        books_agree(ground)


async def test_leases_are_of_vhosts(ground: Ground) -> None:
    async with letters_at(ground) as store:
        replays = ReplayStore(store)
        here = await replays.begin(replace(EVERYTHING, vhost="here"), who="ann", why="")
        there = await replays.begin(replace(EVERYTHING, vhost="there"), who="ann", why="")
        assert here.selection.vhost == "here"
        found = await replays.leased("a", now_ms=1, lease_ms=5, vhosts=["there", "nowhere"])
        assert [one.id for one in found] == [there.id]
        assert await replays.leased("a", now_ms=1, lease_ms=5, vhosts=[]) == []
        with pytest.raises(UsageError, match="vhost"):
            await replays.begin(
                ReplayPlan(selection=LetterQuery(vhost="here"), vhost="there"), who="", why=""
            )


async def test_one_look_serves_all_vhosts_and_is_soon_over(
    ground: Ground, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fifty vhosts would ask fifty times a second whether there is anything to replay."""
    now_s = 100.0
    monkeypatch.setattr(under_way, "monotonic", lambda: now_s)
    async with letters_at(ground) as store:
        asked: list[str] = []
        replays = ReplayStore(store)
        event.listen(
            store.connections.engine.sync_engine,
            "before_cursor_execute",
            lambda _connection, _cursor, statement, *_more: asked.append(statement),
        )

        async def leased(vhost: str) -> list[int]:
            found = await replays.leased("a", now_ms=1, lease_ms=5, vhosts=[vhost])
            return [one.id for one in found]

        for some in await asyncio.gather(*(leased(f"v{n}") for n in range(20))):
            assert some == []
        assert len([one for one in asked if "deadletter_replays" in one]) == 1
        begun = await replays.begin(replace(EVERYTHING, vhost="v7"), who="ann", why="")
        now_s += under_way.FRESH_S
        assert await leased("v7") == [begun.id]
        assert await leased("v8") == []


async def test_who_lost_the_lease_marks_nothing_and_refuses_nothing(ground: Ground) -> None:
    """It stood still for a while; what it says of letters that went is heard all the same."""
    async with letters_at(ground) as store:
        replays = ReplayStore(store)
        await store.ingest(stored(*(parked(n) for n in range(10))))
        begun = await frozen(replays)
        await replays.leased("one", now_ms=NOON_MS - 50, lease_ms=10)
        first = await replays.next_portion(begun.id, 4, holder="one")
        assert len(first) == 4
        (mine,) = await replays.leased("two", now_ms=NOON_MS, lease_ms=1_000)
        assert (mine.holder, await replays.holders([begun.id])) == ("two", {begun.id: "two"})
        assert await replays.next_portion(begun.id, 4, holder="one") == []
        again = await replays.next_portion(begun.id, 4, holder="two")
        assert [one.row for one in again] == [one.row for one in first]
        assert await replays.taken_over(begun.id, holder="one") == 0, "they are being sent by the other one"
        said = {first[0].row: "full"}
        await replays.settled(begun.id, [first[1].row], said, at_ms=NOON_MS, holder="one")
        view = await replays.view(begun.id)
        assert view.counts == ReplayCounts(waiting=6, sending=3, sent=1, doubtful=4)
        await replays.settled(begun.id, [one.row for one in again], {}, at_ms=NOON_MS, holder="two")
        assert (await replays.view(begun.id)).counts == ReplayCounts(waiting=6, sent=4, doubtful=4)
        books_agree(ground)


async def test_cancelled_when_nobody_can_settle_it(ground: Ground) -> None:
    """Its vhost is gone, or its service: what was being sent is open again, and in the list."""
    async with letters_at(ground) as store:
        replays = ReplayStore(store)
        await store.ingest(stored(*(parked(n) for n in range(10))))
        begun = await frozen(replays)
        await replays.leased("one", now_ms=NOON_MS - 50, lease_ms=10)
        await replays.next_portion(begun.id, 4, holder="one")
        view = await replays.cancel(begun.id, who="ann")
        assert (view.counts, view.holder) == (ReplayCounts(let_go=10, doubtful=4), "")
        books_agree(ground)
        assert (await replays.finish(begun.id)).ended_ms is not None


async def test_pause_resume_cancel_stop_and_pace(ground: Ground) -> None:
    async with letters_at(ground) as store:
        replays = ReplayStore(store)
        await store.ingest(stored(*(parked(n) for n in range(2 * FROZEN_AT_ONCE + 10))))
        begun = await replays.begin(EVERYTHING, who="ann", why="")
        assert await replays.freeze_some(begun.id) == FROZEN_AT_ONCE
        assert (await replays.pause(begun.id, who="bob")).state is ReplayState.PAUSED
        assert await replays.freeze_some(begun.id) == 0
        assert (await replays.resume(begun.id, who="bob")).state is ReplayState.FREEZING
        while await replays.freeze_some(begun.id):
            pass
        assert (await replays.view(begun.id)).counts.waiting == 2 * FROZEN_AT_ONCE + 10
        await replays.pause(begun.id, who="bob")
        assert await replays.next_portion(begun.id, 10) == []
        assert (await replays.resume(begun.id, who="bob")).state is ReplayState.RUNNING
        stage = ReplayStage(number=1, began_ms=5)
        await replays.leased("one", now_ms=NOON_MS, lease_ms=1_000)
        found = await replays.next_portion(begun.id, 10, stage=stage)
        assert (await replays.view(begun.id)).stage == stage
        assert (await replays.set_pace(begun.id, Canary(share=0.1), who="eve")).pace == Canary(share=0.1)
        # cancelled while some are being sent: those are settled by whoever sends them, while that one lives
        view = await replays.cancel(begun.id, who="bob")
        assert view.counts == ReplayCounts(sending=10, let_go=2 * FROZEN_AT_ONCE)
        books_agree(ground)
        assert (await replays.finish(begun.id)).ended_ms is None
        await replays.settled(begun.id, [one.row for one in found], {}, at_ms=NOON_MS)
        assert await replays.quiet(begun.id, now_ms=NOON_MS + OUTCOME_MS) == 10
        view = await replays.finish(begun.id)
        assert (view.state, view.ended_ms) == (ReplayState.CANCELLED, NOON_MS)
        for refused in (replays.pause, replays.resume, replays.cancel):
            with pytest.raises(UsageError, match="cancelled"):
                await refused(begun.id, who="bob")
        with pytest.raises(UsageError, match="pace"):
            await replays.set_pace(begun.id, AllAtOnce(), who="bob")
        other = await frozen(replays)
        assert other.letters == 2 * FROZEN_AT_ONCE
        view = await replays.stop(other.id, "9 of 10 came back")
        assert (view.state, view.told) == (ReplayState.STOPPED, "9 of 10 came back")
        assert view.counts == ReplayCounts(let_go=2 * FROZEN_AT_ONCE)
        assert (await replays.finish(other.id)).told == "9 of 10 came back"
        books_agree(ground)
        audited = ground.sql("SELECT who, action FROM deadletter_audit ORDER BY id").splitlines()
        assert audited == [
            "ann|replay",
            *("bob|replay paused", "bob|replay freezing", "bob|replay paused", "bob|replay running"),
            *("eve|replay pace", "bob|replay cancelled", "ann|replay", "|replay stopped"),
        ]
        assert [one.id for one in await replays.views()] == [other.id, begun.id]
        assert [one.id for one in await replays.views(after=other.id)] == [begun.id]
        assert [one.id for one in await replays.views(states=[ReplayState.STOPPED])] == [other.id]
        for asked in (replays.view, replays.next_portion, replays.freeze_some):
            with pytest.raises(NotStored, match="replay 99"):
                await asked(99, *([5] if asked == replays.next_portion else []))


async def test_a_canary_begins_anew_with_a_new_pace(ground: Ground) -> None:
    async with letters_at(ground) as store:
        replays = ReplayStore(store)
        await store.ingest(stored(*(parked(n) for n in range(20))))
        replay = await frozen(replays)
        found = await replays.next_portion(replay.id, 10)
        await replays.settled(replay.id, [one.row for one in found[:9]], {found[9].row: "no"}, at_ms=NOON_MS)
        await store.ingest(stored(*(_back(n, replay.id, at_ms=NOON_MS) for n in range(5))))
        await replays.set_pace(replay.id, Canary(), who="ann")
        view, seen = await replays.seen(replay.id, depth=3, consumers=2, now_ms=NOON_MS)
        assert view.stage == seen.stage == ReplayStage(gone=9, returned=5)
        assert (seen.waiting, seen.sent, seen.depth, seen.consumers) == (10, 4, 3, 2)
        assert seen.released_lately == 9
        await replays.set_pace(replay.id, Auto(), who="ann")
        _, seen = await replays.seen(replay.id, depth=3, consumers=2, now_ms=NOON_MS + 1_000)
        assert (seen.released_lately, seen.window_sent, seen.window_returned) == (0, 9, 5)
        _, seen = await replays.seen(replay.id, depth=3, consumers=2, now_ms=NOON_MS + OUTCOME_MS)
        assert (seen.window_sent, seen.window_returned) == (0, 0)


async def test_a_pace_that_somebody_chose_meanwhile_is_not_overtaken(ground: Ground) -> None:
    """What the next step is was decided for the pace before: it marks nothing, and the new stage stays."""
    async with letters_at(ground) as store:
        replays = ReplayStore(store)
        await store.ingest(stored(*(parked(n) for n in range(20))))
        replay = await frozen(replays)
        found = await replays.next_portion(replay.id, 10, stage=ReplayStage(), follows=replay)
        await replays.settled(replay.id, [one.row for one in found], {}, at_ms=NOON_MS)
        before = await replays.view(replay.id)
        changed = await replays.set_pace(replay.id, Canary(), who="ann")
        assert changed.stage == ReplayStage(gone=10) != before.stage
        assert await replays.next_portion(replay.id, 10, stage=ReplayStage(), follows=before) == []
        assert (await replays.view(replay.id)).stage == changed.stage
        step = ReplayStage(number=1, gone=10, began_ms=NOON_MS)
        assert len(await replays.next_portion(replay.id, 1, stage=step, follows=changed)) == 1
        assert (await replays.view(replay.id)).stage == step
        books_agree(ground)


async def test_a_group_of_which_another_replay_has_letters_stays_open(ground: Ground) -> None:
    async with letters_at(ground) as store:
        replays = ReplayStore(store)
        await store.ingest(stored(*(parked(n) for n in range(10))))
        one = await frozen(replays, ReplayPlan(selection=LetterQuery(ids=(1,)), resolves=True))
        other = await frozen(replays, ReplayPlan(selection=LetterQuery(), resolves=True))
        assert (one.letters, other.letters) == (1, 9)
        for replay, state in ((one, GroupState.OPEN), (other, GroupState.RESOLVED)):
            found = await replays.next_portion(replay.id, 10)
            await replays.settled(replay.id, [each.row for each in found], {}, at_ms=NOON_MS)
            await replays.quiet(replay.id, now_ms=NOON_MS + OUTCOME_MS)
            assert (await replays.finish(replay.id)).state is ReplayState.DONE
            (group,) = await store.groups(GroupQuery(states=()))
            assert group.state is state


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        (LetterQuery(ids=(1, 3, 99)), {0, 2}),
        (LetterQuery(text="needle"), {4}),
        (LetterQuery(headers=(("tenant", "a*"),)), {5}),
        (LetterQuery(error="did not answer", group=2), set(range(6))),
        (LetterQuery(origin="nowhere"), set()),
        (LetterQuery(where=".body"), {0, 1}),
    ],
)
async def test_selections(ground: Ground, selection: LetterQuery, expected: set[int]) -> None:
    async def first_two(some: Sequence[Letter]) -> list[bool]:
        return [int(letter.id, 16) % 100 < 2 for letter in some]

    async with letters_at(ground) as store:
        replays = ReplayStore(store)
        await store.ingest(
            stored(
                *(parked(n) for n in range(4)),
                parked(4, body=b"a needle in it"),
                parked(5, headers={"tenant": "acme"}),
                *(parked(n, kind="Other", error="boom") for n in range(90, 95)),
            )
        )
        begun = await replays.begin(ReplayPlan(selection=selection), who="ann", why="")
        while await replays.freeze_some(begun.id, where=first_two):
            pass
        found = await replays.next_portion(begun.id, 100)
        assert {int(one.letter_id, 16) for one in found} == expected
        await store.ingest(stored(parked(200, body=b"a needle"), parked(201, headers={"tenant": "axe"})))
        came = 0 if selection.ids or not expected else 2 if selection.group else 1
        came = 2 if selection.where else came
        assert await replays.newcomers(begun.id, where=first_two) == came
        books_agree(ground)


async def test_a_program_that_nobody_can_run_selects_nothing(ground: Ground) -> None:
    async with letters_at(ground) as store:
        replays = ReplayStore(store)
        await store.ingest(stored(parked(1)))
        begun = await replays.begin(ReplayPlan(selection=LetterQuery(where="true")), who="ann", why="")
        with pytest.raises(UsageError, match="jq"):
            await replays.freeze_some(begun.id)
        assert (await replays.view(begun.id)).letters == 0


async def test_claimed_letters_are_nobody_elses(ground: Ground) -> None:
    """Not thrown away, not forgotten, not exported as open ones; their copies neither."""
    clock = Clock()
    async with letters_at(ground, clock) as store:
        replays = ReplayStore(store)
        await store.ingest(
            stored(*(parked(n) for n in range(5)), parked(0, move="copy"), parked(9, origin="b"))
        )
        replay = await frozen(replays, ReplayPlan(selection=LetterQuery(origin="orders")))
        ids = [row.id for row in (await store.find(LetterQuery(state=None))).letters]
        assert await store.discard(ids, who="ann", why="") == 1
        assert await store.take_back(ids, who="ann", why="") == 1
        clock.now_ms += 100 * MINUTE_MS
        for keep in (Retention(age_ms=1), Retention(letters=0), Retention(bytes=0)):
            while await store.forget_some(names.PARKED, keep):
                pass
            books_agree(ground)
            assert await _states(store) == {LetterState.CLAIMED: 5}
        assert ground.sql("SELECT count(*) FROM deadletter_letters") == "6"
        rows = await _sent(replays, replay)
        assert len(rows) == 5
        books_agree(ground)
        while await store.forget_some(names.PARKED, Retention(age_ms=1)):
            pass
        assert await _states(store) == {}
        # history is left: what was forgotten was sent
        told = await replays.outcomes(replay.id)
        assert [(one.letter, one.letter_id, one.state) for one in told] == [
            (row, "", SentState.SENT) for row in rows
        ]
        assert await replays.quiet(replay.id, now_ms=clock.now_ms + OUTCOME_MS) == 5
        assert (await replays.finish(replay.id)).state is ReplayState.DONE


async def test_letters_that_are_not_there_as_they_were(ground: Ground) -> None:
    async with letters_at(ground) as store:
        replays = ReplayStore(store)
        await store.ingest(stored(*(parked(n) for n in range(5))))
        replay = await frozen(replays)
        ground.sql("DELETE FROM deadletter_letters WHERE id = 2")
        ground.sql("UPDATE deadletter_contents SET data = NULL WHERE id = -1")
        broken = "'\\x01ff'" if "postgres" in ground.url else "x'01ff'"
        ground.sql(f"UPDATE deadletter_contents SET data = {broken} WHERE id = 4")
        found = await replays.next_portion(replay.id, 10)
        assert [one.row for one in found] == [1, 3, 5]
        told = {one.letter: one.why for one in await replays.outcomes(replay.id, SentState.REFUSED)}
        assert told == {2: GONE, 4: DAMAGED}
        assert (await store.find(LetterQuery())).letters[0].id == 4


async def test_large_letters_come_in_small_portions(ground: Ground) -> None:
    async with letters_at(ground) as store:
        replays = ReplayStore(store)
        for number in range(3):
            await store.ingest(stored(parked(number, body=bytes([number]) * 9_000_000)))
        replay = await frozen(replays)
        sizes = [len(await replays.next_portion(replay.id, 1_000)) for _ in range(4)]
        assert sizes == [1, 1, 1, 0]


@pytest.mark.parametrize("room", [letter_contents.KNOWN_BYTES, 2_000, 1])
async def test_letters_of_many_groups_come_mixed_and_exact(
    ground: Ground, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each was packed with what its group has in common, and that is remembered from portion to portion, or
    forgotten where there is no room."""
    monkeypatch.setattr(letter_contents, "KNOWN_BYTES", room)
    kinds = [f"{word}Error" for word in ("Limit", "Card", "Ledger", "Stock", "Route", "Clock")]
    async with letters_at(ground) as store:
        sent = [
            parked(n, kind=kinds[n % 6], error=f"{kinds[n % 6]} of {n % 6}", body=b"%d " % n * 50)
            for n in range(240)
        ]
        for start in range(0, len(sent), 24):
            await store.ingest(stored(*sent[start : start + 24]))
        async with store.connections.reading() as connection:
            packed = (await connection.execute(text("SELECT count(*) FROM deadletter_dictionaries"))).scalar()
        assert packed == 6
        replays = ReplayStore(store)
        replay = await frozen(replays)
        found = [one for _ in range(25) for one in await replays.next_portion(replay.id, 10)]
    assert [one.letter.message for one in found] == [letter.message for letter in sent]


@pytest.mark.parametrize("resolves", [True, False])
async def test_groups_at_the_end(ground: Ground, resolves: bool) -> None:
    clock = Clock()
    async with letters_at(ground, clock) as store:
        replays = ReplayStore(store)
        kinds = ["Cured", "Back", "Resolved", "Muted", "More"]
        await store.ingest(stored(*(parked(n, kind=kinds[n // 2], error=kinds[n // 2]) for n in range(10))))
        by_type = {group.error_type: str(group.id) for group in await store.groups(GroupQuery(states=()))}
        await store.set_state(by_type["Resolved"], GroupState.RESOLVED, who="ann")
        await store.set_state(by_type["Muted"], GroupState.MUTED, who="ann")
        replay = await frozen(replays, replace(EVERYTHING, resolves=resolves))
        await _sent(replays, replay)
        await store.ingest(stored(_back(2, replay.id, at_ms=NOON_MS)))
        await store.ingest(stored(parked(50, kind="More", error="More")))
        clock.now_ms += OUTCOME_MS + 5
        await replays.quiet(replay.id, now_ms=clock.now_ms)
        assert (await replays.finish(replay.id)).state is ReplayState.DONE
        listed = await store.groups(GroupQuery(states=()))
        states = {group.error_type: group.state for group in listed if group.error_type in kinds}
        assert states == {
            "Cured": GroupState.RESOLVED if resolves else GroupState.OPEN,
            "Back": GroupState.OPEN,
            "Resolved": GroupState.RESOLVED,
            "Muted": GroupState.MUTED,
            "More": GroupState.OPEN,
        }
        audited = ground.sql("SELECT action FROM deadletter_audit ORDER BY id").splitlines()[3:]
        assert sorted(audited) == (["closed", "resolved"] if resolves else ["closed"])


async def test_time_left_is_told_only_where_somebody_can_know(ground: Ground) -> None:
    clock = Clock()
    async with letters_at(ground, clock) as store:
        replays = ReplayStore(store)
        await store.ingest(stored(*(parked(n) for n in range(100))))
        replay = await frozen(replays)
        assert replay.left_ms() is None
        found = await replays.next_portion(replay.id, 50)
        await replays.settled(replay.id, [one.row for one in found], {}, at_ms=NOON_MS + 10_000)
        view = await replays.view(replay.id)
        assert view.left_ms() == 10_000
        assert replace(view, pace=Canary()).left_ms() is None
        assert replace(view, state=ReplayState.PAUSED).left_ms() is None


async def test_outcomes_in_pages(ground: Ground) -> None:
    async with letters_at(ground) as store:
        replays = ReplayStore(store)
        await store.ingest(stored(*(parked(n) for n in range(25))))
        replay = await frozen(replays)
        for at_ms in (NOON_MS + 2, NOON_MS + 1, NOON_MS + 3):
            found = await replays.next_portion(replay.id, 8)
            await replays.settled(replay.id, [one.row for one in found], {}, at_ms=at_ms)
        for state, expected in ((SentState.SENT, 24), (SentState.WAITING, 1), (None, 25)):
            seen: list[int] = []
            while page := await replays.outcomes(replay.id, state, seen[-1] if seen else None, 5):
                seen += [one.letter for one in page]
            assert len(seen) == len(set(seen)) == expected


async def test_a_replay_says_why_it_waits(ground: Ground) -> None:
    async with letters_at(ground) as store:
        replays = ReplayStore(store)
        await store.ingest(stored(parked(1)))
        replay = await frozen(replays)
        await replays.tell(replay.id, "the gate of orders is shut")
        assert (await replays.view(replay.id)).told == "the gate of orders is shut"
        await replays.next_portion(replay.id, 1)
        assert (await replays.view(replay.id)).told == ""


async def test_overlapping_selections_never_share_a_letter(ground: Ground) -> None:
    """Two instances, three replays, all at once, while letters come."""
    async with letters_at(ground) as one, letters_at(ground) as two:
        for start in range(0, 3_000, 500):
            await one.ingest(stored(*(parked(n) for n in range(start, start + 500))))
        begun = [await ReplayStore(store).begin(EVERYTHING, who="ann", why="") for store in (one, two, one)]
        sent: list[str] = []

        async def work(store: LetterStore, replay: int) -> None:
            replays = ReplayStore(store)
            while await replays.freeze_some(replay):
                pass
            while found := await replays.next_portion(replay, 100):
                sent.extend(letter.letter_id for letter in found)
                await replays.settled(replay, [letter.row for letter in found], {}, at_ms=NOON_MS)

        async def more() -> None:
            for start in range(10_000, 11_000, 100):
                await two.ingest(stored(*(parked(n) for n in range(start, start + 100))))

        await asyncio.gather(
            work(one, begun[0].id),
            work(two, begun[1].id),
            work(one, begun[2].id),
            work(two, begun[0].id),
            more(),
        )
        assert len(sent) == len(set(sent)) == 3_000
        views = [await ReplayStore(one).view(view.id) for view in begun]
        assert sum(view.letters for view in views) == 3_000
        assert sum(view.counts.sent for view in views) == 3_000
        assert not any(view.counts.doubtful for view in views)
        books_agree(ground)
