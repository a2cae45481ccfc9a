"""Takes letters into the store: a batch, one transaction, and after its commit their home is here.

Whoever calls acks in the broker only then. A crash in between delivers them again, and each is known again by
the publish that brought it: nothing changes. Another message with the same letter in it (a crash of whoever
parked it leaves two) is kept too, as a copy of the first: counted there, not listed, never merged. Two equal
letters that nothing tells apart are kept both in the same way.

Several instances may do this at once: on PostgreSQL rows are inserted "unless they are there" and rows of
groups are changed in one order; on SQLite one writer is at work at a time.
"""

from __future__ import annotations

import json
import secrets
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import bindparam, func, insert, select, text, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.core.grouping.category import category_of
from deadletter.core.grouping.compression import packed
from deadletter.core.grouping.group_states import GroupState
from deadletter.core.grouping.stored_letter import StoredLetter
from deadletter.store.letters.letter_rows import (
    ASKED_AT_ONCE,
    add_tallies,
    adding,
    clean,
    greatest,
    id_bytes,
    least,
    name_ids,
    unless_there,
)
from deadletter.store.letters.letter_tables import (
    Kept,
    counts,
    groups,
    letters,
    tags,
)

_MINUTE_MS: Final = 60_000
_BIG: Final = letters.c.died_ms.type
_TAG_CHARS: Final = 200
_CACHED: Final = 50_000


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


class Ingest:
    """One writer. It remembers the ids of names and groups that are committed."""

    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        self._groups: dict[str, int] = {}
        self._fresh_names: dict[str, int] = {}
        self._fresh_groups: dict[str, int] = {}

    def committed(self) -> None:
        """What the last batch learned is true now."""
        for known, fresh in ((self._names, self._fresh_names), (self._groups, self._fresh_groups)):
            if len(known) > _CACHED:
                known.clear()
            known.update(fresh)
            fresh.clear()

    def rolled_back(self) -> None:
        """What the last batch learned is not."""
        self._fresh_names.clear()
        self._fresh_groups.clear()

    def forget(self) -> None:
        """Somebody merged or split groups."""
        self._groups.clear()

    async def put(
        self, connection: AsyncConnection, batch: Sequence[StoredLetter], *, now_ms: int
    ) -> Ingested:
        """Within a transaction of the caller's, which writes."""
        known = await self._known(connection, batch)
        fresh: list[tuple[StoredLetter, bytes]] = []
        seen: set[tuple[bytes, bytes]] = set()
        again = 0
        for letter in batch:
            message = letter.message or secrets.token_bytes(16)
            if (letter.same, message) in seen or message in known.get(letter.same, {}):
                again += 1
            else:
                seen.add((letter.same, message))
                fresh.append((letter, message))
        if not fresh:
            return Ingested(again=again)
        await self._learn_names(connection, [letter for letter, _ in fresh])
        new_groups = await self._learn_groups(connection, [letter for letter, _ in fresh])
        ids = await _new_ids(connection, len(fresh))
        firsts = {same: min(found.values()) for same, found in known.items()}
        rows: list[dict[str, Any]] = []
        kept: dict[int, StoredLetter] = {}
        for number, (letter, message) in zip(ids, fresh, strict=True):
            copy_of = firsts.get(letter.same)
            firsts.setdefault(letter.same, number)
            rows.append(self._row(letter, message, number, copy_of, now_ms))
            kept[number] = letter
        lost = await _insert_letters(connection, rows)
        rows = [row for row in rows if row["id"] not in lost]
        await _insert_contents(connection, [(row["id"], kept[row["id"]]) for row in rows])
        listed = [row for row in rows if row["copy_of"] is None]
        reopened = await self._count(connection, listed, kept, now_ms)
        return Ingested(
            new=len(listed),
            copies=len(rows) - len(listed),
            again=again + len(lost),
            new_groups=new_groups,
            reopened=reopened,
        )

    async def _known(
        self, connection: AsyncConnection, batch: Sequence[StoredLetter]
    ) -> dict[bytes, dict[bytes, int]]:
        """Which of these are stored already: by `same`, the messages and their ids."""
        found: dict[bytes, dict[bytes, int]] = {}
        asked = select(letters.c.same, letters.c.message, letters.c.id).where(
            letters.c.same.in_(bindparam("some", expanding=True))
        )
        sames = list({letter.same for letter in batch})
        for start in range(0, len(sames), ASKED_AT_ONCE):
            some = sames[start : start + ASKED_AT_ONCE]
            for same, message, number in await connection.execute(asked, {"some": some}):
                found.setdefault(bytes(same), {})[bytes(message)] = number
        return found

    def _row(
        self, letter: StoredLetter, message: bytes, number: int, copy_of: int | None, now_ms: int
    ) -> dict[str, Any]:
        return {
            "id": number,
            "same": letter.same,
            "message": message,
            "letter_id": id_bytes(letter.letter_id),
            "copy_of": copy_of,
            "vhost": self._name_id(letter.vhost),
            "queue": self._name_id(letter.queue),
            "group_id": self._group_id(letter.fingerprint.key),
            "state": Kept.OPEN.value,
            "cause": self._name_id(letter.cause),
            "attempt": min(letter.attempt, 2**31 - 1),
            "died_ms": letter.died_at_ms,
            "stored_ms": now_ms,
            "bytes": min(len(letter.letter.body), 2**31 - 1),
            "message_id": clean(letter.message_id),
            "type": self._name_id(letter.type),
            "routing_key": self._name_id(letter.routing_key),
            "error": clean(letter.error),
        }

    # -- names and groups --------------------------------------------------------------------------------
    def _name_id(self, name: str) -> int:
        name = clean(name)
        return self._names.get(name) or self._fresh_names[name]

    def _group_id(self, key: str) -> int:
        return self._groups.get(key) or self._fresh_groups[key]

    async def _learn_names(self, connection: AsyncConnection, some: Iterable[StoredLetter]) -> None:
        wanted = {
            clean(name)
            for letter in some
            for name in (
                letter.vhost,
                letter.queue,
                letter.origin,
                letter.cause,
                letter.type,
                letter.routing_key,
            )
        }
        missing = sorted(wanted - self._names.keys())
        if missing:
            self._fresh_names.update(await name_ids(connection, missing))

    async def _learn_groups(self, connection: AsyncConnection, some: Sequence[StoredLetter]) -> int:
        missing = {
            letter.fingerprint.key: letter for letter in some if letter.fingerprint.key not in self._groups
        }
        if not missing:
            return 0
        keys = sorted(missing)
        before = await _group_ids(connection, keys)
        new = [key for key in keys if key not in before]
        if new:
            await connection.execute(
                unless_there(connection, groups, ["key"]), [self._group_row(missing[key]) for key in new]
            )
            before.update(await _group_ids(connection, new))
        self._fresh_groups.update(before)
        return len(new)

    def _group_row(self, letter: StoredLetter) -> dict[str, Any]:
        found = letter.fingerprint
        return {
            "key": found.key,
            "origin": self._name_id(letter.origin),
            "title": clean(found.title),
            "culprit": clean(found.culprit),
            "error_type": clean(found.error_type),
            "parts": clean(json.dumps(found.parts)),
            "category": category_of(
                found, message=letter.error, cause=letter.cause, reason=letter.reason
            ).value,
            "state": GroupState.OPEN.value,
            "first_ms": letter.died_at_ms,
            "last_ms": letter.died_at_ms,
            "total": 0,
        }

    # -- counts ------------------------------------------------------------------------------------------
    async def _count(
        self,
        connection: AsyncConnection,
        rows: Sequence[dict[str, Any]],
        kept: dict[int, StoredLetter],
        now_ms: int,
    ) -> int:
        """Groups know how many, since when, from where; how many of them were closed and are open again."""
        if not rows:
            return 0
        by_group: dict[int, list[dict[str, Any]]] = {}
        for row in rows:
            by_group.setdefault(row["group_id"], []).append(row)
        some = sorted(by_group)  # everybody in the same order: nobody waits for one who waits for him
        await connection.execute(
            update(groups)
            .where(groups.c.id == bindparam("b_id"))
            .values(
                total=groups.c.total + bindparam("b_count"),
                first_ms=least(connection, groups.c.first_ms, bindparam("b_first", type_=_BIG)),
                last_ms=greatest(connection, groups.c.last_ms, bindparam("b_last", type_=_BIG)),
            ),
            [
                {
                    "b_id": group,
                    "b_count": len(by_group[group]),
                    "b_first": min(row["died_ms"] for row in by_group[group]),
                    "b_last": max(row["died_ms"] for row in by_group[group]),
                }
                for group in some
            ],
        )
        reopened = await self._reopen(connection, by_group, kept, now_ms)
        tally = Counter[tuple[int, int, int]]()
        size = Counter[tuple[int, int, int]]()
        minutes = Counter[tuple[int, int]]()
        tagged: dict[tuple[int, str, str], list[int]] = {}
        for row in rows:
            place = (row["group_id"], row["queue"], row["state"])
            tally[place] += 1
            size[place] += row["bytes"]
            minutes[row["group_id"], row["died_ms"] // _MINUTE_MS] += 1
            letter = kept[row["id"]]
            for kind, value in (("release", letter.release), ("host", letter.host)):
                if value:
                    tagged.setdefault((row["group_id"], kind, clean(value)[:_TAG_CHARS]), []).append(
                        row["died_ms"]
                    )
        await add_tallies(connection, tally, size)
        await connection.execute(
            adding(connection, counts, ["group_id", "minute"], ["letters"]),
            [{"group_id": g, "minute": m, "letters": n} for (g, m), n in sorted(minutes.items())],
        )
        if tagged:
            await _add_tags(connection, tagged)
        return reopened

    async def _reopen(
        self,
        connection: AsyncConnection,
        by_group: dict[int, list[dict[str, Any]]],
        kept: dict[int, StoredLetter],
        now_ms: int,
    ) -> int:
        """A resolved group that fails after it was resolved is open again, and says with which release."""
        closed = select(groups.c.id, groups.c.resolved_ms).where(
            groups.c.id.in_(bindparam("some", expanding=True)),
            groups.c.state == GroupState.RESOLVED.value,
        )
        reopened = 0
        for group, resolved_ms in (await connection.execute(closed, {"some": list(by_group)})).all():
            later = [row for row in by_group[group] if row["died_ms"] > (resolved_ms or 0)]
            if later:
                release = kept[min(later, key=lambda row: row["died_ms"])["id"]].release
                await connection.execute(
                    update(groups)
                    .where(groups.c.id == group)
                    .values(state=GroupState.OPEN.value, reopened_ms=now_ms, reopened_release=clean(release))
                )
                reopened += 1
        return reopened


async def _group_ids(connection: AsyncConnection, keys: Sequence[str]) -> dict[str, int]:
    """A group that was merged stands for the one it was merged into."""
    found: dict[str, int] = {}
    asked = select(groups.c.key, func.coalesce(groups.c.merged_into, groups.c.id)).where(
        groups.c.key.in_(bindparam("some", expanding=True))
    )
    for start in range(0, len(keys), ASKED_AT_ONCE):
        rows = await connection.execute(asked, {"some": list(keys[start : start + ASKED_AT_ONCE])})
        found.update((key, number) for key, number in rows)
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


async def _insert_letters(connection: AsyncConnection, rows: Sequence[dict[str, Any]]) -> set[int]:
    """The ids of those that another instance has stored at the same time."""
    if connection.dialect.name != "postgresql":
        await connection.execute(insert(letters), list(rows))
        return set()
    made = await connection.execute(
        postgresql.insert(letters)
        .on_conflict_do_nothing(index_elements=["same", "message"])
        .returning(letters.c.id),
        list(rows),
    )
    return {row["id"] for row in rows} - {int(number) for (number,) in made}


async def _insert_contents(connection: AsyncConnection, some: Sequence[tuple[int, StoredLetter]]) -> None:
    rows = [
        {
            "id": number,
            "exchange": one.letter.came_by.exchange,
            "routing_key": one.letter.came_by.routing_key,
            "properties": packed(one.letter.message.properties, headers=True),
            "body": packed(one.letter.body),
            "words": clean(one.text),
        }
        for number, one in some
    ]
    if not rows:
        return
    if connection.dialect.name == "postgresql":
        await connection.execute(
            text(
                "INSERT INTO deadletter_contents (id, exchange, routing_key, properties, body, words) "
                "VALUES (:id, :exchange, :routing_key, :properties, :body, to_tsvector('simple', :words))"
            ),
            rows,
        )
        return
    await connection.execute(
        text(
            "INSERT INTO deadletter_contents (id, exchange, routing_key, properties, body) "
            "VALUES (:id, :exchange, :routing_key, :properties, :body)"
        ),
        rows,
    )
    await connection.execute(
        text("INSERT INTO deadletter_words (rowid, words) VALUES (:id, :words)"),
        [{"id": row["id"], "words": row["words"]} for row in rows],
    )


async def _add_tags(connection: AsyncConnection, tagged: dict[tuple[int, str, str], list[int]]) -> None:
    made = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    statement = made(tags)
    await connection.execute(
        statement.on_conflict_do_update(
            index_elements=["group_id", "kind", "value"],
            set_={
                "letters": tags.c.letters + statement.excluded.letters,
                "first_ms": least(connection, tags.c.first_ms, statement.excluded.first_ms),
                "last_ms": greatest(connection, tags.c.last_ms, statement.excluded.last_ms),
            },
        ),
        [
            {
                "group_id": group,
                "kind": kind,
                "value": value,
                "letters": len(moments),
                "first_ms": min(moments),
                "last_ms": max(moments),
            }
            for (group, kind, value), moments in sorted(tagged.items())
        ],
    )
