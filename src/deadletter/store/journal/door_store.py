"""The door of the desk, as far as other instances and the next start have to know it: sessions that were
ended, and the tokens that were known last."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import delete, select, update

from deadletter.store.journal.journal_tables import ended_sessions, keys
from deadletter.store.letters.letter_changes import noted
from deadletter.store.letters.letter_connections import uncut
from deadletter.store.letters.letter_rows import clean, unless_there
from deadletter.store.letters.letter_store import LetterStore

ENDED_MOST: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownKey:
    """A token by what tells it apart, never by itself. `told`: what it may, for the audit."""

    print: str
    name: str
    told: Mapping[str, object]


class DoorStore:
    """Of one store."""

    def __init__(self, store: LetterStore) -> None:
        self._reading = store.connections.reading
        self._writing = store.connections.writing
        self._now_ms = store.now_ms

    @uncut
    async def end_session(self, session: str, until_ms: int) -> None:
        """`until_ms`: when it would be over by itself; nobody needs to know it any longer."""
        async with self._writing() as connection:
            await connection.execute(delete(ended_sessions).where(ended_sessions.c.until_ms < self._now_ms()))
            row = {"id": clean(session), "until_ms": until_ms}
            await connection.execute(unless_there(connection, ended_sessions, ("id",)).values(row))

    async def ended_sessions(self) -> frozenset[str]:
        async with self._reading() as connection:
            asked = select(ended_sessions.c.id).order_by(ended_sessions.c.until_ms.desc()).limit(ENDED_MOST)
            return frozenset((await connection.scalars(asked)).all())

    @uncut
    async def keys_seen(self, now: Sequence[KnownKey], *, who: str) -> None:
        """These tokens are in force now. What came, changed or went since somebody looked is written down
        once, whichever instance sees it first."""
        async with self._writing() as connection:
            before = {row.print: row for row in await connection.execute(select(keys))}
            here = {one.print: one for one in now}
            for one in here.values():
                told = json.dumps(dict(one.told), ensure_ascii=False, sort_keys=True)
                row = {"print": one.print, "name": clean(one.name), "told": clean(told)}
                same = keys.c.print == one.print
                if one.print not in before:
                    made = await connection.execute(unless_there(connection, keys, ("print",)).values(row))
                    action = "token made"
                else:
                    other = (keys.c.name != row["name"]) | (keys.c.told != row["told"])
                    made = await connection.execute(update(keys).where(same, other).values(row))
                    action = "token changed"
                if made.rowcount:
                    detail = json.dumps({"token": one.name, **one.told}, ensure_ascii=False)
                    await noted(connection, who=who, action=action, detail=detail, now_ms=self._now_ms())
            for print_, known in before.items():
                if print_ in here:
                    continue
                gone = await connection.execute(delete(keys).where(keys.c.print == print_))
                if gone.rowcount:
                    detail = json.dumps({"token": known.name}, ensure_ascii=False)
                    await noted(
                        connection, who=who, action="token removed", detail=detail, now_ms=self._now_ms()
                    )
