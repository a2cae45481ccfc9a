"""Several people before one desk: who may not, whose sign-in ended, two on one group.

About `desk.page.whoever`, `desk.page.frame`, `desk.page.group_pages`, `desk.door.guarded_app`.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect
from tests.browser.conftest import Seat, seated
from tests.web.conftest import Opened

from deadletter.config.settings import DeskToken
from deadletter.core.access.rights import Role
from deadletter.core.access.token_hash import hashed
from deadletter.core.grouping.group_states import GroupState

TOKENS = {"vera": Role.VIEWER, "olga": Role.OPERATOR, "otto": Role.OPERATOR}
SOON_MS = 30_000


@pytest.fixture
def people() -> list[DeskToken]:
    """Those who may come in; one who is taken from it may not any more."""
    return [DeskToken(name=name, role=role, hash=hashed(f"dlq_{name}")) for name, role in TOKENS.items()]


@pytest_asyncio.fixture(loop_scope="session")
async def desk(
    opened: Opened, chromium: Browser, tmp_path: Path, people: list[DeskToken]
) -> AsyncIterator[Seat]:
    terms = {"tokens": lambda: people}
    async with seated(opened, chromium, tmp_path / "desk.db", terms) as seat:
        yield seat


async def signs_in(page: Page, seat: Seat, name: str, goes_to: str) -> None:
    await page.goto(seat.desk.url + goes_to)
    await expect(page).to_have_url(re.compile("/sign-in"))
    await page.locator("input[name=token]").fill(f"dlq_{name}")
    await page.get_by_role("button", name="Sign in").click()
    await page.wait_for_url(f"**{goes_to}")


async def test_a_viewer_sees_all_and_is_offered_nothing(desk: Seat) -> None:
    page = desk.page
    await signs_in(page, desk, "vera", "/groups/2")
    await expect(page.locator("h1")).to_contain_text("ValidationError")
    for button in ("Resolve", "Snooze", "Mute", "Add the note", "Replay"):
        await expect(page.get_by_role("button", name=button)).to_have_count(0)
    await page.goto(f"{desk.desk.url}/letters/3")
    await expect(page.locator("#history")).to_be_visible()
    for name in ("Discard", "Edit", "Replay"):
        await expect(page.locator("header.top").get_by_text(name)).to_have_count(0)
    csrf = await page.locator("input[name=csrf]").first.input_value()
    refused = await page.request.post(
        f"{desk.desk.url}/groups/state",
        form={"group": "2", "state": "muted", "csrf": csrf},
        headers={"sec-fetch-site": "same-origin", "accept": "text/html"},
    )
    assert refused.status == 403
    assert "may not change groups" in await refused.text()
    assert (await page.goto(f"{desk.desk.url}/letters/3/edit")).status == 403  # type: ignore[union-attr]
    assert (await desk.records.group("2")).group.state is GroupState.OPEN


async def test_who_is_not_let_in_any_more_is_asked_again_and_comes_back_to_the_place(
    desk: Seat, people: list[DeskToken]
) -> None:
    page = desk.page
    await signs_in(page, desk, "olga", "/groups/2")
    del people[1]
    await page.get_by_role("button", name="Mute").click()
    await expect(page).to_have_url(re.compile(r"/sign-in\?next=%2Fgroups$"), timeout=SOON_MS)
    assert (await desk.records.group("2")).group.state is GroupState.OPEN
    await signs_in(page, desk, "otto", "/groups/2")
    await page.get_by_role("button", name="Mute").click()
    await expect(page.locator(".said")).to_contain_text("muted")


async def test_a_page_that_is_open_when_the_sign_in_ends_leads_to_the_door(
    desk: Seat, people: list[DeskToken]
) -> None:
    await signs_in(desk.page, desk, "olga", "/groups")
    people.clear()
    people.append(DeskToken(name="other", role=Role.ADMIN, hash=hashed("dlq_other")))
    await desk.page.evaluate("document.dispatchEvent(new Event('desk:changed'))")
    await expect(desk.page).to_have_url(re.compile(r"/sign-in\?next="), timeout=SOON_MS)


async def test_two_people_on_one_group_see_what_the_other_does(desk: Seat, chromium: Browser) -> None:
    await signs_in(desk.page, desk, "olga", "/groups/2")
    context = await chromium.new_context()
    other = await context.new_page()
    await signs_in(other, desk, "otto", "/groups/2")
    await other.locator("textarea[name=text]").fill("it is the bank")
    await other.get_by_role("button", name="Add the note").click()
    note = desk.page.locator("[data-live=notes]")
    await expect(note).to_contain_text("it is the bank", timeout=SOON_MS)
    await expect(note).to_contain_text("otto")
    await desk.page.get_by_role("button", name="Mute").click()
    await expect(desk.page.locator(".said")).to_contain_text("muted")
    await expect(other.locator("[data-live=state] .pill")).to_have_text("muted", timeout=SOON_MS)
    await context.close()
