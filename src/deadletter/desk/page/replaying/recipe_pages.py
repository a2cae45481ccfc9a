"""Recipes: programs that repair letters, by their names; made from what somebody did to one of them."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from deadletter.desk.page.forms import form_of
from deadletter.desk.page.frame import PageFrame
from deadletter.desk.page.said import Said, back_to
from deadletter.desk.page.shown import path_part
from deadletter.desk.page.store_sources import StoreSources
from deadletter.desk.page.taken_back import removed_by
from deadletter.desk.page.whoever import called
from deadletter.errors import EditRefused, NotStored, UsageError
from deadletter.operations.records.records import PROGRAM_CHARS, WHY_CHARS
from deadletter.operations.replays.replay_told import Proposals
from deadletter.operations.replays.replays import Replays
from deadletter.store.replays.recipe_table import NAME_CHARS, Recipe

_LETTER_CHARS = 64


def recipe_routes(frame: PageFrame, sources: StoreSources) -> APIRouter:
    routes = APIRouter(include_in_schema=False)

    @routes.get("/replays/recipes")
    async def recipes(request: Request, letter: str = "") -> Response:
        """`letter`: one that was repaired by hand; programs that do the same are proposed."""
        replays = await sources.replays()
        found, wrong = None, ""
        if letter.strip():
            try:
                found = await _proposed(replays, letter.strip())
            except (NotStored, UsageError, EditRefused) as error:
                wrong = str(error)
        return await frame.page(
            request,
            "replaying/recipes.html",
            recipes=(await replays.recipes()).recipes,
            letter=letter[:_LETTER_CHARS],
            found=found,
            wrong=wrong,
        )

    @routes.get("/replays/recipes/{name:path}")
    async def recipe(request: Request, name: str) -> Response:
        found = await (await sources.replays()).recipe(name)
        return await frame.page(request, "replaying/recipe.html", recipe=found)

    @routes.post("/replays/recipes")
    async def save(request: Request) -> Response:
        form = await form_of(request)
        recipe = Recipe(
            name=form.text("name", NAME_CHARS).strip(),
            program=form.text("program", PROGRAM_CHARS).strip(),
            note=form.text("note", WHY_CHARS),
            origin=form.text("origin"),
            group_key=form.text("group_key"),
        )
        saved = await (await sources.replays()).save_recipe(
            recipe, who=called(request), replace=bool(form.text("replace"))
        )
        return back_to(
            f"/replays/recipes/{path_part(saved.name)}", Said(text=f"recipe {saved.name} is saved")
        )

    @routes.post("/replays/recipes/delete")
    async def delete(request: Request) -> Response:
        form = await form_of(request)
        gone = await (await sources.replays()).delete_recipe(
            form.text("name", NAME_CHARS), who=called(request)
        )
        return back_to(
            "/replays/recipes",
            Said(text=f"recipe {gone.name} is deleted; the audit has its program", recipe=gone.name),
        )

    @routes.post("/replays/recipes/undo")
    async def undo(request: Request) -> Response:
        """A recipe that whoever asks deleted is there again, as the audit has it."""
        name = (await form_of(request)).text("name", NAME_CHARS)
        gone = await _deleted(sources, name, called(request))
        saved = await (await sources.replays()).save_recipe(gone, who=called(request))
        return back_to(f"/replays/recipes/{path_part(saved.name)}", Said(text=f"recipe {saved.name} is back"))

    return routes


async def _deleted(sources: StoreSources, name: str, who: str) -> Recipe:
    """NotStored: they deleted none of this name lately."""
    entry = await removed_by(sources.more, who, "recipe deleted", "recipe", name)
    program, note, origin, group_key = (
        str(entry.detail.get(key, "")) for key in ("program", "note", "origin", "group_key")
    )
    return Recipe(name=name, program=program, note=note, origin=origin, group_key=group_key)


async def _proposed(replays: Replays, letter: str) -> Proposals:
    if len(letter) > _LETTER_CHARS:
        raise UsageError(f"letter: expected its number or the beginning of its id, got {letter[:50]!r}…")
    return await replays.propose(letter)
