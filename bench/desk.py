"""How fast the desk takes letters in, finds and forgets them, how large it gets: `python -m bench.desk`.

Letters of 1,000 bytes with the headers and stacks of a parked one are read, grouped and stored in batches, on
SQLite and on a private PostgreSQL, by the part of the service that does so (`Storekeeper`): what counts is
from a letter to its commit. Then questions are asked, many times each, and the time at which 95 of 100 are
answered is told. Then retention takes letters out while others come in, and the longest wait for a commit is
told. The bars are for a million letters in 2,000 groups; a smaller count is a look, not a measurement. Last,
`dlq serve` takes letters from a broker's queue into both databases while it goes on with intake
(`desk_service`).

    python -m bench.desk                                  # both databases, a million letters
    python -m bench.desk --store sqlite --count 50000 --groups 200
    python -m bench.desk --part service --broker 4.3
    python -m bench.desk --part store --store sqlite --keep /tmp/desk       # and keep what was filled
    python -m bench.desk --part store --store sqlite --use /tmp/desk        # what was kept, not filled again
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import resource
import sqlite3
import sys
import time
import zlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final

import uvloop
from rich.console import Console

from bench import desk_service, report, sites
from bench.conditions import BUSY_PER_CORE
from bench.desk_letters import letters
from bench.desk_places import Content, content_of, database, kept
from bench.errors import BenchError
from bench.figures import Bar
from bench.options import positive
from bench.serving import family, rss_bytes
from deadletter.cli.terminal.event_loop import run
from deadletter.core.deciding.letter_fate import LetterFate
from deadletter.core.deciding.states import Step
from deadletter.core.grouping.group_query import GroupQuery
from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.core.grouping.retention import Retention
from deadletter.core.grouping.stored_letter import stored_letter
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.names import PARKED
from deadletter.errors import DeadletterError
from deadletter.move.verdict import Drop, Verdict
from deadletter.service.storing import reading_worker
from deadletter.service.storing.storekeeper import Storekeeper
from deadletter.service.telling.service_events import ServiceEvent, Trouble
from deadletter.store.letters.letter_store import LetterStore, open_letters

PARTS: Final = ("store", "service")
COUNT: Final = 1_000_000
SERVED: Final = 300_000
"""A minute: the first two seconds, in which a process starts and every group is new, are no pace."""
BESIDE: Final = 60_000
GROUPS: Final = 2_000
PACE_BAR: Final = 5_000
GROWN_BAR: Final = 1.3
ASKED_BAR_MS: Final = 150.0
TEXT_BAR_MS: Final = 500.0
BODY_BAR: Final = 1.6
LETTER_BAR_BYTES: Final = 400
FORGOTTEN: Final = 100_000
STOPPED_BAR_MS: Final = 100.0
ASKED: Final = 40
ALONE: Final = 200
_BUNCH: Final = 20_000
_PRESSED: Final = 2_000
_LEVEL: Final = 6
_FATE: Final = LetterFate(step=Step.STORED, source=PARKED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Filled:
    letters: int
    seconds: float
    cpu_us: float
    rss_mb: tuple[float, float]
    """After the first tenth, and at the end."""


def main() -> int:
    options = _options()
    console = report.wide_console()
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    report.warn_if_busy(console, load, cores, is_busy=load > BUSY_PER_CORE * cores)
    console.print(
        f"{options.count:,} letters in {options.groups:,} groups; {cores} cores, "
        f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}"
    )
    bars: list[Bar] = []
    try:
        stores = options.store or ("sqlite", "postgresql")
        parts = options.part or PARTS
        for name in stores if "store" in parts else ():
            bars += _store(console, options, name)
        if "service" in parts:
            for opening in sites.openings(options):
                with opening() as site:
                    bars += [bar for name in stores for bar in _serve(console, options, name, site)]
    except (BenchError, DeadletterError) as error:
        console.print(f"[red]The measurement broke off:[/] {error}", soft_wrap=True)
        return 2
    except KeyboardInterrupt:
        return 130
    report.show_bars(console, bars)
    return 0 if all(bar.passed for bar in bars) else 1


@contextmanager
def place(name: str) -> Iterator[str]:
    with database(name) as one:
        yield one.url


def _store(console: Console, options: argparse.Namespace, name: str) -> list[Bar]:
    if options.use is not None:
        content = content_of(options.use)
        options.count, options.groups = content.count, content.groups
        console.print(f"{name}: {content.count:,} letters in {content.groups:,} groups from {options.use}")
    where = f"{name}, {options.count:,} letters"
    bars: list[Bar] = []
    with database(name, options.use) as one:
        if options.use is None:
            bars += run(_filling(console, options, where, one.url))
            if options.keep is not None:
                kept(one, options.keep, Content(count=options.count, groups=options.groups))
                console.print(f"{where}: kept in {options.keep}")
        return bars + uvloop.run(_measure(console, options, where, one.url))


async def _filling(console: Console, options: argparse.Namespace, where: str, url: str) -> list[Bar]:
    def told(made: int, seconds: float) -> None:
        if made * 10 // options.count > (made - _BUNCH) * 10 // options.count:
            console.print(f"  {where}: {made:,} stored, {made / seconds:,.0f} a second so far")

    filled = await _fill(url, options.count, options.groups, told)
    per_s = filled.letters / filled.seconds
    early, late = filled.rss_mb
    console.print(
        f"{where}: {per_s:,.0f} letters/s, {filled.cpu_us:.0f} µs of our CPU per letter, "
        f"{early:.0f} MB after the first tenth, {late:.0f} MB at the end"
    )
    grown = f"{where}: memory at the end {late / early:.2f} × that after the first tenth, allowed {GROWN_BAR}"
    return [
        Bar(what=f"{where}: {per_s:,.0f} stored a second, needed {PACE_BAR:,}", passed=per_s >= PACE_BAR),
        Bar(what=grown, passed=late <= early * GROWN_BAR),
    ]


async def _measure(console: Console, options: argparse.Namespace, where: str, url: str) -> list[Bar]:
    bars: list[Bar] = []
    async with open_letters(url) as store:
        for what, bar_ms, ask in _questions(store, options.groups):
            p95_ms = await _p95_ms(ask)
            said = f"{where}: {what} {p95_ms:.0f} ms at p95, allowed {bar_ms:.0f}"
            console.print(f"  {said}")
            bars.append(Bar(what=said, passed=p95_ms < bar_ms))
        if url.startswith("sqlite:"):
            bars.append(_size(where, options, Path(url.removeprefix("sqlite:///"))))
        bars.append(await _forgetting(store, where, options))
        return bars


def _serve(console: Console, options: argparse.Namespace, name: str, site: sites.Site) -> list[Bar]:
    count = min(SERVED, options.count)
    with place(name) as url:
        taken = uvloop.run(
            desk_service.take_in(site, url, count=count, groups=options.groups, beside=options.beside)
        )
    where = f"dlq serve, RabbitMQ {site.version}, {name}, {count:,} letters"
    console.print(
        f"{where}: {taken.stored_per_s:,.0f} stored and {taken.intake_per_s:,.0f} delayed a second, "
        f"{taken.cpu_us:.0f} µs of its CPU per letter, {taken.rss_mb[0]:.0f} MB after the first tenth, "
        f"{taken.rss_mb[1]:.0f} MB at the end",
        soft_wrap=True,
    )
    what = f"{where}: {taken.stored_per_s:,.0f} stored a second while intake goes on, needed {PACE_BAR:,}"
    return [Bar(what=what, passed=taken.stored_per_s >= PACE_BAR)]


async def _fill(url: str, count: int, groups: int, told: Callable[[int, float], None]) -> Filled:
    """By the service's own storekeeper: it has so many in hand as the service has, and a second process reads
    them. Making letters up does not count."""
    some = letters(count, groups=groups)
    made, seconds, early_mb = 0, 0.0, 0.0
    troubles: list[Trouble] = []

    def heard(event: ServiceEvent) -> None:
        if isinstance(event, Trouble):
            troubles.append(event)

    keeper = Storekeeper(url, retention={}, emit=heard)
    running = asyncio.create_task(keeper.run())
    cpu, children = 0.0, _cpu_of_children_s()
    try:
        while not keeper.working:  # noqa: ASYNC110 -- it tells whoever asked, and nobody has
            await asyncio.sleep(0.01)
        while bunch := list(islice(some, _BUNCH)):
            began, cpu_began = time.perf_counter(), time.process_time()
            await _bring(keeper, bunch)
            seconds += time.perf_counter() - began
            cpu += time.process_time() - cpu_began
            made += len(bunch)
            told(made, seconds)
            if not early_mb and made * 10 >= count:
                early_mb = _rss_mb()
        last_mb = _rss_mb()
    finally:
        running.cancel()
        await asyncio.wait({running})
    if troubles:
        raise BenchError(f"{troubles[0].what}: {troubles[0].why}")
    cpu += _cpu_of_children_s() - children
    return Filled(letters=made, seconds=seconds, cpu_us=cpu / made * 1e6, rss_mb=(early_mb, last_mb))


async def _bring(keeper: Storekeeper, bunch: Sequence[Letter]) -> None:
    """As a line of the service does: no more in hand than its prefetch."""
    free = asyncio.Semaphore(keeper.prefetch)
    verdicts: list[asyncio.Future[Verdict]] = []
    for letter in bunch:
        await free.acquire()
        verdict = keeper.take(letter, "", lambda _stored: _FATE)
        verdict.add_done_callback(lambda _verdict: free.release())
        verdicts.append(verdict)
    for verdict in verdicts:
        if not isinstance(await verdict, Drop):
            raise BenchError("the store did not take a letter")


def _cpu_of_children_s() -> float:
    """Of those that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _questions(
    store: LetterStore, groups: int
) -> Iterator[tuple[str, float, Callable[[int], Awaitable[object]]]]:
    day_ms = 24 * 3_600_000
    began_ms = 1_790_812_800_000
    yield "groups", ASKED_BAR_MS, lambda n: store.groups(GroupQuery(offset=n))
    yield "a group", ASKED_BAR_MS, lambda n: store.group(str(1 + n % groups))
    yield "a group's letters", ASKED_BAR_MS, lambda n: store.find(LetterQuery(group=1 + n % groups))
    yield "the newest", ASKED_BAR_MS, lambda _n: store.find(LetterQuery())
    yield (
        "by cause and origin",
        ASKED_BAR_MS,
        lambda _n: store.find(LetterQuery(cause="permanent", origin="shop.amber")),
    )
    yield "by cause that none has", ASKED_BAR_MS, lambda _n: store.find(LetterQuery(cause="shop.amber"))
    yield (
        "by an hour",
        ASKED_BAR_MS,
        lambda n: store.find(
            LetterQuery(
                died_from_ms=began_ms + n * day_ms // 20, died_until_ms=began_ms + (n + 1) * day_ms // 20
            )
        ),
    )
    yield "by error", ASKED_BAR_MS, lambda _n: store.find(LetterQuery(error="did not answer"))
    yield "facets of all", ASKED_BAR_MS, lambda _n: store.facets(LetterQuery())
    yield "facets of a group", ASKED_BAR_MS, lambda n: store.facets(LetterQuery(group=1 + n % groups))
    yield "facets by cause", ASKED_BAR_MS, lambda _n: store.facets(LetterQuery(cause="permanent"))
    yield "a word many have", TEXT_BAR_MS, lambda _n: store.find(LetterQuery(text="street"))
    yield "a word few have", TEXT_BAR_MS, lambda n: store.find(LetterQuery(text=str(10_000_000 + n)))
    yield "three words", TEXT_BAR_MS, lambda _n: store.find(LetterQuery(text="amber willow maple"))


async def _p95_ms(ask: Callable[[int], Awaitable[object]]) -> float:
    times: list[float] = []
    for number in range(ASKED):
        began = time.perf_counter()
        await ask(number)
        times.append(time.perf_counter() - began)
    return sorted(times)[int(0.95 * len(times))] * 1e3


def _size(where: str, options: argparse.Namespace, path: Path) -> Bar:
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    size = path.stat().st_size / options.count
    sample = letters(min(_PRESSED, options.count), groups=options.groups)
    pressed = [len(zlib.compress(letter.body, _LEVEL)) for letter in sample]
    allowed = BODY_BAR * sum(pressed) / len(pressed) + LETTER_BAR_BYTES
    return Bar(what=f"{where}: {size:,.0f} bytes a letter, allowed {allowed:,.0f}", passed=size <= allowed)


async def _forgetting(store: LetterStore, where: str, options: argparse.Namespace) -> Bar:
    """Letters go while others come, in small batches; the longest wait beyond the longest of many alone, as
    others on the machine make some of them wait."""
    forgotten = min(FORGOTTEN, options.count // 2)
    small = 100
    more = letters(options.count, groups=options.groups, seed=8, first=options.count)
    going = asyncio.Event()

    async def put() -> float:
        batch = [stored_letter(letter, now_ms=0) for letter in islice(more, small)]
        began = time.perf_counter()
        await store.ingest(batch)
        return time.perf_counter() - began

    alone = max([await put() for _ in range(ALONE)])

    async def forget() -> None:
        left = options.count - forgotten
        gone = 0
        while gone < forgotten:  # not until all is well: others come as fast as these go
            gone += await store.forget_some(PARKED, Retention(letters=left))
        going.set()

    task = asyncio.create_task(forget())
    waits: list[float] = []
    while not going.is_set():
        waits.append(await put())
        await asyncio.sleep(0.02)
    await task
    stopped_ms = (max(waits) - alone) * 1e3
    what = f"{where}: {forgotten:,} forgotten, ingest waited {stopped_ms:.0f} ms longer at most"
    return Bar(what=f"{what}, allowed {STOPPED_BAR_MS:.0f}", passed=stopped_ms <= STOPPED_BAR_MS)


def _rss_mb() -> float:
    """Ours, and of the process that reads letters; a database may be a child of ours, too."""
    own, *children = family(os.getpid())
    reading = [pid for pid in children if reading_worker.__name__ in _command_line(pid)]
    return sum(map(rss_bytes, (own, *reading))) / 1e6


def _command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="How fast the desk is, and how large it gets.")
    sites.add_arguments(parser, default=("4.3",))
    parser.add_argument("--part", action="append", choices=PARTS, help="only this; may be repeated")
    parser.add_argument("--store", action="append", choices=("sqlite", "postgresql"))
    parser.add_argument("--beside", type=positive, default=BESIDE, help="letters for intake (%(default)s)")
    parser.add_argument("--count", type=positive, default=COUNT)
    parser.add_argument("--groups", type=positive, default=GROUPS)
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="keep the filled databases there")
    parser.add_argument("--use", type=Path, metavar="FOLDER", help="use those, and do not fill")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
