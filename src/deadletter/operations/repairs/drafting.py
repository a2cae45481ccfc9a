"""One letter repaired: by a jq program or a recipe, or by the file that a person edited; kept as a draft."""

from __future__ import annotations

from deadletter.core.access.scope import WHOLE, Scope
from deadletter.core.letter.letter import Letter
from deadletter.core.replaying.hand_edit import file_of, read_file
from deadletter.core.replaying.letter_diff import differences
from deadletter.core.replaying.letter_edit import Edited, editable
from deadletter.errors import EditRefused, NotStored, UsageError
from deadletter.operations.repairs.body_schemas import BodySchemas
from deadletter.operations.repairs.editing import Editor, NotEdited
from deadletter.operations.repairs.recipes import proposals
from deadletter.operations.replays.replay_told import (
    EDIT_CHARS,
    DraftDropped,
    DraftSaved,
    DraftTold,
    DraftWish,
    EditWish,
    Proposal,
    Proposals,
)
from deadletter.store.letters.letter_store import LetterStore
from deadletter.store.letters.letter_views import LetterDetail
from deadletter.store.replays.draft_table import Draft, DraftStore
from deadletter.store.replays.recipe_table import RecipeStore


async def program_of(store: LetterStore, edit: EditWish, *, who: str) -> tuple[str, str]:
    """The jq program, and what an edited letter shall say of who changed it. NotStored: no such recipe."""
    if edit.program and edit.recipe:
        raise UsageError("edit: expected a jq program or a recipe, got both")
    if edit.recipe:
        recipe = await RecipeStore(store).named(edit.recipe)
        return recipe.program, f"recipe {recipe.name}"
    return edit.program, who


class Drafting:
    """Drafts of one store, of letters that may be seen."""

    def __init__(self, store: LetterStore, scope: Scope = WHOLE) -> None:
        self._store = store
        self._scope = scope
        self._drafts = DraftStore(store)

    async def told(self, name: str) -> DraftTold:
        detail, draft = await self._found(name)
        number = detail.row.id
        now = _with(detail, draft)
        return DraftTold(
            letter=number,
            origin=detail.row.origin,
            there=draft is not None,
            who="" if draft is None else draft.who,
            made_ms=None if draft is None else draft.made_ms,
            note="" if draft is None else draft.note,
            differences=() if draft is None else differences(detail.letter, now),
            text=file_of(editable(now), f"letter {number}, from {now.source}"),
        )

    async def save(
        self, name: str, wish: DraftWish, *, schemas: BodySchemas, who: str, note: str, keep: bool
    ) -> DraftSaved:
        detail, draft = await self._found(name)
        number, before = detail.row.id, _with(detail, draft)
        made = await self._made(detail.row.origin, before, wish, schemas, who)
        after = before.with_message(made.message)
        saved = made.changed and keep
        if saved:
            await self._drafts.save(number, after, who=who, note=note, version=wish.version)
        return DraftSaved(
            letter=number, changed=made.changed, saved=saved, differences=differences(before, after)
        )

    async def drop(self, name: str, *, who: str) -> DraftDropped:
        number = (await self._store.letter(name, self._scope)).row.id
        return DraftDropped(letter=number, dropped=await self._drafts.drop(number, who=who))

    async def proposed(self, name: str) -> Proposals:
        detail, draft = await self._found(name)
        number = detail.row.id
        if draft is None:
            raise UsageError(
                f"letter {number}: expected one that was repaired, got one without a draft (dlq edit)"
            )
        found = await proposals(detail.letter, _with(detail, draft))
        return Proposals(
            letter=number,
            group=detail.row.group,
            group_key=await self._group_key(detail),
            origin=detail.row.origin,
            proposals=tuple(Proposal(program=one.program, words=one.words) for one in found),
        )

    async def _group_key(self, detail: LetterDetail) -> str:
        """Empty where not all of its group is theirs."""
        try:
            return (await self._store.group_view(str(detail.row.group), self._scope)).key
        except NotStored:
            return ""

    async def _found(self, name: str) -> tuple[LetterDetail, Draft | None]:
        detail = await self._store.letter(name, self._scope)
        return detail, (await self._drafts.of([detail.row.id])).get(detail.row.id)

    async def _made(
        self, origin: str, before: Letter, wish: DraftWish, schemas: BodySchemas, who: str
    ) -> Edited:
        program, by = await program_of(self._store, wish.edit, who=who)
        if bool(program) == (wish.text is not None):
            raise UsageError("edit: expected a jq program, a recipe, or the text of an edited file; just one")
        if wish.text is not None:
            return _by_hand(origin, before, wish.text, schemas, who)
        editor = Editor(program, by=by, schemas=schemas)
        try:
            await editor.check()
            (made,) = await editor.outcomes([(origin, before)])
        finally:
            await editor.close()
        if isinstance(made, NotEdited):
            raise EditRefused(f"it stays as it was: {'; '.join(made.why)}")
        return made


def _by_hand(origin: str, before: Letter, text: str, schemas: BodySchemas, who: str) -> Edited:
    if len(text) > EDIT_CHARS:
        raise UsageError(f"text: expected at most {EDIT_CHARS:,} characters, got {len(text):,}")
    made = read_file(editable(before), text, by=who)
    if made.changed and (wrong := schemas.violations(origin, before.with_message(made.message))):
        raise EditRefused(f"the schema is not kept: {'; '.join(wrong)}")
    return made


def _with(detail: LetterDetail, draft: Draft | None) -> Letter:
    """The letter as it would be sent now."""
    return detail.letter if draft is None else detail.letter.with_message(draft.message)
