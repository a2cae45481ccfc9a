"""The whole story before a real service and a real broker: letters fail, are understood, repaired, sent back.

About `desk.page.pages`, `desk.page.letter_pages`, `desk.page.group_pages`, `desk.page.replaying.start_pages`,
`desk.page.replaying.replay_pages`, `desk.answers.news`.
"""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

from playwright.async_api import Browser, Page, ViewportSize, expect
from tests.brokers import Vhost
from tests.browser.conftest import go, listening, press
from tests.letters import letter
from tests.recorded import url_of
from tests.serving import Application, served
from tests.storekeeping import settings

from deadletter.amqp.channel import Delivery

SOON_MS = 90_000
"""Until something that a service does is seen: machines that test are slow."""
SEATED: ViewportSize = {"width": 1440, "height": 900}


async def test_letters_fail_are_repaired_and_go_home(vhost: Vhost, chromium: Browser, tmp_path: Path) -> None:
    with served(vhost, tmp_path, settings(url_of(tmp_path / "desk.db"))) as (service,):
        async with Application(vhost.url) as app:
            await app.with_dlq("orders")
            await app.consume("orders", _takes)
            page = await (await chromium.new_context(viewport=SEATED)).new_page()
            await page.goto(f"http://127.0.0.1:{service.port}/?token={service.token}")
            await expect(page).to_have_url(re.compile(r"/$"))
            await _nothing_then_letters(page, app)
            await _look_and_repair_one(page)
            await _send_all(page, app)


def _takes(delivery: Delivery, _times: int) -> bool:
    """It fails at an order without a quantity."""
    return "quantity" in json.loads(delivery.message.body)


async def _nothing_then_letters(page: Page, app: Application) -> None:
    await go(page, "g", "**/groups")
    await expect(page.get_by_text("No group is open")).to_be_visible()
    bodies = [json.dumps({"order": number}).encode() for number in range(12)]
    await app.publish("", "orders", [letter(body) for body in bodies])
    row = page.locator("tbody tr")
    await expect(row).to_have_count(1, timeout=SOON_MS)
    await expect(row.locator("td[data-label=open]")).to_contain_text("12", timeout=SOON_MS)
    await press(page, "j", "Enter")
    await expect(page).to_have_url(re.compile(r"/groups/\d+$"))


async def _look_and_repair_one(page: Page) -> None:
    group = page.url
    await page.locator("[data-rows] .what a").first.click()
    await expect(page.locator("#history")).to_be_visible()
    await press(page, "e")
    body = page.locator("textarea[name=body]")
    await expect(body).to_be_visible()
    await listening(page)
    typed = await body.input_value()
    await body.fill(typed.replace("}", ', "quantity": 3}'))
    await expect(page.locator("#preview .plus")).to_contain_text("quantity: 3", timeout=SOON_MS)
    await body.press("Control+Enter")
    await expect(page.locator(".said")).to_contain_text("kept as a draft")
    await page.goto(group)


async def _send_all(page: Page, app: Application) -> None:
    await (await listening(page)).locator("body").press("r")
    await expect(page).to_have_url(re.compile(r"/replays/new\?group="))
    await page.locator("input[name=edit]").fill(".body.quantity //= 1")
    await page.locator("input[name=wait]").fill("2s")
    await page.locator("input[name=outcome]").fill("4s")
    await page.locator("input[name=resolve]").check()
    await page.get_by_role("button", name="Look again").click()
    await expect(page.locator("#trial")).to_be_visible(timeout=SOON_MS)
    await page.locator("#begin button.main").click()
    await expect(page).to_have_url(re.compile(r"/replays/\d+"))
    await expect(page.locator("h1 + .sub .pill")).to_have_text("done", timeout=SOON_MS)
    await expect(page.locator("#far")).to_contain_text("12 of 12 letters sent", timeout=SOON_MS)
    handled = [json.loads(body) for body in app.handled["orders"]]
    assert sorted(one["order"] for one in handled) == list(range(12))
    assert sorted(one["quantity"] for one in handled) == [1] * 11 + [3]
    async with asyncio.timeout(SOON_MS / 1000):
        while True:
            await page.goto(re.sub(r"/replays/.*", "/groups?state=resolved", page.url))
            if await page.locator("tbody tr").count():
                return
            await asyncio.sleep(1)
