"""Whether a change made anything slower: `python -m bench.before_after --before /path/to/another/checkout`.

The move, the intake of `dlq serve` and the consumer library of two checkouts, in one run on one broker, in
turn: after, before, before, after, … so that neither always comes first. What counts is the median of each
one's best third of rounds: others on the machine only ever make a round slower. The ratios round by round are
told beside it. The bar: no slower than 0.97 ×.

    git worktree add ../before REVISION && make -C ../before setup
    python -m bench.before_after --before ../before
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Final, TypeAlias

import uvloop
from rich.console import Console

from bench import conditions, consumer, intake, report, sites
from bench.checkout import HERE, Checkout, checkout_at
from bench.errors import BenchError
from bench.figures import Bar
from bench.ground import Ground, QueueType
from bench.management import fresh_vhost
from bench.options import positive
from bench.race import Course, race
from bench.sites import Site
from deadletter.errors import DeadletterError

BAR: Final = 0.97
PARTS: Final = ("move-classic", "move-quorum", "intake", "consumer-done", "consumer-failing")
BODY_BYTES: Final = 1000
FEW: Final = 2_000

Pace: TypeAlias = tuple[float, float]
"""Letters a second, CPU of the client a letter in microseconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """One round of one part."""

    broker: str
    part: str
    round: int
    before: Pace
    after: Pace

    @property
    def ratio(self) -> float:
        return self.after[0] / self.before[0]


def main() -> int:
    options = _options()
    console = report.wide_console()
    around = conditions.look(body_bytes=BODY_BYTES, prefetch=intake.PREFETCH, rounds=options.rounds)
    report.warn_if_busy(console, around.load, around.cores, is_busy=around.is_busy)
    pairs: list[Pair] = []
    try:
        before = checkout_at(options.before)
        for opening in sites.openings(options):
            with opening() as site:
                for part in options.part or PARTS:
                    pairs += uvloop.run(_measure(console, options, site, part, before))
    except (BenchError, DeadletterError) as error:
        console.print(f"[red]The measurement broke off:[/] {error}", soft_wrap=True)
        return 2
    except KeyboardInterrupt:
        return 130
    bars = _bars(pairs)
    report.show_bars(console, bars)
    if options.json is not None:
        record = {"conditions": asdict(around), "pairs": [{**asdict(p), "ratio": p.ratio} for p in pairs]}
        options.json.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    return 0 if all(bar.passed for bar in bars) else 1


async def _measure(
    console: Console, options: argparse.Namespace, site: Site, part: str, before: Checkout
) -> list[Pair]:
    pace = _pace_of(part)
    for checkout in (before, HERE):
        await pace(site, min(FEW, options.count), checkout)
    found: list[Pair] = []
    for number in range(1, options.rounds + 1):
        if number % 2:
            after = await pace(site, options.count, HERE)
            earlier = await pace(site, options.count, before)
        else:
            earlier = await pace(site, options.count, before)
            after = await pace(site, options.count, HERE)
        pair = Pair(broker=site.version, part=part, round=number, before=earlier, after=after)
        found.append(pair)
        console.print(
            f"{site.version:8} {part:17} round {number}  before {earlier[0]:7,.0f}/s {earlier[1]:4.0f} µs   "
            f"after {after[0]:7,.0f}/s {after[1]:4.0f} µs   {pair.ratio:.2f} ×",
            soft_wrap=True,
            highlight=False,
        )
    return found


def _pace_of(part: str) -> Callable[[Site, int, Checkout], Awaitable[Pace]]:
    match part:
        case "move-classic":
            return lambda site, count, checkout: _move(site, "classic", count, checkout)
        case "move-quorum":
            return lambda site, count, checkout: _move(site, "quorum", count, checkout)
        case "intake":
            return lambda site, count, checkout: intake.take_in(site, count, BODY_BYTES, checkout)
        case "consumer-done" | "consumer-failing":
            return lambda site, count, checkout: _consume(
                site, part.removeprefix("consumer-"), count, checkout
            )
        case _:
            raise BenchError(f"expected one of {', '.join(PARTS)}, got {part!r}")


async def _move(site: Site, queue_type: QueueType, count: int, checkout: Checkout) -> Pace:
    course = Course(queue_type=queue_type, body_bytes=BODY_BYTES, prefetch=intake.PREFETCH)
    with fresh_vhost(site.url, site.api) as vhost:
        async with Ground.open(vhost, site) as ground:
            run = await race(
                ground,
                course,
                mover="courier",
                count=count,
                broker=site.version,
                round_number=0,
                checkout=checkout,
            )
    if run.complaint is not None or run.cpu_us is None:
        raise BenchError(f"a move of {checkout.path} does not count: {run.complaint}")
    return run.per_s, run.cpu_us


async def _consume(site: Site, part: str, count: int, checkout: Checkout) -> Pace:
    run = await consumer.run_once(site, part, consumer.OURS, 0, count, BODY_BYTES, checkout)
    if run.complaint is not None:
        raise BenchError(f"a consumer of {checkout.path} does not count: {run.complaint}")
    return run.per_s, run.cpu_us


def _bars(pairs: Sequence[Pair]) -> list[Bar]:
    bars: list[Bar] = []
    for broker, part in dict.fromkeys((pair.broker, pair.part) for pair in pairs):
        mine = [pair for pair in pairs if (pair.broker, pair.part) == (broker, part)]
        ratios = sorted(pair.ratio for pair in mine)
        ratio = median(ratios)
        best = _best(pair.after[0] for pair in mine) / _best(pair.before[0] for pair in mine)
        cpu = min(pair.after[1] for pair in mine) / min(pair.before[1] for pair in mine)
        what = (
            f"RabbitMQ {broker}, {part}: {best:.2f} × the pace before in the best rounds of each, "
            f"{cpu:.2f} × the least CPU; round by round {ratio:.2f} × ({ratios[0]:.2f}–{ratios[-1]:.2f}); "
            f"needed at least {BAR} ×"
        )
        bars.append(Bar(what=what, passed=best >= BAR))
    return bars


def _best(paces: Iterable[float]) -> float:
    """The median of the best third: whoever else uses the machine only ever makes it slower, and often."""
    found = sorted(paces, reverse=True)
    return median(found[: max(1, len(found) // 3)])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.before_after", description=(__doc__ or "").split("\n")[0]
    )
    sites.add_arguments(parser, default=("3.10", "4.3"))
    parser.add_argument("--before", type=Path, required=True, help="the checkout to compare with, set up")
    parser.add_argument("--part", action="append", choices=PARTS, help="only this; may be repeated")
    parser.add_argument("--count", type=positive, default=30_000, help="letters of a run (%(default)s)")
    parser.add_argument("--rounds", type=positive, default=12, help="(%(default)s)")
    parser.add_argument("--json", type=Path, help="every round, into this file")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
