"""The index of words: FTS5 in SQLite, a GIN index over tsvector in PostgreSQL, with the same words in both.

It knows which letters have a word, neither where nor how often: small, and whoever finds a letter by it looks
into the letter. Beside the words of its text a letter has one for its cause, so that a rare one is found
among a million.

FTS5 keeps no text, so it has to be told what it had when a letter goes. A letter whose words were made in
another way than we make them stays in the index: no id is ever used again, and nobody finds what is gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.core.grouping.letter_words import divided, each_once
from deadletter.core.grouping.stored_letter import StoredLetter
from deadletter.errors import StoreError
from deadletter.store.letters.letter_rows import Bulk, Put, clean, sqlite_rows

_SQLITE_ADD: Final = "INSERT INTO deadletter_words (rowid, words) VALUES "
_SQLITE_REMOVE: Final = "INSERT INTO deadletter_words (deadletter_words, rowid, words) VALUES "
_POSTGRES: Final = Bulk(
    table="deadletter_words",
    columns=(("id", "bigint"), ("words", "text")),
    values="id, array_to_tsvector(string_to_array(words, ' '))",
)
_FOUND: Final = {
    "sqlite": ("SELECT rowid AS id FROM deadletter_words WHERE deadletter_words MATCH ?1", "rowid", "?"),
    "postgresql": ("SELECT id FROM deadletter_words WHERE words @@ CAST($1 AS tsquery)", "id", "$"),
}
_HAVING: Final = {
    (dialect, newest, goes_on): " ".join(
        (
            found,
            f"AND {number} {'<' if newest else '>'} {mark}3" if goes_on else "",
            f"ORDER BY {number} {'DESC' if newest else 'ASC'} LIMIT {mark}2",
        )
    )
    for dialect, (found, number, mark) in _FOUND.items()
    for newest in (True, False)
    for goes_on in (True, False)
}
_SETTLED_AFTER: Final = 5_000
"""So many letters' words may wait."""
_END_S: Final = 2.0
_MARK: Final = "\u00a6"
"""No word of a text has it: it is no letter."""


def cause_word(cause: int) -> str:
    """The word of a cause, by the number of its name."""
    return f"{_MARK}c{cause}"


class PendingWords:
    """New words wait in a list of PostgreSQL's before they come into its index; whoever makes that list full
    pays for all of them. So it is emptied in between, beside the writing: nobody waits for it, and who
    searches has less to read."""

    def __init__(self, connecting: Callable[[], AbstractAsyncContextManager[AsyncConnection]]) -> None:
        self._connecting = connecting
        self._waiting = 0
        self._settling: asyncio.Task[None] | None = None

    def came(self, letters: int) -> None:
        """So many letters were stored."""
        self._waiting += letters
        if self._waiting >= _SETTLED_AFTER and (self._settling is None or self._settling.done()):
            self._waiting = 0
            self._settling = asyncio.create_task(self._settle())

    async def settled(self) -> None:
        """When nothing is under way any more. It is not waited for long: the rest PostgreSQL does itself."""
        if self._settling is not None:
            _, late = await asyncio.wait({self._settling}, timeout=_END_S)
            if late:
                self._settling.cancel()
                await asyncio.wait(late)

    async def _settle(self) -> None:
        # What fails here is done by PostgreSQL itself when the list is full, later and at once.
        with suppress(StoreError):
            async with self._connecting() as connection:
                if connection.dialect.name == "postgresql":
                    await connection.exec_driver_sql(
                        "SELECT gin_clean_pending_list('deadletter_words_words')"
                    )
                    await connection.commit()


async def add(connection: AsyncConnection, some: Sequence[tuple[int, StoredLetter, int]]) -> None:
    """Into SQLite. `some`: ids, letters and causes."""
    told = [(number, _text(letter), cause) for number, letter, cause in some]
    await sqlite_rows(connection, _SQLITE_ADD, _told(told))


def put_of(some: Sequence[tuple[int, StoredLetter, int]]) -> Put:
    """The same for PostgreSQL, of those letters that are stored with it."""
    rows = [(number, f"{cause_word(cause)} {_words(letter)}".rstrip()) for number, letter, cause in some]
    return Put(_POSTGRES, rows, of_first=True)


def _words(letter: StoredLetter) -> str:
    return clean(each_once(letter.text) if letter.words is None else letter.words)


def _text(letter: StoredLetter) -> str:
    return letter.text if letter.words is None else letter.words


async def remove(connection: AsyncConnection, some: Sequence[tuple[int, str, int]]) -> None:
    """With the texts and causes with which they were added."""
    if connection.dialect.name == "postgresql":
        gone = [number for number, _, _ in some]
        await connection.exec_driver_sql("DELETE FROM deadletter_words WHERE id = ANY($1)", (gone,))
    elif some:
        await sqlite_rows(connection, _SQLITE_REMOVE, [("delete", *one) for one in _told(some)])


def _told(some: Sequence[tuple[int, str, int]]) -> list[tuple[int, str]]:
    return [(number, f"{divided(clean(said))} {cause_word(cause)}") for number, said, cause in some]


async def having(
    connection: AsyncConnection, words: Sequence[str], *, after: int | None, newest: bool, limit: int
) -> list[int]:
    """The next letters that have all these words."""
    asked = _HAVING[connection.dialect.name, newest, after is not None]
    if connection.dialect.name == "postgresql":
        wanted = " & ".join(f"'{word}'" for word in words)
    else:
        wanted = " AND ".join(f'"{word}"' for word in words)
    parameters = (wanted, limit) if after is None else (wanted, limit, after)
    return [int(row[0]) for row in await connection.exec_driver_sql(asked, parameters)]
