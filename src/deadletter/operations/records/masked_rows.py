"""Rows of a list for eyes that may not see all of a letter: an error may quote what is masked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from deadletter.core.access.field_masks import MASKED, FieldMasks
from deadletter.core.grouping.stored_letter import read_inside
from deadletter.core.replaying.masked_letter import hidden, masked
from deadletter.operations.records.exact_letters import PORTION_BYTES
from deadletter.store.letters.letter_store import LetterStore
from deadletter.store.letters.letter_views import LetterRow

LOOKED_INTO_BYTES: Final = 1024 * 1024
"""A letter that is larger is not opened for a list: its error is hidden."""


async def masked_rows(
    store: LetterStore, rows: Sequence[LetterRow], masks: FieldMasks
) -> tuple[LetterRow, ...]:
    if not masks or not rows:
        return tuple(rows)
    wanted = [row.id for row in rows if row.error and row.bytes <= LOOKED_INTO_BYTES]
    secrets = await secrets_of(store, wanted, masks)
    return tuple(
        hidden(row, secrets[row.id]) if row.id in secrets else replace(row, error=MASKED if row.error else "")
        for row in rows
    )


async def secrets_of(store: LetterStore, ids: Sequence[int], masks: FieldMasks) -> dict[int, tuple[str, ...]]:
    """What masked fields of these letters hold; of those that are still there."""
    secrets: dict[int, tuple[str, ...]] = {}
    wanted = list(ids)
    while wanted:
        found = await store.whole(wanted, most_bytes=PORTION_BYTES)
        if not found:
            break
        for number, (letter, _) in found.items():
            secrets[number] = masked(read_inside(letter), masks).secrets
        wanted = [one for one in wanted if one not in found]
    return secrets
