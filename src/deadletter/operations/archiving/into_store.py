"""Letters of an archive into a store. What is there already is not put there twice.

A letter that a store knew is known again by the same keys. One that came from a queue is known by the archive
and its number in it, where nothing else tells it from an equal one: the same archive twice changes nothing.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

from deadletter.core.grouping.stored_letter import stored_letter
from deadletter.core.letter.archive_format import ArchivedLetter, StoreKeys
from deadletter.core.letter.letter import Letter
from deadletter.operations.records.exact_letters import PORTION_BYTES
from deadletter.operations.records.records import Records

_BATCH: Final = 500


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
    records: Records,
    letters: Iterable[ArchivedLetter],
    *,
    archive: Callable[[], bytes],
    who: str,
    source: str,
    now_ms: int,
    stopped: Callable[[], bool],
    on_progress: Callable[[int], None],
) -> StoreImported:
    """`archive`: its id, known once its first letter is. `who` and `source` are for the audit."""
    done = StoreImported()
    batch: list[tuple[Letter, StoreKeys]] = []
    size = last = 0

    async def put() -> None:
        told = await records.put(batch, who=who, source=source)
        done.new += told.new
        done.copies += told.copies
        done.again += told.again
        done.after = last
        batch.clear()
        on_progress(done.new + done.copies + done.again)

    for one in letters:
        length = len(one.message.body) + len(one.message.properties)
        if batch and (len(batch) >= _BATCH or size + length > PORTION_BYTES):
            await put()
            size = 0
            if stopped():
                done.stopped = True
                return done
        batch.append((one.letter, one.stored or _keys(one, archive(), now_ms)))
        size += length
        last = one.number
    if batch:
        await put()
    return done


def _keys(one: ArchivedLetter, archive: bytes, now_ms: int) -> StoreKeys:
    """What a letter is known by that no store knew. Of an archive whose head is damaged nothing is known, so
    none of its letters is taken for one that is stored already."""
    made = stored_letter(one.letter, now_ms=now_ms)
    place = archive + one.number.to_bytes(8, "big") if archive else secrets.token_bytes(16)
    by_place = blake2b(place, digest_size=16).digest()
    return StoreKeys(
        letter_id=made.letter_id,
        same=made.same,
        message=made.message or by_place,
        died_ms=made.died_at_ms,
        stored_ms=now_ms,
    )
