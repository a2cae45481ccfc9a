"""Edits tried out: what a jq program would make of letters, before anybody lets it.

The whole selection is gone through, page by page, and nothing is kept of a letter but what is told of it: how
many would change, how many stay as they are, how many cannot be changed and why, and the difference of some.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final, TypeAlias

from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.core.letter.letter import Letter
from deadletter.core.replaying.letter_diff import LetterDifference, differences
from deadletter.core.replaying.letter_edit import Editable, Edited, editable, edited
from deadletter.errors import EditRefused, UsageError
from deadletter.jq.edits import EditAnswer, JqEdits, NotMade
from deadletter.jq.process import refusals
from deadletter.operations.records.exact_letters import PORTION_BYTES
from deadletter.operations.records.records import PROGRAM_CHARS
from deadletter.operations.repairs.body_schemas import BodySchemas
from deadletter.store.finding.searching import Where
from deadletter.store.letters.letter_store import LetterStore
from deadletter.store.letters.letter_views import LetterRow
from deadletter.store.replays.draft_table import DraftStore

SAMPLE: Final = 5
_AT_ONCE: Final = 500
_PART: Final = 200
_REASONS: Final = 50
_TOLD: Final = 1_000


@dataclass(frozen=True, slots=True)
class NotEdited:
    """Why a letter stays as it was: one reason, or each violation of its schema."""

    why: tuple[str, ...]


EditOutcome: TypeAlias = Edited | NotEdited


@dataclass(frozen=True, slots=True, kw_only=True)
class EditedSample:
    """One letter of a preview that would change."""

    letter: int
    differences: tuple[LetterDifference, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedEdit:
    """One letter of a preview that cannot be changed, and why, one by one."""

    letter: int
    why: tuple[str, ...]


@dataclass(slots=True, kw_only=True)
class EditPreview:
    """What an edit would do. `failures`: the first of them, each named; `reasons` counts them all."""

    letters: int = 0
    changed: int = 0
    same: int = 0
    failed: int = 0
    sample: list[EditedSample] = field(default_factory=list)
    failures: list[FailedEdit] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    whole: bool = True
    """Whether the selection was gone through to its end."""
    more: int | None = None
    """Where to go on, where it was not."""


class Editor:
    """One program, compiled and bounded, over any number of letters."""

    def __init__(self, program: str, *, by: str, schemas: BodySchemas | None = None) -> None:
        self._program = program
        self._by = by
        self._schemas = schemas or BodySchemas()
        self._jq = JqEdits()

    async def check(self) -> None:
        """UsageError, in jq's words, where the program does not compile."""
        if len(self._program) > PROGRAM_CHARS:
            raise UsageError(f"edit: expected a jq program of at most {PROGRAM_CHARS} characters")
        (why,) = await asyncio.to_thread(refusals, [self._program])
        if why is not None:
            raise UsageError(f"edit: expected a jq program over {{body, headers, properties}}, got {why}")

    async def close(self) -> None:
        await self._jq.close()

    async def outcomes(self, letters: Sequence[tuple[str, Letter]]) -> list[EditOutcome]:
        """What becomes of each of these letters, given with its origin. JqUnavailable: nobody answers.

        In parts: while jq has one of them the next one is shown and the last one compared, in threads, so
        that nobody else waits for a portion."""
        parts = [letters[start : start + _PART] for start in range(0, len(letters), _PART)]
        tasks = [asyncio.ensure_future(self._part(part)) for part in parts]
        try:
            return [one for task in tasks for one in await task]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _part(self, letters: Sequence[tuple[str, Letter]]) -> list[EditOutcome]:
        shown, documents = await asyncio.to_thread(_shown_all, letters)
        answers = await self._jq.run(self._program, documents)
        return await asyncio.to_thread(self._compared, letters, shown, answers)

    def _compared(
        self,
        letters: Sequence[tuple[str, Letter]],
        shown: Sequence[Editable | NotEdited],
        told: Sequence[EditAnswer],
    ) -> list[EditOutcome]:
        answers = iter(told)
        made: list[EditOutcome] = []
        for (origin, _), one in zip(letters, shown, strict=True):
            if isinstance(one, NotEdited):
                made.append(one)
                continue
            answer, *probed = islice(answers, 1 if one.probe is None else 2)
            made.append(self._outcome(origin, one, answer, probed[0] if probed else None))
        return made

    def _outcome(
        self, origin: str, one: Editable, answer: EditAnswer, probed: EditAnswer | None
    ) -> EditOutcome:
        if isinstance(answer, NotMade):
            return NotEdited((answer.why,))
        beside = None if probed is None or isinstance(probed, NotMade) else probed.text
        try:
            found = edited(one, answer.text, by=self._by, probed=beside)
        except EditRefused as error:
            return NotEdited((str(error),))
        if found.changed and (wrong := self._schemas.violations(origin, _with(one.letter, found))):
            return NotEdited(wrong)
        return found


async def preview(
    store: LetterStore,
    query: LetterQuery,
    editor: Editor,
    *,
    where: Where | None = None,
    sample: int = SAMPLE,
    most: int | None = None,
    at_once: int = _AT_ONCE,
    enough: Callable[[], bool] = lambda: False,
    on_progress: Callable[[int], None] = lambda _letters: None,
    on_failure: Callable[[FailedEdit], None] = lambda _failed: None,
) -> EditPreview:
    """What the edit would do to the selection as it would be sent, or to its first `most` letters. Changes
    nothing. `enough`: asked after each portion, whether to go on another time."""
    await editor.check()
    told = EditPreview()
    query = replace(query, limit=at_once)
    while True:
        page = await store.find(query, where=where)
        rows = page.letters if most is None else page.letters[: most - told.letters]
        await _portion(store, rows, editor, told, sample=sample, on_failure=on_failure)
        on_progress(told.letters)
        cut = len(rows) < len(page.letters)
        told.more = rows[-1].id if cut and rows else page.more
        if told.more is None:
            return told
        if enough() or (most is not None and told.letters >= most):
            told.whole = False
            return told
        query = replace(query, after=told.more)


async def _portion(
    store: LetterStore,
    rows: Sequence[LetterRow],
    editor: Editor,
    told: EditPreview,
    *,
    sample: int,
    on_failure: Callable[[FailedEdit], None],
) -> None:
    while rows:
        found = await store.whole([row.id for row in rows], most_bytes=PORTION_BYTES)
        there = [row for row in rows if row.id in found]  # others were forgotten meanwhile, or come next
        drafts = await DraftStore(store).of([row.id for row in there])
        await _these(
            there,
            {
                number: letter.with_message(drafts[number].message) if number in drafts else letter
                for number, (letter, _) in found.items()
            },
            editor,
            told,
            sample=sample,
            on_failure=on_failure,
        )
        rows = rows[rows.index(there[-1]) + 1 :] if there else ()


async def _these(
    rows: Sequence[LetterRow],
    found: Mapping[int, Letter],
    editor: Editor,
    told: EditPreview,
    *,
    sample: int,
    on_failure: Callable[[FailedEdit], None],
) -> None:
    letters = [(row.origin, found[row.id]) for row in rows]
    for row, (_, letter), outcome in zip(rows, letters, await editor.outcomes(letters), strict=True):
        told.letters += 1
        match outcome:
            case Edited(changed=True):
                told.changed += 1
                if len(told.sample) < sample:
                    seen = differences(letter, _with(letter, outcome))
                    told.sample.append(EditedSample(letter=row.id, differences=seen))
            case Edited():
                told.same += 1
            case NotEdited(why=why):
                told.failed += 1
                failed = FailedEdit(letter=row.id, why=why)
                on_failure(failed)
                if len(told.failures) < _TOLD:
                    told.failures.append(failed)
                for one in why:
                    if one in told.reasons or len(told.reasons) < _REASONS:
                        told.reasons[one] += 1


def _shown_all(
    letters: Sequence[tuple[str, Letter]],
) -> tuple[list[Editable | NotEdited], list[bytes]]:
    """What can be shown of each, and the documents that jq is asked about."""
    shown = [_shown(letter) for _, letter in letters]
    documents: list[bytes] = []
    for one in shown:
        if isinstance(one, Editable):
            documents.append(one.shown.encode())
            if (probe := one.probe) is not None:
                documents.append(probe.encode())
    return shown, documents


def _shown(letter: Letter) -> Editable | NotEdited:
    try:
        return editable(letter)
    except EditRefused as error:
        return NotEdited((str(error),))


def _with(letter: Letter, made: Edited) -> Letter:
    return letter.with_message(made.message)
