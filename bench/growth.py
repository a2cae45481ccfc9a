"""What grows with what: `python -m bench.growth`.

The same work at sizes that are far apart, on one broker: a move of 1,000 to 1,000,000 letters, `dlq serve`
with 20 to 2,000 watched queues and with 1 to 50 vhosts, `dlq doctor` on 1,000 and 10,000 queues. A line that
stays level is a cost per letter that does not depend on how many there are; a line that climbs says where it
ends. Two bars: 2,000 watched queues are ready within 4 seconds, and cost less than 1.5 % of a core while
nothing happens.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import asdict, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

import uvloop

from bench import conditions, doctor, growth_chart, memory, quiet, report, sites, upkeep
from bench.errors import BenchError
from bench.figures import exit_code
from bench.ground import Ground
from bench.growth_figures import PARTS, Point, bars, table
from bench.listening import Ears
from bench.management import Vhost, fresh_vhost
from bench.options import positive
from bench.race import Course, race
from bench.serving import serving
from bench.sites import Site
from deadletter.errors import DeadletterError

SIZES: Final = {
    "letters": (1_000, 10_000, 100_000, 1_000_000),
    "queues": (20, 200, 2_000),
    "vhosts": (1, 10, 50),
    "doctor": (1_000, 10_000),
}
BODY_BYTES: Final = 1000
PREFETCH: Final = 1000
WARM_UP: Final = 1000
ROUNDS: Final = 3
MANY: Final = 500_000
"""From so many letters on, one round is enough: they are many rounds in themselves."""
BINDINGS_EACH: Final = 3
RESULTS: Final = Path(__file__).resolve().parent / "results"

Say = Callable[[str], None]


def main() -> int:
    options = _options()
    console = report.wide_console()
    around = conditions.look(body_bytes=BODY_BYTES, prefetch=PREFETCH, rounds=options.rounds)
    report.warn_if_busy(console, around.load, around.cores, is_busy=around.is_busy)
    points: list[Point] = []

    def say(line: str) -> None:
        console.print(line, soft_wrap=True, highlight=False, markup=False)

    try:
        (opening,) = sites.openings(options)
        with opening() as site:
            around = replace(around, brokers=(f"RabbitMQ {site.version} on Erlang {site.erlang}",))
            for part in options.part or PARTS:
                points += uvloop.run(_measure(options, site, part, say))
    except (BenchError, DeadletterError) as error:
        console.print(f"[red]The measurement broke off:[/] {error}", soft_wrap=True)
        return 2
    except KeyboardInterrupt:
        return 130
    found = bars(points, busy=around.busy)
    console.print(table(points, busy=around.busy))
    say(f"{around.machine}.")
    report.show_bars(console, found)
    options.svg.write_text(growth_chart.draw(points, around), encoding="utf-8")
    record = {
        "conditions": asdict(around),
        "bars": [asdict(bar) for bar in found],
        "points": [asdict(point) for point in points],
    }
    options.json.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    say(f"\nPicture: {options.svg}\nFigures: {options.json}")
    return exit_code(found)


async def _measure(options: argparse.Namespace, site: Site, part: str, say: Say) -> list[Point]:
    ears = Ears(site.pid)
    sizes: Sequence[int] = getattr(options, part) or SIZES[part]
    points: list[Point] = []
    for size in sizes:
        before, mark = await ears.before(), ears.mark()
        match part:
            case "letters":
                figures = await _letters(options, site, size)
            case "queues":
                figures = await _service(site, vhosts=1, queues=size, seconds=options.idle_s)
            case "vhosts":
                figures = await _service(site, vhosts=size, queues=1, seconds=options.idle_s)
            case "doctor":
                figures = await asyncio.to_thread(_doctor, size, options.rounds)
            case _:
                raise BenchError(f"expected one of {', '.join(PARTS)}, got {part!r}")
        noise = quiet.noise(ears.since(mark, before))
        point = Point(part=part, size=size, figures=figures, noise=noise)
        points.append(point)
        say(str(point))
    return points


async def _letters(options: argparse.Namespace, site: Site, count: int) -> dict[str, float]:
    if not options.url:
        memory.check_disk(count, BODY_BYTES)
    course = Course(queue_type="classic", body_bytes=BODY_BYTES, prefetch=PREFETCH)
    with fresh_vhost(site.url, site.api) as vhost:
        async with Ground.open(vhost) as ground:
            runs = [
                await race(
                    ground, course, mover="courier", count=many, broker=site.version, round_number=number
                )
                for number, many in enumerate([WARM_UP, *[count] * (1 if count >= MANY else options.rounds)])
            ][1:]
    for run in runs:
        if run.complaint:
            raise BenchError(f"a move of {count:,} letters does not count: {run.complaint}")
    return {
        "CPU µs/letter": median(run.cpu_us or 0.0 for run in runs),
        "µs/letter": median(run.seconds / run.count for run in runs) * 1e6,
        "MB above start": max((run.rss_peak_bytes or 0) - (run.rss_start_bytes or 0) for run in runs) / 1e6,
    }


async def _service(site: Site, *, vhosts: int, queues: int, seconds: float) -> dict[str, float]:
    """So many watched queues in each of so many vhosts, all empty."""
    found: dict[str, float] = {}
    async with (
        _watched(site, vhosts, queues) as (first, settings),
        serving(first, settings) as service,
    ):
        await asyncio.sleep(upkeep.SETTLE_S)
        idle = await upkeep.watch_idle(service, queues, seconds)
        found.update(
            {
                "ready s": service.ready_after_s,
                "idle % of a core": idle.share * 100,
                "MB": service.rss_bytes / 1e6,
            }
        )
    return found


@asynccontextmanager
async def _watched(site: Site, vhosts: int, queues: int) -> AsyncIterator[tuple[Vhost, str]]:
    async with AsyncExitStack() as stack:
        made = [stack.enter_context(fresh_vhost(site.url, site.api)) for _ in range(vhosts)]
        for vhost in made:
            await upkeep.declare_queues(vhost, queues)
        yield made[0], "".join(f'{upkeep.IDLE_WATCH}vhost = "{vhost.name}"\n' for vhost in made)


def _doctor(queues: int, rounds: int) -> dict[str, float]:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "definitions.json"
        path.write_text(json.dumps(doctor.definitions(queues, BINDINGS_EACH * queues)))
        runs = [doctor.examine(path) for _ in range(rounds)]
    return {
        "s": median(run.seconds for run in runs),
        "CPU s": median(run.cpu_s for run in runs),
        "MB": max(run.peak_mb for run in runs),
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.growth", description=(__doc__ or "").split("\n")[0]
    )
    sites.add_arguments(parser, default=("4.3",))
    parser.add_argument("--part", action="append", choices=PARTS, help="only this; may be repeated")
    for part, sizes in SIZES.items():
        said = ", ".join(f"{size:,}" for size in sizes)
        parser.add_argument(
            f"--{part}",
            action="append",
            type=positive,
            metavar="N",
            help=f"this size; may be repeated ({said})",
        )
    parser.add_argument("--rounds", type=positive, default=ROUNDS, help="of moves and doctors (%(default)s)")
    parser.add_argument("--idle-s", type=positive, default=30, help="seconds of being idle (%(default)s)")
    parser.add_argument("--json", type=Path, default=RESULTS / "growth.json", help="figures (%(default)s)")
    parser.add_argument("--svg", type=Path, default=RESULTS / "growth.svg", help="picture (%(default)s)")
    options = parser.parse_args()
    if len(options.broker or ()) > 1:
        parser.error("expected one --broker: a picture is of one")
    return options


if __name__ == "__main__":
    sys.exit(main())
