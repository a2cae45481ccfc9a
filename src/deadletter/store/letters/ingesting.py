"""Takes letters into the store: a batch, one transaction, and after its commit their home is here.

Whoever calls acks in the broker only then. A crash in between delivers them again, and each is known again by
the publish that brought it: nothing changes. Another message with the same letter in it (a crash of whoever
parked it leaves two) is kept too, as a copy of the first: counted there, not listed, never merged. Two equal
letters that nothing tells apart are kept both in the same way.

Several instances may do this at once: on PostgreSQL rows are inserted "unless they are there" and rows of
groups are changed in one order; on SQLite one writer is at work at a time.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, TypeAlias

from sqlalchemy import bindparam, func, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.core.grouping.compression import packed, unpacked
from deadletter.core.grouping.dictionaries import Dictionaries, Dictionary
from deadletter.core.grouping.letter_frame import dictionary_of, framed
from deadletter.core.grouping.stored_letter import WORDING, StoredLetter
from deadletter.store.finding import word_index
from deadletter.store.groups import group_counts
from deadletter.store.groups.group_rows import ensure_groups
from deadletter.store.letters.letter_ids import same_bytes
from deadletter.store.letters.letter_rows import (
    ASKED_AT_ONCE,
    Bulk,
    Put,
    clean,
    name_ids,
    put_together,
)
from deadletter.store.letters.letter_tables import RowState, dictionaries
from deadletter.store.replays import returned_letters

_CACHED: Final = 50_000
_DICTIONARIES: Final = 3_000
"""So many are held in memory, of at most 7 kB each."""
_COMMON_FROM: Final = 8
"""A group with so many letters gets a dictionary; one that has a letter or two would not repay it."""
_MESSAGE_BYTES: Final = 8
_HEAVY_BYTES: Final = 100_000
"""More than that is packed in a thread; fewer bytes take less time than threads that change places."""
_IN_A_ROW: Final = 50
"""After so many small ones others have their turn."""
_INT_MAX: Final = 2**31 - 1
_OPEN: Final = RowState.OPEN.value
_LETTERS: Final = Bulk(
    table="deadletter_letters",
    columns=(
        ("id", "bigint"),
        ("same", "bytea"),
        ("message", "bytea"),
        ("copy_of", "bigint"),
        ("queue", "bigint"),
        ("group_id", "bigint"),
        ("state", "smallint"),
        ("cause", "bigint"),
        ("attempt", "integer"),
        ("died_ms", "bigint"),
        ("stored_ms", "bigint"),
        ("bytes", "integer"),
        ("message_id", "text"),
        ("type", "bigint"),
        ("routing_key", "bigint"),
        ("error", "text"),
        ("vhost", "bigint"),
    ),
    then="ON CONFLICT DO NOTHING",
    returning="id",
)
_CONTENTS: Final = Bulk(
    table="deadletter_contents",
    columns=(("id", "bigint"), ("dictionary", "bigint"), ("wording", "smallint"), ("data", "bytea")),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ingested:
    """What became of a batch."""

    new: int = 0
    copies: int = 0
    """Another message with a letter that is stored already."""
    again: int = 0
    """The very messages that were stored before, delivered once more."""
    new_groups: int = 0
    reopened: int = 0


class Prepared(NamedTuple):
    """A letter that has only to be written."""

    letter: StoredLetter
    same: bytes
    message: bytes
    dictionary: int | None
    data: bytes


@dataclass(slots=True)
class _Done:
    new: int = 0
    copies: int = 0
    again: int = 0


_Kind: TypeAlias = tuple[str, str, str, str, str]


def _kind(letter: StoredLetter) -> _Kind:
    return letter.queue, letter.cause, letter.type, letter.routing_key, letter.vhost


class Ingest:
    """One writer. It remembers what is committed: the ids of names and groups, and dictionaries."""

    def __init__(self) -> None:
        self.generation: int = 0
        """Of what it remembers: what was prepared with an older one is prepared anew."""
        self.dictionaries: Final = Dictionaries()
        self._names: dict[str, int] = {}
        self._groups: dict[str, int] = {}
        self._letters: dict[str, int] = {}
        """Of groups that have no dictionary: how many letters came."""
        self._kinds: dict[_Kind, tuple[int, ...]] = {}
        """The ids of the names that letters of the batch have in common with many others."""
        self._fresh_names: dict[str, int] = {}
        self._fresh_groups: dict[str, int] = {}
        self._fresh_dictionaries: dict[str, Dictionary] = {}

    def connected(self, generation: int) -> None:
        """So many connections were made. Behind a new one there may be another file, or a database that was
        put back to yesterday: what was learned is no longer true."""
        if generation != self.generation:
            self.generation = generation
            for known in (self._names, self._groups, self._letters):
                known.clear()
            self.dictionaries.forget()

    def committed(self) -> None:
        """What the last batch learned is true now."""
        if len(self.dictionaries) + len(self._fresh_dictionaries) > _DICTIONARIES:
            self.dictionaries.forget()
        if len(self._letters) > _CACHED:
            self._letters.clear()
        self.dictionaries.add(self._fresh_dictionaries)
        for known, fresh in ((self._names, self._fresh_names), (self._groups, self._fresh_groups)):
            if len(known) > _CACHED:
                known.clear()
            known.update(fresh)
        self.rolled_back()

    def rolled_back(self) -> None:
        """What the last batch learned is not."""
        self._fresh_names.clear()
        self._fresh_groups.clear()
        self._fresh_dictionaries.clear()

    def forget_groups(self) -> None:
        """Some of those that it knows are gone."""
        self._groups.clear()

    async def prepared(self, batch: Sequence[StoredLetter]) -> list[Prepared]:
        """What can be done before it is this batch's turn to write."""
        made: list[Prepared] = []
        for place, one in enumerate(batch):
            if len(one.letter.body) > _HEAVY_BYTES and one.packed is None:
                made.append(await asyncio.to_thread(self._prepared, one))
                continue
            made.append(self._prepared(one))
            if place % _IN_A_ROW == 0:
                await asyncio.sleep(0)
        return made

    def _prepared(self, one: StoredLetter) -> Prepared:
        message = one.message[:_MESSAGE_BYTES] if one.message else secrets.token_bytes(_MESSAGE_BYTES)
        if one.packed is not None and one.packed.edition is self.dictionaries.edition:
            _, number, data = one.packed
        else:
            known = self.dictionaries.get(one.fingerprint.key)
            number = known.number if known else None
            data = packed(framed(one.letter), known.data if known else b"")
        return Prepared(one, same_bytes(one.letter_id, one.same), message, number, data)

    async def put(self, connection: AsyncConnection, batch: Sequence[Prepared], *, now_ms: int) -> Ingested:
        """Within a transaction of the caller's, which writes."""
        known = await _known(connection, batch)
        done = _Done()
        fresh = _not_stored(batch, known, done)
        if not fresh:
            return Ingested(again=done.again)
        some = [one.letter for one in fresh]
        await self._learn_names(connection, some)
        new_groups = await self._learn_groups(connection, some)
        await self._learn_dictionaries(connection, some)
        listed: list[tuple[int, int, int, StoredLetter]] = []
        came: list[tuple[int, int, StoredLetter]] = []
        while fresh:
            rows = self._rows(fresh, await _new_ids(connection, len(fresh)), known, now_ms)
            stored = await _insert(connection, rows)
            came += [(row[0], row[5], one.letter) for row, one in stored]
            for row, one in stored:
                if row[3] is None:
                    listed.append((row[5], row[16], row[4], one.letter))
                    done.new += 1
                else:
                    done.copies += 1
            if len(stored) == len(fresh):
                break
            # another instance stored them at the same time: they are known now, or there is a first one
            gone = {id(one) for _, one in stored}
            fresh = [one for one in fresh if id(one) not in gone]
            known = await _known(connection, fresh)
            fresh = _not_stored(fresh, known, done)
        await returned_letters.mark(connection, came, now_ms=now_ms)
        reopened = await group_counts.count(connection, listed, now_ms=now_ms)
        return Ingested(
            new=done.new, copies=done.copies, again=done.again, new_groups=new_groups, reopened=reopened
        )

    def _rows(
        self,
        fresh: Sequence[Prepared],
        ids: Sequence[int],
        known: Mapping[bytes, Mapping[bytes, int]],
        now_ms: int,
    ) -> list[tuple[tuple[Any, ...], Prepared]]:
        firsts = {same: min(found.values()) for same, found in known.items()}
        rows: list[tuple[tuple[Any, ...], Prepared]] = []
        for number, one in zip(ids, fresh, strict=True):
            copy_of = firsts.get(one.same)
            firsts.setdefault(one.same, number)
            rows.append((self._row(one, number, copy_of, now_ms), one))
        return rows

    def _row(self, one: Prepared, number: int, copy_of: int | None, now_ms: int) -> tuple[Any, ...]:
        letter = one.letter
        queue, cause, kind, routing_key, vhost = self._kinds[_kind(letter)]
        return (
            number,
            one.same,
            one.message,
            copy_of,
            queue,
            self._group_id(letter.fingerprint.key),
            _OPEN,
            cause,
            min(letter.attempt, _INT_MAX),
            letter.died_at_ms,
            now_ms,
            min(len(letter.letter.message.body), _INT_MAX),
            clean(letter.message_id),
            kind,
            routing_key,
            clean(letter.error),
            vhost,
        )

    # -- names, groups and dictionaries ------------------------------------------------------------------
    def _name_id(self, name: str) -> int:
        known = self._names.get(name)  # what is not clean is never known
        if known is not None:
            return known
        name = clean(name)
        return self._names.get(name) or self._fresh_names[name]

    def _group_id(self, key: str) -> int:
        return self._groups.get(key) or self._fresh_groups[key]

    async def _learn_names(self, connection: AsyncConnection, some: Iterable[StoredLetter]) -> None:
        kinds = set(map(_kind, some))
        wanted = {name for kind in kinds for name in kind} | {one.origin for one in some}
        missing = sorted({clean(name) for name in wanted} - self._names.keys())
        if missing:
            self._fresh_names.update(await name_ids(connection, missing))
        self._kinds = {kind: tuple(map(self._name_id, kind)) for kind in kinds}

    async def _learn_groups(self, connection: AsyncConnection, some: Sequence[StoredLetter]) -> int:
        """A letter's group is always the one of its own key: into which that was merged is told by it."""
        missing = {
            letter.fingerprint.key: letter for letter in some if letter.fingerprint.key not in self._groups
        }
        if not missing:
            return 0
        found, new = await ensure_groups(connection, missing, self._name_id)
        self._fresh_groups.update(found)
        return new

    async def _learn_dictionaries(self, connection: AsyncConnection, some: Sequence[StoredLetter]) -> None:
        """For the batches to come: the one that a group has, or a new one when it has letters enough."""
        wanted: dict[str, StoredLetter] = {}
        for one in some:
            key = one.fingerprint.key
            if key not in self.dictionaries:
                self._letters[key] = letters = self._letters.get(key, 0) + 1
                if letters >= _COMMON_FROM:
                    wanted[key] = one
        if not wanted:
            return
        by_group = {self._group_id(key): key for key in sorted(wanted)}
        newest = (
            select(func.max(dictionaries.c.id))
            .where(dictionaries.c.group_id.in_(bindparam("some", expanding=True)))
            .group_by(dictionaries.c.group_id)
        )
        asked = select(dictionaries).where(dictionaries.c.id.in_(newest))
        ids = list(by_group)
        for start in range(0, len(ids), ASKED_AT_ONCE):
            rows = await connection.execute(asked, {"some": ids[start : start + ASKED_AT_ONCE]})
            for number, group, data in rows.all():
                learned = Dictionary(int(number), unpacked(bytes(data)))
                self._fresh_dictionaries[by_group.pop(int(group))] = learned
        if by_group:
            made = {group: dictionary_of(wanted[key].letter) for group, key in by_group.items()}
            kept = await connection.execute(
                dictionaries.insert().returning(dictionaries.c.id, dictionaries.c.group_id),
                [{"group_id": group, "data": packed(known)} for group, known in made.items()],
            )
            for number, group in kept:
                self._fresh_dictionaries[by_group[int(group)]] = Dictionary(int(number), made[int(group)])
        for key in wanted:
            self._letters.pop(key, None)


def _not_stored(
    batch: Sequence[Prepared], known: Mapping[bytes, Mapping[bytes, int]], done: _Done
) -> list[Prepared]:
    fresh: dict[tuple[bytes, bytes], Prepared] = {}
    for one in batch:
        if one.message in known.get(one.same, ()) or (one.same, one.message) in fresh:
            done.again += 1
        else:
            fresh[one.same, one.message] = one
    return list(fresh.values())


async def _known(connection: AsyncConnection, batch: Sequence[Prepared]) -> dict[bytes, dict[bytes, int]]:
    """Which of these are stored already: by what copies have in common, the messages and their ids. On
    PostgreSQL they cannot be forgotten until we are done: a copy of one that is gone would be lost."""
    found: dict[bytes, dict[bytes, int]] = {}
    sames = list({one.same for one in batch})
    postgres = connection.dialect.name == "postgresql"
    asked = "SELECT same, message, id FROM deadletter_letters WHERE same "
    at_once = len(sames) if postgres else ASKED_AT_ONCE
    for start in range(0, len(sames), max(1, at_once)):
        some = sames[start : start + at_once]
        if postgres:
            rows = await connection.exec_driver_sql(f"{asked}= ANY($1) ORDER BY id FOR KEY SHARE", (some,))
        else:
            rows = await connection.exec_driver_sql(f"{asked}IN ({', '.join('?' * len(some))})", tuple(some))
        told: list[Any] = list(rows)
        for same, message, number in told:
            found.setdefault(bytes(same), {})[bytes(message)] = number
    return found


async def _new_ids(connection: AsyncConnection, count: int) -> list[int]:
    """Never used before and never again: the index of words knows letters by them."""
    if connection.dialect.name == "postgresql":
        asked = text("SELECT nextval('deadletter_letter_ids') FROM generate_series(1, :count)")
        return sorted(int(row[0]) for row in await connection.execute(asked, {"count": count}))
    last = await connection.scalar(
        text("UPDATE deadletter_ids SET last = last + :count RETURNING last"), {"count": count}
    )
    assert last is not None
    return list(range(int(last) - count + 1, int(last) + 1))


_Rows = list[tuple[tuple[Any, ...], Prepared]]


async def _insert(connection: AsyncConnection, rows: _Rows) -> _Rows:
    """Rows, contents and words. Those that another instance has not stored at the same time."""
    put = (
        Put(_LETTERS, [row for row, _ in rows]),
        Put(_CONTENTS, [(row[0], one.dictionary, WORDING, one.data) for row, one in rows], of_first=True),
    )
    worded = [(row[0], one.letter, row[7]) for row, one in rows]
    if connection.dialect.name != "postgresql":
        await put_together(connection, *put)
        await word_index.add(connection, worded)
        return rows
    made = set(await put_together(connection, *put, word_index.put_of(worded)))
    return [(row, one) for row, one in rows if row[0] in made]
