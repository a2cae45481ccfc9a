"""Work in a browser: a replay planned, begun, watched and ended by keys; the doctor; all of it on a phone, in
the dark, without scripts, and for axe.

About `desk.page.replaying.start_pages`, `desk.page.replaying.replay_pages`,
`desk.page.replaying.recipe_pages`, `desk.page.replaying.deploy_pages`, `desk.page.operating.waiting_pages`,
`desk.page.operating.policy_pages`, `desk.page.operating.doctor_pages`,
`desk.page.operating.topology_pages`, `desk.page.operating.audit_pages`.
"""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect
from tests.browser.conftest import Seat, press, seated
from tests.web.conftest import Opened
from tests.web.whole_desk import MadeUpOutlook

from deadletter.core.replaying.replay_states import ReplayState
from deadletter.store.replays.replay_store import ReplayStore

PAGES = (
    "/replays",
    "/replays/new",
    "/replays/new?group=1&edit=.body.order%3D1&pace=all",
    "/replays/recipes",
    "/replays/deploys",
    "/waiting",
    "/waiting?look=100",
    "/waiting/let-out?origin=orders&waits=held&do=park",
    "/policies?letter=3",
    "/doctor",
    "/topology",
    "/audit",
)
PHONE = {"width": 390, "height": 844}


async def frozen(seat: Seat) -> tuple[ReplayStore, int]:
    """The newest replay, with its letters, as a service takes it up."""
    store = ReplayStore(seat.records.opened)
    number = (await store.views())[0].id
    while await store.freeze_some(number):
        pass
    await store.leased("i1", now_ms=int(time.time() * 1000), lease_ms=600_000)
    return store, number


async def test_a_replay_is_planned_begun_watched_and_ended_by_keys(seat: Seat) -> None:
    page = seat.page
    await seat.open("/groups/2")
    await press(page, "r")
    await expect(page.locator("h1")).to_contain_text("Replay")
    await page.get_by_label("Why, for the audit").fill("release 1.4.3")
    await page.locator("body").click(position={"x": 5, "y": 5})
    await press(page, "b")
    await expect(page).to_have_url(re.compile(r"/replays/\d+$"))
    await expect(page.locator("h2#far")).to_contain_text("being collected")
    store, number = await frozen(seat)
    letters = (await store.view(number)).letters
    await expect(page.locator("h2#far")).to_have_text(f"0 of {letters} letters sent", timeout=20_000)
    some = await store.next_portion(number, 1)
    await store.settled(number, [one.row for one in some], {}, at_ms=int(time.time() * 1000))
    await expect(page.locator("h2#far")).to_have_text(f"1 of {letters} letters sent", timeout=20_000)
    await store.done_by_consumer([(some[0].letter_id, number, int(time.time() * 1000))])
    await expect(page.locator("#counts + ul")).to_contain_text("their consumer said so", timeout=20_000)
    await press(page, "p")
    await expect(page.get_by_role("button", name="Go on")).to_be_visible()
    assert (await store.view(number)).state is ReplayState.PAUSED
    await press(page, "c")
    await expect(page.locator("dialog#cancel")).to_be_visible()
    await expect(page.locator("dialog#cancel code")).to_have_text(f"dlq replay cancel {number}")
    await press(page, "Escape")
    await expect(page.locator("dialog#cancel")).not_to_be_visible()
    await press(page, "c")
    await page.locator("dialog#cancel").get_by_role("button", name="End it").click()
    await expect(page.locator(".said")).to_contain_text("cancelled")
    assert (await store.view(number)).state is ReplayState.CANCELLED


async def test_the_fields_are_those_of_the_chosen_pace(seat: Seat) -> None:
    page = seat.page
    await seat.open("/replays/new?group=1")
    await expect(page.get_by_label("Steps", exact=True)).to_be_visible()
    await expect(page.get_by_label("No faster than")).not_to_be_visible()
    await page.get_by_role("radio", name=re.compile("^All of them")).check()
    await expect(page.get_by_label("Steps", exact=True)).not_to_be_visible()
    await page.get_by_label("No faster than").fill("5/s")
    await page.get_by_role("radio", name="One queue").check()
    await page.get_by_label("Queue", exact=True).fill("orders.again")
    await page.get_by_role("button", name="Look again").click()
    await expect(page.locator(".begin")).to_contain_text("all, 5/s")
    await expect(page.locator(".begin")).to_contain_text("queue orders.again")
    assert "rate=5%2Fs" in page.url


async def test_the_doctor_is_watched_while_he_looks(seat: Seat, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("deadletter.desk.page.operating.doctor_pages.PATIENCE_S", 0.0)
    page = seat.page
    await seat.open("/doctor")
    await press(page, "e")
    await expect(page.locator(".finding")).to_contain_text("missing-dlx", timeout=20_000)
    await expect(page.locator("progress")).to_have_count(0, timeout=20_000)


async def test_a_page_that_looked_into_letters_does_not_look_again_by_itself(
    seat: Seat, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    look = MadeUpOutlook.waiting

    async def counted(self: MadeUpOutlook, choice: object, *, vhost: str, most: int) -> object:
        asked.append(most)
        return await look(self, choice, vhost=vhost, most=most)  # type: ignore[arg-type]  # passed on

    monkeypatch.setattr(MadeUpOutlook, "waiting", counted)
    await seat.open("/waiting")
    await press(seat.page, "l")
    await expect(seat.page.locator("#kinds")).to_be_visible()
    await seat.page.wait_for_timeout(7_000)
    assert [one for one in asked if one] == [200]


async def test_the_picture_has_its_colours(seat: Seat) -> None:
    await seat.open("/topology")
    queue = seat.page.locator("svg.topology rect.queue").first
    assert await queue.evaluate("one => getComputedStyle(one).fill") != "rgb(0, 0, 0)"
    await seat.page.locator("svg.topology a").first.click()
    await expect(seat.page).to_have_url(re.compile(r"/topology\?queue=orders"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing_serious(
    opened: Opened, chromium: Browser, tmp_path: Path, scheme: str
) -> None:
    async with seated(
        opened, chromium, tmp_path / "axe.db", viewport={"width": 1440, "height": 900}, color_scheme=scheme
    ) as seat:
        await seat.open("/replays/new?group=1")
        await seat.page.locator(".begin button").click()
        await expect(seat.page).to_have_url(re.compile(r"/replays/\d+$"))
        _, number = await frozen(seat)
        await seat.open("/doctor")
        await press(seat.page, "e")
        await expect(seat.page.locator(".finding")).to_be_visible(timeout=20_000)
        for path in (*PAGES, f"/replays/{number}?outcomes=all"):
            await seat.open(path)
            assert await seat.found_by_axe() == [], path
        assert seat.complaints == []


async def test_all_of_it_fits_a_phone(opened: Opened, chromium: Browser, tmp_path: Path) -> None:
    async with seated(opened, chromium, tmp_path / "phone.db", viewport=PHONE, color_scheme="dark") as seat:
        for path in PAGES:
            await seat.open(path)
            wide = await seat.page.evaluate("document.documentElement.scrollWidth")
            assert wide <= PHONE["width"], path


async def test_it_can_be_done_without_scripts(opened: Opened, chromium: Browser, tmp_path: Path) -> None:
    async with seated(opened, chromium, tmp_path / "plain.db", java_script_enabled=False) as seat:
        page = seat.page
        await page.goto(f"{seat.desk.url}/replays/new?group=1")
        await page.get_by_role("button", name=re.compile("^Begin")).click()
        await expect(page).to_have_url(re.compile(r"/replays/\d+$"))
        await page.get_by_role("button", name="Pause").click()
        await expect(page.get_by_role("button", name="Go on")).to_be_visible()
        await page.goto(f"{seat.desk.url}/doctor")
        await page.get_by_role("button", name="Look now").click()
        await expect(page.locator(".finding")).to_contain_text("missing-dlx")
