"""The bytes of letters that are to be sent, exact, each unpacked once; of one with a draft, the draft's."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, select, text
from sqlalchemy.ext.asyncio import AsyncConnection

from deadletter.core.grouping.compression import unpacked
from deadletter.core.grouping.letter_frame import unframed
from deadletter.core.grouping.stored_letter import UNKNOWN_ORIGIN, unwrapped
from deadletter.errors import MessageError
from deadletter.store.letters.letter_contents import KnownDictionaries
from deadletter.store.letters.letter_ids import id_of
from deadletter.store.letters.letter_rows import among, some_of
from deadletter.store.letters.letter_tables import names
from deadletter.store.replays.draft_table import drafts_of
from deadletter.store.replays.replay_rows import SentRow
from deadletter.store.replays.replay_views import ClaimedLetter

GONE = "it is no longer in the store"
DAMAGED = "its bytes in the store are damaged"


async def whole(
    connection: AsyncConnection, rows: Sequence[SentRow], dictionaries: KnownDictionaries
) -> tuple[list[ClaimedLetter], dict[int, str]]:
    """These letters in their order; and those that are not there as they were, with the reason."""
    asked = (
        "SELECT l.id, l.same, l.queue, g.origin, c.dictionary, c.data FROM deadletter_letters l "
        "JOIN deadletter_groups g ON g.id = l.group_id JOIN deadletter_contents c ON c.id = l.id WHERE "
    )
    ids = some_of(connection, (row.letter for row in rows))
    found = (await connection.execute(text(asked + among(connection, "l.id")), {"some": ids})).all()
    called = await _called(connection, sorted({name for one in found for name in (one[2], one[3])}))
    known = await dictionaries.of(connection, {one[4] for one in found if one[4]})
    stored = {int(one[0]): one for one in found}
    repaired = await drafts_of(connection, list(stored))
    letters: list[ClaimedLetter] = []
    refused: dict[int, str] = {}
    for row in rows:
        one = stored.get(row.letter)
        if one is None:
            refused[row.letter] = GONE
            continue
        _, same, queue, origin, dictionary, data = one
        try:
            letter = unframed(unpacked(bytes(data), known.get(dictionary, b"")), called[queue])
            if (draft := repaired.get(row.letter)) is not None:
                letter = unwrapped(letter).with_message(draft.message)
        except (ValueError, MessageError):
            refused[row.letter] = DAMAGED
            continue
        home = called[origin]
        letters.append(
            ClaimedLetter(
                row=row.letter,
                letter=letter,
                origin="" if home == UNKNOWN_ORIGIN else home,
                letter_id=id_of(bytes(same)),
                doubtful=row.doubtful,
            )
        )
    return letters, refused


async def _called(connection: AsyncConnection, some: Sequence[int]) -> dict[int, str]:
    asked = select(names.c.id, names.c.name).where(names.c.id.in_(bindparam("some", expanding=True)))
    rows = await connection.execute(asked, {"some": list(some)})
    return {int(number): str(name) for number, name in rows}
