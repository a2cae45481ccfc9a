"""Confirmed publishes, measured: `python -m bench.publish`.

The same orders, mandatory, persistent and confirmed one by one, into a quorum queue: `app.publish` beside
aio-pika, FastStream and pika's blocking channel, each in a process of its own, one after the other, each in a
fresh vhost. With so many tasks at once (`at-once`), and with a single one (`alone`), where the broker's
answer is all there is to wait for.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Final

import uvloop
from rich.console import Console
from rich.table import Table

from bench import conditions, report, sites
from bench.checkout import HERE
from bench.errors import BenchError
from bench.figures import Bar
from bench.management import fresh_vhost
from bench.options import positive
from bench.publishers import PUBLISHERS, QUEUE
from bench.sites import Site
from deadletter.amqp.address import parse_addresses
from deadletter.amqp.handshake import connect
from deadletter.errors import DeadletterError

OURS: Final = "ours"
PARTS: Final = {"at-once": 100, "alone": 1}
"""How many tasks publish."""
BARS: Final = {"at-once": {"aio-pika": 3.0, "faststream": 3.0, "pika": 3.0}, "alone": {"aio-pika": 0.9}}
RESULTS: Final = Path(__file__).resolve().parent / "results"
SLOWEST_PER_S: Final = 50
START_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishRun:
    """One publisher, once."""

    broker: str
    part: str
    publisher: str
    round: int
    count: int
    seconds: float
    cpu_us: float
    """Of the client's process, a message."""
    complaint: str | None = None

    @property
    def per_s(self) -> float:
        return self.count / self.seconds


def main() -> int:
    options = _options()
    console = report.wide_console()
    around = conditions.look(body_bytes=options.body_bytes, prefetch=0, rounds=options.rounds)
    report.warn_if_busy(console, around.load, around.cores, is_busy=around.is_busy)
    runs: list[PublishRun] = []
    try:
        for opening in sites.openings(options):
            with opening() as site:
                for part in options.part or PARTS:
                    runs += uvloop.run(_measure(console, options, site, part))
    except (BenchError, DeadletterError) as error:
        console.print(f"[red]The measurement broke off:[/] {error}", soft_wrap=True)
        return 2
    except KeyboardInterrupt:
        return 130
    console.print(_table(runs))
    bars = list(_bars(runs))
    report.show_bars(console, bars)
    record = {
        "conditions": asdict(around),
        "bars": [asdict(bar) for bar in bars],
        "runs": [{**asdict(run), "per_s": run.per_s} for run in runs],
    }
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    console.print(f"\nFigures: {options.json}", soft_wrap=True, highlight=False)
    return 0 if all(bar.passed for bar in bars) else 1


async def _measure(console: Console, options: argparse.Namespace, site: Site, part: str) -> list[PublishRun]:
    """Rounds, every other one backwards."""
    count = options.count if part == "at-once" else max(1, options.count // 20)
    found: list[PublishRun] = []
    for number in range(1, options.rounds + 1):
        for publisher in list(PUBLISHERS) if number % 2 else list(PUBLISHERS)[::-1]:
            run = await run_once(site, part, publisher, number, count, options.body_bytes)
            found.append(run)
            console.print(
                f"{site.version:8} {part:8} round {number}  {publisher:11} {run.per_s:7,.0f}/s   "
                f"{run.cpu_us:4.0f} µs CPU/message   {run.complaint or ''}",
                soft_wrap=True,
                highlight=False,
            )
    return found


async def run_once(
    site: Site, part: str, publisher: str, number: int, count: int, body_bytes: int
) -> PublishRun:
    """One publisher, so many messages, in a fresh vhost."""
    with fresh_vhost(site.url, site.api) as vhost:
        connection = await connect(parse_addresses(vhost.url)[0], name="bench: ground")
        try:
            channel = await connection.channel()
            await channel.declare_queue(QUEUE, arguments={"x-queue-type": "quorum"})
            told = await _publish(publisher, vhost.url, count, PARTS[part], body_bytes)
            there = (await channel.declare_queue(QUEUE, passive=True)).message_count
        finally:
            await connection.close()
    return PublishRun(
        broker=site.version,
        part=part,
        publisher=publisher,
        round=number,
        count=count,
        seconds=told["seconds"],
        cpu_us=told["cpu_s"] / count * 1e6,
        complaint=None if there == count + 1 else f"expected {count + 1:,} in the queue, got {there:,}",
    )


async def _publish(publisher: str, url: str, count: int, tasks: int, body_bytes: int) -> dict[str, float]:
    process = await asyncio.create_subprocess_exec(
        str(HERE.python), "-m", "bench.publishers", publisher, url, str(count), str(tasks), str(body_bytes),
        stdout=PIPE, cwd=HERE.path,
    )  # fmt: skip
    limit_s = START_S + count / SLOWEST_PER_S
    try:
        async with asyncio.timeout(limit_s):
            said, _ = await process.communicate()
    except TimeoutError:
        raise BenchError(f"{publisher} did not publish {count:,} messages in {limit_s:.0f} s") from None
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    if process.returncode != 0:
        raise BenchError(f"{publisher} failed; see what it said above")
    found: dict[str, float] = json.loads(said)
    return found


def _ratios(runs: Sequence[PublishRun], broker: str, part: str, other: str) -> list[float]:
    """Ours to the other's pace within each round: what made both slow at the time cancels out."""
    pace = {(run.publisher, run.round): run.per_s for run in runs if (run.broker, run.part) == (broker, part)}
    return [per_s / pace[other, number] for (publisher, number), per_s in pace.items() if publisher == OURS]


def _bars(runs: Sequence[PublishRun]) -> Iterator[Bar]:
    for broker, part in dict.fromkeys((run.broker, run.part) for run in runs):
        for other, needed in BARS[part].items():
            ratio = median(_ratios(runs, broker, part, other))
            what = f"RabbitMQ {broker}, {part}: {ratio:.2f} × {other}, needed at least {needed:.1f} ×"
            yield Bar(what=what, passed=ratio >= needed)
    for run in runs:
        if run.complaint:
            what = f"RabbitMQ {run.broker}, {run.part}, {run.publisher}, round {run.round}: {run.complaint}"
            yield Bar(what=what, passed=False)


def _table(runs: Sequence[PublishRun]) -> Table:
    shown = Table(title="Confirmed publishes, 1 kB of JSON, quorum queue", title_justify="left")
    for name in ("RabbitMQ", "part", "publisher"):
        shown.add_column(name)
    for name in ("messages/s", "(range)", "ours ×", "CPU µs/message"):
        shown.add_column(name, justify="right", no_wrap=True)
    for broker, part, publisher in dict.fromkeys((run.broker, run.part, run.publisher) for run in runs):
        mine = [run for run in runs if (run.broker, run.part, run.publisher) == (broker, part, publisher)]
        paces = [run.per_s for run in mine]
        shown.add_row(
            broker,
            part,
            publisher,
            f"{median(paces):,.0f}",
            f"{min(paces):,.0f}–{max(paces):,.0f}",
            "–" if publisher == OURS else f"{median(_ratios(runs, broker, part, publisher)):.2f}",
            f"{median([run.cpu_us for run in mine]):.0f}",
            style="bold" if publisher == OURS else "",
        )
    return shown


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.publish", description=(__doc__ or "").split("\n")[0]
    )
    sites.add_arguments(parser, default=("3.10", "4.3"))
    parser.add_argument("--part", action="append", choices=tuple(PARTS), help="only this; may be repeated")
    parser.add_argument("--count", type=positive, default=20_000, help="messages of a run (%(default)s)")
    parser.add_argument("--rounds", type=positive, default=3, help="(%(default)s)")
    parser.add_argument("--body-bytes", type=positive, default=1000, help="(%(default)s)")
    parser.add_argument(
        "--json", type=Path, default=RESULTS / "publish.json", help="the figures (%(default)s)"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
