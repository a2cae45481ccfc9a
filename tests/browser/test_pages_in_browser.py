"""The page in a browser: keys, live rows, undo, a repair with its difference, a phone, no scripts, axe.

About `desk.page.pages`, `desk.page.frame`, `desk.page.static_files`, `desk.page.group_pages`,
`desk.page.letter_pages`, `desk.page.search_pages`, `desk.page.overview_pages`.
"""

from __future__ import annotations

import asyncio
import re
import time
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, expect
from tests.browser.conftest import Seat, go, listening, press, seated
from tests.recorded import parked
from tests.web.conftest import Opened

from deadletter.core.grouping.group_query import GroupQuery
from deadletter.core.grouping.group_states import GroupState
from deadletter.core.grouping.letter_query import LetterQuery, LetterState

PAGES = (
    "/",
    "/groups",
    "/groups/2",
    "/letters",
    "/letters?q=origin:orders",
    "/letters/3",
    "/letters/3/edit",
    "/replays",
    "/replays/new?group=2",
    "/replays/recipes",
    "/replays/deploys",
    "/waiting",
    "/policies",
    "/doctor",
    "/topology",
    "/audit",
    "/nope",
)
PHONE = {"width": 390, "height": 844}


async def test_rows_are_walked_opened_and_left_by_keys(seat: Seat) -> None:
    page = seat.page
    await seat.open("/groups")
    await press(page, "j", "j")
    second = page.locator("tbody tr").nth(1)
    await expect(second).to_have_class(re.compile(r"\bat\b"))
    title = await second.locator(".what > a").inner_text()
    await press(page, "Enter")
    await expect(page.locator("h1")).to_have_text(title)
    await press(page, "u")
    await expect(page).to_have_url(re.compile(r"/groups$"))
    await go(page, "l", "**/letters")
    await expect(page.locator("h1")).to_have_text("Letters")
    await press(page, "/")
    await page.keyboard.type("origin:orders")
    await press(page, "Enter")
    await expect(page).to_have_url(re.compile("origin%3Aorders"))
    await (await listening(page)).locator("body").press("?")
    await expect(page.locator("dialog#keys")).to_be_visible()


async def test_the_palette_goes_anywhere(seat: Seat) -> None:
    page = seat.page
    await seat.open("/")
    await press(page, "Control+k")
    await page.keyboard.type("group 2")
    await press(page, "Enter")
    await expect(page).to_have_url(re.compile("/groups/2$"))
    await press(page, ":")
    await page.keyboard.type("timeout")
    await press(page, "Enter")
    await expect(page).to_have_url(re.compile(r"/letters\?q=timeout"))


async def test_new_rows_come_by_themselves_and_wait_while_somebody_is_in_the_table(seat: Seat) -> None:
    page = seat.page
    await seat.open("/groups")
    rows = page.locator("tbody tr")
    await expect(rows).to_have_count(5)
    await _fails(seat, 7_001, "NewTrouble")
    await expect(rows).to_have_count(6, timeout=20_000)
    await rows.nth(2).hover()
    before = await rows.nth(2).inner_text()
    await _fails(seat, 7_002, "OtherTrouble")
    button = page.get_by_role("button", name="1 new")
    await expect(button).to_be_visible(timeout=20_000)
    assert (await rows.nth(2).inner_text()).split("\n")[0] == before.split("\n")[0]
    await expect(rows).to_have_count(6)
    await button.click()
    await expect(rows).to_have_count(7)


async def test_a_page_to_which_nothing_happens_asks_for_nothing(seat: Seat) -> None:
    asked: list[str] = []
    await seat.open("/groups")
    async with seat.page.expect_request("**/groups"):
        pass  # it asks once after the first seconds
    await asyncio.sleep(6)
    seat.page.on("request", lambda request: asked.append(request.url))
    await asyncio.sleep(11)
    assert asked == []
    await _fails(seat, 7_003, "ThirdTrouble")
    await expect(seat.page.locator("tbody tr")).to_have_count(6)
    assert 1 <= len(asked) <= 2, "its news may come in two parts"


async def _fails(seat: Seat, number: int, error: str) -> None:
    letter = parked(
        b"{}", now_ms=int(time.time() * 1000), number=number, origin="live", error=error, stack="", ago_s=1
    )
    await seat.records.opened.ingest([letter])


async def test_what_is_selected_is_resolved_and_undone(seat: Seat) -> None:
    page = seat.page
    await seat.open("/groups")
    await press(page, "j", "x")
    await expect(page.locator("[data-picked]")).to_have_text("1 selected")
    await press(page, "c")
    await expect(page.locator(".said")).to_contain_text("resolved")
    assert len((await seat.records.groups(GroupQuery(states=(GroupState.RESOLVED,)))).groups) == 1
    await press(page, "z")
    await expect(page.locator(".said")).to_contain_text("undone")
    assert not (await seat.records.groups(GroupQuery(states=(GroupState.RESOLVED,)))).groups


async def test_a_letter_is_repaired_with_its_difference_before_the_eyes(seat: Seat) -> None:
    page = seat.page
    await seat.open("/letters/3")
    await press(page, "e")
    body = page.locator("textarea[name=body]")
    await expect(body).to_be_visible()
    await listening(page)
    await body.fill((await body.input_value()).replace('"quantity": 1', '"quantity": 77'))
    await expect(page.locator("#preview .plus")).to_contain_text("77", timeout=20_000)
    await page.locator("textarea[name=head]").fill("{broken")
    await expect(page.locator("#preview")).to_contain_text("That cannot be kept", timeout=20_000)
    await page.reload()
    await body.fill((await body.input_value()).replace('"quantity": 1', '"quantity": 78'))
    await body.press("Control+Enter")
    await expect(page.locator(".said")).to_contain_text("kept as a draft")
    await expect(page.locator(".diff .plus")).to_contain_text("78")


async def test_a_letter_is_discarded_and_taken_back(seat: Seat) -> None:
    page = seat.page
    await seat.open("/letters/3")
    await press(page, "d")
    await expect(page.locator("main .pill").first).to_have_text("discarded")
    assert len((await seat.records.letters(LetterQuery(state=LetterState.DISCARDED))).letters) == 1
    await press(page, "z")
    await expect(page.locator("main .pill").first).to_have_text("open")


async def test_a_service_that_goes_away_is_said_and_comes_back(seat: Seat) -> None:
    page = seat.page
    await seat.open("/groups")
    await page.context.set_offline(True)
    await expect(page.locator("#away")).to_be_visible(timeout=20_000)
    await page.context.set_offline(False)
    await expect(page.locator("#away")).to_be_hidden(timeout=20_000)
    seat.complaints.clear()  # the browser complains of the line that was cut


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing_serious(
    opened: Opened, chromium: Browser, tmp_path: Path, scheme: str
) -> None:
    looks: dict[str, Any] = {
        "viewport": {"width": 1440, "height": 900},
        "color_scheme": scheme,
        "bypass_csp": True,
    }
    async with seated(opened, chromium, tmp_path / "desk.db", **looks) as seat:
        found: dict[str, list[str]] = {}
        for path in PAGES:
            await seat.open(path)
            found[path] = await seat.found_by_axe()
        assert {path: told for path, told in found.items() if told} == {}


async def test_nothing_is_wider_than_a_phone(opened: Opened, chromium: Browser, tmp_path: Path) -> None:
    async with seated(opened, chromium, tmp_path / "desk.db", viewport=PHONE, has_touch=True) as seat:
        for path in PAGES:
            await seat.open(path)
            wide = await seat.page.evaluate("document.documentElement.scrollWidth")
            assert wide <= PHONE["width"], path


async def test_all_of_it_works_without_scripts(opened: Opened, chromium: Browser, tmp_path: Path) -> None:
    async with seated(opened, chromium, tmp_path / "desk.db", java_script_enabled=False) as seat:
        page = seat.page
        await page.goto(f"{seat.desk.url}/groups")
        await page.locator("tbody tr").first.locator("input[type=checkbox]").check()
        await page.get_by_role("button", name="Mute").click()
        await expect(page.locator(".said")).to_contain_text("muted")
        await page.get_by_role("button", name="Undo").click()
        await expect(page.locator(".said")).to_contain_text("undone")
        await page.goto(f"{seat.desk.url}/letters")
        await page.locator("input[type=search]").first.fill("origin:stock.ledger")
        await page.get_by_role("button", name="Find").click()
        await expect(page.locator("h2").first).to_contain_text("17 letters")
        await page.goto(f"{seat.desk.url}/letters/3/edit")
        await page.get_by_role("button", name="Show what changes").click()
        await expect(page.locator("#preview")).to_contain_text("Nothing")
        await page.get_by_role("button", name="Colours").click()
        await expect(page.locator("html")).to_have_attribute("data-theme", "light")
