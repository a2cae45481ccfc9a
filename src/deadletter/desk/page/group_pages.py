"""Groups: letters that failed alike. The list, one of them whole, and what people say of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Final, Literal

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from deadletter.core.grouping.category import Category
from deadletter.core.grouping.group_query import GroupOrder, GroupQuery
from deadletter.core.grouping.group_states import GroupState
from deadletter.core.letter.moments import future_ms
from deadletter.desk.api.asked import NAME_CHARS, TEXT_CHARS
from deadletter.desk.page.forms import Form, form_of
from deadletter.desk.page.frame import PageFrame
from deadletter.desk.page.glance import is_growing, is_new
from deadletter.desk.page.said import Said, as_it_was, back_to, before
from deadletter.desk.page.shown import counted, exact_time
from deadletter.desk.page.store_sources import StoreSources
from deadletter.desk.page.view_pages import views_of
from deadletter.desk.page.whoever import called
from deadletter.errors import NotStored, StoreError, UsageError
from deadletter.operations.records.letter_told import LetterTold
from deadletter.operations.records.records import GroupChange, Records
from deadletter.operations.replays.replay_told import ReplayTold
from deadletter.store.letters.letter_views import GroupDetail, GroupView

PAGE: Final = 50
_REPLAYS: Final = 100
"""The last so many replays tell what was tried on a group."""
_AT_ONCE: Final = 200
_BARS: Final = 48
_BAR_MIN: Final = 24 * 60 // _BARS
_NOTE_CHARS: Final = 4_000


class GroupsAsked(BaseModel):
    """The address of the list. What no form of ours says is not looked at: an address may be old."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="ignore")

    state: GroupState | Literal["any"] = GroupState.OPEN
    q: str = Field(default="", max_length=TEXT_CHARS)
    vhost: str = Field(default="", max_length=NAME_CHARS)
    origin: str = Field(default="", max_length=NAME_CHARS)
    category: Category | Literal[""] = ""
    order: GroupOrder = GroupOrder.LAST
    after: int = Field(default=0, ge=0, lt=2**31)

    def query(self) -> GroupQuery:
        return GroupQuery(
            states=() if self.state == "any" else (GroupState(self.state),),
            text=self.q or None,
            vhost=self.vhost or None,
            origin=self.origin or None,
            category=Category(self.category) if self.category else None,
            order=self.order,
            offset=self.after,
            limit=PAGE,
        )

    def said(self) -> dict[str, object]:
        """What of it an address has to say."""
        plain = type(self)()
        return {
            name: str(value)
            for name, value in self.model_dump(mode="json").items()
            if value != getattr(plain, name)
        }


def group_routes(frame: PageFrame, sources: StoreSources) -> APIRouter:
    routes = APIRouter(include_in_schema=False)

    @routes.get("/groups")
    async def groups(request: Request, asked: Annotated[GroupsAsked, Query()]) -> Response:
        records = await sources.records()
        page = await records.groups(asked.query())
        now_ms = frame.now_ms()
        return await frame.page(
            request,
            "groups.html",
            asked=asked,
            said_so=asked.said(),
            groups=page.groups,
            more=page.more,
            new={one.id for one in page.groups if is_new(one, now_ms)},
            several=len({one.vhost for one in page.groups}) > 1,
            growing={one.id for one in page.groups if is_growing(one)},
            tried=await _tried(),
            categories=[one.value for one in Category],
            states=[*(one.value for one in GroupState), "any"],
            views=await views_of(request, sources.more, "/groups"),
        )

    @routes.get("/groups/{name}")
    async def group(request: Request, name: str) -> Response:
        records = await sources.records()
        detail = await records.group(name)
        tried = (await _tried()).get(detail.group.id)
        return await frame.page(
            request,
            "group.html",
            detail=detail,
            group=detail.group,
            sample=await _sample(records, detail),
            tried=tried,
            bars_of_day=_day(detail, frame.now_ms()),
            tags={kind: [tag for tag in detail.tags if tag.kind == kind] for kind in ("release", "host")},
            categories=[one.value for one in Category],
        )

    @routes.post("/groups/state")
    async def set_state(request: Request) -> Response:
        """Resolve, mute, snooze or open groups; what they were is told, to go back to."""
        form = await form_of(request)
        state = GroupState(_word(form.text("state"), [one.value for one in GroupState]))
        until_ms = None
        if state is GroupState.SNOOZED:
            until_ms = future_ms("until", form.text("until") or "1d", frame.now_ms())
        records = await sources.records()
        chosen = await _chosen(records, form)
        change = GroupChange(state=state, until_ms=until_ms)
        for one in chosen:
            await records.change_group(str(one.id), change, who=called(request))
        words = {
            GroupState.OPEN: "open again",
            GroupState.RESOLVED: "resolved; opens again by itself if it fails after now",
            GroupState.MUTED: "muted",
            GroupState.SNOOZED: f"snoozed until {exact_time(until_ms or 0)}",
        }[state]
        was = tuple(as_it_was(one.id, one.state, one.until_ms) for one in chosen)
        return back_to(form.text("back"), Said(text=f"{_named(chosen)}: {words}", groups=was))

    @routes.post("/groups/undo")
    async def undo(request: Request) -> Response:
        """Back to the states that groups had."""
        form = await form_of(request)
        records = await sources.records()
        undone = 0
        for said in form.texts("group")[:_AT_ONCE]:
            if (was := before(said)) is None:
                continue
            number, state, until_ms = was
            if state is GroupState.SNOOZED and (until_ms or 0) <= frame.now_ms():
                state, until_ms = GroupState.OPEN, None
            group = (await records.group(str(number))).group
            change = GroupChange(state=state, until_ms=until_ms)
            await records.change_group(str(group.id), change, who=called(request))
            undone += 1
        return back_to(form.text("back"), Said(text=f"undone: {counted(undone, 'group')} as before"))

    @routes.post("/groups/merge")
    async def merge(request: Request) -> Response:
        """The first that was chosen takes the others in."""
        form = await form_of(request)
        records = await sources.records()
        chosen = await _chosen(records, form)
        if len(chosen) < 2:
            raise UsageError("expected at least two groups to merge")
        into, *others = sorted(chosen, key=lambda one: (-one.total, one.id))
        for other in others:
            await records.merge(str(into.id), other.key, who=called(request))
        said = f"{counted(len(others), 'group')} merged into group {into.id}; its page can split them again"
        return back_to(f"/groups/{into.id}", Said(text=said))

    @routes.post("/groups/split")
    async def split(request: Request) -> Response:
        form = await form_of(request)
        records = await sources.records()
        done = await records.split(form.text("key"), who=called(request))
        return back_to(form.text("back"), Said(text=f"{done.key[:12]} is a group of its own again"))

    @routes.post("/groups/{name}/note")
    async def note(request: Request, name: str) -> Response:
        form = await form_of(request)
        records = await sources.records()
        await records.note(name, form.text("text", _NOTE_CHARS), who=called(request))
        return back_to(form.text("back"), Said(text="noted"))

    @routes.post("/groups/{name}/category")
    async def category(request: Request, name: str) -> Response:
        form = await form_of(request)
        records = await sources.records()
        said = Category(_word(form.text("category"), [one.value for one in Category]))
        await records.change_group(name, GroupChange(category=said), who=called(request))
        return back_to(form.text("back"), Said(text=f"its category is {said.value}, because you say so"))

    async def _tried() -> dict[int, ReplayTold]:
        """The last replay of each group, as far as the last ones tell."""
        if sources.replays_source is None:
            return {}
        found = (await (await sources.replays()).replays(limit=_REPLAYS)).replays
        return {
            number: one for one in reversed(found) if isinstance(number := one.selection.get("group"), int)
        }

    return routes


async def _sample(records: Records, detail: GroupDetail) -> LetterTold | None:
    """The newest letter: its error and its stack stand for all."""
    for row in detail.samples[:1]:
        try:
            return await records.letter(str(row.id))
        except (NotStored, StoreError):
            return None  # forgotten meanwhile; the group is told without it
    return None


def _day(detail: GroupDetail, now_ms: int) -> list[int]:
    """Letters that died in each half hour of the last day."""
    last = now_ms // 60_000 // _BAR_MIN
    made = [0] * _BARS
    for minute, letters in detail.minutes:
        place = minute // _BAR_MIN - last + _BARS - 1
        if 0 <= place < _BARS:
            made[place] += letters
    return made


async def _chosen(records: Records, form: Form) -> list[GroupView]:
    """Those that the form names, each of them once; all are looked up before anything is changed."""
    names = list(dict.fromkeys(form.texts("group")))
    if not names:
        raise UsageError("expected groups: none was selected")
    if len(names) > _AT_ONCE:
        raise UsageError(f"expected at most {_AT_ONCE} groups at once, got {len(names):,}")
    chosen = [(await records.group(name)).group for name in names]
    return list({one.id: one for one in chosen}.values())


def _named(groups: Sequence[GroupView]) -> str:
    return f"group {groups[0].id}" if len(groups) == 1 else counted(len(groups), "group")


def _word(said: str, words: Sequence[str]) -> str:
    if said not in words:
        raise UsageError(f"expected one of {', '.join(words)}, got {said[:50]!r}")
    return said
