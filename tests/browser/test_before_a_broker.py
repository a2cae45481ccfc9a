"""What waits, the doctor and the picture before a real service and a real broker.

About `desk.page.operating.waiting_pages`, `desk.page.operating.doctor_pages`,
`desk.page.operating.topology_pages`, `desk.page.operating.audit_pages`, `operations.outlook.letting_out`.
"""

from __future__ import annotations

import re
from pathlib import Path

from playwright.async_api import Browser, ViewportSize, expect
from tests.brokers import Vhost
from tests.browser.conftest import press
from tests.letters import letter
from tests.recorded import url_of
from tests.serving import Application, served

SOON_MS = 90_000
FRESH_MS = 45_000
"""The service looks around every minute: who sees letters before that has not waited for it."""
SEATED: ViewportSize = {"width": 1440, "height": 900}


def _settings(url: str) -> str:
    """What dies waits for an hour."""
    return (
        f'[store]\nurl = "{url}"\n[default_policy]\nretries = 3\n'
        'backoff = { kind = "fixed", delays = ["1h"] }\n'
        '[[watches]]\ndlq = "*.dlq"\n[desk]\ningest = true\n'
    )


async def test_what_waits_is_seen_looked_into_let_out_and_parked(
    vhost: Vhost, chromium: Browser, tmp_path: Path
) -> None:
    with served(vhost, tmp_path, _settings(url_of(tmp_path / "desk.db"))) as (service,):
        async with Application(vhost.url) as app:
            for origin in ("orders", "refunds"):
                await app.with_dlq(origin)
                await app.consume(origin, lambda _delivery, times: times > 1)
            page = await (await chromium.new_context(viewport=SEATED)).new_page()
            await page.goto(f"http://127.0.0.1:{service.port}/?token={service.token}")
            home = page.url.rstrip("/")
            await page.goto(f"{home}/waiting")
            await expect(page.locator("#queues")).to_have_text("Nothing waits")
            await app.publish("", "orders", [letter(b"o%d" % number) for number in range(3)])
            await app.publish("", "refunds", [letter(b"r%d" % number) for number in range(2)])
            await expect(page.locator(".stat").first).to_contain_text("5", timeout=FRESH_MS)
            await press(page, "l")
            row = page.locator("tbody tr", has=page.get_by_role("link", name="orders"))
            await expect(row.locator("[data-label=letters]")).to_have_text("3")
            await row.get_by_role("link", name="Let out…").click()
            await page.get_by_role("button", name="Let them out").click()
            await expect(page.locator(".said")).to_contain_text("sent 3 letters home", timeout=SOON_MS)
            await app.until(lambda: len(app.handled["orders"]) == 3, SOON_MS / 1000)
            await page.goto(f"{home}/waiting/let-out?origin=refunds&do=park")
            await page.get_by_label(re.compile("^Why")).fill("refunds are made by hand today")
            await page.get_by_role("button", name="Park them").click()
            await expect(page.locator(".said")).to_contain_text("parked 2 letters", timeout=SOON_MS)
            await page.goto(f"{home}/groups")
            await expect(page.locator("tbody tr")).to_have_count(1, timeout=SOON_MS)
            await page.goto(f"{home}/audit")
            await expect(page.locator("tbody")).to_contain_text("refunds are made by hand today")
            await page.goto(f"{home}/doctor")
            await press(page, "e")
            await expect(page.locator(".about-look")).to_be_visible(timeout=SOON_MS)
            await page.goto(f"{home}/topology?queue=orders")
            await expect(page.locator("svg.topology")).to_contain_text("orders.dlq", timeout=SOON_MS)
