"""What the desk keeps beside letters: audit, samples, answers, revision; on both databases.

About `store.journal.journal_store`, `store.journal.audit_list`, `store.journal.samples`,
`store.journal.answers`, `store.journal.revision`, `store.journal.journal_tables`, `store.journal.instances`,
`store.groups.group_versions`, `service.storing.attendance`, `store.journal.door_store`,
`store.journal.view_table`.
"""

from __future__ import annotations

import asyncio
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.store.grounds import Ground
from tests.store.parked import MINUTE_MS, NOON_MS, Clock, letters_at, parked, stored

from deadletter.core.grouping.group_states import GroupState
from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.errors import ChangedMeanwhile, NotStored, UsageError
from deadletter.operations.journal.store_journal import StoreJournal
from deadletter.service.storing.attendance import attend
from deadletter.service.telling.service_events import ServiceEvent
from deadletter.store.journal import view_table
from deadletter.store.journal.answers import KEPT_MS, AnswerStore
from deadletter.store.journal.audit_list import AuditQuery
from deadletter.store.journal.door_store import DoorStore, KnownKey
from deadletter.store.journal.instances import InstanceSeen
from deadletter.store.journal.journal_store import JournalStore
from deadletter.store.journal.revision import StoreRevision
from deadletter.store.journal.samples import QueueSample
from deadletter.store.journal.view_table import SavedView, ViewStore
from deadletter.store.letters.letter_store import LetterStore, open_letters
from deadletter.store.preparing import MIGRATIONS, migrate
from deadletter.store.store_address import parse

DAY_MS = 24 * 60 * MINUTE_MS


def sample(at_ms: int, depth: int, queue: str = "orders.dlq", *, rate: float = 0.0) -> QueueSample:
    return QueueSample(
        vhost="/",
        queue=queue,
        minute=at_ms // MINUTE_MS,
        depth=depth,
        depth_most=depth + 1,
        consumers=1,
        oldest_s=None if depth == 0 else float(depth),
        in_per_s=rate,
        out_per_s=0.5,
    )


async def test_the_audit_is_found_by_who_what_letter_group_and_replay(ground: Ground) -> None:
    async with letters_at(ground) as store:
        await store.ingest(stored(parked(1), parked(2), parked(3)))
        ids = [row.id for row in (await store.find(LetterQuery())).letters]
        await store.discard(ids[:2], who="ann", why="x")
        group = await store.set_state("1", GroupState.RESOLVED, who="bob")
        await store.noted("cid", "replay", {"replay": 7})
        journal = JournalStore(store)
        told = await journal.audit(AuditQuery())
        assert [(one.who, one.action) for one in told] == [
            ("cid", "replay"),
            ("bob", "resolved"),
            ("ann", "discarded"),
        ]
        assert [one.who for one in await journal.audit(AuditQuery(who="ann"))] == ["ann"]
        assert [one.who for one in await journal.audit(AuditQuery(action="resolved"))] == ["bob"]
        assert [one.who for one in await journal.audit(AuditQuery(group=group.id))] == ["bob"]
        assert [one.who for one in await journal.audit(AuditQuery(replay=7))] == ["cid"]
        assert [one.who for one in await journal.audit(AuditQuery(letter=ids[0]))] == ["ann"]
        assert await journal.audit(AuditQuery(letter=ids[2])) == []
        first = await journal.audit(AuditQuery(limit=1))
        assert len(first) == 2  # one more: there is another page
        assert [one.who for one in await journal.audit(AuditQuery(after=first[0].id))] == ["bob", "ann"]


@pytest.mark.unprepared
async def test_entries_of_an_older_version_are_found_by_their_group(ground: Ground, tmp_path: Path) -> None:
    older = tmp_path / "migrations"
    newer = shutil.ignore_patterns("__pycache__", "v0005*", "v0006*", "v0007*", "v0008*")
    shutil.copytree(MIGRATIONS, older, ignore=newer)
    await migrate(ground.url, migrations=older)
    for number, detail in enumerate(['{"group": 5, "until_ms": null}', '{"letters": 3, "why": "group"}'], 1):
        ground.sql(
            "INSERT INTO deadletter_audit (id, at_ms, who, action, detail) "
            f"VALUES ({number}, 1, 'ann', 'x', '{detail}')"
        )
    async with letters_at(ground) as store:
        found = await JournalStore(store).audit(AuditQuery(group=5))
        assert [(one.id, one.detail) for one in found] == [(1, {"group": 5, "until_ms": None})]


async def test_samples_are_folded_into_hours_and_forgotten_after_90_days(ground: Ground) -> None:
    clock = Clock(NOON_MS // (60 * MINUTE_MS) * 60 * MINUTE_MS)
    async with letters_at(ground, clock) as store:
        journal = JournalStore(store)
        then = clock.now_ms
        await journal.put_samples([sample(then + n * MINUTE_MS, n, rate=float(n)) for n in range(60)])
        await journal.put_samples([sample(then, 99)])  # another instance, later: the first one stays
        (told,) = await journal.series(
            [("/", "orders.dlq")], from_ms=then, until_ms=then + DAY_MS, step_min=1
        )
        assert [point.depth for point in told.points] == list(range(60))
        (told,) = await journal.series(
            [("/", "orders.dlq")], from_ms=then, until_ms=then + DAY_MS, step_min=30
        )
        assert [(point.depth, point.depth_most) for point in told.points] == [(29, 30), (59, 60)]
        assert await journal.fold_samples() == 0
        clock.now_ms += DAY_MS + 60 * MINUTE_MS
        assert await journal.fold_samples() == 60
        assert await journal.fold_samples() == 0
        (told,) = await journal.series(
            [("/", "orders.dlq")], from_ms=then, until_ms=then + DAY_MS, step_min=1
        )
        (point,) = told.points
        assert (point.depth, point.depth_most, point.in_per_s, point.oldest_s) == (59, 60, 29.5, 59.0)
        assert await journal.queues_sampled(since_ms=then) == [("/", "orders.dlq")]
        clock.now_ms += 90 * DAY_MS
        assert await journal.fold_samples() == 1
        assert ground.sql("SELECT count(*) FROM deadletter_samples") == "0"


async def test_a_key_is_taken_once_and_its_answer_kept_for_a_day(ground: Ground) -> None:
    clock = Clock()
    async with letters_at(ground, clock) as store:
        answers = AnswerStore(store)
        took = await asyncio.gather(*(answers.take("ann", "k", f"digest {n}") for n in range(4)))
        assert took.count(None) == 1
        await answers.keep("ann", "k", status=200, kind="application/json", body=b"{}")
        known = await answers.take("ann", "k", "digest")
        assert known is not None
        assert (known.status, known.body) == (200, b"{}")
        assert await answers.take("bob", "k", "digest") is None  # another person's key
        await answers.give_up("bob", "k")
        assert await answers.take("bob", "k", "digest") is None
        clock.now_ms += KEPT_MS + 1
        assert await answers.take("ann", "k", "digest") is None


async def test_a_revision_changes_with_every_commit_and_with_nothing_else(ground: Ground) -> None:
    async with letters_at(ground) as store, open_letters(ground.url) as other:
        revision = StoreRevision(parse(ground.url))
        try:
            pairs = []
            for _ in range(10):  # the server may clean up at any moment, but not for ever
                first = await revision.now()
                await store.find(LetterQuery())
                pairs.append((first, await revision.now()))
            assert any(one == two for one, two in pairs)
            first = await revision.now()
            before = await revision.marks()
            await store.ingest(stored(parked(1)))
            second = await revision.now()
            assert second != first
            assert (await revision.marks()).letters != before.letters
            await other.noted("ann", "x", {})
            assert await revision.now() not in (first, second)
            assert (await revision.marks()).audit != before.audit
        finally:
            await revision.close()


async def test_instances_say_that_they_are_there(ground: Ground) -> None:
    clock = Clock()
    async with letters_at(ground, clock) as store:
        journal, told = JournalStore(store), StoreJournal(store)
        one = InstanceSeen(
            name="one",
            broker="b",
            broker_version="",
            version="1",
            stage="ready",
            started_ms=1,
            seen_ms=NOON_MS,
        )
        await journal.put_instance(one)
        await journal.put_instance(replace(one, name="two", seen_ms=NOON_MS + 1))
        await journal.put_instance(replace(one, stage="reloaded", seen_ms=NOON_MS + 2))
        assert [(seen.name, seen.stage) for seen in await journal.instances()] == [
            ("one", "reloaded"),
            ("two", "ready"),
        ]
        clock.now_ms += 3 * MINUTE_MS
        await journal.put_instance(replace(one, seen_ms=clock.now_ms))
        assert [seen.there for seen in (await told.instances()).instances] == [True, False]
        await journal.put_instance(replace(one, seen_ms=clock.now_ms + 2 * DAY_MS))
        assert [seen.name for seen in await journal.instances()] == ["one"]
        told_of: list[ServiceEvent] = []
        late = replace(one, name="three", seen_ms=clock.now_ms + 2 * DAY_MS)
        attending = asyncio.create_task(attend(opened_of(store), lambda: late, told_of.append, first_s=0))
        async with asyncio.timeout(120):
            while len(await journal.instances()) < 2:  # noqa: ASYNC110 -- nobody tells
                await asyncio.sleep(0.01)
        attending.cancel()
        await asyncio.wait({attending})


def opened_of(store: LetterStore) -> Any:
    """As the service has it."""

    async def found() -> Any:
        return SimpleNamespace(opened=store)

    return found


async def test_two_people_change_one_group(ground: Ground) -> None:
    async with letters_at(ground) as store, letters_at(ground) as other:
        await store.ingest(stored(parked(1)))
        seen = (await store.group("1")).group.version
        done = await asyncio.gather(
            store.set_state("1", GroupState.RESOLVED, who="ann", version=seen),
            other.set_state("1", GroupState.MUTED, who="bob", version=seen),
            return_exceptions=True,
        )
        refused = [one for one in done if isinstance(one, ChangedMeanwhile)]
        assert len(refused) == 1, done
        assert "look again" in str(refused[0])
        entries = await JournalStore(store).audit(AuditQuery(group=1))
        assert len(entries) == 1


# -- the door and views ----------------------------------------------------------------------------------
async def test_ended_sessions_and_known_tokens_are_of_all_instances(ground: Ground) -> None:
    clock = Clock()
    async with letters_at(ground, clock) as store, letters_at(ground, clock) as other:
        door, elsewhere = DoorStore(store), DoorStore(other)
        later_ms = store.now_ms() + MINUTE_MS
        for session in ("a", "a", "b"):
            await door.end_session(session, later_ms)
        assert await elsewhere.ended_sessions() == {"a", "b"}
        await door.end_session("old", 1)
        await door.end_session("c", later_ms)
        assert await elsewhere.ended_sessions() == {"a", "b", "c"}
        olga = KnownKey(print="p1", name="olga", told={"role": "viewer"})
        await asyncio.gather(
            door.keys_seen([olga], who="file"),
            elsewhere.keys_seen([olga], who="file"),
            return_exceptions=False,
        )
        await elsewhere.keys_seen([replace(olga, told={"role": "admin"})], who="file")
        await door.keys_seen([], who="file")
        told = await JournalStore(store).audit(AuditQuery(who="file"))
        assert [one.action for one in told] == ["token removed", "token changed", "token made"]


async def test_views_are_of_one_person_or_shared(ground: Ground, monkeypatch: pytest.MonkeyPatch) -> None:
    async with letters_at(ground) as store:
        views = ViewStore(store)
        mine = SavedView(name="x", address="/letters?q=a", owner="ann")
        await views.save(mine)
        await views.save(replace(mine, address="/letters?q=b"))
        await views.save(replace(mine, owner="bob", shared=True))
        assert [one.address for one in await views.seen_by("ann", others=False)] == ["/letters?q=b"]
        assert [one.owner for one in await views.seen_by("ann", others=True)] == ["ann", "bob"]
        assert [one.owner for one in await views.seen_by("bob", others=True)] == ["bob"]
        monkeypatch.setattr(view_table, "OF_ONE", 1)
        with pytest.raises(UsageError, match="at most 1"):
            await views.save(replace(mine, name="y"))
        assert (await views.remove("ann", "x")).address == "/letters?q=b"
        with pytest.raises(NotStored):
            await views.remove("ann", "x")
