"""Answers to requests that may come twice because none arrived: kept for a day, by who asked and their key.

A request takes its key first, and only who took it does the work. Whoever comes with the same key later has
the same answer; where there is none yet, the work is under way, or its process died at it: then nobody knows
whether it was done, and that is what is said.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sqlalchemy import delete, select, update

from deadletter.store.journal.journal_tables import answers
from deadletter.store.letters.letter_connections import uncut
from deadletter.store.letters.letter_rows import clean, unless_there
from deadletter.store.letters.letter_store import LetterStore

KEPT_MS: Final = 24 * 60 * 60 * 1000
_FORGOTTEN: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptAnswer:
    """`digest`: of the request. `status` None: there is no answer yet."""

    digest: str
    at_ms: int
    status: int | None
    kind: str
    body: bytes


class AnswerStore:
    """The answers of one store."""

    def __init__(self, store: LetterStore) -> None:
        self._writing = store.connections.writing
        self._now_ms = store.now_ms

    @uncut
    async def take(self, actor: str, key: str, digest: str) -> KeptAnswer | None:
        """Take this key. None: it is ours now; else what is known of it."""
        async with self._writing() as connection:
            now_ms = self._now_ms()
            old = select(answers.c.actor, answers.c.key).where(answers.c.at_ms < now_ms - KEPT_MS)
            for actor_, key_ in (await connection.execute(old.limit(_FORGOTTEN))).all():
                await connection.execute(
                    delete(answers).where(answers.c.actor == actor_, answers.c.key == key_)
                )
            row = {"actor": clean(actor), "key": clean(key), "digest": digest, "at_ms": now_ms}
            made = await connection.execute(unless_there(connection, answers, ("actor", "key")).values(row))
            if made.rowcount:
                return None
            here = answers.c.actor == clean(actor), answers.c.key == clean(key)
            found = (await connection.execute(select(answers).where(*here))).one()
            return KeptAnswer(
                digest=found.digest,
                at_ms=int(found.at_ms),
                status=found.status,
                kind=found.kind or "",
                body=bytes(found.body or b""),
            )

    @uncut
    async def keep(self, actor: str, key: str, *, status: int, kind: str, body: bytes) -> None:
        async with self._writing() as connection:
            here = answers.c.actor == clean(actor), answers.c.key == clean(key)
            await connection.execute(
                update(answers).where(*here).values(status=status, kind=clean(kind), body=body)
            )

    @uncut
    async def give_up(self, actor: str, key: str) -> None:
        """Nothing was done: whoever asks again may."""
        async with self._writing() as connection:
            here = answers.c.actor == clean(actor), answers.c.key == clean(key)
            await connection.execute(delete(answers).where(*here, answers.c.status.is_(None)))
