"""Saved views and typeahead, by keys: a view is saved, found in the palette, removed and taken back; what one
types is completed.

About `desk.page.view_pages`, `desk.api.view_api`, `desk.answers.news`.
"""

from __future__ import annotations

import os
from pathlib import Path

from playwright.async_api import Browser, expect
from tests.browser.conftest import Seat, press, seated
from tests.web.conftest import Opened

PICTURES = os.environ.get("DLQ_LOOK", "")


async def test_a_view_is_saved_found_removed_and_taken_back(seat: Seat) -> None:
    page = seat.page
    await seat.open("/letters?q=origin:orders")
    await press(page, "v")
    await page.get_by_label("Name of the view").fill("broken orders")
    await press(page, "Enter")
    chip = page.locator("a[data-view]")
    await expect(chip).to_have_text("broken orders")
    if PICTURES:
        await page.screenshot(path=f"{PICTURES}/views.png")
    assert await seat.found_by_axe() == []
    await seat.open("/groups")
    await press(page, "Control+k")
    await page.get_by_label("Where to").fill("broken")
    place = page.locator("#palette-list li", has_text="broken orders")
    await expect(place).to_be_visible()
    await expect(place).to_contain_text("view")
    if PICTURES:
        await page.screenshot(path=f"{PICTURES}/palette.png")
    await place.click()
    await expect(chip).to_have_text("broken orders")
    await page.get_by_label("Remove view broken orders").click()
    await expect(chip).to_have_count(0)
    await press(page, "z")
    await expect(chip).to_have_text("broken orders")


async def test_what_one_types_is_completed(seat: Seat) -> None:
    page = seat.page
    await seat.open("/letters")
    await press(page, "/")
    await page.keyboard.type("state:any ord")
    option = page.locator("#suggested option[value='state:any origin:orders']")
    await expect(option).to_have_count(1)
    await press(page, "Control+a")
    await page.keyboard.type("x")
    await expect(page.locator("#suggested option")).to_have_count(0)


async def test_views_on_a_phone_are_not_wider_than_it(
    opened: Opened, chromium: Browser, tmp_path: Path
) -> None:
    phone = {"width": 390, "height": 844}
    async with seated(opened, chromium, tmp_path / "desk.db", viewport=phone, color_scheme="dark") as seat:
        for number in range(6):
            form = {
                "name": f"a view with a long name {number}",
                "address": "/groups?state=any",
                "shared": "1",
            }
            await seat.desk.client.post("/views", data=form)
        await seat.open("/groups?state=any")
        await expect(seat.page.locator("a[data-view]")).to_have_count(6)
        if PICTURES:
            await seat.page.screenshot(path=f"{PICTURES}/phone.png")
        wide = await seat.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= phone["width"]
