"""The storekeeper with a real SQLite file: batches, outages, what is let go, what is forgotten.

About `service.storing.storekeeper`, `service.storing.forgetting`.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest
from tests.letters import letters

from deadletter.core.deciding.letter_fate import LetterFate
from deadletter.core.deciding.states import Step
from deadletter.core.grouping.dictionaries import Dictionaries
from deadletter.core.grouping.grouping_rules import Grouping, GroupingRule
from deadletter.core.grouping.retention import Retention
from deadletter.core.grouping.stored_letter import StoredLetter, stored_letter
from deadletter.core.letter.envelope import ExchangeKey
from deadletter.core.letter.letter import Letter
from deadletter.errors import StoreRefused, StoreUnreachable
from deadletter.move.verdict import Drop, Leave, Verdict
from deadletter.service.storing import reading_process, storekeeper
from deadletter.service.storing.forgetting import STORE_RETENTION, Forgetting
from deadletter.service.storing.reading_process import BatchReader
from deadletter.service.storing.reading_worker import Unread
from deadletter.service.storing.storekeeper import Storekeeper
from deadletter.service.telling.service_events import (
    Confirmed,
    GroupingSeen,
    LettersStored,
    Recovered,
    ServiceEvent,
    Trouble,
)
from deadletter.store.letters.ingesting import Ingested
from deadletter.store.letters.letter_store import LetterStore, open_letters
from deadletter.store.letters.letter_views import RegroupStage

FATE = LetterFate(step=Step.STORED, source="errors")


def some(count: int, prefix: str = "n") -> list[Letter]:
    return [
        Letter(source="errors", message=one, came_by=ExchangeKey(b"", b"errors"), redelivered=False)
        for one in letters(prefix, count)
    ]


def read(count: int) -> list[StoredLetter]:
    return [stored_letter(one, now_ms=1_000_000, vhost="/") for one in some(count)]


def take(keeper: Storekeeper, letter: Letter) -> asyncio.Future[Verdict]:
    return keeper.take(letter, "/", lambda _stored: FATE)


@asynccontextmanager
async def keeping(
    url: str, heard: list[ServiceEvent], *, batch: int = 10, retention: Retention | None = None
) -> AsyncIterator[Storekeeper]:
    kept = {("/", "errors"): retention or Retention()}
    keeper = Storekeeper(url, batch=batch, retention=kept, emit=heard.append)
    running = asyncio.create_task(keeper.run())
    try:
        async with asyncio.timeout(60):
            while not keeper.working:  # noqa: ASYNC110 -- it tells whoever asked, and nobody has
                await asyncio.sleep(0.01)
        yield keeper
    finally:
        running.cancel()
        await asyncio.wait({running})


async def put(keeper: Storekeeper, brought: list[Letter]) -> list[Verdict]:
    async with asyncio.timeout(60):
        return list(await asyncio.gather(*(take(keeper, one) for one in brought)))


async def by_hand(path: Path, *statements: str) -> None:
    """In a thread: the keeper may be writing, and needs the event loop to come to an end."""

    def change() -> None:
        with closing(sqlite3.connect(path, timeout=60, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            for statement in statements:
                other.execute(statement)
            other.execute("COMMIT")

    await asyncio.to_thread(change)


def told(heard: list[ServiceEvent]) -> list[str]:
    return [one.what for one in heard if isinstance(one, Trouble)]


async def test_letters_come_in_batches(tmp_path: Path) -> None:
    heard: list[ServiceEvent] = []
    async with keeping(f"sqlite:///{tmp_path / 'letters.db'}", heard) as keeper:
        verdicts = await put(keeper, some(25))
    assert verdicts == [Drop(fate=FATE)] * 25
    batches = [one.new for one in heard if isinstance(one, LettersStored)]
    assert (sum(batches), max(batches)) == (25, 10)
    assert told(heard) == []


async def test_letters_that_somebody_else_may_have_by_now_are_not_stored(tmp_path: Path) -> None:
    """Asked before the commit; the others of the batch are."""
    asked: list[str] = []

    async def ours() -> bool:
        asked.append("ours")
        return True

    async def lost() -> bool:
        asked.append("lost")
        return False

    heard: list[ServiceEvent] = []
    async with keeping(f"sqlite:///{tmp_path / 'letters.db'}", heard) as keeper:
        verdicts = [
            keeper.take(one, "/", lambda _stored: FATE, (lost if place % 2 else ours))
            for place, one in enumerate(some(10))
        ]
        async with asyncio.timeout(60):
            assert await asyncio.gather(*verdicts) == [Drop(fate=FATE), Leave()] * 5
    assert {"ours", "lost"} == set(asked)
    assert sum(one.new for one in heard if isinstance(one, LettersStored)) == 5
    assert told(heard) == []


async def test_a_store_that_is_away_lets_go_and_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storekeeper, "HOLD_S", 0.5)
    path, aside = tmp_path / "letters.db", tmp_path / "aside.db"
    heard: list[ServiceEvent] = []
    async with keeping(f"sqlite:///{path}", heard) as keeper:
        await put(keeper, some(5))
        changes: list[bool] = []
        keeper.on_change.append(lambda: changes.append(keeper.working))
        path.rename(aside)
        assert set(await put(keeper, some(5, "while"))) == {Leave()}
        assert set(await put(keeper, some(1, "later"))) == {Leave()}, "at once: it does not work"
        assert changes == [False]
        # Whoever forgets may have looked meanwhile, and says so, too.
        assert {"store:letters"} <= set(told(heard)) <= {"store:letters", STORE_RETENTION}
        assert not path.exists(), "nothing is created where a store was"
        aside.rename(path)
        async with asyncio.timeout(60):
            while not keeper.working:  # noqa: ASYNC110 -- as above
                await asyncio.sleep(0.01)
        assert set(await put(keeper, some(5, "while"))) == {Drop(fate=FATE)}
        assert any(isinstance(one, Recovered) for one in heard)


async def test_a_read_only_store_is_the_stores_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the letters': they are let go, and none is named."""
    monkeypatch.setattr(storekeeper, "HOLD_S", 0.5)
    path = tmp_path / "letters.db"
    heard: list[ServiceEvent] = []
    async with keeping(f"sqlite:///{path}", heard) as keeper:
        await by_hand(
            path,
            *(
                f"CREATE TRIGGER {table}_{word} BEFORE {word} ON {table} "
                "BEGIN SELECT RAISE(ABORT, 'read only'); END"
                for table in ("deadletter_letters", "deadletter_ids")
                for word in ("INSERT", "UPDATE")
            ),
        )
        assert set(await put(keeper, some(5))) == {Leave()}
        async with asyncio.timeout(60):
            while not told(heard):  # noqa: ASYNC110 -- as above
                await asyncio.sleep(0.01)
    assert set(told(heard)) == {"store:letters"}


async def test_one_letter_that_is_refused_is_alone(tmp_path: Path) -> None:
    path = tmp_path / "letters.db"
    heard: list[ServiceEvent] = []
    async with keeping(f"sqlite:///{path}", heard) as keeper:
        await by_hand(
            path,
            "CREATE TRIGGER picky BEFORE INSERT ON deadletter_letters WHEN NEW.bytes = 7 "
            "BEGIN SELECT RAISE(ABORT, 'not this one'); END",
        )
        wrong = take(keeper, some(1, "wrong")[0])
        assert set(await put(keeper, some(9))) == {Drop(fate=FATE)}
        with pytest.raises(StoreRefused, match="not this one"):
            await wrong
    assert told(heard) == []


async def test_one_letter_that_cannot_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def picky(one: Letter, *, now_ms: int, vhost: str, grouping: Grouping) -> StoredLetter:
        if one.body.startswith(b"wrong"):
            raise LookupError("not this one")
        return stored_letter(one, now_ms=now_ms, vhost=vhost, grouping=grouping)

    monkeypatch.setattr(reading_process, "stored_letter", picky)
    heard: list[ServiceEvent] = []
    async with keeping(f"sqlite:///{tmp_path / 'letters.db'}", heard) as keeper:
        wrong = take(keeper, some(1, "wrong")[0])
        assert set(await put(keeper, some(9))) == {Drop(fate=FATE)}
        alone = take(keeper, some(1, "wrong")[0])
        for one in (wrong, alone):
            with pytest.raises(LookupError, match="not this one"):
                await one
        assert keeper.working
    assert told(heard) == []


async def test_a_batch_is_read_while_another_one_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When the service ends, what is written is waited for; what would be begun too late is let go."""
    calls: list[int] = []
    reads, ingests = BatchReader.read, LetterStore.ingest
    writes = asyncio.Event()

    async def counted(
        reader: BatchReader, batch: Sequence[Unread], known: Dictionaries | None
    ) -> list[StoredLetter | Exception]:
        calls.append(len(batch))
        return await reads(reader, batch, known)

    async def gated(
        store: LetterStore,
        batch: Sequence[StoredLetter],
        before_commit: Callable[[], Awaitable[None]] | None = None,
    ) -> Ingested:
        await writes.wait()
        return await ingests(store, batch, before_commit=before_commit)

    async def at_work(batches: int) -> None:
        async with asyncio.timeout(60):
            while len(calls) < batches:  # noqa: ASYNC110 -- as above
                await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)

    monkeypatch.setattr(BatchReader, "read", counted)
    monkeypatch.setattr(LetterStore, "ingest", gated)
    async with keeping(f"sqlite:///{tmp_path / 'letters.db'}", []) as keeper:
        verdicts = [take(keeper, one) for one in some(keeper.prefetch)]
        await at_work(3)
        assert calls == [10, 10, 10], "the fourth gathers"
        assert not any(one.done() for one in verdicts)
        writes.set()
        async with asyncio.timeout(60):
            assert await asyncio.gather(*verdicts) == [Drop(fate=FATE)] * 40
        writes.clear()
        verdicts = [take(keeper, one) for one in some(keeper.prefetch, "late")]
        await at_work(7)
        monkeypatch.setattr(storekeeper, "LAST_BEGIN_S", -1.0)
        keeper.hurry()
        writes.set()
        async with asyncio.timeout(60):
            assert await asyncio.gather(*verdicts) == [Drop(fate=FATE)] * 10 + [Leave()] * 30


async def test_what_was_read_ahead_is_let_go_when_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun = asyncio.Event()

    async def hangs(*_: object, **__: object) -> Ingested:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(LetterStore, "ingest", hangs)
    async with keeping(f"sqlite:///{tmp_path / 'letters.db'}", []) as keeper:
        verdicts = [take(keeper, one) for one in some(keeper.prefetch)]
        async with asyncio.timeout(60):
            await begun.wait()
            await asyncio.sleep(0.3)  # others are read meanwhile
    assert [one.result() for one in verdicts if one.done()] == [Leave()] * keeper.prefetch


async def test_what_is_over_is_forgotten_in_portions(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'letters.db'}"
    heard: list[ServiceEvent] = []
    async with open_letters(url) as store:
        await store.regrouping.put_in_force(Grouping())
        await store.ingest(read(350))
        housekeeping = Forgetting({("/", "errors"): Retention(letters=20)}, heard.append, look_s=0.01)
        forgetting = asyncio.create_task(housekeeping.run(store))
        async with asyncio.timeout(60):
            while not any(isinstance(one, Confirmed) for one in heard):  # noqa: ASYNC110 -- as above
                await asyncio.sleep(0.01)
        forgetting.cancel()
        await asyncio.wait({forgetting})
    (one,) = heard
    assert isinstance(one, Confirmed)
    assert [(fate.step, fate.source, n) for fate, n in one.fates.items()] == [(Step.FORGOTTEN, "errors", 330)]


async def test_trouble_with_forgetting_is_over_in_the_store_that_is_opened_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else it would be told of a store that works, for as long as the service runs."""
    url = f"sqlite:///{tmp_path / 'letters.db'}"
    heard: list[ServiceEvent] = []
    housekeeping = Forgetting({}, heard.append, look_s=0.01)

    async def until(kind: type[Trouble | Recovered]) -> None:
        async with open_letters(url) as store:
            forgetting = asyncio.create_task(housekeeping.run(store))
            async with asyncio.timeout(60):
                while not any(isinstance(one, kind) for one in heard):  # noqa: ASYNC110 -- as above
                    await asyncio.sleep(0.01)
            forgetting.cancel()
            await asyncio.wait({forgetting})

    async def away(*_: object, **__: object) -> int:
        raise StoreUnreachable("it is away")

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr(LetterStore, "fold_counts", away)
        await until(Trouble)
    heard.clear()
    await until(Recovered)
    assert Recovered(what=STORE_RETENTION) in heard
    assert told(heard) == []


async def test_it_is_told_that_stored_letters_follow_other_rules_until_they_follow(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'letters.db'}"
    other = Grouping(rules=(GroupingRule(group="one"),))
    heard: list[ServiceEvent] = []
    async with open_letters(url) as store:
        await store.regrouping.put_in_force(Grouping())
        await store.ingest(read(3))
        await store.regrouping.put_in_force(other)
        housekeeping = Forgetting({}, heard.append, grouping=other, look_s=0.01)
        forgetting = asyncio.create_task(housekeeping.run(store))
        async with asyncio.timeout(60):
            while not heard:  # noqa: ASYNC110 -- as above
                await asyncio.sleep(0.01)
            while (await store.regrouping.go_on(other, who="ann")).stage is not RegroupStage.DONE:
                pass
            while len(heard) < 2:  # noqa: ASYNC110 -- as above
                await asyncio.sleep(0.01)
        forgetting.cancel()
        await asyncio.wait({forgetting})
    assert heard == [
        GroupingSeen(digest=other.digest, behind=True),
        GroupingSeen(digest=other.digest, behind=False),
    ]
