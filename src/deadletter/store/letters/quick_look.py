"""A quick look at the names in a store that is a file, for whoever presses TAB and waits.

SQLAlchemy and all that belongs to it take longer to load than a person waits; SQLite itself is there at once.
Nothing is written, nobody is kept waiting, and a file that is not there is not made.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from typing import Final, TypeAlias

from deadletter.store.letters.letter_ids import id_of
from deadletter.store.store_address import SqliteAddress

SHOWN: Final = 200
_WAIT_S: Final = 0.5
Named: TypeAlias = tuple[str, str]
"""A name, and what is said of it."""


@dataclass(frozen=True, slots=True)
class Look:
    asked: str
    read: Callable[[tuple[object, ...]], list[Named]] = lambda row: [(str(row[0]), str(row[1]))]


def _letter(row: tuple[object, ...]) -> list[Named]:
    """By its number, and by its id."""
    number, same, said = row
    assert isinstance(same, bytes)
    return [(str(number), str(said)), (id_of(same), str(said))]


GROUPS: Final = Look(
    "SELECT id, title FROM deadletter_groups WHERE merged_into IS NULL ORDER BY last_ms DESC LIMIT ?"
)
LETTERS: Final = Look(
    "SELECT id, same, error FROM deadletter_letters WHERE copy_of IS NULL ORDER BY id DESC LIMIT ?", _letter
)
_LETTERS_OF: Final = (
    "SELECT name, printf('%,d letters', sum(letters)) FROM deadletter_tallies t "
    "JOIN deadletter_groups g ON g.id = t.group_id JOIN deadletter_names n ON n.id = {} "
    "WHERE letters > 0 GROUP BY name ORDER BY sum(letters) DESC LIMIT ?"
)
QUEUES: Final = Look(_LETTERS_OF.format("t.queue"))
ORIGINS: Final = Look(_LETTERS_OF.format("g.origin"))


def names_in(address: SqliteAddress, look: Look) -> list[Named]:
    """sqlite3.Error: it is not there, or no store of ours."""
    where = f"{address.path.absolute().as_uri()}?mode=ro"
    with closing(sqlite3.connect(where, uri=True, timeout=_WAIT_S)) as connection:
        return [named for row in connection.execute(look.asked, (SHOWN,)) for named in look.read(row)]
