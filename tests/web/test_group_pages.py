"""Pages of groups and the overview: what they tell, what their forms do, and that nothing in them acts.

About `desk.page.group_pages`, `desk.page.overview_pages`, `desk.page.glance`, `desk.page.store_sources`,
`desk.page.said`, `desk.page.charts`.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from tests.recorded import make
from tests.web.conftest import NOW, Desk, Office, Opened

from deadletter.core.grouping.category import By, Category
from deadletter.core.grouping.group_query import GroupQuery
from deadletter.core.grouping.group_states import GroupState
from deadletter.core.guards.gate import GateState
from deadletter.desk.page.glance import GlanceLevel, glance, is_growing, is_new
from deadletter.errors import StoreUnreachable
from deadletter.operations.records.records import GroupLine, Records
from deadletter.operations.records.store_records import LateRecords
from deadletter.service.telling.service_events import (
    FindingNamed,
    GateChanged,
    LifeChanged,
    QueueSeen,
    Stage,
    Trouble,
)

HTML = {"accept": "text/html"}
SCRIPTS = re.compile(r"<script(?![^>]*nonce=)|<img|\sstyle=|\son\w+=|javascript:", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Stocked:
    desk: Desk
    records: Records

    async def page(self, path: str) -> str:
        found = await self.desk.client.get(path, headers=HTML)
        assert found.status_code == 200, found.text
        assert not SCRIPTS.search(found.text), path
        return found.text

    async def post(self, path: str, **fields: str | list[str]) -> str:
        """The page after it."""
        answer = await self.desk.client.post(path, data={"back": "/groups?state=any", **fields})
        assert answer.status_code == 303, answer.text
        return await self.page(answer.headers["location"])


@pytest.fixture
async def stocked(opened: Opened, tmp_path: Path) -> AsyncIterator[Stocked]:
    late = LateRecords(await make(tmp_path / "letters.db", int(time.time() * 1000)))
    try:
        async with opened(records=late) as desk:
            desk.emit(LifeChanged(stage=Stage.READY))
            yield Stocked(desk, await late())
    finally:
        await late.close()


async def groups_by_title(stocked: Stocked) -> dict[str, GroupLine]:
    page = await stocked.records.groups(GroupQuery(states=()))
    return {one.title.partition(":")[0]: one for one in page.groups}


# -- the overview ----------------------------------------------------------------------------------------
async def test_the_overview_tells_what_is_open_and_what_is_held(stocked: Stocked) -> None:
    stocked.desk.emit(
        QueueSeen(queue="<b>.dlq", watched=True, depth=7, consumers=1, growth_per_s=0.5, oldest_s=3.0),
        GateChanged(
            gate="orders",
            origin="<i>orders",
            guard="breaker",
            state=GateState.CLOSED,
            why="9 of 10 came back",
        ),
        FindingNamed(rule="loss", subject="<u>q", why="nobody reads it"),
    )
    page = await stocked.page("/")
    for told in (
        "It works, and some of it wants a look",
        "PaymentTimeout",
        "&lt;b&gt;.dlq",
        "9 of 10",
        "&lt;u&gt;q",
    ):
        assert told in page
    assert "9</strong><span>open letters" in page


async def test_without_a_store_pages_teach_how_to_have_one(opened: Opened) -> None:
    async with opened() as desk:
        assert "There is no store" in (await desk.client.get("/", headers=HTML)).text
        for path in ("/groups", "/letters", "/letters/1", "/groups/1"):
            page = await desk.client.get(path, headers=HTML)
            assert page.status_code == 503
            assert "ingest = true" in page.text


async def test_a_store_that_is_away_is_told_and_nothing_breaks(opened: Opened) -> None:
    async def away() -> Records:
        raise StoreUnreachable("the store at <x> does not answer")

    async with opened(records=away) as desk:
        page = await desk.client.get("/", headers=HTML)
        assert page.status_code == 200
        assert "Something does not work." in page.text
        assert "the store at &lt;x&gt; does not answer" in page.text
        assert (await desk.client.get("/groups", headers=HTML)).status_code == 503


# -- the list --------------------------------------------------------------------------------------------
async def test_groups_are_listed_filtered_and_sorted_by_the_address(stocked: Stocked) -> None:
    page = await stocked.page("/groups")
    assert page.count('data-key="') >= 5
    assert "[U+202E]" in page
    assert "\u202e" not in page
    only = await stocked.page("/groups?q=paymenttimeout&order=letters")
    assert "PaymentTimeout" in only
    assert "KeyError" not in only
    assert "No groups like that" in await stocked.page("/groups?origin=nowhere")
    assert "No groups like that" in await stocked.page("/groups?state=muted")
    for wrong in ("state=gone", "order=x", "after=-1", "after=99999999999"):
        answer = await stocked.desk.client.get(f"/groups?{wrong}", headers=HTML)
        assert answer.status_code == 422
        assert "text/html" in answer.headers["content-type"]
    assert "KeyError" in await stocked.page("/groups?of_an_older_page=1")


async def test_states_are_changed_for_several_and_undone(stocked: Stocked) -> None:
    found = await groups_by_title(stocked)
    some = [str(found["PaymentTimeout"].id), str(found["KeyError"].id)]
    page = await stocked.post("/groups/state", group=some, state="muted")
    assert "2 groups: muted" in page
    assert {
        one.title for one in (await stocked.records.groups(GroupQuery(states=(GroupState.MUTED,)))).groups
    } == {
        found["PaymentTimeout"].title,
        found["KeyError"].title,
    }
    undo = re.findall(r'name="group" value="(\d+:\w+:\d+)"', page)
    assert len(undo) == 2
    assert "undone: 2 groups as before" in await stocked.post("/groups/undo", group=undo)
    assert not (await stocked.records.groups(GroupQuery(states=(GroupState.MUTED,)))).groups


async def test_a_snooze_has_an_end(stocked: Stocked) -> None:
    number = str((await groups_by_title(stocked))["KeyError"].id)
    page = await stocked.post("/groups/state", group=number, state="snoozed", until="2h")
    assert "snoozed until" in page
    group = (await stocked.records.group(number)).group
    assert group.state is GroupState.SNOOZED
    assert abs((group.until_ms or 0) / 1000 - time.time() - 7_200) < 300
    for said in ("yesterday", "2001-01-01"):
        answer = await stocked.desk.client.post(
            "/groups/state",
            data={"group": number, "state": "snoozed", "until": said, "back": "/"},
            headers=HTML,
        )
        assert answer.status_code == 422


async def test_nothing_is_changed_where_one_of_them_is_not_there(stocked: Stocked) -> None:
    number = str((await groups_by_title(stocked))["KeyError"].id)
    for some, status in (([number, "99999"], 404), ([], 422)):
        answer = await stocked.desk.client.post(
            "/groups/state", data={"group": some, "state": "muted", "back": "/"}, headers=HTML
        )
        assert answer.status_code == status
    assert (await stocked.records.group(number)).group.state is GroupState.OPEN


async def test_groups_are_merged_and_split(stocked: Stocked) -> None:
    found = await groups_by_title(stocked)
    small, large = found["KeyError"], found["PaymentTimeout"]
    page = await stocked.post("/groups/merge", group=[str(small.id), str(large.id)])
    assert f"1 group merged into group {large.id}" in page
    assert small.key[:12] in page
    page = await stocked.post("/groups/split", key=small.key)
    assert "is a group of its own again" in page
    answer = await stocked.desk.client.post("/groups/merge", data={"group": str(large.id)}, headers=HTML)
    assert answer.status_code == 422


# -- one group -------------------------------------------------------------------------------------------
async def test_a_group_tells_the_failure_the_stack_and_why(stocked: Stocked) -> None:
    group = (await groups_by_title(stocked))["PaymentTimeout"]
    page = await stocked.page(f"/groups/{group.id}")
    for told in ("no answer from", "1.4.2", "worker-3", "Why they are together", "5 letters"):
        assert told in page
    own = re.findall(r'<li class="own">.*?</li>', page, re.DOTALL)
    assert len(own) == 1
    assert "charge" in own[0]


async def test_notes_and_categories_are_a_persons_word(stocked: Stocked) -> None:
    number = str((await groups_by_title(stocked))["KeyError"].id)
    page = await stocked.post(
        f"/groups/{number}/note", text="look <b>at</b>\r\nthis\u202e", back=f"/groups/{number}"
    )
    assert "look &lt;b&gt;at&lt;/b&gt;\nthis" in page
    assert "[U+202E]" in page
    assert "look &lt;b&gt;at" in await stocked.page("/groups"), "the list tells the last note"
    page = await stocked.post(f"/groups/{number}/category", category="data", back=f"/groups/{number}")
    assert "by a person" in page
    answer = await stocked.desk.client.post(
        f"/groups/{number}/category", data={"category": "x"}, headers=HTML
    )
    assert answer.status_code == 422


async def test_hostile_names_are_shown_and_do_nothing(stocked: Stocked) -> None:
    evil = next(
        one for title, one in (await groups_by_title(stocked)).items() if "exe" in title or "Err" in title
    )
    page = await stocked.page(f"/groups/{evil.id}")
    assert "[U+202E]" in page
    for hidden in ("\u202e", "\x1b", "\x07"):
        assert hidden not in page
    missing = await stocked.desk.client.get("/groups/%3Cscript%3E", headers=HTML)
    assert missing.status_code == 404
    assert "<script>" not in missing.text


# -- the glance, pure ------------------------------------------------------------------------------------
LINE = GroupLine(
    id=1, key="k", origin="orders", title="Boom: x", culprit="", error_type="Boom",
    category=Category.UNKNOWN, category_by=By.GUESS, category_why="", state=GroupState.OPEN,
    until_ms=None, first_ms=0, last_ms=0, total=1, open=1, reopened_ms=None,
    reopened_release="", hours=(0,) * 24, release="",
)  # fmt: skip
NOW_MS = 10 * 86_400_000


def test_a_glance_says_the_worst_first() -> None:
    office = Office()
    office.board(LifeChanged(stage=Stage.READY))
    calm = glance(office.status(), groups=[LINE], replays=[], away="", now_ms=NOW_MS)
    assert (calm.level, calm.sentence) == (GlanceLevel.GOOD, "Everything is all right.")
    again = replace(LINE, reopened_ms=5)
    told = glance(office.status(), groups=[again], replays=[], away="", now_ms=NOW_MS)
    assert (told.level, [one.text for one in told.reasons]) == (
        GlanceLevel.WARN,
        ["a group fails again: Boom: x"],
    )
    office.board(Trouble(what="store", why="down"))
    bad = glance(office.status(), groups=[again, again], replays=[], away="", now_ms=NOW_MS)
    assert bad.level is GlanceLevel.BAD
    assert [one.text for one in bad.reasons] == ["store does not work: down", "2 groups fail again"]


def test_new_and_growing() -> None:
    assert is_new(replace(LINE, first_ms=NOW_MS - 1_000), NOW_MS)
    assert not is_new(LINE, NOW_MS)
    assert is_growing(replace(LINE, hours=(0,) * 22 + (2, 9)))
    assert not is_growing(replace(LINE, hours=(5,) * 24))
    assert not is_growing(replace(LINE, hours=(0,) * 23 + (2,)))
    assert not is_growing(replace(LINE, hours=()))


def test_a_service_that_starts_says_so() -> None:
    told = glance(Office().status(), groups=[], replays=[], away="", now_ms=int(NOW.timestamp() * 1000))
    assert told.sentence == "The service starts."
