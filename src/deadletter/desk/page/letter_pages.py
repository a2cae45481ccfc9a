"""One letter: what happened to it, why it failed, what is in it; and its repair by hand."""

from __future__ import annotations

import asyncio
from typing import Annotated, ClassVar, Final, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from deadletter.core.access.field_masks import FieldMasks
from deadletter.core.replaying.hand_edit import BELOW
from deadletter.core.replaying.letter_diff import difference_lines
from deadletter.desk.page import body_views
from deadletter.desk.page.body_views import HEX_BYTES, TEXT_BYTES, TREE_BYTES, BodyView
from deadletter.desk.page.forms import Form, form_of
from deadletter.desk.page.frame import PageFrame
from deadletter.desk.page.said import Said, back_to
from deadletter.desk.page.shown import counted
from deadletter.desk.page.store_sources import StoreSources
from deadletter.desk.page.whoever import called
from deadletter.errors import DeadletterError, EditRefused, NotAllowed, StoreError, UsageError
from deadletter.operations.records.letter_told import Happening, LetterTold
from deadletter.operations.records.records import PROGRAM_CHARS, Records
from deadletter.operations.replays.replay_told import (
    EDIT_CHARS,
    DraftSaved,
    DraftTold,
    DraftWish,
    EditWish,
)
from deadletter.operations.rulebook.rulebook import ExplanationTold

_OURS: Final = "deadletter-"
_TONES: Final = {"died": "bad", "failed": "bad", "failed first": "bad", "parked": "bad", "discarded": "bad"}
_GOOD: Final = ("sent back", "replayed", "sent")
_NOTE_CHARS: Final = 1_000


class LetterAsked(BaseModel):
    """How its body is looked at; `at`: from which byte on."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="ignore")

    view: BodyView | Literal[""] = ""
    at: int = Field(default=0, ge=0, lt=2**40)


class ShownBody:
    """A body as it is asked for, within bounds."""

    def __init__(self, body: bytes, encoding: str, asked: LetterAsked) -> None:
        self.bytes: Final = len(body)
        unpacked = body_views.unpacked(body, encoding)
        self.note: Final = unpacked.note
        self.data: Final = unpacked.data
        """Unpacked."""
        text = body_views.text_of(self.data[:TREE_BYTES])
        tree = None
        if text is not None and len(self.data) <= TREE_BYTES and asked.view in (BodyView.TREE, ""):
            tree = body_views.tree_of(text)
        self.view: BodyView = BodyView(asked.view) if asked.view else _best(text, tree is not None)
        if self.view is BodyView.TREE and tree is None:
            self.view = _best(text, is_json=False)
        self.at: Final = min(asked.at, max(len(self.data) - 1, 0))
        size = HEX_BYTES if self.view is BodyView.HEX else TEXT_BYTES
        self.more: Final = self.at + size if self.at + size < len(self.data) else None
        self.before: Final = None if self.at == 0 else max(self.at - size, 0)
        self.tree: Final = (
            body_views.tree_html(tree) if tree is not None and self.view is BodyView.TREE else ""
        )
        self.text: str = ""
        if self.view is BodyView.TEXT:
            self.text = self.data[self.at : self.at + TEXT_BYTES].decode(errors="surrogateescape")
        self.hex: tuple[str, ...] = ()
        if self.view is BodyView.HEX:
            self.hex = tuple(body_views.hex_rows(self.data, self.at))


def _best(text: str | None, is_json: bool) -> BodyView:
    if text is None:
        return BodyView.HEX
    return BodyView.TREE if is_json else BodyView.TEXT


def letter_routes(frame: PageFrame, sources: StoreSources) -> APIRouter:
    routes = APIRouter(include_in_schema=False)

    @routes.get("/letters/{name}")
    async def letter(request: Request, name: str, asked: Annotated[LetterAsked, Query()]) -> Response:
        records = await sources.records()
        told = await records.letter(name)
        body = await _body(records, told, asked)
        draft = None
        if sources.replays_source is not None:
            draft = await _draft(told)
        return await frame.page(
            request,
            "letter.html",
            told=told,
            letter=told.letter,
            body=body,
            views=[one.value for one in BodyView],
            draft=draft,
            changes=difference_lines(draft.differences) if draft is not None else (),
            explained=await _explained(told, request.state.masks),
            timeline=[(one, _tone(one)) for one in told.timeline],
            headers=sorted(told.headers.items(), key=lambda item: item[0].startswith(_OURS)),
        )

    async def _explained(told: LetterTold, masks: FieldMasks) -> ExplanationTold | None:
        """What the policies in force would do to it; None: nobody can say."""
        if sources.more.rulebook is None or told.letter.bytes > EDIT_CHARS:
            return None
        try:
            return await sources.more.rulebook.explain(str(told.letter.id), masks)
        except DeadletterError:
            return None  # a policy that asks jq, or a letter that says too little; the rest is told

    async def _draft(told: LetterTold) -> DraftTold | None:
        """None: nobody repaired it, or it cannot be edited, or not by whoever looks."""
        if told.letter.bytes > EDIT_CHARS:
            return None
        try:
            found = await (await sources.replays()).draft(str(told.letter.id))
        except (EditRefused, NotAllowed):
            return None
        return found if found.there else None

    @routes.get("/letters/{name}/raw")
    async def raw(name: str) -> Response:
        """All of its body, byte for byte: saved, never shown."""
        body = await (await sources.records()).body(name)
        return Response(
            body,
            media_type="application/octet-stream",
            headers={
                "content-disposition": 'attachment; filename="letter-body.bin"',
                "content-security-policy": "default-src 'none'; sandbox",
            },
        )

    @routes.get("/letters/{name}/edit")
    async def edit(request: Request, name: str) -> Response:
        return await _edit_page(request, name)

    @routes.post("/letters/{name}/edit")
    async def edited(request: Request, name: str) -> Response:
        """`do`: preview shows what would change, save keeps it as a draft, drop goes back to the original."""
        form = await form_of(request)
        replays = await sources.replays()
        if form.text("do") == "drop":
            done = await replays.drop_draft(name, who=called(request))
            return back_to(f"/letters/{done.letter}", Said(text="back to the original"))
        draft = await replays.draft(name)
        keep = form.text("do") == "save"
        saved: DraftSaved | None = None
        try:
            if keep and form.text("base") != _base(draft):
                raise UsageError(
                    "somebody else changed the draft of this letter meanwhile; copy what you typed, look at "
                    "theirs, and edit again"
                )
            saved = await replays.save_draft(
                name,
                _wish(draft, form),
                who=called(request),
                note=form.text("note", _NOTE_CHARS),
                keep=keep,
            )
        except StoreError:
            raise
        except DeadletterError as error:
            return await _edit_page(request, name, form=form, wrong=str(error))
        if not keep:
            return await _edit_page(request, name, form=form, saved=saved)
        said = (
            f"letter {saved.letter}: kept as a draft, {counted(len(saved.differences), 'change')}; a replay "
            "sends it so"
            if saved.saved
            else "nothing was changed"
        )
        return back_to(f"/letters/{saved.letter}", Said(text=said))

    async def _edit_page(
        request: Request,
        name: str,
        *,
        form: Form | None = None,
        saved: DraftSaved | None = None,
        wrong: str = "",
    ) -> Response:
        told = await (await sources.records()).letter(name)
        replays = await sources.replays()
        draft: DraftTold | None = None
        closed = _too_large(told)
        if not closed:
            try:
                draft = await replays.draft(name)
            except EditRefused as error:
                closed = str(error)
        recipes = (await replays.recipes()).recipes
        return await frame.page(
            request,
            "edit.html",
            status=422 if wrong and form is not None and form.text("do") == "save" else 200,
            told=told,
            letter=told.letter,
            draft=draft,
            base="" if draft is None else _base(draft),
            closed=closed,
            by_hand=draft is not None and _keeps(draft.text),
            **_typed(draft, form),
            saved=saved,
            changes=difference_lines(saved.differences) if saved is not None else (),
            wrong=wrong,
            recipes=recipes,
        )

    return routes


async def _body(records: Records, told: LetterTold, asked: LetterAsked) -> ShownBody:
    data = await records.body(str(told.letter.id))
    encoding = told.properties.get("content_encoding", "")
    return await asyncio.to_thread(ShownBody, data, encoding if isinstance(encoding, str) else "", asked)


def _tone(one: Happening) -> str:
    return _TONES.get(one.what) or ("good" if one.what.startswith(_GOOD) else "info")


# -- editing ---------------------------------------------------------------------------------------------
def _too_large(told: LetterTold) -> str:
    if told.letter.bytes <= EDIT_CHARS:
        return ""
    return f"it has {told.letter.bytes:,} bytes, and at most {EDIT_CHARS:,} of a letter are edited by hand"


def _base(draft: DraftTold) -> str:
    """Which draft somebody began from."""
    return f"{draft.made_ms or 0}"


def _keeps(text: str) -> bool:
    """Whether a field of a browser sends back what it was given. It makes CRLF of every end of a line and
    has no NUL: ends of lines are of one kind, or it is not typed here."""
    if "\0" in text or any("\ud800" <= char <= "\udfff" for char in text):
        return False
    body = text.partition(f"{BELOW}\n")[2]
    return "\r" not in text or _is_crlf(body)


def _is_crlf(body: str) -> bool:
    """Every end of a line of the body is CRLF, but that of the file itself."""
    bare = body.removesuffix("\n").replace("\r\n", "")
    return "\r\n" in body and "\r" not in bare and "\n" not in bare


def _typed(draft: DraftTold | None, form: Form | None) -> dict[str, object]:
    """What stands in the fields: what was typed, else the letter as it would go."""
    if form is not None:
        return {
            "head": form.text("head", EDIT_CHARS),
            "body": form.text("body", EDIT_CHARS),
            "program": form.text("program", PROGRAM_CHARS),
            "note": form.text("note", _NOTE_CHARS),
        }
    head, _, body = ("" if draft is None else draft.text).partition(f"{BELOW}\n")
    shown = "\n".join(line for line in head.splitlines() if not line.startswith("#"))
    return {"head": shown, "body": body.removesuffix("\n"), "program": "", "note": ""}


def _wish(draft: DraftTold, form: Form) -> DraftWish:
    program = form.text("program", PROGRAM_CHARS)
    if program.strip():
        return DraftWish(edit=EditWish(program=program))
    body = form.text("body", EDIT_CHARS)
    if _is_crlf(draft.text.partition(f"{BELOW}\n")[2]):
        body = body.replace("\n", "\r\n")
    return DraftWish(text=f"{form.text('head', EDIT_CHARS)}\n{BELOW}\n{body}\n")
