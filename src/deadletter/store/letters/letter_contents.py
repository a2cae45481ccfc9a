"""The bytes of letters: packed with what their group has in common, and unpacked again, exact.

Letters of one group differ in ids and times; stack, header names and the shape of the body are the same in
all of them. So when a group has some letters, one of them becomes its dictionary: it is kept once, never
changed, and each content names the one it was packed with. Merging and splitting groups does not touch it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sqlalchemy import bindparam, select
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.core.grouping.compression import unpacked
from deadletter.core.grouping.letter_frame import unframed
from deadletter.core.letter.archive_format import StoreKeys
from deadletter.core.letter.letter import Letter
from deadletter.store.letters.letter_ids import id_of, in_common
from deadletter.store.letters.letter_rows import ASKED_AT_ONCE
from deadletter.store.letters.letter_tables import contents, dictionaries, letters, names

KNOWN_BYTES: Final = 16_000_000


async def contents_of(connection: AsyncConnection, ids: Sequence[int]) -> dict[int, Letter]:
    """These letters, unpacked."""
    asked = (
        select(contents.c.id, contents.c.dictionary, contents.c.data, names.c.name)
        .join(letters, letters.c.id == contents.c.id)
        .join(names, names.c.id == letters.c.queue)
        .where(contents.c.id.in_(bindparam("some", expanding=True)))
    )
    found: dict[int, Letter] = {}
    for start in range(0, len(ids), ASKED_AT_ONCE):
        some = list(ids[start : start + ASKED_AT_ONCE])
        rows = (await connection.execute(asked, {"some": some})).all()
        known = await dictionaries_of(connection, sorted({row.dictionary for row in rows if row.dictionary}))
        for number, dictionary, data, queue in rows:
            found[number] = unframed(unpacked(bytes(data), known.get(dictionary, b"")), queue)
    return found


async def first_of(connection: AsyncConnection, ids: Sequence[int], most_bytes: int) -> list[int]:
    """As many of these letters as are that many bytes together, in this order, and at least one that is
    there."""
    asked = select(letters.c.id, letters.c.bytes).where(letters.c.id.in_(bindparam("some", expanding=True)))
    sizes: dict[int, int] = {}
    for start in range(0, len(ids), ASKED_AT_ONCE):
        rows = await connection.execute(asked, {"some": list(ids[start : start + ASKED_AT_ONCE])})
        sizes.update((int(number), int(size)) for number, size in rows)
    found: list[int] = []
    for number in (one for one in ids if one in sizes):
        most_bytes -= sizes[number]
        if found and most_bytes < 0:
            break
        found.append(number)
    return found


async def keys_of(connection: AsyncConnection, ids: Sequence[int]) -> dict[int, StoreKeys]:
    """What these letters are known by."""
    asked = (
        select(
            letters.c.id,
            letters.c.same,
            letters.c.message,
            letters.c.died_ms,
            letters.c.stored_ms,
            names.c.name,
        )
        .join(names, names.c.id == letters.c.vhost)
        .where(letters.c.id.in_(bindparam("some", expanding=True)))
    )
    found: dict[int, StoreKeys] = {}
    for start in range(0, len(ids), ASKED_AT_ONCE):
        rows = await connection.execute(asked, {"some": list(ids[start : start + ASKED_AT_ONCE])})
        for number, same, message, died_ms, stored_ms, vhost in rows:
            found[number] = StoreKeys(
                letter_id=id_of(bytes(same)),
                same=in_common(bytes(same)),
                message=bytes(message),
                died_ms=died_ms,
                stored_ms=stored_ms,
                vhost=vhost,
            )
    return found


async def dictionaries_of(connection: AsyncConnection, some: Sequence[int]) -> dict[int, bytes]:
    """What contents were packed with."""
    if not some:
        return {}
    asked = select(dictionaries.c.id, dictionaries.c.data).where(
        dictionaries.c.id.in_(bindparam("some", expanding=True))
    )
    rows = await connection.execute(asked, {"some": list(some)})
    return {int(number): unpacked(bytes(data)) for number, data in rows}


class KnownDictionaries:
    """Of one store. A dictionary is never changed once it is committed, so it is asked for once, and kept as
    long as there is room: letters of two thousand groups come mixed, and each would ask for its own."""

    def __init__(self) -> None:
        self._known: dict[int, bytes] = {}
        self._room_bytes = KNOWN_BYTES

    async def of(self, connection: AsyncConnection, some: set[int]) -> Mapping[int, bytes]:
        """By their numbers; others may be among them. Asked outside of whoever writes dictionaries: what is
        not committed might never be."""
        if wanted := some - self._known.keys():
            found = await dictionaries_of(connection, sorted(wanted))
            size = sum(map(len, found.values()))
            if size > self._room_bytes:
                kept = {number: self._known[number] for number in some & self._known.keys()}
                self._known, self._room_bytes = kept, KNOWN_BYTES - sum(map(len, kept.values()))
            self._known.update(found)
            self._room_bytes -= size
        return self._known
