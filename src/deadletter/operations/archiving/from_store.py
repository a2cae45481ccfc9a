"""Letters of the store into a file: all that a query finds, the oldest first, those of the start.

Copies of a letter are not written: put back into a queue they would be letters of their own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import Final

from deadletter.core.grouping.letter_query import LetterOrder, LetterQuery
from deadletter.operations.archiving.sinks import LetterSink
from deadletter.store.letters.letter_store import LetterStore
from deadletter.store.letters.letter_views import LetterRow
from deadletter.store.letters.searching import Where

_PAGE: Final = 500
_PORTION_BYTES: Final = 8 * 1024 * 1024
"""Bodies that are unpacked at once, if one alone is not larger."""


@dataclass(slots=True, kw_only=True)
class StoreExported:
    """What was written. `copies`: of these letters, which were left out."""

    letters: int = 0
    copies: int = 0
    gone: int = 0
    """Forgotten by retention between being found and being read."""
    stopped: bool = False


async def export_store(
    store: LetterStore,
    query: LetterQuery,
    sink: LetterSink,
    *,
    where: Where | None = None,
    most: int | None = None,
    stopped: Callable[[], bool],
    on_progress: Callable[[int], None],
) -> StoreExported:
    """`most`: no more than these."""
    done = StoreExported()
    async for rows in _pages(store, query, where):
        for some in _portions(rows if most is None else rows[: most - done.letters]):
            found = await store.whole([row.id for row in some])
            for row in some:
                if (one := found.get(row.id)) is None:
                    done.gone += 1
                    continue
                letter, keys = one
                sink.add(letter, keys)
                done.letters += 1
                done.copies += row.copies
            on_progress(done.letters)
            if stopped():
                done.stopped = True
                return done
        if done.letters == most:
            break
    return done


async def _pages(
    store: LetterStore, query: LetterQuery, where: Where | None
) -> AsyncIterator[tuple[LetterRow, ...]]:
    """What comes in meanwhile is not waited for: else an export of a busy store would never end."""
    newest = await store.find(LetterQuery(state=None, limit=1))
    if not newest.letters:
        return
    last = newest.letters[0].id
    asked = replace(query, order=LetterOrder.OLDEST, limit=_PAGE)
    while True:
        page = await store.find(asked, where=where)
        rows = tuple(row for row in page.letters if row.id <= last)
        if rows:
            yield rows
        if page.more is None or page.more >= last:
            return
        asked = replace(asked, after=page.more)


def _portions(rows: tuple[LetterRow, ...]) -> list[list[LetterRow]]:
    portions: list[list[LetterRow]] = []
    size = _PORTION_BYTES + 1
    for row in rows:
        if size + row.bytes > _PORTION_BYTES:
            portions.append([])
            size = 0
        portions[-1].append(row)
        size += row.bytes
    return portions
