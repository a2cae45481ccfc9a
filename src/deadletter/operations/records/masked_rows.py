"""Rows of a list for eyes that may not see all of a letter: an error may quote what is masked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from deadletter.core.access.field_masks import MASKED, FieldMasks
from deadletter.core.grouping.stored_letter import read_inside
from deadletter.core.letter.letter import Letter
from deadletter.core.replaying.masked_letter import MaskedInside, hidden, masked
from deadletter.operations.records.exact_letters import PORTION_BYTES
from deadletter.store.letters.large_letters import aside
from deadletter.store.letters.letter_store import LetterStore
from deadletter.store.letters.letter_views import LetterRow

LOOKED_INTO_BYTES: Final = 1024 * 1024
"""A letter that is larger is not opened for a list: its error is hidden."""


async def masked_rows(
    store: LetterStore, rows: Sequence[LetterRow], masks: FieldMasks
) -> tuple[LetterRow, ...]:
    if not masks or not rows:
        return tuple(rows)
    wanted = {row.id: row for row in rows if row.error and row.bytes <= LOOKED_INTO_BYTES}
    shown: dict[int, LetterRow] = {}
    while wanted:
        found = await store.whole(list(wanted), most_bytes=PORTION_BYTES)
        if not found:
            break
        for number, (letter, _) in found.items():
            seen = await aside(letter, partial(_seen, letter, masks))
            shown[number] = _shown(wanted.pop(number), seen)
    return tuple(shown.get(row.id) or _wordless(row) for row in rows)


def _seen(letter: Letter, masks: FieldMasks) -> MaskedInside:
    return masked(read_inside(letter), masks)


def _shown(row: LetterRow, seen: MaskedInside) -> LetterRow:
    return hidden(_wordless(row) if seen.unknown else row, seen.secrets)


def _wordless(row: LetterRow) -> LetterRow:
    """Of a letter of which nobody knows what its error may quote."""
    return replace(row, error=MASKED if row.error else "")
