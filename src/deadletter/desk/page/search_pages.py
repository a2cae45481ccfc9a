"""Letters found: the search, how they divide, and what is done with a selection, however large."""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Annotated, ClassVar, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from deadletter import __version__
from deadletter.core.grouping.letter_query import LetterQuery, LetterState
from deadletter.core.letter.archive_format import ArchiveHead
from deadletter.core.replaying.replay_plan import selection_json
from deadletter.desk.page.forms import Form, form_of
from deadletter.desk.page.frame import PageFrame
from deadletter.desk.page.said import Said, back_to
from deadletter.desk.page.search_words import (
    MOST_CHARS,
    NAMES,
    order_of,
    read,
    with_word,
    without_word,
    words,
)
from deadletter.desk.page.shown import command_line, counted, query_text
from deadletter.desk.page.store_sources import StoreSources
from deadletter.desk.page.view_pages import views_of
from deadletter.desk.page.whoever import called
from deadletter.errors import UsageError
from deadletter.operations.archiving.from_store import archive_of
from deadletter.operations.records.exact_letters import MEDIA_TYPE
from deadletter.operations.records.records import CHANGED_AT_ONCE, PROGRAM_CHARS, WHY_CHARS, Records
from deadletter.operations.records.selecting import SelectedLetters, selected_letters
from deadletter.operations.replays.next_commands import selection_arguments
from deadletter.store.letters.letter_views import Facets

PAGE: Final = 50
PATIENCE_S: Final = 20.0
"""So long a request works on a selection; what is left is said."""
_FACETS: Final = {"queue": "queue", "origin": "origin", "cause": "cause", "group": "group"}
"""Facets that are qualifiers."""
_NAMED: Final = 500
"""So many letters are named in an address."""


class SearchAsked(BaseModel):
    """The address of a search."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="ignore")

    q: str = Field(default="", max_length=MOST_CHARS)
    where: str = Field(default="", max_length=PROGRAM_CHARS)
    order: str = Field(default="", max_length=20)
    after: int | None = Field(default=None, ge=0, lt=2**63)
    facets: bool = False

    def query(self, now_ms: int) -> LetterQuery:
        asked = replace(read(self.q, now_ms=now_ms), where=self.where or None, order=order_of(self.order))
        return replace(asked, after=self.after, limit=PAGE)

    def said(self) -> dict[str, object]:
        named: dict[str, object] = {"q": self.q, "where": self.where, "order": self.order}
        return {name: value for name, value in named.items() if value}


def search_routes(frame: PageFrame, sources: StoreSources) -> APIRouter:
    routes = APIRouter(include_in_schema=False)

    @routes.get("/letters")
    async def letters(request: Request, asked: Annotated[SearchAsked, Query()]) -> Response:
        records = await sources.records()
        wrong = ""
        query = LetterQuery()
        try:
            query = asked.query(frame.now_ms())
            page = await records.letters(query)
        except UsageError as error:
            wrong, page = str(error), None
        divided = None
        if page is not None and (asked.facets or query.asks_for_places):
            divided = await records.facets(replace(query, after=None))
        return await frame.page(
            request,
            "letters.html",
            asked=asked,
            said_so=asked.said(),
            query=query,
            page=page,
            wrong=wrong,
            divided=divided,
            chips=_chips(asked) if not wrong else (),
            facet_links=_facet_links(asked, divided) if divided is not None else {},
            command=_command("letters", query),
            discard_command=_command("discard", query, "--yes"),
            qualifiers=NAMES,
            views=await views_of(request, sources.more, "/letters"),
        )

    @routes.get("/letters/export")
    async def export(asked: Annotated[SearchAsked, Query()]) -> Response:
        """All that a search finds, exact, as an archive: `dlq import` takes it."""
        records = await sources.records()
        query = asked.query(frame.now_ms())
        head = ArchiveHead(
            id=secrets.token_bytes(16),
            made_ms=frame.now_ms(),
            source="store",
            taken=False,
            writer=f"deadletter {__version__}",
        )
        made = archive_of(records, replace(query, after=None), head)
        begun = [await anext(made), await anext(made)]  # what is refused is refused before a byte is sent
        return StreamingResponse(
            _after(begun, made),
            media_type=MEDIA_TYPE,
            headers={"content-disposition": 'attachment; filename="letters.dlq"'},
        )

    @routes.post("/letters/selected")
    async def selected(request: Request) -> Response:
        """A selection, taken to where something is done with it."""
        form = await form_of(request)
        chosen = _selection(form)
        match form.text("do"):
            case "replay":
                return RedirectResponse(f"/replays/new{query_text(chosen)}", status_code=303)
            case "export":
                q = chosen.get("q", "")
                ids = " ".join(f"id:{one}" for one in form.numbers("id")) if "id" in chosen else ""
                said: dict[str, object] = {"q": ids or q, "where": chosen.get("where", "")}
                return RedirectResponse(f"/letters/export{query_text(said)}", status_code=303)
            case other:
                raise UsageError(f"expected replay or export, got {other[:50]!r}")

    @routes.post("/letters/discard")
    async def discard(request: Request) -> Response:
        """Throw a selection away. What was found at the start is what goes; it can be taken back."""
        form = await form_of(request)
        records = await sources.records()
        until = time.monotonic() + PATIENCE_S
        why, run = form.text("why", WHY_CHARS), secrets.token_hex(8)
        found = await _numbers(records, form, frame.now_ms(), until)
        done = 0
        for start in range(0, len(found.numbers), CHANGED_AT_ONCE):
            portion = found.numbers[start : start + CHANGED_AT_ONCE]
            done += (await records.discard(portion, who=called(request), why=why, run=run)).letters
        said = f"{counted(done)} discarded"
        if done < len(found.numbers):
            said += f"; {len(found.numbers) - done:,} were not open any more"
        if not found.whole:
            said += "; there are more: do it again"
        last = (await records.last_discard(called(request))).discard if done else None
        return back_to(form.text("back"), Said(text=said, discard=last))

    @routes.post("/letters/take-back")
    async def take_back(request: Request) -> Response:
        """Undo a discard, or take back letters that are named."""
        form = await form_of(request)
        records = await sources.records()
        until = time.monotonic() + PATIENCE_S
        if discards := form.numbers("discard"):
            query = LetterQuery(discard=discards[0], state=LetterState.DISCARDED)
            found = await selected_letters(records, query, goes_on=lambda: time.monotonic() < until)
            numbers = found.numbers
        else:
            numbers = tuple(form.numbers("id"))
        done = 0
        for start in range(0, len(numbers), CHANGED_AT_ONCE):
            portion = numbers[start : start + CHANGED_AT_ONCE]
            done += (await records.take_back(portion, who=called(request), why="undone")).letters
        return back_to(form.text("back"), Said(text=f"{counted(done)} taken back"))

    return routes


async def _after(begun: Sequence[bytes], rest: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    for one in begun:
        yield one
    async for one in rest:
        yield one


def _selection(form: Form) -> dict[str, object]:
    """What was selected, for an address: the whole search, or these numbers."""
    if form.text("whole"):
        return {"q": form.text("q", MOST_CHARS), "where": form.text("where", PROGRAM_CHARS)}
    numbers = form.numbers("id")
    if not numbers:
        raise UsageError("expected letters: none was selected")
    return {"id": numbers[:_NAMED]}


async def _numbers(records: Records, form: Form, now_ms: int, until: float) -> SelectedLetters:
    if not form.text("whole"):
        numbers = form.numbers("id")
        if not numbers:
            raise UsageError("expected letters: none was selected")
        return SelectedLetters(numbers=tuple(dict.fromkeys(numbers)), whole=True, unanswered=0)
    where = form.text("where", PROGRAM_CHARS) or None
    query = replace(read(form.text("q", MOST_CHARS), now_ms=now_ms), where=where)
    return await selected_letters(records, query, goes_on=lambda: time.monotonic() < until)


def _chips(asked: SearchAsked) -> tuple[tuple[str, str], ...]:
    """Each piece of the search, and the address without it."""
    return tuple(
        (str(one), "/letters" + query_text({**asked.said(), "q": without_word(asked.q, place)}))
        for place, one in enumerate(words(asked.q))
    )


def _facet_links(asked: SearchAsked, divided: Facets) -> dict[str, list[tuple[str, int, str, bool]]]:
    """By facet: what it is called, how many, the address with it, and whether the search says it already."""
    said = {(one.name, one.value) for one in words(asked.q)}
    return {
        name: [
            (
                one.label or one.value or "none",
                one.letters,
                "/letters" + query_text({**asked.said(), "q": with_word(asked.q, qualifier, one.value)}),
                (qualifier, one.value) in said,
            )
            for one in divided.by[name]
            if one.value
        ]
        for name, qualifier in _FACETS.items()
        if divided.by.get(name)
    }


def _command(name: str, query: LetterQuery, *more: str) -> str:
    """The command that finds the same; empty where nobody can type it."""
    typed = selection_arguments(selection_json(replace(query, after=None)))
    if typed is None:
        return ""
    state = (
        [] if query.state is LetterState.OPEN else ["--state", query.state.value if query.state else "any"]
    )
    return command_line(name, *typed, *(state if name == "letters" else []), *more)
