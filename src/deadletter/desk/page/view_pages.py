"""Views that people save from a page: a name for its address."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from deadletter.desk.access.present import person
from deadletter.desk.access.rightful_views import remove_view, save_view, views_seen
from deadletter.desk.answers.desk_route import JournalSource
from deadletter.desk.api.sources import MoreSources
from deadletter.desk.page.forms import form_of
from deadletter.desk.page.said import Said, back_to
from deadletter.desk.page.store_sources import NO_STORE
from deadletter.desk.page.taken_back import removed_by
from deadletter.errors import StoreUnreachable
from deadletter.store.journal.view_table import ADDRESS_CHARS, NAME_CHARS, SavedView


def view_routes(more: MoreSources) -> APIRouter:
    routes = APIRouter(include_in_schema=False)

    def journal() -> JournalSource:
        if more.journal is None:
            raise StoreUnreachable(NO_STORE)
        return more.journal

    @routes.post("/views")
    async def save(request: Request) -> Response:
        form = await form_of(request)
        address = form.text("address", ADDRESS_CHARS)
        shared = bool(form.text("shared"))
        saved = await save_view(journal(), form.text("name", NAME_CHARS), address, shared=shared)
        return back_to(saved.address, Said(text=f"view {saved.name} is saved{' for all' if shared else ''}"))

    @routes.post("/views/remove")
    async def remove(request: Request) -> Response:
        form = await form_of(request)
        gone = await remove_view(journal(), form.text("name", NAME_CHARS))
        return back_to(form.text("back"), Said(text=f"view {gone.name} is gone", view=gone.name))

    @routes.post("/views/undo")
    async def undo(request: Request) -> Response:
        """A view that whoever asks removed is there again, as the audit has it."""
        form = await form_of(request)
        name = form.text("name", NAME_CHARS)
        entry = await removed_by(more, person().called(), "view removed", "view", name)
        address, shared = str(entry.detail.get("address", "")), bool(entry.detail.get("shared"))
        await save_view(journal(), name, address, shared=shared)
        return back_to(form.text("back"), Said(text=f"view {name} is back"))

    return routes


async def views_of(request: Request, more: MoreSources, below: str) -> list[SavedView]:
    """Of addresses below this path."""
    seen = await views_seen(more.journal, request.state.masks)
    return [one for one in seen if one.address.split("?")[0] == below]
