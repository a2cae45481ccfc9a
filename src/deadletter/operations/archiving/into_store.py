"""Letters of an archive into a store. What is there already is not put there twice.

A letter that a store knew is known again by the same keys. One that came from a queue is known by the archive
and its number in it, where nothing else tells it from an equal one: the same archive twice changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from deadletter.core.grouping.stored_letter import StoredLetter, stored_letter
from deadletter.core.letter.archive_format import ArchivedLetter
from deadletter.store.letters.letter_store import LetterStore

_BATCH: Final = 500
_BATCH_BYTES: Final = 8 * 1024 * 1024


@dataclass(slots=True, kw_only=True)
class StoreImported:
    new: int = 0
    copies: int = 0
    again: int = 0
    """They were there."""
    after: int = 0
    """The number of the last one that is in the store."""
    stopped: bool = False


async def import_store(
    store: LetterStore,
    letters: Iterable[ArchivedLetter],
    *,
    archive: Callable[[], bytes],
    now_ms: int,
    stopped: Callable[[], bool],
    on_progress: Callable[[int], None],
) -> StoreImported:
    """`archive`: its id, known once its first letter is."""
    done = StoreImported()
    batch: list[StoredLetter] = []
    size = last = 0

    async def put() -> None:
        told = await store.ingest(batch)
        done.new += told.new
        done.copies += told.copies
        done.again += told.again
        done.after = last
        batch.clear()
        on_progress(done.new + done.copies + done.again)

    for one in letters:
        batch.append(_kept(one, archive(), now_ms))
        size += len(one.message.body)
        last = one.number
        if len(batch) >= _BATCH or size >= _BATCH_BYTES:
            await put()
            size = 0
            if stopped():
                done.stopped = True
                return done
    if batch:
        await put()
    return done


def _kept(one: ArchivedLetter, archive: bytes, now_ms: int) -> StoredLetter:
    known = one.stored
    made = (
        stored_letter(one.letter, now_ms=now_ms)
        if known is None
        else stored_letter(one.letter, now_ms=known.died_ms, vhost=known.vhost)
    )
    if known is not None:
        return made._replace(letter_id=known.letter_id, same=known.same, message=known.message)
    if made.message is not None or not archive:
        return made
    return made._replace(message=blake2b(archive + one.number.to_bytes(8, "big"), digest_size=16).digest())
