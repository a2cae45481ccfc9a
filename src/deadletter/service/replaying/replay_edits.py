"""The edit of a replay, made to each of its letters before it is sent.

A letter that cannot be edited (jq says no or takes too long, a schema is violated, a header may not be
changed) stays in the store as it was, with the reason; the others go. What was edited says so in
`deadletter-edited`. A letter with a draft is edited as its draft has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from deadletter.core.grouping.stored_letter import unwrapped
from deadletter.core.replaying.letter_edit import Edited
from deadletter.errors import JqUnavailable
from deadletter.operations.repairs.body_schemas import BodySchemas, read_schemas
from deadletter.operations.repairs.editing import Editor
from deadletter.store.replays.replay_views import ClaimedLetter, ReplayView

WHY_CHARS: Final = 2_000


class EditedPortion(NamedTuple):
    """Letters after an edit; by row, why others stay as they were."""

    letters: Sequence[ClaimedLetter]
    refused: dict[int, str]


class ReplayEdits:
    """Of one vhost: each replay that has an edit has a process of its own for it."""

    def __init__(self, schemas: Sequence[tuple[str, Path]] = ()) -> None:
        self._files = schemas
        self._schemas: BodySchemas | None = None
        self._editors: dict[int, Editor] = {}

    async def ready(self, view: ReplayView) -> None:
        """Before letters are marked. UsageError: its edit is none, or a schema cannot be read;
        JqUnavailable: not now."""
        if view.id in self._editors:
            return
        if self._schemas is None:
            self._schemas = read_schemas(self._files)
        editor = Editor(view.edit, by=view.recipe or view.who, schemas=self._schemas)
        await editor.check()
        self._editors[view.id] = editor

    async def made(self, view: ReplayView, letters: Sequence[ClaimedLetter]) -> EditedPortion:
        """These letters as they are sent; `ready` was asked before."""
        try:
            outcomes = await self._editors[view.id].outcomes([(one.origin, one.letter) for one in letters])
        except JqUnavailable as error:
            await self.release(view.id)  # the next ones wait until it is there again
            return EditedPortion((), dict.fromkeys((one.row for one in letters), f"its edit: {error}"))
        going: list[ClaimedLetter] = []
        refused: dict[int, str] = {}
        for one, outcome in zip(letters, outcomes, strict=True):
            if not isinstance(outcome, Edited):
                refused[one.row] = f"its edit: {'; '.join(outcome.why)}"[:WHY_CHARS]
            elif outcome.changed:
                going.append(one._replace(letter=unwrapped(one.letter).with_message(outcome.message)))
            else:
                going.append(one)
        return EditedPortion(going, refused)

    async def release(self, replay: int) -> None:
        """Nobody works on it here any more."""
        if (editor := self._editors.pop(replay, None)) is not None:
            await editor.close()

    async def close(self) -> None:
        for replay in list(self._editors):
            await self.release(replay)
