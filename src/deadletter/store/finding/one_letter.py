"""One letter of the store, by any of its names, with all that is kept of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sqlalchemy import ColumnElement, select
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.core.access.scope import WHOLE, Scope
from deadletter.errors import NotStored
from deadletter.store.finding.letter_list import rows_of
from deadletter.store.finding.within_scope import letters_within
from deadletter.store.letters.letter_contents import contents_of
from deadletter.store.letters.letter_ids import id_of
from deadletter.store.letters.letter_rows import begins_with, of_id
from deadletter.store.letters.letter_tables import letters, steps
from deadletter.store.letters.letter_views import LetterDetail, LetterStep
from deadletter.store.replays.replay_list import steps_of as replayed_steps

_EARLIER: Final = 20
_ALIKE: Final = 100
"""So many letters are looked at to tell whether the beginning of an id means one."""


async def detail_of(connection: AsyncConnection, name: str, scope: Scope = WHOLE) -> LetterDetail:
    """By its number here, or by its id or the beginning of it. NotStored: there is none that may be seen."""
    seen = [] if scope.whole else await letters_within(connection, scope, narrow=True)
    number = await _number_of(connection, name, seen)
    (row,) = await rows_of(connection, [number])
    found = await contents_of(connection, [number])
    taken = await connection.execute(select(steps).where(steps.c.letter == number).order_by(steps.c.id))
    told = [LetterStep(at_ms=one.at_ms, step=one.step, who=one.who, why=one.why) for one in taken]
    told = sorted([*told, *await replayed_steps(connection, number)], key=lambda one: one.at_ms)
    others = select(letters.c.id).where(
        of_id(row.letter_id),
        letters.c.id != number,
        letters.c.copy_of.is_(None),
        *seen,
    )
    before = [int(one) for (one,) in await connection.execute(others.limit(_EARLIER))]
    earlier = await rows_of(connection, before)
    return LetterDetail(row=row, letter=found[number], steps=tuple(told), earlier=earlier)


async def _number_of(connection: AsyncConnection, name: str, seen: Sequence[ColumnElement[bool]]) -> int:
    if name.isascii() and name.isdigit() and len(name) < 16:
        found = await connection.scalar(select(letters.c.id).where(letters.c.id == int(name), *seen))
        if found is not None:
            return int(found)
    hexadecimal = 4 <= len(name) < 32 and all(digit in "0123456789abcdef" for digit in name)
    wanted = begins_with(name) if hexadecimal else of_id(name)
    asked = select(letters.c.id, letters.c.same).where(wanted, letters.c.copy_of.is_(None), *seen)
    newest = (await connection.execute(asked.order_by(letters.c.id.desc()).limit(_ALIKE))).all()
    found_ids = {id_of(bytes(same)) for _, same in newest}
    if len(found_ids) != 1:  # visits of one letter are one: the newest is meant
        raise NotStored(
            f"letter {name}: expected its number in the store, or its id or the beginning of it; "
            f"{'no letter is called so' if not found_ids else 'several begin so'} (dlq letters lists them)"
        )
    return int(newest[0][0])
