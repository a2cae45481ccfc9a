"""Views that people saved: a name for an address with its filters, for themselves or for all."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Row, and_, delete, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.errors import NotStored, UsageError
from deadletter.store.journal.journal_tables import views
from deadletter.store.letters.letter_changes import noted
from deadletter.store.letters.letter_connections import uncut
from deadletter.store.letters.letter_rows import clean
from deadletter.store.letters.letter_store import LetterStore

NAME_CHARS: Final = 100
ADDRESS_CHARS: Final = 4_000
OF_ONE: Final = 100
_LISTED: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedView:
    """`address`: a path of the page, with what it filters by. `shared`: others see it, too."""

    name: str
    address: str
    owner: str
    shared: bool = False


class ViewStore:
    """Of one store."""

    def __init__(self, store: LetterStore) -> None:
        self._reading = store.connections.reading
        self._writing = store.connections.writing
        self._now_ms = store.now_ms

    async def seen_by(self, owner: str, *, others: bool) -> tuple[SavedView, ...]:
        """By name, their own first. `others`: also what others share."""
        mine = views.c.owner == clean(owner)
        seen = or_(mine, views.c.shared.is_(True)) if others else mine
        asked = select(views).where(seen).order_by(mine.desc(), views.c.name, views.c.id).limit(_LISTED)
        async with self._reading() as connection:
            return tuple(_view(row) for row in await connection.execute(asked))

    @uncut
    async def save(self, view: SavedView) -> SavedView:
        """In place of theirs of this name. UsageError: they have too many."""
        async with self._writing() as connection:
            mine = views.c.owner == clean(view.owner)
            here = and_(mine, views.c.name == clean(view.name))
            values = {
                "owner": clean(view.owner),
                "name": clean(view.name),
                "address": clean(view.address),
                "shared": view.shared,
                "at_ms": self._now_ms(),
            }
            there = await connection.execute(update(views).where(here).values(values))
            if not there.rowcount:
                count = await connection.scalar(select(func.count()).select_from(views).where(mine))
                if (count or 0) >= OF_ONE:
                    raise UsageError(f"expected at most {OF_ONE} views of one person; remove some first")
                await connection.execute(insert(views).values(values))
            await self._note(connection, "view saved", view)
        return view

    @uncut
    async def remove(self, owner: str, name: str) -> SavedView:
        """NotStored: they have none of this name."""
        async with self._writing() as connection:
            here = and_(views.c.owner == clean(owner), views.c.name == clean(name))
            row = (await connection.execute(delete(views).where(here).returning(*views.c))).first()
            if row is None:
                raise NotStored(f"view {name}: {owner} has none of this name")
            gone = _view(row)
            await self._note(connection, "view removed", gone)
            return gone

    async def _note(self, connection: AsyncConnection, action: str, view: SavedView) -> None:
        detail = json.dumps({"view": view.name, "address": view.address, "shared": view.shared})
        await noted(connection, who=view.owner, action=action, detail=detail, now_ms=self._now_ms())


def _view(row: Row[Any]) -> SavedView:
    return SavedView(name=row.name, address=row.address, owner=row.owner, shared=bool(row.shared))
