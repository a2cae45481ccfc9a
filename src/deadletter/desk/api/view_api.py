"""Saved views, and what could be meant by the beginning of a word."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final

from fastapi import APIRouter, Path, Query, Request
from pydantic import Field

from deadletter.core.grouping.group_query import GroupQuery
from deadletter.desk.access.rightful_views import remove_view, save_view, views_seen
from deadletter.desk.answers.desk_route import DeskRoute, JournalSource
from deadletter.desk.api.asked import NAME_CHARS, PREFIX, Strict
from deadletter.desk.api.sources import RecordsSource
from deadletter.desk.page.search_words import SearchWord
from deadletter.desk.page.shown import query_text
from deadletter.operations.records.records import Records
from deadletter.store.journal.view_table import ADDRESS_CHARS, SavedView
from deadletter.store.journal.view_table import NAME_CHARS as VIEW_CHARS

_LOOKED_AT: Final = 100
"""So many groups tell names of queues and errors: those that failed last."""
_OF_A_KIND: Final = 6
ViewName = Annotated[str, Path(max_length=VIEW_CHARS, examples=["payments"])]


class SuggestionKind(StrEnum):
    QUEUE = "queue"
    ERROR = "error"
    GROUP = "group"
    VIEW = "view"


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestion:
    """`word`: as a search has it; empty for a view. `address`: where it is."""

    kind: SuggestionKind
    text: str
    word: str
    address: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Suggestions:
    suggestions: tuple[Suggestion, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Views:
    """Their own first, then what others share."""

    views: tuple[SavedView, ...]


class ViewWish(Strict):
    address: str = Field(min_length=1, max_length=ADDRESS_CHARS, examples=["/letters?q=origin:payments"])
    shared: bool = Field(default=False, description="Whether everybody who sees everything sees it.")


def view_routes(journal: JournalSource, records: RecordsSource) -> APIRouter:
    """The routes, without the problems every one of them may answer with."""
    api = APIRouter(prefix=PREFIX, tags=["views"], route_class=DeskRoute)

    @api.get("/views")
    async def views(request: Request) -> Views:
        """Views that whoever asks saved, and those that others share."""
        return Views(views=await views_seen(journal, request.state.masks))

    @api.put("/views/{name:path}")
    async def save(name: ViewName, wish: ViewWish) -> SavedView:
        """Give an address a name. Theirs of the same name is replaced."""
        return await save_view(journal, name, wish.address, shared=wish.shared)

    @api.delete("/views/{name:path}")
    async def remove(name: ViewName) -> SavedView:
        """Forget a view of theirs."""
        return await remove_view(journal, name)

    @api.get("/suggestions")
    async def suggestions(
        request: Request,
        text: Annotated[str, Query(min_length=1, max_length=NAME_CHARS, examples=["pay"])],
    ) -> Suggestions:
        """Queues, errors, groups and views whose names hold this text: of what whoever asks may see."""
        said = text.strip().lower()
        seen = await views_seen(journal, request.state.masks)
        named = [
            Suggestion(kind=SuggestionKind.VIEW, text=one.name, word="", address=one.address)
            for one in seen
            if said in one.name.lower()
        ]
        found = await _suggested(await records(), said) if said else []
        return Suggestions(suggestions=(*named[:_OF_A_KIND], *found))

    return api


async def _suggested(records: Records, said: str) -> list[Suggestion]:
    known = (await records.groups(GroupQuery(states=(), limit=_LOOKED_AT))).groups
    titled = (await records.groups(GroupQuery(states=(), text=said, limit=_OF_A_KIND))).groups
    origins = dict.fromkeys(one.origin for one in known if said in one.origin.lower())
    errors = dict.fromkeys(one.error_type for one in known if said in one.error_type.lower())
    made = [(SuggestionKind.QUEUE, name, f"origin:{_quoted(name)}") for name in [*origins][:_OF_A_KIND]]
    made += [(SuggestionKind.ERROR, name, f"error:{_quoted(name)}") for name in [*errors][:_OF_A_KIND]]
    places = [
        Suggestion(kind=kind, text=text, word=word, address=f"/letters{query_text({'q': word})}")
        for kind, text, word in made
    ]
    return places + [
        Suggestion(
            kind=SuggestionKind.GROUP, text=one.title, word=f"group:{one.id}", address=f"/groups/{one.id}"
        )
        for one in titled
    ]


def _quoted(name: str) -> str:
    """As `search_words` reads it."""
    return str(SearchWord("x", name)).removeprefix("x:")
