"""Edits: tried out, saved by a name, made by hand in a draft."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Response
from pydantic import Field

from deadletter.desk.answers.desk_route import DeskRoute
from deadletter.desk.answers.entity_tags import IfMatch, tell_version, version_of
from deadletter.desk.api.asked import NAME_CHARS, PREFIX, AuditedWish, LetterName, Name, Number, Who
from deadletter.desk.api.replay_wishes import EditedWish, SelectionWish
from deadletter.desk.api.sources import ReplaysSource
from deadletter.operations.records.records import PROGRAM_CHARS, WHY_CHARS
from deadletter.operations.replays.replay_told import (
    EDIT_CHARS,
    TRIED,
    TRIED_MOST,
    DraftDropped,
    DraftSaved,
    DraftTold,
    DraftWish,
    EditTried,
    Proposals,
    Recipes,
)
from deadletter.store.replays.recipe_table import Recipe

RecipeName = Annotated[str, Path(max_length=NAME_CHARS, description="Its name.", examples=["to-99"])]


class TryWish(EditedWish):
    selection: SelectionWish
    after: Number | None = Field(default=None, description="`more` of the portion before.")
    limit: int = Field(default=TRIED, ge=1, le=TRIED_MOST)


class RecipeWish(AuditedWish):
    name: Name
    program: str = Field(min_length=1, max_length=PROGRAM_CHARS)
    note: str = Field(default="", max_length=WHY_CHARS)
    origin: str = Field(default="", max_length=NAME_CHARS)
    group_key: str = Field(default="", max_length=NAME_CHARS)
    replace: bool = Field(default=False, description="In place of the one that has this name.")


class DraftBody(EditedWish, AuditedWish):
    text: str | None = Field(
        default=None, max_length=EDIT_CHARS, description="In place of both: the text of the draft, edited."
    )
    note: str = Field(default="", max_length=WHY_CHARS)
    keep: bool = Field(default=True, description="False: only what would change.")


def edit_routes(replays: ReplaysSource) -> APIRouter:
    """The routes, without the problems every one of them may answer with."""
    api = APIRouter(prefix=PREFIX, tags=["edits"], route_class=DeskRoute)

    @api.post("/edits/preview")
    async def try_edit(wish: TryWish) -> EditTried:
        """What an edit would do to a portion of a selection. Nothing is changed."""
        return await (await replays()).try_edit(
            wish.selection.query(), wish.edit_wish(), after=wish.after, limit=wish.limit
        )

    @api.get("/recipes")
    async def recipes() -> Recipes:
        """Edits that have a name."""
        return await (await replays()).recipes()

    @api.post("/recipes")
    async def save_recipe(wish: RecipeWish) -> Recipe:
        """Save an edit by a name."""
        recipe = Recipe(
            name=wish.name,
            program=wish.program,
            note=wish.note,
            origin=wish.origin,
            group_key=wish.group_key,
        )
        return await (await replays()).save_recipe(recipe, who=wish.who, replace=wish.replace)

    @api.get("/recipes/{name:path}")
    async def recipe(name: RecipeName) -> Recipe:
        """One recipe."""
        return await (await replays()).recipe(name)

    @api.delete("/recipes/{name:path}")
    async def delete_recipe(name: RecipeName, who: Who = "api") -> Recipe:
        """Delete a recipe; the answer is what it was."""
        return await (await replays()).delete_recipe(name, who=who)

    @api.get("/letters/{name}/draft")
    async def draft(name: LetterName, response: Response) -> DraftTold:
        """A letter as it would be sent, as a text that a person can edit."""
        found = await (await replays()).draft(name)
        tell_version(response, found.version)
        return found

    @api.put("/letters/{name}/draft")
    async def save_draft(name: LetterName, wish: DraftBody, if_match: IfMatch = None) -> DraftSaved:
        """Edit one letter. The original is kept, a replay sends the draft."""
        asked = DraftWish(edit=wish.edit_wish(), text=wish.text, version=version_of(if_match))
        return await (await replays()).save_draft(name, asked, who=wish.who, note=wish.note, keep=wish.keep)

    @api.delete("/letters/{name}/draft")
    async def drop_draft(name: LetterName, who: Who = "api") -> DraftDropped:
        """Back to the original."""
        return await (await replays()).drop_draft(name, who=who)

    @api.get("/letters/{name}/proposals")
    async def propose(name: LetterName) -> Proposals:
        """Programs that do to others what was done to this letter by hand."""
        return await (await replays()).propose(name)

    return api
