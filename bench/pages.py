"""How quick are the pages? On a filled store: each page and each main question of the API asked many times,
as an admin and as somebody who sees some queues and no masked field; then Chromium with an empty cache; then
many open pages while nothing happens.

    python -m bench.pages --fill 20000              # fills a store of its own first
    python -m bench.pages --use FOLDER              # as bench.desk keeps it, or a postgresql:// URL

The server is a process of its own, with the app as `dlq serve` has it and no broker behind it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Final

import httpx
from rich.console import Console
from rich.table import Table

from bench import desk_letters
from bench.figures import Bar
from bench.options import positive
from bench.report import show_bars, wide_console
from deadletter import config
from deadletter.config.settings import DeskToken
from deadletter.core.access.rights import Role
from deadletter.core.access.token_hash import hashed
from deadletter.core.grouping.stored_letter import stored_letter
from deadletter.desk.access.access import Access
from deadletter.desk.answers.news import News
from deadletter.desk.api.sources import MoreSources
from deadletter.desk.board import Board
from deadletter.desk.http_app import create_app
from deadletter.desk.page.static_files import static_files
from deadletter.desk.server import serve
from deadletter.desk.view import Status, SweepAnswer, anywhere
from deadletter.operations.journal.store_journal import LateJournal
from deadletter.operations.records.store_records import LateRecords
from deadletter.operations.repairs.body_schemas import BodySchemas
from deadletter.operations.replays.store_replays import LateReplays
from deadletter.operations.rulebook.store_rulebook import StoreRulebook
from deadletter.service.telling.service_health import ServiceHealth
from deadletter.service.telling.service_metrics import Metrics
from deadletter.store.letters.letter_store import open_letters

TIMES: Final = 40
P95_MS: Final = 150.0
INTERACTIVE_MS: Final = 1_000.0
STATIC_BYTES: Final = 100_000
IDLE_PAGES: Final = 50
IDLE_S: Final = 30.0
IDLE_SHARE: Final = 0.05
LOADS: Final = 5
CHROMIUM: Final = "/usr/bin/chromium"
TOKENS: Final = {"admin": "dlq_bench_admin_0123456789", "scoped": "dlq_bench_scoped_0123456789"}
READY_S: Final = 60.0
_BATCH: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One question, asked often. `cpu_ms`: of the server's process, each time: it tells more than the clock
    where others work on the same machine."""

    who: str
    path: str
    ms: tuple[float, ...]
    cpu_ms: float

    @property
    def p95(self) -> float:
        return sorted(self.ms)[max(0, round(len(self.ms) * 0.95) - 1)]


def main() -> int:
    options = _options()
    if options.serve:
        asyncio.run(_serve(options.serve, options.port_file))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_measure(wide_console(), options, Path(folder)))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.pages", description=__doc__)
    parser.add_argument("--use", help="a folder with desk.db, or the URL of a store")
    parser.add_argument("--fill", type=positive, default=20_000, help="letters of an own store (%(default)s)")
    parser.add_argument("--groups", type=positive, default=200)
    parser.add_argument("--times", type=positive, default=TIMES)
    parser.add_argument("--no-browser", action="store_true", help="only the server's own time")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    parser.add_argument("--port-file", help=argparse.SUPPRESS)
    return parser.parse_args()


def _url(options: argparse.Namespace, folder: Path) -> str:
    used: str | None = options.use
    if used is None:
        return f"sqlite:///{folder / 'desk.db'}"
    return used if "://" in used else f"sqlite:///{Path(used).resolve() / 'desk.db'}"


async def _measure(console: Console, options: argparse.Namespace, folder: Path) -> int:
    url = _url(options, folder)
    if options.use is None:
        await _fill(url, options.fill, options.groups)
    bars: list[Bar] = []
    async with _server(url, folder) as (address, pid):
        asked = await _ask_all(address, pid, options.times)
        _show(console, asked)
        worst = max(asked, key=lambda one: one.p95)
        bars.append(
            Bar(
                what=f"pages and answers: p95 under {P95_MS:.0f} ms; slowest {worst.p95:.0f} ms "
                f"({worst.who} {worst.path})",
                passed=worst.p95 < P95_MS,
            )
        )
        size = sum(len(content) for name, content in static_files().items() if name.endswith((".js", ".css")))
        bars.append(
            Bar(what=f"scripts and styles: {size:,} of {STATIC_BYTES:,} bytes", passed=size < STATIC_BYTES)
        )
        if not options.no_browser:
            bars += [await _interactive(address), await _idle(address, pid)]
    show_bars(console, bars)
    return 0 if all(bar.passed for bar in bars) else 1


async def _fill(url: str, count: int, groups: int) -> None:
    made = desk_letters.letters(count, groups=groups)
    async with open_letters(url) as store:
        while bunch := list(islice(made, _BATCH)):
            now_ms = store.now_ms()
            await store.ingest([stored_letter(one, now_ms=now_ms) for one in bunch])


# -- asking ----------------------------------------------------------------------------------------------
async def _ask_all(address: str, pid: int, times: int) -> list[Asked]:
    told: list[Asked] = []
    for who, token in TOKENS.items():
        headers = {"authorization": f"Bearer {token}", "accept": "text/html, application/json"}
        async with httpx.AsyncClient(
            base_url=address, headers=headers, timeout=120, trust_env=False
        ) as client:
            told += [await _ask(client, pid, who, path, times) for path in await _paths(client)]
    return told


async def _paths(client: httpx.AsyncClient) -> list[str]:
    groups = (await client.get("/api/v1/groups?limit=1")).json()["groups"]
    letters = (await client.get("/api/v1/letters?limit=1")).json()["letters"]
    group, origin = groups[0]["id"], groups[0]["origin"]
    letter = letters[0]["id"]
    paths = [
        "/",
        "/groups",
        "/groups?state=any&order=letters",
        f"/groups?origin={origin}",
        "/groups?q=timeout",
        f"/groups/{group}",
        "/letters",
        f"/letters?q=origin:{origin}",
        "/letters?q=since:2h",
        "/letters?q=amber",
        f"/letters?q=group:{group}%20error:within",
        f"/letters/{letter}",
        f"/letters/{letter}?view=text",
        "/replays",
        f"/replays/new?group={group}",
        "/audit",
        "/policies",
        "/api/v1/groups",
        f"/api/v1/groups/{group}",
        "/api/v1/letters",
        "/api/v1/letters?text=amber",
        "/api/v1/facets",
        f"/api/v1/facets?group={group}",
        f"/api/v1/letters/{letter}",
        "/api/v1/replays",
        "/api/v1/audit",
        "/api/v1/suggestions?text=time",
    ]
    seen = [(path, (await client.get(path)).status_code) for path in paths]
    return [path for path, status in seen if status != 403]  # not everything is for everybody


async def _ask(client: httpx.AsyncClient, pid: int, who: str, path: str, times: int) -> Asked:
    took: list[float] = []
    cpu = _cpu_s(pid)
    for _ in range(times):
        began = time.perf_counter()
        answer = await client.get(path)
        took.append((time.perf_counter() - began) * 1000)
        answer.raise_for_status()
    cpu_ms = (_cpu_s(pid) - cpu) / times * 1000
    return Asked(who=who, path=path, ms=tuple(took), cpu_ms=cpu_ms)


def _show(console: Console, asked: Sequence[Asked]) -> None:
    table = Table("who", "what", title="the server's time, ms")
    for name in ("p50", "p95", "worst", "cpu"):
        table.add_column(name, justify="right")
    for one in asked:
        colour = "green" if one.p95 < P95_MS else "red"
        p50, worst = statistics.median(one.ms), max(one.ms)
        table.add_row(
            one.who,
            one.path,
            f"{p50:.0f}",
            f"[{colour}]{one.p95:.0f}[/]",
            f"{worst:.0f}",
            f"{one.cpu_ms:.0f}",
        )
    console.print(table)


# -- Chromium --------------------------------------------------------------------------------------------
async def _interactive(address: str) -> Bar:
    """The slowest of four pages, each the median of some loads with an empty cache."""
    from playwright.async_api import async_playwright

    told: dict[str, float] = {}
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        for path in ("/", "/groups", "/groups/1", "/letters/1"):
            took: list[float] = []
            for _ in range(LOADS):
                context = await browser.new_context()
                page = await context.new_page()
                await page.goto(f"{address}/?token={TOKENS['admin']}", wait_until="commit")
                await page.goto("about:blank")
                session = await context.new_cdp_session(page)
                await session.send("Network.clearBrowserCache")
                began = time.perf_counter()
                await page.goto(address + path, wait_until="domcontentloaded")
                await page.wait_for_selector("html.scripted")
                took.append((time.perf_counter() - began) * 1000)
                await context.close()
            told[path] = statistics.median(took)
        await browser.close()
    slowest = max(told.values())
    said = ", ".join(f"{path} {ms:.0f}" for path, ms in told.items())
    return Bar(what=f"interactive under {INTERACTIVE_MS:.0f} ms: {said}", passed=slowest < INTERACTIVE_MS)


async def _idle(address: str, pid: int) -> Bar:
    """As many streams as there are open pages: a page that nobody touches does nothing else."""
    headers = {"authorization": f"Bearer {TOKENS['admin']}"}
    limits = httpx.Limits(max_connections=IDLE_PAGES + 1)
    async with AsyncExitStack() as open_:
        client = await open_.enter_async_context(
            httpx.AsyncClient(base_url=address, headers=headers, limits=limits, timeout=None, trust_env=False)
        )
        for _ in range(IDLE_PAGES):
            await open_.enter_async_context(client.stream("GET", "/api/v1/events"))
        await asyncio.sleep(2)
        before = _cpu_s(pid)
        await asyncio.sleep(IDLE_S)
        share = (_cpu_s(pid) - before) / IDLE_S
    return Bar(
        what=f"{IDLE_PAGES} open pages, nothing happens: {share:.1%} of a core, under {IDLE_SHARE:.0%}",
        passed=share < IDLE_SHARE,
    )


def _cpu_s(pid: int) -> float:
    parts = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")


# -- the server ------------------------------------------------------------------------------------------
@asynccontextmanager
async def _server(url: str, folder: Path) -> AsyncIterator[tuple[str, int]]:
    port_file = folder / "port"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "bench.pages", "--serve", url, "--port-file", str(port_file)
    )
    try:
        async with asyncio.timeout(READY_S):
            while not port_file.exists():  # noqa: ASYNC110 -- another process makes it
                await asyncio.sleep(0.05)
        yield port_file.read_text(encoding="utf-8"), process.pid
    finally:
        process.terminate()
        await process.wait()


class _Quiet:
    """A service that watches nothing."""

    def __init__(self) -> None:
        self.board = Board(instance="bench", broker="none", watches=[], now=lambda: datetime.now(UTC))

    async def sweep(
        self,
        dlqs: Sequence[str],  # noqa: ARG002 -- as `ServiceView` has them
        *,
        in_vhost: Callable[[str], bool] = anywhere,  # noqa: ARG002
    ) -> list[SweepAnswer]:
        return []

    def status(self) -> Status:
        return self.board.status()


async def _serve(url: str, port_file: str) -> None:
    settings = config.load(options={"store.url": url}, environment={}, directory=Path("/"), home=Path("/"))
    records = LateRecords(url)
    journal = LateJournal(records)
    news = News(journal)
    people = (
        DeskToken(name="ann", role=Role.ADMIN, hash=hashed(TOKENS["admin"])),
        DeskToken(name="vic", role=Role.VIEWER, hash=hashed(TOKENS["scoped"]), queues=("shop.a*", "shop.b*")),
    )
    access = Access(
        host="127.0.0.1", tokens=lambda: people, masked=lambda: ("body.customer", "header.tenant")
    )
    app = create_app(
        _Quiet(),
        Metrics(),
        ServiceHealth(time.monotonic),
        access,
        records,
        LateReplays(records, look_at=None, schemas=BodySchemas),
        MoreSources(
            journal=journal, rulebook=StoreRulebook(url, lambda: settings, records, journal), news=news
        ),
    )

    def ready(address: str) -> None:
        made = Path(f"{port_file}.new")
        made.write_text(address, encoding="utf-8")
        made.rename(port_file)

    watching = asyncio.create_task(news.run())
    try:
        await serve(app, "127.0.0.1:0", on_ready=ready)
    finally:
        watching.cancel()
        await journal.close()
        await records.close()


if __name__ == "__main__":
    sys.exit(main())
