"""How long a letter is away beyond its delay: one at a time on an idle broker, and ten thousand together.

Lateness is the moment of the second delivery, minus the moment the application rejected it, minus the delay
of its policy. It holds everything: the death, intake, the delay's own inaccuracy, release, and the way to the
consumer. Delays are fixed, without jitter, so the delay of each letter is known by its routing key.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from bench.figures import Bar
from bench.management import fresh_vhost
from bench.serving import serving
from bench.sites import Site
from bench.trips import DLQ, Application

SINGLE_BAR_MS: Final = 50.0
MIXED_BAR_MS: Final = 250.0
WARM_UP: Final = 10
SINGLE_DELAY_S: Final = 0.1
MIXED_DELAYS_S: Final = (1, 2, 3, 5, 8, 10, 15, 20, 25, 30)
PER_S: Final = 500
"""So many letters a second die in the mixed run: the broker is to be unloaded."""
_BUNCH_S: Final = 0.02
_PATIENCE_S: Final = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Lateness:
    """Of all letters of one run."""

    letters: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    min_ms: float

    def __str__(self) -> str:
        return (
            f"p50 {self.p50_ms:.1f} ms, p99 {self.p99_ms:.1f} ms, worst {self.max_ms:.1f} ms, "
            f"earliest {self.min_ms:+.1f} ms"
        )


class _Clock:
    """Lets each letter die once, and notes how late it comes back."""

    def __init__(self, delay_s: Callable[[str], float]) -> None:
        self.late_s: dict[int, float] = {}
        self.twice = 0
        self._delay_s = delay_s
        self._rejected_at: dict[int, float] = {}

    def on_letter(self, number: int, routing_key: str) -> bool:
        now = time.perf_counter()
        at = self._rejected_at.setdefault(number, now)
        if at == now:
            return False
        self.twice += number in self.late_s
        self.late_s[number] = now - at - self._delay_s(routing_key)
        return True


async def single(
    site: Site, *, letters: int, body_bytes: int, say: Callable[[str], None]
) -> tuple[Lateness, list[Bar]]:
    """One letter after the other; nothing else happens on the broker."""
    settings = _settings({"#": SINGLE_DELAY_S})
    clock = _Clock(lambda _key: SINGLE_DELAY_S)
    with fresh_vhost(site.url, site.api) as vhost:
        async with Application.open(vhost, clock.on_letter) as application, serving(vhost, settings):
            for number in range(WARM_UP + letters):
                application.publish([number], "bench.single", body_bytes=body_bytes)
                await application.until(lambda n=number: n in clock.late_s, _PATIENCE_S, "a letter")  # type: ignore[misc]
    found = _summary([late_s for number, late_s in clock.late_s.items() if number >= WARM_UP])
    say(f"one at a time: {found}")
    what = f"RabbitMQ {site.version}, {letters} letters one at a time: {found.p99_ms:.1f} ms late at p99"
    return found, [
        Bar(what=f"{what}, allowed {SINGLE_BAR_MS:.0f} ms", passed=found.p99_ms < SINGLE_BAR_MS),
        *_kept(site, found, clock),
    ]


async def mixed(
    site: Site, *, letters: int, body_bytes: int, say: Callable[[str], None]
) -> tuple[Lateness, list[Bar]]:
    """Many letters with different delays, in turn."""
    delays = {f"bench.after.{seconds}": float(seconds) for seconds in MIXED_DELAYS_S}
    keys = tuple(delays)
    clock = _Clock(lambda key: delays[key])
    with fresh_vhost(site.url, site.api) as vhost:
        async with Application.open(vhost, clock.on_letter) as application, serving(vhost, _settings(delays)):
            began = time.perf_counter()
            for number in range(letters):
                application.publish([number], keys[number % len(keys)], body_bytes=body_bytes)
                ahead_s = number / PER_S - (time.perf_counter() - began)
                if ahead_s > 0:
                    await asyncio.sleep(max(ahead_s, _BUNCH_S))
            seconds = max(MIXED_DELAYS_S) + _PATIENCE_S
            await application.until(lambda: len(clock.late_s) == letters, seconds, f"{letters:,} letters")
    found = _summary(list(clock.late_s.values()))
    say(f"mixed delays: {found}")
    what = f"RabbitMQ {site.version}, {letters:,} letters with 1 to 30 s: {found.p99_ms:.0f} ms late at p99"
    return found, [
        Bar(what=f"{what}, allowed {MIXED_BAR_MS:.0f} ms", passed=found.p99_ms <= MIXED_BAR_MS),
        *_kept(site, found, clock),
    ]


def _kept(site: Site, found: Lateness, clock: _Clock) -> list[Bar]:
    """What is no matter of speed."""
    where = f"RabbitMQ {site.version}"
    bars = [
        Bar(what=f"{where}: no letter early, the earliest {found.min_ms:+.1f} ms", passed=found.min_ms >= 0)
    ]
    if clock.twice:
        bars.append(Bar(what=f"{where}: {clock.twice} letters came back twice", passed=False))
    return bars


def _settings(delays_s: dict[str, float]) -> str:
    policies = "".join(
        f'[[policies]]\nname = "p{number}"\nmatch = {{ routing_key = "{key}" }}\nretries = 3\n'
        f'backoff = {{ kind = "fixed", delays = ["{round(seconds * 1000)}ms"] }}\n'
        for number, (key, seconds) in enumerate(delays_s.items())
    )
    return f'[[watches]]\ndlq = "{DLQ}"\n{policies}'


def _summary(late_s: Sequence[float]) -> Lateness:
    ordered = sorted(late_s)
    return Lateness(
        letters=len(ordered),
        p50_ms=_at(ordered, 0.5),
        p99_ms=_at(ordered, 0.99),
        max_ms=ordered[-1] * 1000,
        min_ms=ordered[0] * 1000,
    )


def _at(ordered: Sequence[float], share: float) -> float:
    """The smallest value that so many are not above, in milliseconds."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1000
