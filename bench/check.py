"""Whether looking is as fast as moving: `python -m bench.check`.

The same number of dead letters twice on one broker: moved by `dlq move`, and checked by `dlq check` with a
limit that half of them exceed, so that half move and half are looked at, held and put back. Both commands
run as a user runs them, in processes of their own, and tell their own time. Rounds alternate. Two bars: the
checker looks at letters at 0.8 times the pace of the mover or better, median of the rounds, and its memory
at the large load is within 60 MB of that at a tenth of it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

import uvloop

from bench import report, sites
from bench.errors import BenchError
from bench.figures import Bar
from bench.management import fresh_vhost
from bench.options import positive
from bench.sites import Site
from deadletter.amqp.address import parse_addresses
from deadletter.amqp.channel import Channel
from deadletter.amqp.handshake import connect
from deadletter.amqp.publisher import publish_all
from deadletter.core.letter.message import RawMessage, View, encode
from deadletter.errors import DeadletterError

COUNT: Final = 100_000
PACE_BAR: Final = 0.8
GROWTH_BAR_MB: Final = 60.0
DLQ, TARGET, ENTRY = "bench.dlq", "bench.dead", "bench.entry"


class Told(NamedTuple):
    seen: int
    moved: int
    seconds: float
    peak_mb: float

    @property
    def per_s(self) -> float:
        return self.seen / self.seconds


def main() -> int:
    options = _options()
    console = report.wide_console()
    bars: list[Bar] = []
    try:
        for opening in sites.openings(options):
            with opening() as site:
                bars += _measure(options, site)
    except (BenchError, DeadletterError) as error:
        console.print(f"[red]The measurement broke off:[/] {error}", soft_wrap=True)
        return 2
    report.show_bars(console, bars)
    return 0 if all(bar.passed for bar in bars) else 1


def _measure(options: argparse.Namespace, site: Site) -> list[Bar]:
    bars: list[Bar] = []
    for kind in options.type:
        ratios: list[float] = []
        checked: list[Told] = []
        with fresh_vhost(site.url, site.api) as vhost:
            small = _check(vhost.url, kind, options.count // 10)
            for number in range(options.rounds):
                plain = _move(vhost.url, kind, options.count)
                check = _check(vhost.url, kind, options.count)
                checked.append(check)
                ratios.append(check.per_s / plain.per_s)
                print(
                    f"{site.version:8} {kind:7} round {number + 1}  move {plain.per_s:7,.0f}/s   "
                    f"check {check.per_s:7,.0f}/s   {ratios[-1]:.2f} ×   peak {check.peak_mb:.0f} MB",
                    flush=True,
                )
        grown = max(told.peak_mb for told in checked) - small.peak_mb
        where = f"RabbitMQ {site.version}, {kind}, {options.count:,} letters"
        bars += [
            Bar(
                what=f"{where}: check at {median(ratios):.2f} × the pace of move, needed {PACE_BAR} ×",
                passed=median(ratios) >= PACE_BAR,
            ),
            Bar(
                what=f"{where}: {grown:.1f} MB more than a tenth of them, allowed {GROWTH_BAR_MB:.0f}",
                passed=grown <= GROWTH_BAR_MB,
            ),
        ]
    return bars


def _move(url: str, kind: str, count: int) -> Told:
    uvloop.run(_fill(url, kind, count))
    told, peak_mb = _dlq(url, "move", DLQ, TARGET, "--json")
    return _checked(Told(count, int(told["moved"]), float(told["seconds"]), peak_mb), count)


def _check(url: str, kind: str, count: int) -> Told:
    uvloop.run(_fill(url, kind, count))
    told, peak_mb = _dlq(
        url, "check", "--dlq", DLQ, "--target", TARGET, "--max-retries", "3",
        "--count-by", "header:x-retry-count", "--json",
    )  # fmt: skip
    (queue,) = told["queues"]
    found = Told(int(queue["seen"]), int(queue["moved"]), float(queue["seconds"]), peak_mb)
    return _checked(found, count // 2)


def _checked(told: Told, expected: int) -> Told:
    if told.moved != expected:
        raise BenchError(f"expected {expected:,} letters to be moved, got {told.moved:,}")
    return told


def _dlq(url: str, *arguments: str) -> tuple[Any, float]:
    """What the command told as JSON, and the most memory it had."""
    command = [str(Path(sys.executable).with_name("dlq")), *arguments]
    environment = {**os.environ, "DLQ_URL": url}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        said = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise BenchError(f"{' '.join(command)} ended with {process.returncode}: {said.decode()}")
    return json.loads(said), usage.ru_maxrss / 1000


async def _fill(url: str, kind: str, count: int) -> None:
    """Half of the letters with a count of 1, half with 9, in turn, each with a real `x-death`."""
    connection = await connect(parse_addresses(url)[0], name="bench: fill")
    try:
        channel = await connection.channel()
        await _declare(channel, kind)
        await channel.select_confirms()
        outcome = await publish_all(channel, "", ENTRY, _letters(count))
        if outcome.confirmed != count:
            raise BenchError(f"expected {count:,} letters to be confirmed, got {outcome}")
        for _ in range(1200):
            if (await channel.declare_queue(DLQ, passive=True)).message_count >= count:
                break
            await asyncio.sleep(0.1)
        await asyncio.sleep(1.0)
    finally:
        await connection.close()


async def _declare(channel: Channel, kind: str) -> None:
    for queue in (ENTRY, DLQ, TARGET):
        await channel.delete_queue(queue)
    for queue in (DLQ, TARGET):
        await channel.declare_queue(queue, arguments={"x-queue-type": kind})
    await channel.declare_queue(
        ENTRY,
        arguments={"x-message-ttl": 0, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": DLQ},
    )


def _letters(count: int) -> Iterator[RawMessage]:
    kinds = [
        encode(View(delivery_mode=2, content_type="application/json", headers={"x-retry-count": retries}))
        for retries in (1, 9)
    ]
    for number in range(count):
        yield RawMessage(kinds[number % 2], b"x" * 1000)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.check", description=(__doc__ or "").split("\n")[0])
    sites.add_arguments(parser, default=())
    parser.add_argument("--count", type=positive, default=COUNT, help="letters (%(default)s)")
    parser.add_argument("--rounds", type=positive, default=3, help="(%(default)s)")
    parser.add_argument("--type", action="append", choices=["classic", "quorum"], help="(both)")
    options = parser.parse_args()
    options.type = options.type or ["classic", "quorum"]
    return options


if __name__ == "__main__":
    sys.exit(main())
