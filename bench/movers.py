"""The courier beside what else moves letters, in one run: `python -m bench.movers`, which is `make bench`.

On each broker and for each queue type, round after round: every mover moves the same letters, one mover at a
time. Those that are compared run there and back in each round, so that nobody always comes first and each is
the other's neighbour twice. Rounds go on until the ratios agree, within a bound. Then the table, the bars
(exit code 1 when one is red, 3 when none is and the figures are not quotable), the picture, the raw runs, and
the table for a page.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

import uvloop
from rich.console import Console
from rich.markup import escape

from bench import chart, conditions, figures, markdown, report, sites
from bench.agreement import most_rounds
from bench.errors import BenchError
from bench.ground import Ground, QueueType
from bench.listening import Ears
from bench.management import fresh_vhost
from bench.options import add_rounds, positive
from bench.race import Course, Run, race
from bench.racers import MOVERS, SHOVEL_PREFETCH
from bench.sites import Site
from deadletter.cli.plain_words import WINDOW
from deadletter.errors import DeadletterError

COUNT: Final = figures.BAR_COUNT
SLOW: Final = {"aio-pika": 10_000, "checker": 2_000}
"""Movers that would take minutes: at most so many letters. Their pace does not depend on the depth."""
BODY_BYTES: Final = 1000
PREFETCH: Final = WINDOW
"""That of `dlq move`, which nobody gives it; so the courier, the limit and the others have it too."""
WARM_UP: Final = 1000
RESULTS: Final = Path(__file__).resolve().parent / "results"
QUEUE_TYPES: Final[tuple[QueueType, ...]] = ("classic", "quorum")


def main() -> int:
    options = _options()
    console = report.wide_console()
    around = conditions.look(body_bytes=options.body_bytes, prefetch=PREFETCH, rounds=options.rounds)
    around = replace(around, most_rounds=options.most_rounds, shovel_prefetch=SHOVEL_PREFETCH)
    report.warn_if_busy(console, around.load, around.cores, is_busy=around.is_busy)
    runs: list[Run] = []
    try:
        if options.readme is not None:  # before half an hour of measuring, not after it
            markdown.replaced(_read(options.readme), "")
        for opening in sites.openings(options):
            with opening() as site:
                met = f"RabbitMQ {site.version} on Erlang {site.erlang}"
                around = replace(around, brokers=(*around.brokers, met))
                for queue_type in options.type or QUEUE_TYPES:
                    runs += uvloop.run(_rounds(console, options, site, queue_type))
    except (BenchError, DeadletterError) as error:
        console.print(f"[red]The measurement broke off:[/] {error}", soft_wrap=True)
        return 2
    except KeyboardInterrupt:
        return 130
    table = figures.rows(runs, busy=around.busy)
    bars = figures.bars(table)
    report.show_movers(console, around, table, bars)
    _write(options.svg, chart.draw(table, around))
    record = {
        "conditions": asdict(around),
        "bars": [asdict(bar) for bar in bars],
        "rows": [{**asdict(row), "quotable": row.quotable} for row in table],
        "runs": [{**asdict(run), "noise": run.noise} for run in runs],
    }
    _write(options.json, json.dumps(record, indent=2, ensure_ascii=False) + "\n")
    console.print(f"\nPicture: {options.svg}\nRuns: {options.json}", soft_wrap=True, highlight=False)
    if options.readme is not None:
        page = markdown.replaced(_read(options.readme), markdown.table(table, around))
        options.readme.write_text(page, encoding="utf-8")
        console.print(f"Table: {options.readme}", soft_wrap=True, highlight=False)
    return figures.exit_code(bars)


async def _rounds(
    console: Console, options: argparse.Namespace, site: Site, queue_type: QueueType
) -> list[Run]:
    """Until the rounds agree; from the least number on only those that a bar needs."""
    course = Course(queue_type=queue_type, body_bytes=options.body_bytes, prefetch=PREFETCH)
    movers: Sequence[str] = options.mover or MOVERS
    ears = Ears(site.pid)
    runs: list[Run] = []
    with fresh_vhost(site.url, site.api) as vhost:
        async with Ground.open(vhost, site) as ground:
            for mover in movers:  # a broker loads the code it has not needed yet; that is not ours to measure
                few = min(WARM_UP, _count(options, mover))
                await race(ground, course, mover=mover, count=few, broker=site.version, round_number=0)
            for number in range(1, options.most_rounds + 1):
                if number > options.rounds and figures.settled(runs):
                    break
                for mover in _order(movers, number, company=number <= options.rounds):
                    run = await race(
                        ground,
                        course,
                        mover=mover,
                        count=_count(options, mover),
                        broker=site.version,
                        round_number=number,
                        ears=ears,
                    )
                    runs.append(run)
                    console.print(_line(run), soft_wrap=True, highlight=False)
    # In the order asked for, whichever way the rounds went.
    return sorted(runs, key=lambda run: (run.round, movers.index(run.mover)))


def _order(movers: Sequence[str], number: int, *, company: bool) -> list[str]:
    """Of one round: there, the others between, and back; every other round begins at the other end."""
    there = [mover for mover in movers if mover in figures.JUDGED]
    if number % 2 == 0:
        there.reverse()
    between = [mover for mover in movers if company and mover not in figures.JUDGED]
    return [*there, *between, *reversed(there)]


def _count(options: argparse.Namespace, mover: str) -> int:
    slow: dict[str, int] = {"aio-pika": options.aio_pika_count, "checker": options.checker_count}
    count: int = options.count
    return min(count, slow.get(mover, count))


def _line(run: Run) -> str:
    cpu = "" if run.cpu_us is None else f"  {run.cpu_us:6.1f} µs CPU/letter"
    complaint = "" if run.complaint is None else f"  [red]{run.complaint}[/]"
    noise = "" if not run.noise else f"  [yellow]not quiet: {escape('; '.join(run.noise))}[/]"
    return (
        f"{run.broker:8} {run.queue_type:8} round {run.round}  {run.mover:9}"
        f"{run.per_s:10,.0f} letters/s{cpu}{complaint}{noise}"
    )


def _read(page: Path) -> str:
    try:
        return page.read_text(encoding="utf-8")
    except OSError as error:
        raise BenchError(f"cannot read {page}: {error.strerror}") from None


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
    add_rounds(parser)
    parser.add_argument("--body-bytes", type=positive, default=BODY_BYTES, help="(%(default)s)")
    parser.add_argument("--json", type=Path, default=RESULTS / "movers.json", help="every run (%(default)s)")
    parser.add_argument("--svg", type=Path, default=RESULTS / "movers.svg", help="picture (%(default)s)")
    parser.add_argument(
        "--readme",
        type=Path,
        help=f"put the table into this page, between {markdown.BEGIN} and {markdown.END}",
    )
    options = parser.parse_args()
    options.most_rounds = most_rounds(options.rounds, options.most_rounds)
    return options


if __name__ == "__main__":
    sys.exit(main())
