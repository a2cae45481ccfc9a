"""The courier beside what else moves letters, in one run: `python -m bench.movers`, which is `make bench`.

On each broker and for each queue type, round after round: every mover moves the same letters, one mover at a
time. Every other round goes backwards, so that nobody always comes first, and the courier and the shovel stay
neighbours. Then the table, the bars (exit code 1 when one is red), the picture and the raw runs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

import uvloop
from rich.console import Console

from bench import chart, conditions, figures, report, sites
from bench.errors import BenchError
from bench.ground import Ground, QueueType
from bench.management import fresh_vhost
from bench.options import positive
from bench.race import Course, Run, race
from bench.racers import MOVERS
from bench.sites import Site
from deadletter.errors import DeadletterError

COUNT: Final = 50_000
SLOW: Final = {"aio-pika": 10_000, "checker": 2_000}
"""Movers that would take minutes: at most so many letters. Their pace does not depend on the depth."""
ROUNDS: Final = 3
BODY_BYTES: Final = 1000
PREFETCH: Final = 1000
WARM_UP: Final = 1000
RESULTS: Final = Path(__file__).resolve().parent / "results"
QUEUE_TYPES: Final[tuple[QueueType, ...]] = ("classic", "quorum")


def main() -> int:
    options = _options()
    console = report.wide_console()
    around = conditions.look(body_bytes=options.body_bytes, prefetch=PREFETCH, rounds=options.rounds)
    report.warn_if_busy(console, around.load, around.cores, is_busy=around.is_busy)
    runs: list[Run] = []
    try:
        for opening in sites.openings(options):
            with opening() as site:
                for queue_type in options.type or QUEUE_TYPES:
                    runs += uvloop.run(_rounds(console, options, site, queue_type))
    except (BenchError, DeadletterError) as error:
        console.print(f"[red]The measurement broke off:[/] {error}", soft_wrap=True)
        return 2
    except KeyboardInterrupt:
        return 130
    table = figures.rows(runs)
    bars = figures.bars(table)
    report.show_movers(console, around, table, bars)
    _write(options.svg, chart.draw(table, around))
    record = {
        "conditions": asdict(around),
        "bars": [asdict(bar) for bar in bars],
        "rows": [asdict(row) for row in table],
        "runs": [asdict(run) for run in runs],
    }
    _write(options.json, json.dumps(record, indent=2, ensure_ascii=False) + "\n")
    console.print(f"\nPicture: {options.svg}\nRuns: {options.json}", soft_wrap=True, highlight=False)
    return 0 if all(bar.passed for bar in bars) else 1


async def _rounds(
    console: Console, options: argparse.Namespace, site: Site, queue_type: QueueType
) -> list[Run]:
    course = Course(queue_type=queue_type, body_bytes=options.body_bytes, prefetch=PREFETCH)
    movers: Sequence[str] = options.mover or MOVERS
    runs: list[Run] = []
    with fresh_vhost(site.url, site.api) as vhost:
        async with Ground.open(vhost) as ground:
            for mover in movers:  # a broker loads the code it has not needed yet; that is not ours to measure
                few = min(WARM_UP, _count(options, mover))
                await race(ground, course, mover=mover, count=few, broker=site.version, round_number=0)
            for number in range(1, options.rounds + 1):
                for mover in movers if number % 2 else reversed(movers):
                    run = await race(
                        ground,
                        course,
                        mover=mover,
                        count=_count(options, mover),
                        broker=site.version,
                        round_number=number,
                    )
                    runs.append(run)
                    console.print(_line(run), soft_wrap=True, highlight=False)
    # In the order asked for, also when the last round went backwards.
    return sorted(runs, key=lambda run: (run.round, movers.index(run.mover)))


def _count(options: argparse.Namespace, mover: str) -> int:
    slow: dict[str, int] = {"aio-pika": options.aio_pika_count, "checker": options.checker_count}
    count: int = options.count
    return min(count, slow.get(mover, count))


def _line(run: Run) -> str:
    cpu = "" if run.cpu_us is None else f"  {run.cpu_us:6.0f} µs CPU/letter"
    complaint = "" if run.complaint is None else f"  [red]{run.complaint}[/]"
    return (
        f"{run.broker:8} {run.queue_type:8} round {run.round}  {run.mover:9}"
        f"{run.per_s:10,.0f} letters/s{cpu}{complaint}"
    )


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.movers", description=(__doc__ or "").split("\n")[0]
    )
    sites.add_arguments(parser, default=("3.10", "4.3"))
    parser.add_argument("--type", action="append", choices=QUEUE_TYPES, help="only this queue type")
    parser.add_argument("--mover", action="append", choices=MOVERS, help="only this mover; may be repeated")
    parser.add_argument("--count", type=positive, default=COUNT, help="letters per run (%(default)s)")
    for mover, most in SLOW.items():
        parser.add_argument(
            f"--{mover}-count", type=positive, default=most, help=f"at most, for {mover} (%(default)s)"
        )
    parser.add_argument("--rounds", type=positive, default=ROUNDS, help="(%(default)s)")
    parser.add_argument("--body-bytes", type=positive, default=BODY_BYTES, help="(%(default)s)")
    parser.add_argument("--json", type=Path, default=RESULTS / "movers.json", help="every run (%(default)s)")
    parser.add_argument("--svg", type=Path, default=RESULTS / "movers.svg", help="picture (%(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
