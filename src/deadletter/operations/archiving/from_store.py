"""Letters of the store into a file: all that a query finds, the oldest first, those of the start.

Copies of a letter are not written: put back into a queue they would be letters of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from deadletter.core.grouping.letter_query import LetterOrder, LetterQuery
from deadletter.core.letter.archive_format import ArchiveHead, ArchivePacker, StoreKeys
from deadletter.core.letter.letter import Letter
from deadletter.operations.archiving.sinks import LetterSink
from deadletter.operations.records.records import LettersFound, Records
from deadletter.store.letters.letter_views import LetterRow

_PAGE: Final = 500


@dataclass(slots=True, kw_only=True)
class StoreExported:
    """What was written. `copies`: of these letters, which were left out."""

    letters: int = 0
    copies: int = 0
    gone: int = 0
    """Forgotten by retention between being found and being read."""
    unanswered: int = 0
    """Of which the jq program could say nothing within its limits."""
    stopped: bool = False


async def export_store(
    records: Records,
    query: LetterQuery,
    sink: LetterSink,
    *,
    most: int | None = None,
    stopped: Callable[[], bool],
    on_progress: Callable[[int], None],
) -> StoreExported:
    """`most`: no more than these."""
    done = StoreExported()
    async for page in _pages(records, query):
        done.unanswered += page.unanswered
        rows = page.letters if most is None else page.letters[: most - done.letters]
        async for row, whole in _whole(records, rows):
            if whole is None:
                done.gone += 1
                continue
            sink.add(*whole)
            done.letters += 1
            done.copies += row.copies
            if stopped():
                break
        on_progress(done.letters)
        if stopped():
            done.stopped = True
            return done
        if done.letters == most:
            break
    return done


async def archive_of(records: Records, query: LetterQuery, head: ArchiveHead) -> AsyncIterator[bytes]:
    """The same as the bytes of an archive, block by block: for who sends it on and keeps none of it."""
    packer = ArchivePacker(head)
    yield packer.begin()
    async for page in _pages(records, query):
        async for _, whole in _whole(records, page.letters):
            if whole is None:
                continue
            packer.add(whole[0], stored=whole[1])
            if packer.full:
                yield await asyncio.to_thread(packer.flush)
    yield packer.end()


async def _pages(records: Records, query: LetterQuery) -> AsyncIterator[LettersFound]:
    """What comes in meanwhile is not waited for: else an export of a busy store would never end."""
    newest = await records.letters(LetterQuery(state=None, limit=1))
    if not newest.letters:
        return
    last = newest.letters[0].id
    asked = replace(query, order=LetterOrder.OLDEST, limit=_PAGE)
    while True:
        page = await records.letters(asked)
        yield replace(page, letters=tuple(row for row in page.letters if row.id <= last))
        if page.more is None or page.more >= last:
            return
        asked = replace(asked, after=page.more)


async def _whole(
    records: Records, rows: Sequence[LetterRow]
) -> AsyncIterator[tuple[LetterRow, tuple[Letter, StoreKeys] | None]]:
    """Each with its bytes; None: it is not there any more. Where nothing came, the first one went while it
    was read; of those behind it that says nothing."""
    left = list(rows)
    while left:
        found = await records.exact([row.id for row in left])
        known = [number for number, row in enumerate(left, 1) if row.id in found]
        looked_at = known[-1] if known else 1
        for row in left[:looked_at]:
            yield row, found.get(row.id)
        left = left[looked_at:]
