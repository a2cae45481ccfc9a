"""One race: fill, start the mover, stop the clock when the target has every letter, count.

One stopwatch for all: it looks at the target's depth from outside, because that is all a shovel lets one see.
It starts with the word "go" and stops when the last letter is in the target; for the whole command, when its
process is gone. The looking costs the broker a hundred small questions a second, the same for everybody.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from bench.checkout import HERE, Checkout
from bench.errors import BenchError
from bench.ground import SOURCE, TARGET, Ground, QueueType
from bench.job import Job
from bench.listening import Ears
from bench.quiet import Quiet, noise
from bench.racers import COMMAND, Racer, ready
from deadletter.core.letter.message import RawMessage

LOOK_S: Final = 0.01
SLOWEST_PER_S: Final = 50
"""A mover slower than this is not measured but given up."""
START_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """What is the same for every mover."""

    queue_type: QueueType
    body_bytes: int
    prefetch: int
    letters: Callable[[int], Iterable[RawMessage]] | None = None
    """So many that are not small and all alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One mover, once."""

    broker: str
    queue_type: QueueType
    mover: str
    round: int
    count: int
    seconds: float
    """From "go" until the target had every letter; for the whole command, from Enter to its end."""
    cpu_us: float | None
    """The client's CPU per letter; None where the broker itself moves."""
    rss_start_bytes: int | None
    rss_peak_bytes: int | None
    complaint: str | None = None
    """Why this run does not count, if it does not."""
    quiet: Quiet | None = None
    """What else went on, where somebody listened."""

    @property
    def noise(self) -> tuple[str, ...]:
        return () if self.quiet is None else noise(self.quiet)

    @property
    def per_s(self) -> float:
        return self.count / self.seconds


async def race(
    ground: Ground,
    course: Course,
    *,
    mover: str,
    count: int,
    broker: str,
    round_number: int,
    checkout: Checkout = HERE,
    ears: Ears | None = None,
) -> Run:
    """Lay the ground, let the mover run, and look what became of the letters."""
    letters = None if course.letters is None else course.letters(count)
    await ground.lay(course.queue_type, count, body_bytes=course.body_bytes, letters=letters)
    job = Job(url=ground.vhost.url, source=SOURCE, target=TARGET, count=count, prefetch=course.prefetch)
    async with ready(mover, ground.vhost, checkout) as racer:
        before = None if ears is None else await ears.before()
        mark = None if ears is None else ears.mark()
        started = time.perf_counter()
        await racer.go(job)
        await _arrival(ground, racer, mover, count)
        seconds = time.perf_counter() - started
        told = await racer.finish()
        if told is not None and racer.to_exit:
            seconds = told.seconds
        quiet = None
        if ears is not None and mark is not None and before is not None:
            quiet = ears.since(mark, before)
    left, arrived = await ground.count(count)
    complaint = None
    if (left, arrived) != (0, count):
        complaint = f"expected 0 letters left and {count:,} arrived, got {left:,} and {arrived:,}"
    elif mover in ("courier", COMMAND):
        complaint = await ground.what_the_courier_missed()
    return Run(
        broker=broker,
        queue_type=course.queue_type,
        mover=mover,
        round=round_number,
        count=count,
        seconds=seconds,
        cpu_us=None if told is None else told.cpu_s / count * 1e6,
        rss_start_bytes=None if told is None else told.rss_start_bytes,
        rss_peak_bytes=None if told is None else told.rss_peak_bytes,
        complaint=complaint,
        quiet=quiet,
    )


async def _arrival(ground: Ground, racer: Racer, mover: str, count: int) -> None:
    limit_s = START_S + count / SLOWEST_PER_S
    deadline = time.monotonic() + limit_s
    while True:
        ended = racer.ended  # before looking: what it did last must be seen
        arrived = await ground.depth(TARGET)
        if arrived >= count or ended:
            return  # if it ended too early, `finish` or the count will say so
        if time.monotonic() > deadline:
            raise BenchError(f"{mover} moved {arrived:,} of {count:,} letters in {limit_s:.0f} s")
        await asyncio.sleep(LOOK_S)
