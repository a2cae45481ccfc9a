"""Letters are thrown away, taken back and forgotten, and what is counted always equals a recount.

About `store.letters.letter_changes`, `store.letters.discards`, `store.finding.one_letter`,
`store.letters.letter_store`, `store.letters.letter_tables`.
"""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.store.grounds import Ground, SqliteGround
from tests.store.parked import MINUTE_MS, NOON_MS, Clock, letters_at, parked, stored

from deadletter.core.grouping.group_query import GroupQuery
from deadletter.core.grouping.letter_query import LetterQuery, LetterState
from deadletter.core.grouping.retention import Retention
from deadletter.core.grouping.stored_letter import StoredLetter, stored_letter
from deadletter.store.letters.letter_changes import FORGET_AT_ONCE, HOURS_AFTER_MIN
from deadletter.store.letters.letter_store import LetterStore

RECOUNTED = (
    "SELECT group_id, vhost, queue, state, count(*), sum(bytes) FROM deadletter_letters "
    "WHERE copy_of IS NULL GROUP BY group_id, vhost, queue, state ORDER BY 1, 2, 3, 4"
)
TALLIED = (
    "SELECT group_id, vhost, queue, state, letters, bytes FROM deadletter_tallies "
    "WHERE letters <> 0 OR bytes <> 0 ORDER BY 1, 2, 3, 4"
)
ORPHANS = (
    "SELECT (SELECT count(*) FROM deadletter_letters l LEFT JOIN deadletter_letters f ON f.id = l.copy_of "
    "WHERE l.copy_of IS NOT NULL AND f.id IS NULL), "
    "(SELECT count(*) FROM deadletter_contents WHERE id NOT IN "
    "(SELECT id FROM deadletter_letters)), (SELECT count(*) FROM deadletter_steps WHERE letter NOT IN "
    "(SELECT id FROM deadletter_letters))"
)


def _counts_hold(ground: Ground) -> None:
    assert ground.sql(TALLIED) == ground.sql(RECOUNTED)
    assert ground.sql(ORPHANS) == "0|0|0"


async def _ids(store: LetterStore, state: LetterState | None = None) -> list[int]:
    return [row.id for row in (await store.find(LetterQuery(state=state, limit=1_000))).letters]


async def test_the_last_discard_of_a_person(ground: Ground) -> None:
    clock = Clock()
    async with letters_at(ground, clock) as store:
        await store.ingest(stored(*(parked(n) for n in range(12))))
        ids = sorted(await _ids(store))

        async def found(who: str) -> list[int]:
            last = await store.last_discard(who)
            assert last is not None
            page = await store.find(LetterQuery(state=LetterState.DISCARDED, discard=last.discard))
            return sorted(row.id for row in page.letters)

        assert await store.last_discard("ann") is None
        await store.discard(ids[:1], who="ann", why="before", run="a")
        await store.discard(ids[1:3], who="bob", why="in the same millisecond", run="b")
        assert await found("ann") == ids[:1]
        clock.now_ms += 1
        first = clock.now_ms
        await store.discard(ids[3:5], who="ann", why="call \0 them", run="c")
        await store.discard(ids[5:6], who="bob", why="", run="b")
        clock.now_ms += 1
        await store.discard(ids[6:8], who="ann", why="call \0 them", run="c")
        last = await store.last_discard("ann")
        assert last is not None
        assert (last.letters, last.at_ms, last.who) == (4, first, "ann")
        assert await found("ann") == [*ids[3:5], *ids[6:8]]
        assert await found("bob") == [*ids[1:3], *ids[5:6]]
        clock.now_ms += 1
        await store.take_back(ids[3:4], who="carl", why="")
        await store.discard(ids[3:4], who="ann", why="")  # by a program that names no run
        assert await found("ann") == ids[3:4]
        await store.take_back(ids[3:4], who="ann", why="")
        assert await found("ann") == []
        page = await store.find(LetterQuery(state=None, discard=10**9))
        assert page.letters == ()
        assert (await store.facets(LetterQuery(state=None, discard=1))).total == 1


async def test_discard_and_take_back(ground: Ground) -> None:
    async with letters_at(ground) as store:
        await store.ingest(stored(*(parked(n) for n in range(5)), parked(0, move="copy")))
        ids = await _ids(store)
        assert await store.discard([*ids[:3], 10**9], who="ann", why="test\0") == 3
        assert await store.discard(ids[:3], who="ann", why="again") == 0
        assert await _ids(store, LetterState.OPEN) == ids[3:]
        _counts_hold(ground)
        assert await store.take_back(ids, who="bob", why="no") == 3
        assert await store.discard([ids[-1]], who="ann", why="with its copy") == 1
        assert ground.sql("SELECT count(*) FROM deadletter_letters WHERE state = 1") == "2"
        told = await store.letter(str(ids[0]))
        assert [(step.step, step.who, step.why) for step in told.steps] == [
            ("discarded", "ann", "test\ufffd"),
            ("taken back", "bob", "no"),
        ]
        _counts_hold(ground)
        (group,) = await store.groups(GroupQuery())
        assert (group.total, group.open) == (5, 4)
        audited = ground.sql("SELECT who, action FROM deadletter_audit ORDER BY id").splitlines()
        assert audited == ["ann|discarded", "bob|taken back", "ann|discarded"]


@pytest.mark.parametrize(
    ("retention", "left"),
    [
        (Retention(), 30),
        (Retention(age_ms=10 * MINUTE_MS), 11),
        (Retention(letters=7), 7),
        (Retention(letters=0), 0),
        (Retention(bytes=100), 10),
        (Retention(bytes=105, letters=20), 10),
        (Retention(age_ms=10 * MINUTE_MS, letters=25, bytes=90), 9),
    ],
)
async def test_retention_of_one_queue(ground: Ground, retention: Retention, left: int) -> None:
    clock = Clock()
    async with letters_at(ground, clock) as store:
        for number in range(30):
            clock.now_ms = NOON_MS + number * MINUTE_MS
            here = parked(number, queue="a", body=b"0123456789")
            await store.ingest(
                stored(
                    here,
                    parked(number + 100, queue="b"),
                    parked(number, queue="a", body=b"0123456789", move="copy"),
                )
            )
        clock.now_ms = NOON_MS + 29 * MINUTE_MS
        while await store.forget_some("a", retention):
            _counts_hold(ground)
        rows = (await store.find(LetterQuery(queue="a", limit=100))).letters
        assert [int(row.letter_id, 16) for row in rows] == list(range(29, 29 - left, -1))
        assert len((await store.find(LetterQuery(queue="b", limit=100))).letters) == 30
        assert await store.forget_some("no such queue", retention) == 0
        _counts_hold(ground)


async def test_forgetting_takes_small_portions(ground: Ground) -> None:
    async with letters_at(ground) as store:
        await store.ingest(stored(*(parked(n) for n in range(FORGET_AT_ONCE * 2 + 5))))
        keep = Retention(letters=3)
        assert [await store.forget_some("deadletter.parked", keep) for _ in range(4)] == [
            FORGET_AT_ONCE,
            FORGET_AT_ONCE,
            2,
            0,
        ]
        # the group remembers what came
        (group,) = await store.groups(GroupQuery())
        assert (group.total, group.open) == (FORGET_AT_ONCE * 2 + 5, 3)
        # and a letter that was forgotten may come again
        assert (await store.ingest(stored(parked(0)))).new == 1


async def test_a_discarded_letter_goes_when_its_time_is_over(ground: Ground) -> None:
    clock = Clock()
    async with letters_at(ground, clock) as store:
        await store.ingest(stored(*(parked(n) for n in range(4))))
        ids = await _ids(store)
        await store.discard(ids[1:3], who="ann", why="")
        keep = Retention(discarded_ms=MINUTE_MS)
        clock.now_ms += MINUTE_MS
        assert await store.forget_some("deadletter.parked", keep) == 0
        clock.now_ms += 1
        assert await store.forget_some("deadletter.parked", keep) == 2
        assert await _ids(store) == [ids[0], ids[3]]
        assert await store.take_back(ids, who="ann", why="too late") == 0
        _counts_hold(ground)


async def test_old_counts_become_counts_by_the_hour(ground: Ground) -> None:
    clock = Clock()
    async with letters_at(ground, clock) as store:
        await store.ingest(stored(*(parked(n, at_ms=NOON_MS + n * MINUTE_MS) for n in range(90))))
        assert await store.fold_counts() == 0
        clock.now_ms += (HOURS_AFTER_MIN + 61) * MINUTE_MS
        while await store.fold_counts():
            pass
        noon = NOON_MS // MINUTE_MS
        found = (await store.minutes([1], since_ms=0))[1]
        assert sum(found.values()) == 90
        assert found[noon - noon % 60] >= 60 - noon % 60
        assert len(found) < 40


async def test_several_hands_at_once(ground: Ground) -> None:
    async with letters_at(ground) as one, letters_at(ground) as other:
        await one.ingest(stored(*(parked(n) for n in range(300))))
        ids = await _ids(one)

        async def forget() -> None:
            for _ in range(3):
                await other.forget_some("deadletter.parked", Retention(letters=150))

        await asyncio.gather(
            one.discard(ids, who="a", why=""),
            other.discard(list(reversed(ids)), who="b", why=""),
            forget(),
            one.ingest(stored(*(parked(n, move="copy") for n in range(300)))),
            other.take_back(ids[::2], who="c", why=""),
            other.ingest(stored(*(parked(n) for n in range(400, 500)))),
        )
        _counts_hold(ground)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("ingest"), st.lists(st.integers(0, 40), max_size=6)),
        st.tuples(st.sampled_from(("discard", "take back")), st.lists(st.integers(1, 30), max_size=8)),
        st.tuples(st.just("forget"), st.lists(st.integers(0, 8), min_size=1, max_size=1)),
        st.tuples(st.sampled_from(("merge", "split")), st.lists(st.integers(0, 2), min_size=2, max_size=2)),
    ),
    max_size=14,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
def test_whatever_is_done_the_counts_hold(
    tmp_path_factory: pytest.TempPathFactory, done: list[tuple[str, list[int]]]
) -> None:
    async def run() -> None:
        ground = SqliteGround(tmp_path_factory.mktemp("store") / "x.db")
        clock = Clock()
        async with letters_at(ground, clock) as store:
            for what, told in done:
                clock.now_ms += MINUTE_MS
                await _do(store, what, told)
                _counts_hold(ground)
            groups = await store.groups(GroupQuery(states=()))
            page = await store.find(LetterQuery(limit=1_000))
            assert sum(group.open for group in groups) == len(page.letters)
            assert (await store.facets(LetterQuery())).total == len(page.letters)
            for group in groups:
                mine = await store.find(LetterQuery(group=group.id, limit=1_000))
                assert group.open == len(mine.letters)

    asyncio.run(run())


async def _do(store: LetterStore, what: str, told: list[int]) -> None:
    match what:
        case "ingest":
            made = [parked(n // 3, error=f"kind {'abc'[n // 3 % 3]}", move=f"m-{n % 3}") for n in told]
            await store.ingest(stored(*made))
        case "discard":
            await store.discard(told, who="a", why="")
        case "take back":
            await store.take_back(told, who="a", why="")
        case "forget":
            await store.forget_some("deadletter.parked", Retention(letters=told[0]))
        case _:
            groups = {group.key: group for group in await store.groups(GroupQuery(states=()))}
            keys = sorted(groups)
            if what == "merge" and len(keys) > max(told) and told[0] != told[1]:
                await store.merge(keys[told[0]], keys[told[1]], who="a")
            elif what == "split" and keys:
                for key in (await store.group(keys[0])).merged[:1]:
                    await store.split(key, who="a")


async def test_queues_of_two_vhosts_may_have_one_name(ground: Ground) -> None:
    """Each has its own retention, its own count, and its own place in a search."""

    def of(vhost: str, *numbers: int) -> list[StoredLetter]:
        return [stored_letter(parked(n, queue="q"), now_ms=NOON_MS, vhost=vhost) for n in numbers]

    async with letters_at(ground) as store:
        await store.ingest([*of("/", 1, 2, 3), *of("shop", 4, 5)])
        (queues,) = {(await store.facets(LetterQuery())).by["queue"]}
        assert {(one.value, one.vhost): one.letters for one in queues} == {("q", "/"): 3, ("q", "shop"): 2}
        counted = (await store.facets(LetterQuery(cause="retries-exhausted"))).by["queue"]
        assert set(counted) == set(queues)
        assert (await store.facets(LetterQuery(vhost="shop", queue="q"))).total == 2
        assert len((await store.find(LetterQuery(queue="q"))).letters) == 5
        assert len((await store.find(LetterQuery(queue="q", vhost="/"))).letters) == 3
        assert await store.forget_some("q", Retention(letters=0)) == 0, "of no vhost there is none"
        assert await store.forget_some("q", Retention(letters=2), vhost="shop") == 0
        assert await store.forget_some("q", Retention(letters=2), vhost="/") == 1
        await store.discard([2, 4], who="ann", why="")
        assert await store.forget_some("q", Retention(discarded_ms=-1), vhost="/") == 1
        assert (await store.facets(LetterQuery(vhost="shop", queue="q", state=None))).total == 2
        assert await store.forget_some("q", Retention(bytes=8), vhost="shop") == 1
        _counts_hold(ground)
