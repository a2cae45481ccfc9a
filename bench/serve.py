"""What `dlq serve` promises, measured: `python -m bench.serve`.

Five parts, each with a bar: how fast letters are taken in beside the plain move (`intake`), how late a letter
comes back, one at a time and ten thousand together (`lateness`), what the service costs while nothing
happens, and whether its memory stays flat (`upkeep`). The service runs in a process of its own, as a user
starts it.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import uvloop
from rich.console import Console

from bench import conditions, intake, lateness, report, sites, upkeep
from bench.agreement import most_rounds
from bench.errors import BenchError
from bench.figures import Bar, exit_code
from bench.options import add_rounds, positive
from bench.sites import Site
from deadletter.errors import DeadletterError

PARTS: Final = ("intake", "single", "mixed", "idle", "soak")
RESULTS: Final = Path(__file__).resolve().parent / "results"


def main() -> int:
    options = _options()
    console = report.wide_console()
    around = conditions.look(body_bytes=options.body_bytes, prefetch=intake.PREFETCH, rounds=options.rounds)
    report.warn_if_busy(console, around.load, around.cores, is_busy=around.is_busy)
    figures: list[dict[str, Any]] = []
    bars: list[Bar] = []
    try:
        for opening in sites.openings(options):
            with opening() as site:
                for part in options.part or PARTS:
                    found, kept = uvloop.run(_measure(console, options, site, part, around.busy))
                    figures.append({"broker": site.version, "part": part, "figures": found})
                    bars += kept
    except (BenchError, DeadletterError) as error:
        console.print(f"[red]The measurement broke off:[/] {error}", soft_wrap=True)
        return 2
    except KeyboardInterrupt:
        return 130
    report.show_bars(console, bars)
    record = {"conditions": asdict(around), "bars": [asdict(bar) for bar in bars], "parts": figures}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    console.print(f"\nFigures: {options.json}", soft_wrap=True, highlight=False)
    return exit_code(bars)


async def _measure(
    console: Console, options: argparse.Namespace, site: Site, part: str, busy: str
) -> tuple[list[dict[str, Any]], list[Bar]]:
    def say(line: str) -> None:
        console.print(f"{site.version:8} {line}", soft_wrap=True, highlight=False)

    size = options.body_bytes
    match part:
        case "intake":
            rounds, bars = await intake.measure(
                site,
                count=options.count,
                rounds=options.rounds,
                most=options.most_rounds,
                body_bytes=size,
                busy=busy,
                say=say,
            )
            return [{**asdict(one), "ratio": one.ratio} for one in rounds], bars
        case "single":
            late, bars = await lateness.single(site, letters=options.single, body_bytes=size, say=say)
            return [asdict(late)], bars
        case "mixed":
            late, bars = await lateness.mixed(site, letters=options.mixed, body_bytes=size, say=say)
            return [asdict(late)], bars
        case "idle":
            idle, bars = await upkeep.idle(site, queues=options.queues, seconds=options.idle_s, say=say)
            return [asdict(one) for one in idle], bars
        case "soak":
            soak, bars = await upkeep.soak(site, letters=options.letters, body_bytes=size, say=say)
            return [{**asdict(soak), "growth": soak.growth}], bars
        case _:
            raise BenchError(f"expected one of {', '.join(PARTS)}, got {part!r}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.serve", description=(__doc__ or "").split("\n")[0])
    sites.add_arguments(parser, default=("3.10", "4.3"))
    parser.add_argument("--part", action="append", choices=PARTS, help="only this; may be repeated")
    parser.add_argument(
        "--count", type=positive, default=50_000, help="letters of a round of intake (%(default)s)"
    )
    add_rounds(parser)
    parser.add_argument("--single", type=positive, default=300, help="letters one at a time (%(default)s)")
    parser.add_argument(
        "--mixed", type=positive, default=10_000, help="letters with mixed delays (%(default)s)"
    )
    parser.add_argument("--queues", type=positive, default=200, help="watched while idle (%(default)s)")
    parser.add_argument("--idle-s", type=positive, default=60, help="seconds of being idle (%(default)s)")
    parser.add_argument("--letters", type=positive, default=500_000, help="of the soak (%(default)s)")
    parser.add_argument("--body-bytes", type=positive, default=1000, help="(%(default)s)")
    parser.add_argument("--json", type=Path, default=RESULTS / "serve.json", help="the figures (%(default)s)")
    options = parser.parse_args()
    options.most_rounds = most_rounds(options.rounds, options.most_rounds)
    return options


if __name__ == "__main__":
    sys.exit(main())
