"""Statements and values that everybody who writes letters uses, in the words of both databases."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, NamedTuple, TypeAlias

from sqlalchemy import ColumnElement, and_, bindparam, func, select, text
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.store.letters.letter_ids import SAME_BYTES, id_bytes
from deadletter.store.letters.letter_tables import letters, names

_ROWS_AT_ONCE: Final = 1_000
"""SQLite takes 32,766 values at once, and no table has more than 32 columns."""
_NUMBERS: Final = frozenset({"bigint", "integer", "smallint"})
ASKED_AT_ONCE: Final = 500
"""So many values in one question."""


def clean(value: str) -> str:
    """Text that both databases keep: no NUL, no half of a character. Names and bytes that must be exact are
    in the properties."""
    if "\0" in value:
        value = value.replace("\0", "\ufffd")
    return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")


def span_of(letter_id: str) -> tuple[bytes, bytes]:
    """Between which of these letters of an id are. There may be others, of an id that begins with it."""
    wanted = id_bytes(letter_id)
    return wanted, wanted + b"\xff" * SAME_BYTES


def of_id(letter_id: str) -> ColumnElement[bool]:
    """Letters of this id."""
    first, last = span_of(letter_id)
    return and_(letters.c.same.between(first, last), func.length(letters.c.same) == len(last))


def begins_with(digits: str) -> ColumnElement[bool]:
    """Letters of ids of ours that begin with these hexadecimal digits."""
    first, last = bytes.fromhex(digits.ljust(32, "0")), bytes.fromhex(digits.ljust(32, "f"))
    return letters.c.same.between(first, last + b"\xff" * SAME_BYTES)


async def sqlite_rows(
    connection: AsyncConnection, before: str, rows: Sequence[tuple[object, ...]], after: str = ""
) -> int:
    """A statement with many rows between `before` and `after`; how many rows it changed. In few steps: after
    each one SQLite's thread waits for Python's lock, which a thread that computes gives up only after
    milliseconds."""
    changed = 0
    for start in range(0, len(rows), _ROWS_AT_ONCE):
        some = rows[start : start + _ROWS_AT_ONCE]
        row = f"({', '.join('?' * len(some[0]))})"
        values = tuple(chain.from_iterable(some))
        done = await connection.exec_driver_sql(f"{before}{', '.join([row] * len(some))}{after}", values)
        changed += done.rowcount
    return changed


@dataclass(frozen=True, slots=True, kw_only=True)
class Bulk:
    """Many rows of one table in one statement, with nothing between us and the driver. `columns`: names and
    PostgreSQL's types; `then`: what happens to rows that are there, in words of both databases."""

    table: str
    columns: tuple[tuple[str, str], ...]
    values: str = ""
    """PostgreSQL's, where they are not the columns themselves."""
    then: str = ""
    returning: str = ""

    async def put(self, connection: AsyncConnection, rows: Sequence[tuple[object, ...]]) -> list[Any]:
        """What PostgreSQL returned of them."""
        return await put_together(connection, Put(self, rows))

    @property
    def names(self) -> str:
        return ", ".join(name for name, _ in self.columns)

    def statement(self, before: int, where: str = "") -> str:
        """PostgreSQL's, with so many values before its own."""
        arrays = ", ".join(_array(place, kind) for place, (_, kind) in enumerate(self.columns, before + 1))
        returning = f" RETURNING {self.returning}" if self.returning else ""
        return (
            f"INSERT INTO {self.table} ({self.names}) SELECT {self.values or '*'} "  # noqa: S608 -- names of ours
            f"FROM unnest({arrays}) AS n({self.names}) {where} {self.then}{returning}"
        )

    def arguments(self, rows: Sequence[tuple[object, ...]]) -> Iterator[object]:
        """Its values, by column."""
        for (_, kind), column in zip(self.columns, zip(*rows, strict=True), strict=True):
            yield _array_value(kind, column)


class Put(NamedTuple):
    """Rows of a table. `of_first`: those alone whose `id` the first of several returned."""

    bulk: Bulk
    rows: Sequence[tuple[object, ...]]
    of_first: bool = False


async def put_together(connection: AsyncConnection, *puts: Put) -> list[Any]:
    """Rows of several tables. What PostgreSQL returned of the first: it gets one statement, because whoever
    asks it waits for each answer, and on a busy machine also for a core."""
    some = [one for one in puts if one.rows]
    if connection.dialect.name != "postgresql":
        for bulk, rows, _ in some:
            then = bulk.then.replace("LEAST(", "min(").replace("GREATEST(", "max(")
            into = f"INSERT INTO {bulk.table} ({bulk.names}) VALUES "  # noqa: S608 -- names of ours
            await sqlite_rows(connection, into, rows, f" {then}")
        return []
    if not some:
        return []
    parts: list[str] = []
    told: list[object] = []
    for place, (bulk, rows, of_first) in enumerate(some):
        where = "WHERE n.id IN (SELECT id FROM put_0)" if of_first else ""
        parts.append(f"put_{place} AS ({bulk.statement(len(told), where)})")
        told += bulk.arguments(rows)
    told_back = some[0].bulk.returning
    last = f"SELECT {told_back} FROM put_0" if told_back else "SELECT 1 LIMIT 0"  # noqa: S608 -- names of ours
    done = await connection.exec_driver_sql(f"WITH {', '.join(parts)} {last}", tuple(told))
    return [row[0] for row in done]


def _array(place: int, kind: str) -> str:
    """Numbers come as one text: PostgreSQL's driver looks at each one of a list many times."""
    return f"string_to_array(${place}, ',', '')::{kind}[]" if kind in _NUMBERS else f"${place}::{kind}[]"


def _array_value(kind: str, column: Sequence[object]) -> object:
    if kind not in _NUMBERS:
        return list(column)
    return ",".join(["" if value is None else str(value) for value in column])


def among(connection: AsyncConnection, column: str) -> str:
    """A condition with one value, `:some`, for many numbers."""
    if connection.dialect.name == "postgresql":
        return f"{column} = ANY(CAST(string_to_array(:some, ',') AS bigint[]))"
    return f"{column} IN (SELECT value FROM json_each(:some))"  # noqa: S608 -- names of ours


def numbers(connection: AsyncConnection) -> str:
    """What gives these numbers as rows, each as `value`."""
    postgres = connection.dialect.name == "postgresql"
    return "unnest(string_to_array(:some, ',')) AS n(value)" if postgres else "json_each(:some)"


def some_of(connection: AsyncConnection, some: Iterable[int]) -> str:
    """The value for `among` and `numbers`."""
    told = ",".join(map(str, some))
    return told if connection.dialect.name == "postgresql" else f"[{told}]"


async def asked_of(
    connection: AsyncConnection, question: str, column: str, some: Iterable[int], *, then: str = ""
) -> Sequence[Any]:
    """The rows of a question in which this column is one of these numbers, however many they are. By them
    alone: a database that is asked for more may look at everything to find these. `then`: its end."""
    asked = text(f"{question} WHERE {among(connection, column)} {then}")
    return (await connection.execute(asked, {"some": some_of(connection, some)})).all()


def unless_there(connection: AsyncConnection, target: Any, key: Sequence[str]) -> Any:
    """An insert that leaves rows alone which are there."""
    made = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    return made(target).on_conflict_do_nothing(index_elements=list(key))


async def name_ids(connection: AsyncConnection, some: Sequence[str]) -> dict[str, int]:
    """The ids of names, which are made for those that have none."""
    await connection.execute(
        unless_there(connection, names, ["name"]), [{"name": name} for name in sorted(some)]
    )
    found: dict[str, int] = {}
    asked = select(names.c.name, names.c.id).where(names.c.name.in_(bindparam("some", expanding=True)))
    for start in range(0, len(some), ASKED_AT_ONCE):
        rows = await connection.execute(asked, {"some": list(some[start : start + ASKED_AT_ONCE])})
        found.update((key, number) for key, number in rows)
    return found


TallyPlace: TypeAlias = tuple[int, int, int, int]
"""Where letters are counted: group, vhost, queue, state. Queues of two vhosts may have one name."""
TALLIED: Final = (
    "ON CONFLICT (group_id, vhost, queue, state) DO UPDATE SET "
    "letters = deadletter_tallies.letters + excluded.letters, "
    "bytes = deadletter_tallies.bytes + excluded.bytes"
)
"""What happens to a tally that is there."""
_TALLIES: Final = Bulk(
    table="deadletter_tallies",
    columns=(
        ("group_id", "bigint"),
        ("vhost", "bigint"),
        ("queue", "bigint"),
        ("state", "smallint"),
        ("letters", "bigint"),
        ("bytes", "bigint"),
    ),
    then=TALLIED,
)
COUNTS: Final = Bulk(
    table="deadletter_counts",
    columns=(("group_id", "bigint"), ("minute", "bigint"), ("letters", "bigint")),
    then=(
        "ON CONFLICT (group_id, minute) DO UPDATE SET letters = deadletter_counts.letters + excluded.letters"
    ),
)


async def add_tallies(
    connection: AsyncConnection, tally: Mapping[TallyPlace, int], size: Mapping[TallyPlace, int]
) -> None:
    """So many letters and bytes more (or fewer) of a place. Once in a transaction, and
    everybody in the same order: nobody waits for one who waits for him."""
    await put_together(connection, tallied(tally, size))


def tallied(tally: Mapping[TallyPlace, int], size: Mapping[TallyPlace, int]) -> Put:
    """The rows of `add_tallies`."""
    return Put(_TALLIES, [(*place, count, size[place]) for place, count in sorted(tally.items())])
