"""Whether a million letters cost more than fifty thousand, letter by letter: `python -m bench.memory`.

The courier moves a small load, then the large one, then the small one again, each in a process of its own, on
one classic queue of one broker. Two things must hold: at the large load its memory never stands more than
60 MB above where it started (imports done, not yet connected), and a letter takes at most 1.3 times as long
as at the small load. The small load is moved on both sides of the large one, and the mean of the two is
taken, because a broker that has just moved a million is not the one it was before.

Memory is the peak the kernel has seen (VmHWM), not samples; the start includes everything imported.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import mean
from typing import Final

import uvloop
from rich.console import Console
from rich.table import Table

from bench import conditions, report, sites
from bench.errors import BenchError
from bench.figures import Bar
from bench.ground import Ground
from bench.management import fresh_vhost
from bench.options import positive
from bench.race import Course, Run, race
from bench.sites import Site
from deadletter.errors import DeadletterError

LARGE: Final = 1_000_000
SMALL: Final = 50_000
BODY_BYTES: Final = 1000
PREFETCH: Final = 1000
GROWTH_BAR_MB: Final = 60.0
PACE_BAR: Final = 1.3
MB: Final = 1_000_000

DISK_PER_LETTER: Final = 4
"""Body, headers and index of a letter are written in source and target before either is compacted."""
HEADERS_BYTES: Final = 600
DISK_SPARE_BYTES: Final = 2_000 * MB
BROKER_DISK: Final = Path("/tmp")
"""Where private brokers keep their data."""


def main() -> int:
    options = _options()
    console = report.wide_console()
    around = conditions.look(body_bytes=options.body_bytes, prefetch=PREFETCH, rounds=1)
    report.warn_if_busy(console, around.load, around.cores, is_busy=around.is_busy)
    bars: list[Bar] = []
    try:
        for opening in sites.openings(options):
            if not options.url:
                check_disk(options.count, options.body_bytes)
            with opening() as site:
                runs = uvloop.run(_run(console, options, site))
            console.print(_table(runs, options.body_bytes))
            bars += _bars(runs)
    except (BenchError, DeadletterError) as error:
        console.print(f"[red]The measurement broke off:[/] {error}", soft_wrap=True)
        return 2
    except KeyboardInterrupt:
        return 130
    report.show_bars(console, bars)
    return 0 if all(bar.passed for bar in bars) else 1


async def _run(console: Console, options: argparse.Namespace, site: Site) -> list[Run]:
    course = Course(queue_type="classic", body_bytes=options.body_bytes, prefetch=PREFETCH)
    runs: list[Run] = []
    with fresh_vhost(site.url, site.api) as vhost:
        async with Ground.open(vhost) as ground:
            for number, count in enumerate((options.small, options.count, options.small), start=1):
                console.print(f"RabbitMQ {site.version}: filling and moving {count:,} letters …")
                run = await race(
                    ground, course, mover="courier", count=count, broker=site.version, round_number=number
                )
                runs.append(run)
    return runs


def _bars(runs: Sequence[Run]) -> list[Bar]:
    first, large, last = runs
    where = f"RabbitMQ {large.broker}, {large.count:,} letters"
    grown_mb = _grown_mb(large)
    slower = (large.seconds / large.count) / mean((first.seconds / first.count, last.seconds / last.count))
    return [
        Bar(
            what=f"{where}: {grown_mb:.1f} MB above its start at most, allowed {GROWTH_BAR_MB:.0f}",
            passed=grown_mb <= GROWTH_BAR_MB,
        ),
        Bar(
            what=f"{where}: {slower:.2f} × the time per letter of {first.count:,}, allowed {PACE_BAR} ×",
            passed=slower <= PACE_BAR,
        ),
        *(Bar(what=f"{where}: {run.complaint}", passed=False) for run in runs if run.complaint),
    ]


def _table(runs: Sequence[Run], body_bytes: int) -> Table:
    title = (
        f"The courier at length: RabbitMQ {runs[0].broker}, classic queues, bodies of {body_bytes:,} bytes"
    )
    shown = Table(title=title, title_justify="left")
    for name in (
        "letters",
        "seconds",
        "µs/letter",
        "letters/s",
        "CPU µs/letter",
        "RSS at start",
        "peak",
        "grown",
    ):
        shown.add_column(name, justify="right")
    for run in runs:
        shown.add_row(
            f"{run.count:,}",
            f"{run.seconds:.1f}",
            f"{run.seconds / run.count * 1e6:.0f}",
            f"{run.per_s:,.0f}",
            f"{run.cpu_us:.0f}",
            f"{(run.rss_start_bytes or 0) / MB:.1f} MB",
            f"{(run.rss_peak_bytes or 0) / MB:.1f} MB",
            f"{_grown_mb(run):.1f} MB",
        )
    return shown


def _grown_mb(run: Run) -> float:
    assert run.rss_peak_bytes is not None
    assert run.rss_start_bytes is not None
    return (run.rss_peak_bytes - run.rss_start_bytes) / MB


def check_disk(count: int, body_bytes: int) -> None:
    """A full disk makes the broker block its publishers, and the fill would stand still for ever."""
    needed = count * (body_bytes + HEADERS_BYTES) * DISK_PER_LETTER + DISK_SPARE_BYTES
    free = shutil.disk_usage(BROKER_DISK).free
    if free < needed:
        raise BenchError(
            f"{count:,} letters of {body_bytes:,} bytes want {needed / 1e9:.1f} GB on {BROKER_DISK}, "
            f"{free / 1e9:.1f} GB are free; try a smaller --count or --body-bytes"
        )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.memory", description=(__doc__ or "").split("\n")[0]
    )
    sites.add_arguments(parser, default=())
    parser.add_argument("--count", type=positive, default=LARGE, help="the large load (%(default)s)")
    parser.add_argument("--small", type=positive, default=SMALL, help="the small load (%(default)s)")
    parser.add_argument("--body-bytes", type=positive, default=BODY_BYTES, help="(%(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
