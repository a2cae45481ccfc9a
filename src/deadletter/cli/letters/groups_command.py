"""`dlq groups`, and what people say of one: resolve, mute, snooze, reopen, category, note, merge, split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from deadletter.cli.letters.asking import at_text, now_ms, with_records
from deadletter.cli.letters.groups_text import detail_text, page_text, preview_text, why_text
from deadletter.cli.letters.letter_filters import word
from deadletter.cli.letters.record_options import ChangeWish, RecordsWish
from deadletter.cli.terminal import event_loop
from deadletter.cli.terminal.output import Exit, data, result
from deadletter.cli.terminal.widths import terminal_width, writes
from deadletter.core.grouping.category import Category
from deadletter.core.grouping.group_query import GroupOrder, GroupQuery
from deadletter.core.grouping.group_states import GroupState
from deadletter.core.letter.moments import future_ms
from deadletter.core.text.safe_text import line, lines
from deadletter.errors import UsageError
from deadletter.operations.records.at_hand import store_url
from deadletter.operations.records.records import GroupChange, Records, json_of
from deadletter.store.letters.letter_views import GroupingPreview, GroupView


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFilters:
    """As they were typed."""

    states: Sequence[str] = ()
    vhost: str | None = None
    origin: str | None = None
    category: str | None = None
    text: str | None = None
    sort: str = "last"
    limit: int = 25
    after: int = 0

    def query(self) -> GroupQuery:
        states = tuple(word(GroupState, "--state", one, also="any") for one in self.states if one != "any")
        return GroupQuery(
            states=() if "any" in self.states else states or (GroupState.OPEN,),
            vhost=self.vhost,
            origin=self.origin,
            category=None if self.category is None else word(Category, "--category", self.category),
            text=self.text,
            order=word(GroupOrder, "--sort", self.sort),
            limit=self.limit,
            offset=self.after,
        )


def preview_groups(wish: RecordsWish) -> Exit:
    """What the rules of the file would make of the letters that are stored."""
    place = wish.whereabouts()
    url = store_url(place.settings)

    async def work() -> GroupingPreview:
        from deadletter.store.letters.letter_store import open_letters  # slow to load

        async with open_letters(url, prepare=False) as store:
            return await store.preview(place.settings.desk.grouping)

    seen = event_loop.run(work())
    if wish.as_json:
        data(json_of(seen))
    else:
        result(f"{preview_text(seen)}\nnothing was changed; dlq groups --regroup applies them")
    return Exit.DONE


def list_groups(wish: RecordsWish, filters: GroupFilters) -> Exit:
    query = filters.query()

    async def work(records: Records) -> Exit:
        page = await records.groups(query)
        if wish.as_json:
            data(json_of(page))
        else:
            blocks = writes("·▁█")
            result(page_text(page, now_ms=now_ms(), width=terminal_width(), blocks=blocks))
        return Exit.DONE

    return with_records(wish, work)


def one_group(wish: RecordsWish, name: str, *, why: bool) -> Exit:
    async def work(records: Records) -> Exit:
        detail = await records.group(name)
        if wish.as_json:
            data(json_of(detail))
        elif why:
            result(why_text(detail, ascii_only=not writes("●")))
        else:
            result(detail_text(detail, now_ms=now_ms(), width=terminal_width()))
        return Exit.DONE

    return with_records(wish, work)


# -- what people say of it -------------------------------------------------------------------------------
def set_state(wish: ChangeWish, names: Sequence[str], state: GroupState, until: str | None = None) -> Exit:
    until_ms = None if until is None else future_ms("--until", until, now_ms())
    return _change(wish, names, GroupChange(state=state, until_ms=until_ms))


def set_category(wish: ChangeWish, name: str, category: str) -> Exit:
    return _change(wish, [name], GroupChange(category=word(Category, "CATEGORY", category)))


def _change(wish: ChangeWish, names: Sequence[str], change: GroupChange) -> Exit:
    """All names are looked up before anything is changed: a typo changes nothing."""

    async def work(records: Records) -> Exit:
        numbers = [str((await records.group(name)).group.id) for name in names]
        who = wish.named
        changed = [await records.change_group(number, change, who=who) for number in dict.fromkeys(numbers)]
        if wish.as_json:
            data(json_of({"groups": changed}))
        else:
            result(lines(_told(group, change) for group in changed))
        return Exit.DONE

    return with_records(wish, work)


def _told(group: GroupView, change: GroupChange) -> str:
    said = group.state.value
    if change.state is None:
        said = f"category {group.category.value}"
    elif group.state is GroupState.SNOOZED:
        said = f"snoozed until {at_text(group.until_ms)} UTC"
    elif group.state is GroupState.RESOLVED:
        said = "resolved; it opens again by itself if it fails after now"
    return f"group {group.id}: {said}: {group.title}"


def add_note(wish: ChangeWish, name: str, text: str) -> Exit:
    async def work(records: Records) -> Exit:
        group = await records.note(name, text, who=wish.named)
        if wish.as_json:
            data(json_of({"groups": [group]}))
        else:
            result(line(f"group {group.id}: noted: {group.title}"))
        return Exit.DONE

    return with_records(wish, work)


def merge(wish: ChangeWish, into: str, others: Sequence[str]) -> Exit:
    async def work(records: Records) -> Exit:
        whole = (await records.group(into)).group
        keys = [(await records.group(other)).group.key for other in others]
        if whole.key in keys:
            raise UsageError(f"group {whole.id}: expected other groups to merge into it, got itself")
        for key in keys:
            whole = await records.merge(str(whole.id), key, who=wish.named)
        if wish.as_json:
            data(json_of({"groups": [whole]}))
        else:
            undo = "; ".join(f"dlq split {key[:12]}" for key in keys)
            result(lines([f"group {whole.id}: {len(keys)} merged into it: {whole.title}", f"undo: {undo}"]))
        return Exit.DONE

    return with_records(wish, work)


def split(wish: ChangeWish, key: str) -> Exit:
    async def work(records: Records) -> Exit:
        done = await records.split(key, who=wish.named)
        if wish.as_json:
            data(json_of(done))
        else:
            result(line(f"{done.key} is a group of its own again"))
        return Exit.DONE

    return with_records(wish, work)
