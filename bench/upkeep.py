"""What the service costs while nothing happens, and whether it grows while much does.

Idle: so many watched dead-letter queues with nothing in them, its CPU time over a minute. Soak: letters
through intake and release for as long as it takes, every letter fails once and every tenth twice, and its
memory looked at every second. The first quarter is warm-up (caches, and what the guards remember); from then
on memory must stay where it is.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from bench.figures import Bar
from bench.management import Vhost, fresh_vhost
from bench.serving import Serving, serving
from bench.sites import Site
from bench.trips import DLQ, Application
from deadletter.amqp.address import parse_addresses
from deadletter.amqp.handshake import connect

IDLE_BAR: Final = 0.01
SETTLE_S: Final = 10.0
GROWTH_BAR: Final = 0.1
SAMPLE_S: Final = 1.0
UNDER_WAY: Final = 5_000
SLOWEST_PER_S: Final = 100
_SOAK: Final = f"""
[[watches]]
dlq = "{DLQ}"
[default_policy]
retries = 5
backoff = {{ kind = "fixed", delays = ["500ms"] }}
"""
IDLE_WATCH: Final = '[[watches]]\ndlq = "bench.idle.*"\n'


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    queues: int
    seconds: float
    share: float
    """Of one core."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Soak:
    trips: int
    seconds: float
    rss_mb: tuple[float, ...]
    """Once a second."""

    @property
    def growth(self) -> float:
        """The last quarter's median against the second quarter's; 0 is flat."""
        quarter = max(1, len(self.rss_mb) // 4)
        return median(self.rss_mb[-quarter:]) / median(self.rss_mb[quarter : 2 * quarter]) - 1


async def idle(
    site: Site, *, queues: int, seconds: float, say: Callable[[str], None]
) -> tuple[list[Idle], list[Bar]]:
    """One queue, then many."""
    found: list[Idle] = []
    for number in (1, queues):
        with fresh_vhost(site.url, site.api) as vhost:
            await declare_queues(vhost, number)
            async with serving(vhost, IDLE_WATCH) as service:
                await asyncio.sleep(SETTLE_S)
                found.append(await watch_idle(service, number, seconds))
        say(f"idle, {number} watched: {found[-1].share:.2%} of a core")
    many = found[-1]
    what = f"RabbitMQ {site.version}, {many.queues} watched queues, idle: {many.share:.2%} of a core"
    return found, [Bar(what=f"{what}, allowed {IDLE_BAR:.0%}", passed=many.share < IDLE_BAR)]


async def declare_queues(vhost: Vhost, queues: int) -> None:
    """Empty ones, that `IDLE_WATCH` watches."""
    connection = await connect(parse_addresses(vhost.url)[0], name="bench: idle queues")
    channel = await connection.channel()
    for number in range(queues):
        await channel.declare_queue(f"bench.idle.{number}")
    await connection.close()


async def watch_idle(service: Serving, queues: int, seconds: float) -> Idle:
    """What a service costs while nothing happens."""
    began, before = time.monotonic(), service.cpu_s
    await asyncio.sleep(seconds)
    taken = time.monotonic() - began
    return Idle(queues=queues, seconds=taken, share=(service.cpu_s - before) / taken)


async def soak(
    site: Site, *, letters: int, body_bytes: int, say: Callable[[str], None]
) -> tuple[Soak, list[Bar]]:
    """So many letters, at most `UNDER_WAY` of them at once."""
    failures: dict[int, int] = {}
    handled = trips = 0

    def on_letter(number: int, _key: str) -> bool:
        nonlocal handled, trips
        failed = failures.get(number, 0)
        if failed < (2 if number % 10 == 0 else 1):
            failures[number] = failed + 1
            trips += 1
            return False
        del failures[number]
        handled += 1
        return True

    samples: list[float] = []
    with fresh_vhost(site.url, site.api) as vhost:
        async with Application.open(vhost, on_letter) as application, serving(vhost, _SOAK) as service:
            began = time.monotonic()
            sampling = asyncio.create_task(_sample(service, samples))
            try:
                for first in range(0, letters, 500):
                    numbers = range(first, min(first + 500, letters))
                    application.publish(numbers, "bench.soak", body_bytes=body_bytes)
                    await application.until(
                        lambda end=numbers.stop: end - handled < UNDER_WAY,  # type: ignore[misc]
                        60 + UNDER_WAY / SLOWEST_PER_S,
                        "letters to be handled",
                    )
                await application.until(
                    lambda: handled == letters, 60 + UNDER_WAY / SLOWEST_PER_S, "the last letters"
                )
            finally:
                sampling.cancel()
            seconds = time.monotonic() - began
    found = Soak(trips=trips, seconds=seconds, rss_mb=tuple(samples))
    say(
        f"soak: {trips:,} trips in {found.seconds:.0f} s, {trips / found.seconds:,.0f}/s, "
        f"{_range(samples)} MB, grown {found.growth:+.1%}"
    )
    what = f"RabbitMQ {site.version}, {trips:,} trips: memory {found.growth:+.1%} from the second quarter on"
    return found, [Bar(what=f"{what}, allowed {GROWTH_BAR:.0%}", passed=found.growth <= GROWTH_BAR)]


def _range(samples: Sequence[float]) -> str:
    return f"{min(samples):.0f} to {max(samples):.0f}"


async def _sample(service: Serving, samples: list[float]) -> None:
    while True:
        samples.append(service.rss_bytes / 1e6)
        await asyncio.sleep(SAMPLE_S)
