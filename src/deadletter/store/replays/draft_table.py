"""Drafts: letters as somebody repaired them. The original stays as it is; a replay sends the draft."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import delete, insert, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.core.grouping.letter_frame import framed, unframed
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.message import RawMessage
from deadletter.errors import ChangedMeanwhile, NotStored
from deadletter.store.letters import letter_changes
from deadletter.store.letters.letter_connections import uncut
from deadletter.store.letters.letter_rows import among, clean, some_of
from deadletter.store.letters.letter_store import LetterStore
from deadletter.store.letters.letter_tables import RowState, letters, steps
from deadletter.store.replays.replay_tables import drafts


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """The letter as it shall be sent."""

    letter: int
    data: bytes
    who: str
    made_ms: int
    note: str

    @property
    def message(self) -> RawMessage:
        """ValueError where the stored bytes are damaged."""
        return unframed(self.data, "").message


class DraftStore:
    """The drafts of one store; each change is audited, and a step of its letter."""

    def __init__(self, store: LetterStore) -> None:
        self._reading = store.connections.reading
        self._writing = store.connections.writing
        self._now_ms = store.now_ms

    @uncut
    async def save(self, number: int, edited: Letter, *, who: str, note: str = "", version: str = "") -> None:
        """In place of an earlier one. NotStored: the letter is not open any more, or in a replay. `version`:
        of the earlier one; ChangedMeanwhile where it is another one now."""
        async with self._writing() as connection:
            await _is_open(connection, number)
            if version:
                await _unchanged(connection, number, version)
            now_ms = self._now_ms()
            await connection.execute(delete(drafts).where(drafts.c.letter == number))
            await connection.execute(
                insert(drafts).values(
                    letter=number, data=framed(edited), who=clean(who), made_ms=now_ms, note=clean(note)
                )
            )
            await self._said(connection, number, "edited", who, note)

    async def of(self, ids: Sequence[int]) -> dict[int, Draft]:
        """Those that have one."""
        async with self._reading() as connection:
            return await drafts_of(connection, ids)

    @uncut
    async def drop(self, number: int, *, who: str) -> bool:
        """Back to the original. Whether there was a draft. NotStored: as of `save`."""
        async with self._writing() as connection:
            await _is_open(connection, number)
            gone = await connection.execute(
                delete(drafts).where(drafts.c.letter == number).returning(drafts.c.letter)
            )
            if gone.first() is None:
                return False
            await self._said(connection, number, "edit dropped", who, "")
            return True

    async def _said(self, connection: AsyncConnection, number: int, step: str, who: str, why: str) -> None:
        now_ms = self._now_ms()
        told = {"letter": number, "at_ms": now_ms, "step": step, "who": clean(who), "why": clean(why)}
        await connection.execute(insert(steps).values(told))
        detail = json.dumps({"letter": number, "why": why})
        await letter_changes.noted(connection, who=who, action=step, detail=detail, now_ms=now_ms)


def draft_version(who: str, made_ms: int | None) -> str:
    """Of a draft; of none, where there is none."""
    return hashlib.sha256(repr((who, made_ms)).encode()).hexdigest()[:16]


async def _unchanged(connection: AsyncConnection, number: int, version: str) -> None:
    asked = select(drafts.c.who, drafts.c.made_ms).where(drafts.c.letter == number)
    row = (await connection.execute(asked)).first()
    who, made_ms = ("", None) if row is None else (str(row.who), int(row.made_ms))
    if draft_version(who, made_ms) == version:
        return
    said = f"{who} saved another draft" if row is not None else "somebody dropped its draft"
    raise ChangedMeanwhile(
        f"letter {number} is no longer as you saw it: {said}; look again, nothing was changed"
    )


async def _is_open(connection: AsyncConnection, number: int) -> None:
    """A replay that goes on after a crash must send what it sent before."""
    asked = select(letters.c.id).where(letters.c.id == number, letters.c.state == RowState.OPEN)
    # on PostgreSQL who claims it meanwhile waits for us, or we for them
    if await connection.scalar(asked.with_for_update()) is None:
        raise NotStored(f"letter {number}: expected one that is open, and in no replay; nothing was changed")


async def drafts_of(connection: AsyncConnection, ids: Sequence[int]) -> dict[int, Draft]:
    """The drafts of these letters."""
    asked = select(drafts).where(text(among(connection, "letter")))
    rows = await connection.execute(asked, {"some": some_of(connection, ids)})
    return {
        row.letter: Draft(
            letter=row.letter,
            data=bytes(row.data),
            who=row.who,
            made_ms=row.made_ms,
            note=row.note,
        )
        for row in rows
    }
