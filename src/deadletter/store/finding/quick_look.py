"""A quick look at a store that is a file: the names in it, for whoever presses TAB and waits; whose it is.

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
_TABLES: Final = "SELECT name FROM sqlite_master WHERE type = 'table'"
_OURS: Final = frozenset({"deadletter_version", "dlq_event_config"})
"""The second may have been there before us."""
Named: TypeAlias = tuple[str, str]
"""A name, and what is said of it."""


@dataclass(frozen=True, slots=True)
class NamesLook:
    asked: str
    read: Callable[[tuple[object, ...]], list[Named]] = lambda row: [(str(row[0]), str(row[1]))]


def _letter(row: tuple[object, ...]) -> list[Named]:
    """By its number, and by its id."""
    number, same, said = row
    assert isinstance(same, bytes)
    return [(str(number), str(said)), (id_of(same), str(said))]


GROUPS: Final = NamesLook(
    "SELECT id, title FROM deadletter_groups WHERE merged_into IS NULL ORDER BY last_ms DESC LIMIT ?"
)
LETTERS: Final = NamesLook(
    "SELECT id, same, error FROM deadletter_letters WHERE copy_of IS NULL ORDER BY id DESC LIMIT ?", _letter
)
_LETTERS_OF: Final = (
    "SELECT name, printf('%,d letters', sum(letters)) FROM deadletter_tallies t "
    "JOIN deadletter_groups g ON g.id = t.group_id JOIN deadletter_names n ON n.id = {} "
    "WHERE letters > 0 GROUP BY name ORDER BY sum(letters) DESC LIMIT ?"
)
QUEUES: Final = NamesLook(_LETTERS_OF.format("t.queue"))
ORIGINS: Final = NamesLook(_LETTERS_OF.format("g.origin"))
REPLAYS: Final = NamesLook(
    "SELECT id, printf('%s, %,d letters', state, letters) FROM deadletter_replays ORDER BY id DESC LIMIT ?"
)
RECIPES: Final = NamesLook("SELECT name, program FROM deadletter_recipes ORDER BY name LIMIT ?")


def is_foreign(address: SqliteAddress) -> bool:
    """Whether it is a database of somebody else: there are tables in it, and none of ours."""
    try:
        with closing(sqlite3.connect(_read_only(address), uri=True, timeout=_WAIT_S)) as connection:
            tables = {str(name) for (name,) in connection.execute(_TABLES)}
    except sqlite3.Error:
        return False  # whoever opens it says what is wrong
    return bool(tables) and not tables & _OURS


def _read_only(address: SqliteAddress) -> str:
    return f"{address.path.absolute().as_uri()}?mode=ro"


def names_in(address: SqliteAddress, look: NamesLook) -> list[Named]:
    """sqlite3.Error: it is not there, or no store of ours."""
    with closing(sqlite3.connect(_read_only(address), uri=True, timeout=_WAIT_S)) as connection:
        return [named for row in connection.execute(look.asked, (SHOWN,)) for named in look.read(row)]
