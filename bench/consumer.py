"""What the consumer library promises, measured: `python -m bench.consumer`.

The same handler on the same messages: ours, aio-pika, FastStream and pika's blocking consumer, each in a
process of its own, one after the other, each in a fresh vhost. Two parts: nothing fails (`done`), and every
tenth fails into a retry (`failing`).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
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
from bench.checkout import HERE, Checkout
from bench.errors import BenchError
from bench.figures import Bar
from bench.handlers.task import DELAY_S, QUEUE, RETRY, Task, Told
from bench.management import Vhost, fresh_vhost
from bench.options import positive
from bench.sites import Site
from deadletter.amqp.address import parse_addresses
from deadletter.amqp.channel import Channel
from deadletter.amqp.handshake import connect
from deadletter.amqp.publisher import publish_all
from deadletter.core.layouts.naming import level_name
from deadletter.core.letter.message import RawMessage, View, encode
from deadletter.errors import DeadletterError

OURS: Final = "ours"
CONSUMERS: Final = (OURS, "aio-pika", "faststream", "pika")
PARTS: Final = {"done": 0, "failing": 10}
"""Every so many-th message fails."""
BARS: Final = {
    "done": {"aio-pika": 3.0, "faststream": 3.0, "pika": 1.5},
    "failing": {"aio-pika": 2.5, "faststream": 2.5, "pika": 2.5},
}
RESULTS: Final = Path(__file__).resolve().parent / "results"
PREFETCH: Final = 200
SLOWEST_PER_S: Final = 200
START_S: Final = 60.0
SETTLE_S: Final = 1.0
"""Between filling and handling: the broker finishes writing what it has confirmed."""
COUNTED_S: Final = 20.0
_PROPERTIES: Final = encode(
    View(delivery_mode=2, content_type="application/json", headers={"tenant": "acme"})
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One consumer, once."""

    broker: str
    part: str
    consumer: str
    round: int
    count: int
    seconds: float
    """From the first call of the handler to the last."""
    cpu_us: float
    """Of the client's process, a message."""
    complaint: str | None = None
    """Why this run does not count, if it does not."""

    @property
    def per_s(self) -> float:
        return self.count / self.seconds


def main() -> int:
    options = _options()
    console = report.wide_console()
    around = conditions.look(body_bytes=options.body_bytes, prefetch=PREFETCH, rounds=options.rounds)
    report.warn_if_busy(console, around.load, around.cores, is_busy=around.is_busy)
    runs: list[Run] = []
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


async def _measure(console: Console, options: argparse.Namespace, site: Site, part: str) -> list[Run]:
    """Rounds, every other one backwards, after one that is not counted."""
    few = min(1_000, options.count)
    for consumer in CONSUMERS:
        await run_once(site, part, consumer, 0, few, options.body_bytes)
    found: list[Run] = []
    for number in range(1, options.rounds + 1):
        for consumer in CONSUMERS if number % 2 else CONSUMERS[::-1]:
            run = await run_once(site, part, consumer, number, options.count, options.body_bytes)
            found.append(run)
            console.print(
                f"{site.version:8} {part:8} round {number}  {consumer:11} {run.per_s:7,.0f}/s   "
                f"{run.cpu_us:4.0f} µs CPU/message   {run.complaint or ''}",
                soft_wrap=True,
                highlight=False,
            )
    return found


async def run_once(
    site: Site,
    part: str,
    consumer: str,
    number: int,
    count: int,
    body_bytes: int,
    checkout: Checkout = HERE,
) -> Run:
    """One consumer on so many messages, in a fresh vhost."""
    fails = PARTS[part]
    with fresh_vhost(site.url, site.api) as vhost:
        await _fill(vhost, count, body_bytes)
        task = Task(url=vhost.url, api=vhost.api, count=count, prefetch=PREFETCH, fails=fails)
        told = await _consume(consumer, task, checkout)
        waiting_in = level_name(int(DELAY_S * 1000)) if consumer == OURS else RETRY
        complaint = await _complaint(vhost, waiting_in, -(-count // fails) if fails else 0)
    return Run(
        broker=site.version,
        part=part,
        consumer=consumer,
        round=number,
        count=count,
        seconds=told.seconds,
        cpu_us=told.cpu_s / count * 1e6,
        complaint=complaint,
    )


async def _fill(vhost: Vhost, count: int, body_bytes: int) -> None:
    connection = await connect(parse_addresses(vhost.url)[0], name="bench: ground")
    try:
        channel = await connection.channel()
        await channel.declare_queue(QUEUE, arguments={"x-queue-type": "quorum"})
        back = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": QUEUE}
        await channel.declare_queue(
            RETRY, arguments={"x-queue-type": "quorum", "x-message-ttl": int(DELAY_S * 1000), **back}
        )
        await channel.select_confirms()
        told = await publish_all(channel, "", QUEUE, _orders(count, body_bytes))
        if told.confirmed != count:
            raise BenchError(f"the broker took {told.confirmed:,} of {count:,} messages")
    finally:
        await connection.close()
    await asyncio.sleep(SETTLE_S)


def _orders(count: int, body_bytes: int) -> Iterator[RawMessage]:
    """An order with a few lines, filled up to its size."""
    lines = [{"sku": f"sku-{line:04}", "pieces": line + 1, "price": 19.9} for line in range(8)]
    order = {"n": 0, "customer": "c-000001", "currency": "EUR", "lines": lines, "note": ""}
    padding = "x" * max(0, body_bytes - len(json.dumps(order)))
    for n in range(count):
        yield RawMessage(_PROPERTIES, json.dumps({**order, "n": n, "note": padding}).encode())


async def _consume(consumer: str, task: Task, checkout: Checkout) -> Told:
    process = await asyncio.create_subprocess_exec(
        str(checkout.python), "-m", "bench.handlers", consumer, stdin=PIPE, stdout=PIPE, cwd=checkout.path
    )
    limit_s = START_S + task.count / SLOWEST_PER_S
    try:
        async with asyncio.timeout(limit_s):
            said, _ = await process.communicate(task.to_line().encode())
    except TimeoutError:
        raise BenchError(f"{consumer} did not handle {task.count:,} messages in {limit_s:.0f} s") from None
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
    if process.returncode != 0:
        raise BenchError(f"{consumer} failed; see what it said above")
    return Told.from_line(said.decode())


async def _complaint(vhost: Vhost, waiting_in: str, waiting: int) -> str | None:
    """Whether all were acked, and what failed waits; what was not acked is back in the queue by then."""
    connection = await connect(parse_addresses(vhost.url)[0], name="bench: count")
    deadline = time.monotonic() + COUNTED_S
    try:
        channel = await connection.channel()
        while True:
            left = await _depth(channel, QUEUE)
            found = await _depth(channel, waiting_in) if waiting else 0
            if (left, found) == (0, waiting):
                return None
            if time.monotonic() > deadline:
                return f"expected 0 left and {waiting:,} to be retried, got {left:,} and {found:,}"
            await asyncio.sleep(0.1)
    finally:
        await connection.close()


async def _depth(channel: Channel, queue: str) -> int:
    return (await channel.declare_queue(queue, passive=True)).message_count


def _ratios(runs: Sequence[Run], broker: str, part: str, other: str) -> list[float]:
    """Ours to the other's pace within each round: what made both slow at the time cancels out."""
    pace = {(run.consumer, run.round): run.per_s for run in runs if (run.broker, run.part) == (broker, part)}
    return [per_s / pace[other, number] for (consumer, number), per_s in pace.items() if consumer == OURS]


def _bars(runs: Sequence[Run]) -> Iterator[Bar]:
    for broker, part in dict.fromkeys((run.broker, run.part) for run in runs):
        for other, needed in BARS[part].items():
            ratio = median(_ratios(runs, broker, part, other))
            what = f"RabbitMQ {broker}, {part}: {ratio:.2f} × {other}, needed at least {needed:.1f} ×"
            yield Bar(what=what, passed=ratio >= needed)
    for run in runs:
        if run.complaint:
            what = f"RabbitMQ {run.broker}, {run.part}, {run.consumer}, round {run.round}: {run.complaint}"
            yield Bar(what=what, passed=False)


def _table(runs: Sequence[Run]) -> Table:
    shown = Table(title="A handler that does nothing, 1 kB of JSON", title_justify="left")
    for name in ("RabbitMQ", "part", "consumer"):
        shown.add_column(name)
    for name in ("messages/s", "(range)", "ours ×", "CPU µs/message"):
        shown.add_column(name, justify="right", no_wrap=True)
    for broker, part, consumer in dict.fromkeys((run.broker, run.part, run.consumer) for run in runs):
        mine = [run for run in runs if (run.broker, run.part, run.consumer) == (broker, part, consumer)]
        paces = [run.per_s for run in mine]
        shown.add_row(
            broker,
            part,
            consumer,
            f"{median(paces):,.0f}",
            f"{min(paces):,.0f}–{max(paces):,.0f}",
            "–" if consumer == OURS else f"{median(_ratios(runs, broker, part, consumer)):.2f}",
            f"{median([run.cpu_us for run in mine]):.0f}",
            style="bold" if consumer == OURS else "",
        )
    return shown


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench.consumer", description=(__doc__ or "").split("\n")[0]
    )
    sites.add_arguments(parser, default=("3.10", "4.3"))
    parser.add_argument("--part", action="append", choices=tuple(PARTS), help="only this; may be repeated")
    parser.add_argument("--count", type=positive, default=30_000, help="messages of a run (%(default)s)")
    parser.add_argument("--rounds", type=positive, default=3, help="(%(default)s)")
    parser.add_argument("--body-bytes", type=positive, default=1000, help="(%(default)s)")
    parser.add_argument(
        "--json", type=Path, default=RESULTS / "consumer.json", help="the figures (%(default)s)"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
