"""A replay from the store beside `dlq move`, in one run: `python -m bench.replay`.

On each broker, round after round: the move takes letters from one queue to another, and `dlq serve` sends the
very same ones, stored, to that queue, from SQLite and from a private PostgreSQL. Parked letters carry their
error and its stack, 2,100 bytes of headers beside a body of 1,000, which a broker works on longer than on the
small letters of the other benches; the move of those is measured beside it. Every other round goes backwards.
One stopwatch for all looks at the target from outside (`race`). A replay first collects its letters, which is
told apart: its pace counts from the first letter in the target to the last.

    python -m bench.replay                                   # both databases, 50,000 letters
    python -m bench.replay --memory --store sqlite --count 1000000   # is its memory flat? no move
    python -m bench.replay --edit '.body.currency = "USD"'    # each letter edited on its way
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import median
from typing import Final

import uvloop
from rich.console import Console

from bench import report, sites
from bench.conditions import BUSY_PER_CORE
from bench.desk import GROUPS, place
from bench.desk_letters import letters
from bench.errors import BenchError
from bench.figures import Bar
from bench.ground import TARGET, Ground, QueueType
from bench.management import Vhost, fresh_vhost
from bench.options import positive
from bench.race import LOOK_S, Course, race
from bench.serving import Serving, serving
from bench.sites import Site
from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.core.grouping.stored_letter import stored_letter
from deadletter.core.letter.message import RawMessage
from deadletter.core.replaying.replay_plan import ReplayPlan
from deadletter.core.replaying.replay_target import ToQueue
from deadletter.errors import DeadletterError
from deadletter.store.letters.letter_store import open_letters
from deadletter.store.replays.replay_store import ReplayStore

_BATCH: Final = 1_000
COUNT: Final = 50_000
ROUNDS: Final = 3
MOVE: Final = "move"
"""Of the letters that are replayed."""
SMALL: Final = "move-small"
"""Of letters with few headers, for comparison."""
STORES: Final = ("sqlite", "postgresql")
RATIO_BAR: Final = 0.6
FLAT_BAR: Final = 1.3
"""Memory at the end, in times of that after the first tenth."""
PREFETCH: Final = 1_000
BODY_BYTES: Final = 1_000
_QUEUES: Final[QueueType] = "quorum"
_STALLED_S: Final = 120.0
_SETTINGS: Final = '[[watches]]\ndlq = "bench.dlq"\n[desk]\ningest = true\n'


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """One run of one of them."""

    who: str
    per_s: float
    frozen_s: float = 0.0
    """From the start of a replay to its first letter in the target."""
    cpu_us: float = 0.0
    rss_mb: tuple[float, float] = (0.0, 0.0)
    """The most until a tenth was sent, and until the end."""


def main() -> int:
    options = _options()
    console = report.wide_console()
    load, cores = os.getloadavg()[0], len(os.sched_getaffinity(0))
    report.warn_if_busy(console, load, cores, is_busy=load > BUSY_PER_CORE * cores)
    bars: list[Bar] = []
    try:
        for opening in sites.openings(options):
            with opening() as site:
                bars += _measure(console, options, site)
    except (BenchError, DeadletterError) as error:
        console.print(f"[red]The measurement broke off:[/] {error}", soft_wrap=True)
        return 2
    except KeyboardInterrupt:
        return 130
    report.show_bars(console, bars)
    return 0 if all(bar.passed for bar in bars) else 1


def _measure(console: Console, options: argparse.Namespace, site: Site) -> list[Bar]:
    stores = tuple(options.store or STORES)
    who = stores if options.memory else (MOVE, *stores, SMALL)
    paces: list[Pace] = []
    for number in range(1, (1 if options.memory else options.rounds) + 1):
        for one in who if number % 2 else reversed(who):
            moves = one in (MOVE, SMALL)
            pace = _moved(options, site, number, one) if moves else _replayed(options, site, one)
            console.print(_line(site, number, pace), soft_wrap=True, highlight=False)
            paces.append(pace)
    return list(_bars(options, site, paces))


def _stored(count: int) -> Iterable[RawMessage]:
    return (one.message for one in letters(count, groups=min(GROUPS, count)))


def _moved(options: argparse.Namespace, site: Site, number: int, who: str) -> Pace:
    async def run() -> Pace:
        course = Course(
            queue_type=_QUEUES,
            body_bytes=BODY_BYTES,
            prefetch=PREFETCH,
            letters=_stored if who == MOVE else None,
        )
        with fresh_vhost(site.url, site.api) as vhost:
            async with Ground.open(vhost, site) as ground:
                told = await race(
                    ground,
                    course,
                    mover="courier",
                    count=options.count,
                    broker=site.version,
                    round_number=number,
                )
        if told.complaint is not None:
            raise BenchError(told.complaint)
        return Pace(who=who, per_s=told.per_s, cpu_us=told.cpu_us or 0.0)

    return uvloop.run(run())


def _replayed(options: argparse.Namespace, site: Site, name: str) -> Pace:
    with place(name) as url, fresh_vhost(site.url, site.api) as vhost:
        return uvloop.run(_replay(options, site, vhost, name, url))


async def _replay(options: argparse.Namespace, site: Site, vhost: Vhost, name: str, url: str) -> Pace:
    await _fill(url, vhost.name, options.count)
    async with Ground.open(vhost, site) as ground:
        await ground.lay(_QUEUES, 0, body_bytes=0)
        async with serving(vhost, _SETTINGS, store=url) as service:
            plan = ReplayPlan(
                selection=LetterQuery(),
                vhost=vhost.name,
                target=ToQueue(queue=TARGET),
                edit=options.edit,
                overrules_guards=True,  # nobody consumes there, and they would wait for somebody
            )
            async with open_letters(url, prepare=False) as store:
                await ReplayStore(store).begin(plan, who="bench", why="how fast is it")
            return await _watch(ground, service, options.count, name)


async def _fill(url: str, vhost: str, count: int) -> None:
    some = letters(count, groups=min(GROUPS, count))
    async with open_letters(url) as store:
        while batch := list(islice(some, _BATCH)):
            now_ms = int(time.time() * 1000)
            await store.ingest([stored_letter(one, now_ms=now_ms, vhost=vhost) for one in batch])


async def _watch(ground: Ground, service: Serving, count: int, name: str) -> Pace:
    asked = changed_at = time.perf_counter()
    began, first, arrived, cpu_s, early_mb, most_mb = 0.0, 0, 0, service.cpu_s, 0.0, 0.0
    while arrived < count:
        await asyncio.sleep(LOOK_S)
        service.check()
        now, before, arrived = time.perf_counter(), arrived, await ground.depth(TARGET)
        if arrived != before:
            changed_at = now
        elif now - changed_at > _STALLED_S:
            raise BenchError(f"{arrived:,} of {count:,} stored letters arrived, and no more come")
        if not began and arrived:
            began, first, cpu_s = now, arrived, service.cpu_s
        most_mb = max(most_mb, service.rss_bytes / 1e6)
        if not early_mb and arrived >= count / 10:
            early_mb = most_mb
    seconds = max(time.perf_counter() - began, LOOK_S)
    return Pace(
        who=name,
        per_s=(count - first) / seconds,
        frozen_s=began - asked,
        cpu_us=(service.cpu_s - cpu_s) / max(count - first, 1) * 1e6,
        rss_mb=(early_mb, most_mb),
    )


def _line(site: Site, number: int, pace: Pace) -> str:
    told = f"{site.version:8} round {number}  {pace.who:11}{pace.per_s:10,.0f} letters/s"
    told += f"  {pace.cpu_us:6.0f} µs CPU/letter"
    if pace.who not in (MOVE, SMALL):
        told += f"  collected in {pace.frozen_s:.1f} s; at most {pace.rss_mb[0]:.0f} MB until a tenth, "
        told += f"{pace.rss_mb[1]:.0f} MB until the end"
    return told


def _bars(options: argparse.Namespace, site: Site, paces: Sequence[Pace]) -> Sequence[Bar]:
    def of(who: str) -> float:
        return median(pace.per_s for pace in paces if pace.who == who)

    bars: list[Bar] = []
    where = f"RabbitMQ {site.version}, {options.count:,} letters"
    for name in options.store or STORES:
        if not options.memory:
            ratio = of(name) / of(MOVE)
            what = f"{where}: replay from {name} {of(name):,.0f} letters/s, {ratio:.2f} × move"
            what += f" of the same letters, {of(name) / of(SMALL):.2f} × move of small ones"
            bars.append(Bar(what=f"{what}, needed {RATIO_BAR}", passed=ratio >= RATIO_BAR))
        grown = max(pace.rss_mb[1] / pace.rss_mb[0] for pace in paces if pace.who == name)
        what = f"{where}: replay from {name}, memory {grown:.2f} × what it was until the first tenth"
        bars.append(Bar(what=f"{what}, allowed {FLAT_BAR}", passed=grown <= FLAT_BAR))
    return bars


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.replay", description=(__doc__ or "").split("\n")[0]
    )
    sites.add_arguments(parser, default=("4.3",))
    parser.add_argument("--store", action="append", choices=STORES, help="only this; may be repeated")
    parser.add_argument("--count", type=positive, default=COUNT, help="letters per run (%(default)s)")
    parser.add_argument("--rounds", type=positive, default=ROUNDS, help="(%(default)s)")
    parser.add_argument("--memory", action="store_true", help="memory alone: no move, one round")
    parser.add_argument("--edit", default="", help="a jq program over each letter")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
