"""How fast `dlq serve` takes letters in, beside the courier's plain move of the same letters.

The move is the least that can be done to a letter: taken, published to one queue, confirmed, acked. Intake
does that too, and reads the deaths, asks the policies, chooses a level, stamps and counts. Both run in a
process of their own, one after the other, each in a fresh vhost, on quorum queues, because levels are quorum
queues.

One stopwatch for both: it looks at the target from outside every 10 ms, and runs from the first look that
sees letters there until all are. So the start of neither process counts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from statistics import fmean, harmonic_mean
from typing import Final

from bench import quiet
from bench.agreement import Agreement, agree
from bench.checkout import HERE, Checkout
from bench.errors import BenchError
from bench.figures import Bar
from bench.ground import ENTRY, SOURCE, TARGET, Ground
from bench.job import Job
from bench.listening import Ears
from bench.management import Vhost, fresh_vhost
from bench.racers import ready
from bench.serving import Serving, serving
from bench.sites import Site
from deadletter.amqp.address import parse_addresses
from deadletter.amqp.connection import Connection
from deadletter.amqp.handshake import connect
from deadletter.core.layouts.naming import level_name
from deadletter.errors import NotFound

RATIO_BAR: Final = 0.85
PREFETCH: Final = 1000
LOOK_S: Final = 0.01
SLOWEST_PER_S: Final = 200
SCRAPE_S: Final = 5.0
_DELAY_MS: Final = 3_600_000

SETTINGS: Final = f"""prefetch = {PREFETCH}
[[watches]]
dlq = "{SOURCE}"
[[policies]]
name = "gone"
match = {{ queue = "orders.*", reason = "expired" }}
retries = 0
[[policies]]
name = "gold"
match = {{ header = {{ tenant = "gold-*" }} }}
retries = 8
[[policies]]
name = "keys"
match = {{ routing_key = "order.*.placed" }}
retries = 3
[[policies]]
name = "bench"
match = {{ queue = "{ENTRY}", header = {{ tenant = "acme" }} }}
retries = 5
backoff = {{ kind = "fixed", delays = ["1h"] }}
"""
"""A few that do not match before the one that does: a user's file has several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """One round: letters a second of both, and what a letter cost the service in CPU."""

    move_per_s: float
    intake_per_s: float
    intake_cpu_us: float
    noise: tuple[str, ...] = ()
    """What was not quiet meanwhile."""

    @property
    def ratio(self) -> float:
        return self.intake_per_s / self.move_per_s


async def measure(
    site: Site,
    *,
    count: int,
    rounds: int,
    most: int,
    body_bytes: int,
    busy: str,
    say: Callable[[str], None],
) -> tuple[list[Round], list[Bar]]:
    """Rounds until they agree, every other one begun at the other end, after one that is not counted."""
    few = min(2_000, count)
    await _move(site, few, body_bytes)
    await take_in(site, few, body_bytes)
    ears = Ears(site.pid)
    found: dict[int, Round] = {}
    for number in range(1, most + 1):
        if number > rounds and _agreement(found).quotable:
            break
        one = found[number] = await _round(site, count, body_bytes, ears, forwards=number % 2 == 1)
        noise = f"   not quiet: {'; '.join(one.noise)}" if one.noise else ""
        say(
            f"round {number}  move {one.move_per_s:7,.0f}/s   intake {one.intake_per_s:7,.0f}/s   "
            f"{one.ratio:.2f} ×   {one.intake_cpu_us:.0f} µs CPU/letter{noise}"
        )
    agreed = _agreement(found, busy)
    for doubt in agreed.doubts:
        say(f"not quotable: {doubt}")
    what = f"RabbitMQ {site.version}, {count:,} letters: intake at {agreed.ratio} the pace of the plain move"
    passed = agreed.ratio.median >= RATIO_BAR
    bar = Bar(what=f"{what}, needed {RATIO_BAR} ×", passed=passed, quotable=agreed.quotable)
    return list(found.values()), [bar]


async def _round(site: Site, count: int, body_bytes: int, ears: Ears, *, forwards: bool) -> Round:
    """There and back, so that neither always comes first."""
    before, mark = await ears.before(), ears.mark()
    moves: list[float] = []
    intakes: list[float] = []
    costs: list[float] = []
    for moves_now in (forwards, not forwards, not forwards, forwards):
        if moves_now:
            moves.append(await _move(site, count, body_bytes))
        else:
            per_s, cpu_us = await take_in(site, count, body_bytes)
            intakes.append(per_s)
            costs.append(cpu_us)
    return Round(
        move_per_s=harmonic_mean(moves),
        intake_per_s=harmonic_mean(intakes),
        intake_cpu_us=fmean(costs),
        noise=quiet.noise(ears.since(mark, before)),
    )


def _agreement(found: Mapping[int, Round], busy: str = "") -> Agreement:
    ratios = {number: one.ratio for number, one in found.items()}
    return agree(ratios, {number: one.noise for number, one in found.items()}, to="the move", busy=busy)


async def _move(site: Site, count: int, body_bytes: int) -> float:
    with fresh_vhost(site.url, site.api) as vhost:
        async with Ground.open(vhost, site) as ground:
            await ground.lay("quorum", count, body_bytes=body_bytes)
        job = Job(url=vhost.url, source=SOURCE, target=TARGET, count=count, prefetch=PREFETCH)
        async with ready("courier", vhost) as racer:
            await racer.go(job)
            per_s = await _pace(vhost, TARGET, count)
            await racer.finish()
    return per_s


async def take_in(site: Site, count: int, body_bytes: int, checkout: Checkout = HERE) -> tuple[float, float]:
    """Letters a second into a level by `dlq serve`, and its CPU a letter in microseconds."""
    with fresh_vhost(site.url, site.api) as vhost:
        async with Ground.open(vhost, site) as ground:
            await ground.lay("quorum", count, body_bytes=body_bytes)
        watching = asyncio.create_task(_pace(vhost, level_name(_DELAY_MS), count))
        try:
            async with serving(vhost, SETTINGS, checkout=checkout) as service:
                before = service.cpu_s
                scraping = asyncio.create_task(_scrape(service))
                try:
                    per_s = await watching
                finally:
                    scraping.cancel()
                    with suppress(asyncio.CancelledError):
                        await scraping
                # Some letters were taken before it said that it is ready; with many that is nothing.
                return per_s, (service.cpu_s - before) / count * 1e6
        finally:
            watching.cancel()


async def _scrape(service: Serving) -> None:
    while True:
        await asyncio.sleep(SCRAPE_S)
        await service.scrape()


async def _pace(vhost: Vhost, queue: str, count: int) -> float:
    """Letters a second, from the first look that sees some in this queue until all are there."""
    deadline = time.monotonic() + 60 + count / SLOWEST_PER_S
    connection = await connect(parse_addresses(vhost.url)[0], name="bench: stopwatch")
    began: tuple[float, int] | None = None
    try:
        while True:
            depth = await _depth(connection, queue)
            now = time.perf_counter()
            if depth and began is None:
                began = now, depth
            if depth >= count:
                assert began is not None
                if began[1] > count / 2:
                    raise BenchError(
                        f"{count:,} letters are too few: half of them had gone at the first look"
                    )
                return (depth - began[1]) / (now - began[0])
            if time.monotonic() > deadline:
                raise BenchError(f"only {depth:,} of {count:,} letters came into {queue}")
            await asyncio.sleep(LOOK_S)
    finally:
        await connection.close()


async def _depth(connection: Connection, queue: str) -> int:
    channel = await connection.channel()
    try:
        depth = (await channel.declare_queue(queue, passive=True)).message_count
    except NotFound:
        return 0  # not declared yet
    await channel.close()
    return depth
