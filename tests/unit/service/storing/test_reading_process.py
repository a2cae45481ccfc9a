"""Letters read by a second process: the same is read, and whatever becomes of the process, all are read.

About `service.storing.reading_process`, `service.storing.reading_worker`, `core.grouping.dictionaries`,
`core.grouping.letter_frame`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import amqp_oracle as oracle
from tests.amqp_strategies import TABLES, damaged
from tests.failure_corpus import recorded_failures
from tests.letters import letter, letters

from deadletter.core.grouping.compression import unpacked
from deadletter.core.grouping.dictionaries import Dictionaries, Dictionary, PackedContent
from deadletter.core.grouping.fingerprint import Kind
from deadletter.core.grouping.grouping_rules import GROUPED_BY_DEFAULT, Grouping, GroupingRule
from deadletter.core.grouping.letter_frame import dictionary_of, framed
from deadletter.core.grouping.letter_words import words_of
from deadletter.core.grouping.stored_letter import StoredLetter, stored_letter
from deadletter.core.guards import switch
from deadletter.core.letter import names
from deadletter.core.letter.envelope import ExchangeKey
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.message import RawMessage
from deadletter.core.letter.parking import Cause
from deadletter.core.letter.wrapping import wrap
from deadletter.service.storing import reading_process, reading_worker
from deadletter.service.storing.reading_process import BatchReader
from deadletter.service.storing.reading_worker import Answers, Questions, Reader, ReadingTask, Unread
from deadletter.service.telling.service_events import Recovered, ServiceEvent, Trouble

FULL = 100
NOW_MS = 1_763_270_000_000
RULES = Grouping(rules=(GroupingRule(group="{header:tenant} {default}", message="*boom*"),))


def unread(message: RawMessage, *, circling: bool = False, vhost: str = "/") -> Unread:
    came_by = ExchangeKey(b"shop", b"k\xff\xe9")
    one = Letter(source="errors", message=message, came_by=came_by, redelivered=False, circling=circling)
    return one, vhost


def again(batch: Sequence[Unread]) -> list[Unread]:
    """The same, of which nothing was read yet."""
    return [
        (
            Letter(
                source=one.source,
                message=one.message,
                came_by=one.came_by,
                redelivered=one.redelivered,
                circling=one.circling,
            ),
            vhost,
        )
        for one, vhost in batch
    ]


def here(batch: Sequence[Unread], grouping: Grouping = GROUPED_BY_DEFAULT) -> list[StoredLetter]:
    return [
        stored_letter(one, now_ms=NOW_MS, vhost=vhost, grouping=grouping)._replace(letter=kept)
        for (one, vhost), (kept, _) in zip(again(batch), batch, strict=True)
    ]


NO_DICTIONARIES = Dictionaries()


def there(batch: Sequence[Unread], reader: Reader) -> list[StoredLetter | None]:
    frame = reader.answer(Questions().of(batch, NOW_MS, NO_DICTIONARIES))
    return unpacked_here(Answers().read(frame, batch, NO_DICTIONARIES.edition))


def unpacked_here(read: Sequence[StoredLetter | None]) -> list[StoredLetter | None]:
    """Without what was packed, which is looked at."""
    for one in read:
        if one is not None and one.packed is not None:
            assert unpacked(one.packed.data) == framed(one.letter)
    return [None if one is None else one._replace(packed=None) for one in read]


def wrapped(inside: RawMessage) -> RawMessage:
    return wrap(
        inside,
        source="orders.dlq",
        came_by=ExchangeKey(b"", b"orders.dlq"),
        move="run-7",
        cause=Cause.UNREADABLE,
        why="it cannot be read",
        at_ms=NOW_MS,
    )


def odd() -> list[Unread]:
    """Letters of every framework, and some that no framework makes."""
    deep: object = "end"
    for _ in range(60):
        deep = [{"d": deep}]
    headers: dict[str, object] = {
        "nan": float("nan"),
        "price": Decimal("1.10"),
        "at": datetime(2026, 11, 16, tzinfo=UTC),
        "raw": b"\xff\0",
        "deep": deep,
        "tenant": "a",
        names.FINGERPRINT: "mine",
    }
    made = [
        letter(b"{", content_type="application/json", headers=headers),
        letter(bytes(range(256)) * 100, headers={"deadletter-error-message": "boom \udcff 7"}),
        RawMessage(b"\xff\xff\xff", b"unreadable"),
        RawMessage(b"", b""),
    ]
    made += [wrapped(one) for one in made]
    batch = [unread(one, circling=n % 2 == 0, vhost=f"v{n % 3}") for n, one in enumerate(made)]
    return batch + [(one.letter, "/") for one in recorded_failures()]


_ANY = st.builds(
    lambda table, body, wrap_it: wrapped(RawMessage(table, body)) if wrap_it else RawMessage(table, body),
    st.one_of(
        TABLES.map(lambda table: b"\x20\0" + oracle.table_bytes(table)),
        damaged(TABLES.map(lambda table: b"\xa0\0\x10application/json" + oracle.table_bytes(table))),
    ),
    st.binary(max_size=60),
    st.booleans(),
)


@given(st.lists(_ANY, max_size=6), st.sampled_from([GROUPED_BY_DEFAULT, RULES]))
def test_what_is_read_of_any_letter_is_the_same(made: list[RawMessage], grouping: Grouping) -> None:
    batch = [unread(one) for one in made]
    assert repr(there(batch, Reader(ReadingTask(grouping)))) == repr(here(batch, grouping))


@given(st.lists(_ANY, max_size=6))
def test_where_texts_are_divided_there_are_their_words_and_no_text(made: list[RawMessage]) -> None:
    batch = [unread(one) for one in made]
    told = there(batch, Reader(ReadingTask(GROUPED_BY_DEFAULT, divide=True)))
    for one, whole in zip(told, here(batch), strict=True):
        assert one is not None
        assert one.words is not None
        assert sorted(one.words.split()) == sorted(set(words_of(whole.text)))
        assert repr(one._replace(text=whole.text, words=None)) == repr(whole)


def test_fingerprints_are_sent_once_and_numbers_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_worker, "KNOWN", 3)
    reader, answers, questions = Reader(ReadingTask(GROUPED_BY_DEFAULT)), Answers(), Questions()
    sizes: list[int] = []
    for origin in ("a", "a", "b", "c", "d", "a", "d", "e", "f", "g", "a", "b"):
        batch = [
            unread(letter(b"x", headers={"deadletter-origin-queue": name})) for name in (origin, "a", origin)
        ]
        frame = reader.answer(questions.of(batch, NOW_MS, NO_DICTIONARIES))
        sizes.append(len(frame))
        assert unpacked_here(answers.read(frame, batch, NO_DICTIONARIES.edition)) == here(batch)
    assert sizes[1] < sizes[0] - 100


def test_a_letter_that_cannot_be_read_has_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def picky(one: Letter, *, now_ms: int, vhost: str, grouping: Grouping) -> StoredLetter:
        if one.body == b"n-1":
            raise LookupError("not this one")
        return stored_letter(one, now_ms=now_ms, vhost=vhost, grouping=grouping)

    monkeypatch.setattr(reading_worker, "stored_letter", picky)
    batch = [unread(one) for one in letters("n", 3)]
    first, _, last = here(batch)
    assert there(batch, Reader(ReadingTask(GROUPED_BY_DEFAULT))) == [first, None, last]


def test_letters_are_packed_with_the_dictionary_of_their_group() -> None:
    reader, answers, questions = Reader(ReadingTask(GROUPED_BY_DEFAULT)), Answers(), Questions()
    known = Dictionaries()
    batch = [unread(one) for one in letters("a letter that is like the one before", 3)]
    keys = {one.fingerprint.key for one in here(batch)}
    like = dictionary_of(batch[0][0])

    def packed_now() -> list[PackedContent]:
        frame = reader.answer(questions.of(batch, NOW_MS, known))
        read = answers.read(frame, batch, known.edition)
        return [one.packed for one in read if one is not None and one.packed is not None]

    def restored(some: list[PackedContent], with_: bytes) -> list[bytes]:
        return [unpacked(one.data, with_) for one in some]

    exact = [framed(one) for one, _ in batch]
    plain = packed_now()
    assert {one.dictionary for one in plain} == {None}
    assert restored(plain, b"") == exact
    known.add({key: Dictionary(7, like) for key in keys})
    small = packed_now()
    assert {one.dictionary for one in small} == {7}
    assert restored(small, like) == exact
    assert {one.dictionary for one in packed_now()} == {7}, "told once, known from then on"
    known.forget()
    assert {one.dictionary for one in packed_now()} == {None}
    assert small[0].edition is not known.edition


# -- the process ---------------------------------------------------------------------------------------------
@asynccontextmanager
async def reading(
    heard: list[ServiceEvent], grouping: Grouping = GROUPED_BY_DEFAULT
) -> AsyncIterator[BatchReader]:
    reader = BatchReader(grouping, batch=2 * FULL, emit=heard.append)
    try:
        yield reader
    finally:
        await reader.close()


def full() -> list[Unread]:
    return [unread(one) for one in letters("n", FULL)]


async def begun(reader: BatchReader) -> int:
    """Reads until there is a second process: its id."""
    async with asyncio.timeout(60):
        while reader.pid is None:
            await reader.read(full())
            await asyncio.sleep(0.01)
    return reader.pid


def alive(pid: int) -> bool:
    """Not so: one that has ended, and whose end nobody has looked at (who began it is gone)."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def until_gone(pid: int) -> None:
    async with asyncio.timeout(60):
        while alive(pid):  # noqa: ASYNC110 -- the kernel tells nobody
            await asyncio.sleep(0.01)


def same(read: Sequence[StoredLetter | Exception], batch: Sequence[Unread]) -> bool:
    """As it is read here, but for the moment."""
    told = unpacked_here([one for one in read if isinstance(one, StoredLetter)])
    return repr([one._replace(died_at_ms=0) for one in told if one is not None]) == repr(
        [one._replace(died_at_ms=0) for one in here(batch)]
    )


async def test_few_letters_begin_no_process() -> None:
    async with reading([]) as reader:
        for _ in range(3):
            batch = full()[: FULL - 1]
            assert same(await reader.read(batch), batch)
            await asyncio.sleep(0.01)
        assert reader.pid is None


async def test_what_a_process_reads_is_what_is_read_here() -> None:
    heard: list[ServiceEvent] = []
    async with reading(heard) as reader:
        pid = await begun(reader)
        batch = odd()
        assert len(batch) > FULL
        read = await reader.read(batch)
        now = here(batch)
        assert [one for one in read if isinstance(one, Exception)] == []
        told = [one for one in read if isinstance(one, StoredLetter)]
        moved = [n for n, one in enumerate(told) if one.died_at_ms != now[n].died_at_ms]
        assert all(now[n].died_at_ms == NOW_MS for n in moved), "only where the letter tells no time"
        assert same(read, batch)
        assert all(one.letter is kept for one, (kept, _) in zip(told, batch, strict=True))
        assert reader.pid == pid
    assert heard == []
    await until_gone(pid)


async def test_large_letters_go_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_process, "_TOGETHER_BYTES", 1_000)
    async with reading([]) as reader:
        await begun(reader)
        batch = [unread(letter(b"x" * (n % 7 * 300))) for n in range(FULL)]
        assert same(await reader.read(batch), batch)


async def test_other_rules_reach_it() -> None:
    rules = Grouping(rules=(GroupingRule(group="all of them"),))
    async with reading([], rules) as reader:
        await begun(reader)
        read = await reader.read(odd())
        made = [one.fingerprint.parts for one in read if isinstance(one, StoredLetter)]
        ruled = [[part for part in parts if part.kind is Kind.RULE] for parts in made]
        assert all(ruled)
        assert len({one.text for parts in ruled for one in parts}) <= 2


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
async def test_one_that_is_killed_or_stopped(how: signal.Signals, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its letters are read, it is gone, it is told once; the next one is told, too."""
    heard: list[ServiceEvent] = []
    async with reading(heard) as reader:
        pid = await begun(reader)
        monkeypatch.setattr(reading_process, "ANSWER_S", 1.0)
        batch = odd()
        task = asyncio.create_task(reader.read(batch))
        await asyncio.sleep(0)
        os.kill(pid, how)
        assert same(await task, batch)
        await until_gone(pid)
        monkeypatch.setattr(reading_process, "ANSWER_S", 60.0)
        other = await begun(reader)
        assert same(await reader.read(batch), batch)
        assert other != pid
    assert [type(one) for one in heard] == [Trouble, Recovered]


NONSENSE = """
import sys
sys.stdout.buffer.write(b"R")
sys.stdout.buffer.flush()
while sys.stdin.buffer.read1():
    sys.stdout.buffer.write(b"\\0" * 7 + b"\\3" + b"abc")
    sys.stdout.buffer.flush()
"""


@pytest.mark.parametrize(
    "command", [(sys.executable, "-c", NONSENSE), (sys.executable, "-c", "exit(3)"), ("/nonexistent",)]
)
async def test_one_that_never_works_is_not_begun_for_ever(
    command: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading_process, "COMMAND", command)
    monkeypatch.setattr(reading_process, "_LOOK_S", 0.01)
    started = 0
    really = asyncio.create_subprocess_exec

    async def counted(*args: str, **options: object) -> asyncio.subprocess.Process:
        nonlocal started
        started += 1
        return await really(*args, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(asyncio, "create_subprocess_exec", counted)
    heard: list[ServiceEvent] = []
    async with reading(heard) as reader:
        async with asyncio.timeout(60):
            while started < switch.FAILURES:
                batch = full()
                assert same(await reader.read(batch), batch)
                await asyncio.sleep(0.01)
        for _ in range(30):
            batch = full()
            assert same(await reader.read(batch), batch)
            await asyncio.sleep(0.02)
        assert started == switch.FAILURES
    assert [one.what for one in heard if isinstance(one, Trouble)] == ["store:reading"]
    assert len(heard) == 1


async def test_an_idle_one_ends_and_another_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading_process, "_LOOK_S", 0.01)
    heard: list[ServiceEvent] = []
    async with reading(heard) as reader:
        pid = await begun(reader)
        monkeypatch.setattr(reading_process, "IDLE_S", 0.01)
        await until_gone(pid)
        monkeypatch.setattr(reading_process, "IDLE_S", 60.0)
        other = await begun(reader)
        batch = odd()
        assert same(await reader.read(batch), batch)
        assert reader.pid == other != pid
    assert heard == []


async def test_cancelled_in_the_middle_it_is_ended() -> None:
    async with reading([]) as reader:
        pid = await begun(reader)
        task = asyncio.create_task(reader.read(odd() * 10))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until_gone(pid)
        assert reader.pid is None


@pytest.mark.parametrize("busy", [False, True])
def test_it_ends_with_who_began_it(busy: bool) -> None:
    """Killed with kill -9, between two batches or in the middle of one."""
    began = f"""
import asyncio, sys
from tests.unit.service.storing import test_reading_process as here
async def main():
    async with here.reading([]) as reader:
        print(await here.begun(reader), flush=True)
        while {busy}:
            await reader.read(here.full() * 20)
        await asyncio.sleep(600)
asyncio.run(main())
"""
    with subprocess.Popen([sys.executable, "-c", began], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        os.kill(pid, 0)
        parent.kill()
    asyncio.run(until_gone(pid))


def test_signals_for_the_service_do_not_end_it() -> None:
    """systemd sends SIGTERM to all processes of a service."""

    async def signalled() -> None:
        heard: list[ServiceEvent] = []
        async with reading(heard) as reader:
            pid = await begun(reader)
            for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                os.kill(pid, one)
            batch = odd()
            assert same(await reader.read(batch), batch)
            assert reader.pid == pid
        assert heard == []

    asyncio.run(signalled())
