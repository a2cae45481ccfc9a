"""Letters of a store into an archive and into a store again: nothing changes, and nothing is there twice.

About `operations.archiving.from_store`, `operations.archiving.into_store`,
`store.letters.letter_store`, `store.finding.searching`.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.commanding import command
from tests.store.grounds import Ground

from deadletter.core.grouping.letter_query import LetterOrder, LetterQuery
from deadletter.core.grouping.stored_letter import stored_letter
from deadletter.core.letter import names
from deadletter.core.letter.archive_format import StoreKeys
from deadletter.core.letter.envelope import ExchangeKey
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.message import RawMessage, View, encode
from deadletter.operations.archiving.archive_reading import ArchiveReader
from deadletter.operations.archiving.from_store import export_store
from deadletter.operations.archiving.sinks import ArchiveSink
from deadletter.operations.records.store_records import StoreRecords
from deadletter.operations.records.where_programs import Programs
from deadletter.store.letters.letter_store import open_letters


def letter(number: int, queue: str = "deadletter.parked") -> Letter:
    headers: dict[str, Value] = {
        names.ORIGIN_QUEUE: f"orders.{number % 3}",
        names.CAUSE: "retries-exhausted",
        names.ERROR_TYPE: "Boom",
    }
    if number % 2:
        headers |= {names.PARKED_AT: 1_794_700_000_000 + number, names.MOVE: f"run-{number}"}
    return Letter(
        source=queue,
        message=RawMessage(encode(View(headers=headers, message_id=f"m{number}")), b"%d" % number * 30),
        came_by=ExchangeKey(b"x", b"key\xff%d" % number),
        redelivered=False,
    )


def dlq(*arguments: str | Path, code: int = 0) -> str:
    done = command(*map(str, arguments), environment={**os.environ})
    assert done.returncode == code, (done.stdout, done.stderr)
    return done.stdout


def fill(url: str, count: int) -> None:
    async def work() -> None:
        async with open_letters(url, now_ms=lambda: 1_794_800_000_000) as store:
            some = [stored_letter(letter(n), now_ms=1_794_700_000_000) for n in range(count)]
            for start in range(0, count, 500):
                await store.ingest(some[start : start + 500])

    asyncio.run(work())


def rows(url: str) -> list[Any]:
    async def work() -> list[Any]:
        async with open_letters(url) as store:
            page = await store.find(LetterQuery(state=None, order=LetterOrder.OLDEST, limit=1000))
            whole = await store.whole([row.id for row in page.letters], most_bytes=2**30)
            return [
                (row.letter_id, row.queue, row.origin, row.cause, row.died_ms, row.message_id, row.copies,
                 whole[row.id][0].message, whole[row.id][0].came_by, whole[row.id][1].same,
                 whole[row.id][1].message)
                for row in page.letters
            ]  # fmt: skip

    return asyncio.run(work())


def test_out_and_in_again_changes_nothing(ground: Ground, tmp_path: Path) -> None:
    fill(ground.url, 700)
    before = rows(ground.url)
    said = dlq("export", tmp_path / "a.dlq", "--store", ground.url)
    assert said == f"700 letters in {tmp_path / 'a.dlq'} (an archive)\n"
    told = json.loads(dlq("import", tmp_path / "a.dlq", "--to-store", "--store", ground.url, "--json"))
    assert (told["new"], told["copies"], told["again"]) == (0, 0, 700)
    assert rows(ground.url) == before
    other = f"sqlite:///{tmp_path / 'other.db'}"
    for turn in range(2):
        told = json.loads(dlq("import", tmp_path / "a.dlq", "--to-store", "--store", other, "--json"))
        assert (told["new"], told["again"]) == ((700, 0), (0, 700))[turn]
    assert rows(other) == before


def test_a_selection_alone(ground: Ground, tmp_path: Path) -> None:
    fill(ground.url, 30)
    dlq("export", tmp_path / "a.dlq", "--store", ground.url, "--origin", "orders.1")
    assert len(list(ArchiveReader(tmp_path / "a.dlq").letters())) == 10
    lines = dlq("export", "--store", ground.url, "--error", "boom", "--limit", "4").splitlines()
    assert [json.loads(one)["properties"]["message_id"] for one in lines] == ["m0", "m1", "m2", "m3"]
    assert dlq("export", "--store", ground.url, "--origin", "nobody") == ""
    lines = dlq(
        "export", "--store", ground.url, "--where", '.properties.message_id == "m7"', "--id", "8", "--id", "9"
    ).splitlines()
    assert [json.loads(one)["properties"]["message_id"] for one in lines] == ["m7"]
    dlq("export", "--store", ground.url, "--where", "][", code=2)
    dlq("export", "--store", ground.url, "--state", "odd", code=2)
    dlq("export", "--store", ground.url, "--take", code=2)


def test_an_archive_of_a_queue_is_not_stored_twice(ground: Ground, tmp_path: Path) -> None:
    """Nothing tells two equal letters of a queue apart, but their places in the archive."""
    from deadletter.operations.archiving.sinks import ArchiveSink

    sink = ArchiveSink.create(tmp_path / "a.dlq", source="", taken=True, replace=False, now_ms=1)
    for one in (letter(2), letter(2), letter(4)):
        sink.add(one, None)
    sink.finish()
    first = json.loads(dlq("import", tmp_path / "a.dlq", "--to-store", "--store", ground.url, "--json"))
    assert (first["new"], first["copies"], first["again"]) == (2, 1, 0)
    second = json.loads(dlq("import", tmp_path / "a.dlq", "--to-store", "--store", ground.url, "--json"))
    assert (second["new"], second["copies"], second["again"]) == (0, 0, 3)
    rest = json.loads(
        dlq("import", tmp_path / "a.dlq", "--to-store", "--store", ground.url, "--after", "2", "--json")
    )
    assert rest["again"] == 1


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    done = command("export", "--store", f"sqlite:///{tmp_path / 'no.db'}", environment={**os.environ})
    assert done.returncode == 3
    assert "no letters are stored yet" in done.stderr
    assert list(tmp_path.iterdir()) == []


class _OneWent(StoreRecords):
    """The first letter of the first portion goes while it is read."""

    went = False

    async def exact(self, ids: Sequence[int]) -> dict[int, tuple[Letter, StoreKeys]]:
        if not self.went:
            self.went = True
            return {}
        return await super().exact(ids)


async def test_one_that_goes_while_it_is_read_takes_no_others_along(ground: Ground, tmp_path: Path) -> None:
    async with open_letters(ground.url) as store:
        await store.ingest([stored_letter(letter(n), now_ms=1_794_700_000_000) for n in range(20)])
        sink = ArchiveSink.create(tmp_path / "some.dlq", source="s", taken=False, replace=False, now_ms=0)
        done = await export_store(
            _OneWent(store, Programs()),
            LetterQuery(),
            sink,
            stopped=lambda: False,
            on_progress=lambda _letters: None,
        )
        sink.finish()
    assert (done.letters, done.gone) == (19, 1)
