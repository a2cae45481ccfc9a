"""Recipes from a repair: candidates that do to the example what the person did, tried with jq itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from deadletter.core.letter.letter import Letter
from deadletter.core.replaying.exact_json import same
from deadletter.core.replaying.letter_diff import without_mark
from deadletter.core.replaying.letter_edit import Edited, editable
from deadletter.core.replaying.recipe_proposal import Candidate, candidates
from deadletter.operations.repairs.editing import Editor

PROPOSED: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeProposal:
    """A program that makes the repaired letter of the original one, and what it does in words."""

    program: str
    words: tuple[str, ...]


async def proposals(before: Letter, after: Letter, *, most: int = PROPOSED) -> tuple[RecipeProposal, ...]:
    """The best first. EditRefused: one of the two cannot be read. Empty: nothing short does it."""
    was, now = without_mark(editable(before).document), without_mark(editable(after).document)
    found: list[RecipeProposal] = []
    for one in candidates(was, now):
        if len(found) == most:
            break
        if await _does_it(one, before, after):
            found.append(RecipeProposal(program=one.program, words=one.words))
    return tuple(found)


async def _does_it(one: Candidate, before: Letter, after: Letter) -> bool:
    editor = Editor(one.program, by="")
    try:
        (made,) = await editor.outcomes([("", before)])
    finally:
        await editor.close()
    if not isinstance(made, Edited):
        return False
    result = without_mark(editable(before.with_message(made.message)).document)
    return same(result, without_mark(editable(after).document))
