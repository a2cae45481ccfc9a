"""A whole selection, frozen: the numbers of all letters that a question finds now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from deadletter.core.grouping.letter_query import MAX_LIMIT, LetterQuery
from deadletter.operations.records.records import Records


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectedLetters:
    """`whole` is false where the time was over before all were found. `unanswered`: of these the jq program
    could say nothing; they are left out."""

    numbers: tuple[int, ...]
    whole: bool
    unanswered: int


async def selected_letters(
    records: Records, query: LetterQuery, *, goes_on: Callable[[], bool]
) -> SelectedLetters:
    """`goes_on` is asked after every page."""
    numbers: list[int] = []
    unanswered = 0
    asked = replace(query, limit=MAX_LIMIT, after=None)
    while True:
        page = await records.letters(asked)
        numbers += [row.id for row in page.letters]
        unanswered += page.unanswered
        if page.more is None:
            return SelectedLetters(numbers=tuple(numbers), whole=True, unanswered=unanswered)
        if not goes_on():
            return SelectedLetters(numbers=tuple(numbers), whole=False, unanswered=unanswered)
        asked = replace(asked, after=page.more)
