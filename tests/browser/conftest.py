"""The system's Chromium before a desk: on a loopback port, with a real store that is filled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, async_playwright, expect
from playwright.async_api import TimeoutError as NotSeen
from pytest_asyncio import is_async_test
from tests.stock import sampled, stocked
from tests.web.conftest import Desk, Opened, opened
from tests.web.whole_desk import MadeUpOutlook

from deadletter import config
from deadletter.core.guards.gate import GateState
from deadletter.desk.answers.news import News
from deadletter.desk.api.sources import MoreSources
from deadletter.operations.journal.store_journal import LateJournal
from deadletter.operations.records.store_records import LateRecords, StoreRecords
from deadletter.operations.repairs.body_schemas import BodySchemas
from deadletter.operations.replays.store_replays import LateReplays
from deadletter.operations.rulebook.store_rulebook import StoreRulebook
from deadletter.service.telling.service_events import GateChanged, LifeChanged, QueueSeen, Stage
from deadletter.store.journal.journal_store import JournalStore

__all__ = ["opened"]

CHROMIUM = "/usr/bin/chromium"
AXE = Path(__file__).with_name("axe.min.js")
SERIOUS = ("serious", "critical")
expect.set_options(timeout=30_000)  # until something is seen: machines that test are slow


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    one_loop = pytest.mark.asyncio(loop_scope="session")  # that of the Chromium which they share
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker("browser")
            if is_async_test(item):
                item.add_marker(one_loop, append=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def one_chromium() -> AsyncIterator[Browser]:
    """For the whole run: to start one takes longer than most tests."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="session")
async def chromium(one_chromium: Browser) -> AsyncIterator[Browser]:
    """That one, without anything of another test: what a test opens in it is closed with the test."""
    yield one_chromium
    for context in one_chromium.contexts:
        await context.close()


async def listening(page: Page) -> Page:
    """This page, once its scripts run: what is typed before that, nobody hears."""
    await page.wait_for_selector("html.scripted")
    return page


async def press(page: Page, *keys: str) -> None:
    for key in keys:
        await (await listening(page)).keyboard.press(key)


async def go(page: Page, place: str, address: str) -> None:
    """By `g` and a key to this address; once more where the two came too far apart to belong together."""
    for _ in range(5):
        await press(page, "g", place)
        with suppress(NotSeen):
            return await page.wait_for_url(address, timeout=6_000)
    raise AssertionError(f"g {place} leads from {page.url} to no {address}")


@dataclass(kw_only=True)
class Seat:
    """Somebody before the desk."""

    desk: Desk
    records: StoreRecords
    page: Page
    complaints: list[str] = field(default_factory=list)
    """What the browser's console said that it should not."""

    async def open(self, path: str) -> None:
        await self.page.goto(self.desk.url + path)
        await listening(self.page)

    async def found_by_axe(self) -> list[str]:
        """What axe finds that is serious, each in a line."""
        await self.page.evaluate(AXE.read_text())
        told: dict[str, Any] = await self.page.evaluate(
            "axe.run(document, {resultTypes: ['violations'], "
            "runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']})"
        )
        return [
            f"{one['id']}: {node['target']} {node['failureSummary']}"
            for one in told["violations"]
            if one["impact"] in SERIOUS
            for node in one["nodes"][:3]
        ]


@asynccontextmanager
async def shop(path: Path) -> AsyncIterator[tuple[LateRecords, LateReplays, MoreSources]]:
    """A filled store in this file, and all that the desk asks, as `dlq serve` has it."""
    now_ms = int(time.time() * 1000)
    url = await stocked(path, now_ms)
    settings = config.load(
        options={"store.url": url}, environment={}, directory=path.parent, home=path.parent
    )
    records = LateRecords(url)
    journal = LateJournal(records)
    news = News(journal)
    rulebook = StoreRulebook(url, lambda: settings, records, journal)
    watching = asyncio.create_task(news.run())
    try:
        await JournalStore((await records()).opened).put_samples(sampled(now_ms))
        yield (
            records,
            LateReplays(records, look_at=None, schemas=BodySchemas),
            MoreSources(journal=journal, outlook=MadeUpOutlook(), rulebook=rulebook, news=news),
        )
    finally:
        watching.cancel()
        await asyncio.wait({watching})
        await journal.close()
        await records.close()


@asynccontextmanager
async def seated(
    opened: Opened, chromium: Browser, path: Path, terms: Mapping[str, Any] | None = None, **looks: Any
) -> AsyncIterator[Seat]:
    """`terms`: of the desk's access. `looks`: of the browser's context: viewport, color_scheme, …"""
    async with (
        shop(path) as (late, replays, more),
        opened(records=late, replays=replays, more=more, **(terms or {})) as desk,
    ):
        desk.emit(
            LifeChanged(stage=Stage.READY),
            QueueSeen(
                queue="orders.dlq", watched=True, depth=41, consumers=1, growth_per_s=0.5, oldest_s=73.0
            ),
            QueueSeen(queue="deadletter.due", watched=False, depth=2, consumers=1),
            GateChanged(
                gate="orders",
                origin="orders",
                guard="breaker",
                state=GateState.CLOSED,
                why="9 of the last 10 letters came back within 30 s",
            ),
        )
        context = await chromium.new_context(**looks)
        page = await context.new_page()
        seat = Seat(desk=desk, records=await late(), page=page)
        page.on("console", lambda said: _heard(seat, said.type, said.text))
        page.on("pageerror", lambda error: seat.complaints.append(str(error)))
        try:
            yield seat
        finally:
            await context.close()


def _heard(seat: Seat, kind: str, text: str) -> None:
    if kind in ("error", "warning") and "404" not in text:  # some tests ask for what is not there
        seat.complaints.append(text)


@pytest_asyncio.fixture(loop_scope="session")
async def seat(opened: Opened, chromium: Browser, tmp_path: Path) -> AsyncIterator[Seat]:
    """At a desk of 1440 pixels."""
    async with seated(
        opened, chromium, tmp_path / "desk.db", viewport={"width": 1440, "height": 900}
    ) as found:
        yield found
        assert found.complaints == []
