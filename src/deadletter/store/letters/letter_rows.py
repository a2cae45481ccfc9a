"""Statements and values that everybody who writes letters uses, in the words of both databases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import bindparam, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.store.letters.letter_tables import names, tallies

ASKED_AT_ONCE: Final = 500
"""So many values in one question."""


def clean(value: str) -> str:
    """Text that both databases keep: no NUL, no half of a character. Names and bytes that must be exact are
    in the properties."""
    if "\0" in value:
        value = value.replace("\0", "\ufffd")
    return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")


def id_bytes(letter_id: str) -> bytes:
    """An id of ours in sixteen bytes; any other as it is."""
    try:
        return bytes.fromhex(letter_id) if len(letter_id) == 32 else letter_id.encode("utf-8", "replace")
    except ValueError:
        return letter_id.encode("utf-8", "replace")


def id_text(letter_id: bytes) -> str:
    return letter_id.hex() if len(letter_id) == 16 else letter_id.decode("utf-8", "replace")


def unless_there(connection: AsyncConnection, target: Any, key: Sequence[str]) -> Any:
    """An insert that leaves rows alone which are there."""
    made = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    return made(target).on_conflict_do_nothing(index_elements=list(key))


def adding(connection: AsyncConnection, target: Any, key: Sequence[str], sums: Sequence[str]) -> Any:
    """An insert that adds these columns to a row which is there."""
    made = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    statement = made(target)
    return statement.on_conflict_do_update(
        index_elements=list(key),
        set_={name: target.c[name] + statement.excluded[name] for name in sums},
    )


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


async def add_tallies(
    connection: AsyncConnection,
    tally: Counter[tuple[int, int, int]],
    size: Counter[tuple[int, int, int]],
) -> None:
    """So many letters and bytes more (or fewer) of a group, a queue and a state."""
    await connection.execute(
        adding(connection, tallies, ["group_id", "queue", "state"], ["letters", "bytes"]),
        [
            {"group_id": g, "queue": q, "state": s, "letters": n, "bytes": size[g, q, s]}
            for (g, q, s), n in sorted(tally.items())
        ],
    )


def least(connection: AsyncConnection, one: Any, other: Any) -> Any:
    return func.least(one, other) if connection.dialect.name == "postgresql" else func.min(one, other)


def greatest(connection: AsyncConnection, one: Any, other: Any) -> Any:
    return func.greatest(one, other) if connection.dialect.name == "postgresql" else func.max(one, other)
