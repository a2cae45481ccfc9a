"""Coming in with a real browser: the printed address, the form, links from elsewhere, the end of a session.

About `desk.door.guarded_app`, `desk.door.door_routes`, `desk.door.sign_in_page`, `desk.door.safety`.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from playwright.async_api import Browser, expect
from tests.browser.conftest import AXE, SERIOUS, shop
from tests.web.conftest import Opened

from deadletter.config.settings import DeskToken
from deadletter.core.access.rights import Role
from deadletter.core.access.token_hash import hashed

HOME = "dlq_home_of-the-owner"
EVE = DeskToken(name="eve", role=Role.VIEWER, hash=hashed("dlq_eve"))


async def test_the_printed_address_a_link_from_elsewhere_and_the_end(
    opened: Opened, chromium: Browser, tmp_path: Path
) -> None:
    people = [EVE]
    async with (
        shop(tmp_path / "letters.db") as (records, replays, more),
        opened(
            records=records, replays=replays, more=more, home_token=lambda: HOME, tokens=lambda: people
        ) as desk,
    ):
        page = await (await chromium.new_context()).new_page()
        complaints: list[str] = []
        page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
        await page.goto(f"{desk.url}/?token={HOME}")
        assert page.url == f"{desk.url}/", "the token is gone from the address"
        await page.goto(f"{desk.url}/groups")
        assert "groups" in page.url

        # a page of another site that leads here: the cookie is kept back at first
        elsewhere = await asyncio.start_server(_other_site(desk.url), "127.0.0.1", 0)
        port = elsewhere.sockets[0].getsockname()[1]
        await page.goto(f"http://localhost:{port}/")
        await page.click("a")
        await page.wait_for_url(f"{desk.url}/groups")
        await expect(page.locator("main")).to_have_count(1)  # the page that asks for the cookie comes first
        await page.goto(f"http://localhost:{port}/")
        await page.click("button")
        await page.wait_for_url(f"{desk.url}/api/sweeps")
        assert "another site" in await page.inner_text("body")
        assert desk.office.asked == []
        elsewhere.close()

        # out, and in again as somebody who only looks
        await page.goto(f"{desk.url}/groups")
        await page.click("form[action='/sign-out'] button")
        await page.wait_for_url(f"{desk.url}/sign-in")
        await page.goto(f"{desk.url}/groups?state=any")
        assert page.url.startswith(f"{desk.url}/sign-in?next=")
        await page.evaluate(AXE.read_text())
        found = await page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        assert [one["id"] for one in found["violations"] if one["impact"] in SERIOUS] == []
        await page.fill("#token", "wrong")
        await page.press("#token", "Enter")
        assert "no token of this service" in await page.inner_text("[role=alert]")
        await page.fill("#token", "dlq_eve")
        await page.press("#token", "Enter")
        await page.wait_for_url(f"{desk.url}/groups?state=any")
        people[:] = [replace(EVE, hash=hashed("another"))]
        await page.goto(f"{desk.url}/groups")
        assert page.url.startswith(f"{desk.url}/sign-in"), "a token that goes takes its sessions along"
        refused = [one for one in complaints if "Content Security Policy" in one]
        assert refused == []


def _other_site(desk: str):  # type: ignore[no-untyped-def]  # as asyncio wants it
    said = (
        f'<!doctype html><a href="{desk}/groups">look</a>'
        f'<form method="post" action="{desk}/api/sweeps" enctype="text/plain"><button>go</button></form>'
    ).encode()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        head = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n"
        writer.write(head.encode() + said)
        await writer.drain()
        writer.close()

    return answer
