"""Back-off, compiled into levels.

A level is one queue with one TTL, shared by all origins; a queue that held several delays would block
behind the longest. So the delays of a policy are not computed when a letter dies but compiled once into a
small, known set:

* one **rung** per retry, a rung being the few levels it may use: one without jitter, up to three with it;
* after the last rung, the last rung again, so attempt 10,000 costs what attempt 10 costs and nothing
  overflows;
* at most `MAX_RUNGS` different delays (`MAX_JITTERED_RUNGS` with jitter): a longer ladder is thinned out
  evenly on a logarithmic scale, and a retry between two steps takes the later one, never the earlier.

Every delay lies within [floor, cap]; jitter stays within its share of the delay. RabbitMQ's TTL ends at
2³²-1 ms, and a larger delay is refused here rather than by a broker at night.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from math import ceil, floor, isfinite, log
from typing import Final, assert_never

from deadletter.core.text.durations import duration_text, rough_duration_text
from deadletter.errors import UsageError

MAX_DELAY_MS: Final = 2**32 - 1
DEFAULT_CAP_MS: Final = 86_400_000
MAX_RETRIES: Final = 10_000
MAX_RUNGS: Final = 20
MAX_JITTERED_RUNGS: Final = 12
MAX_LEVELS: Final = MAX_JITTERED_RUNGS * 3
_SHOWN_HEAD: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """These delays, one after the other; the last one for every retry beyond them."""

    delays_ms: tuple[int, ...]
    jitter: float = 0.0
    floor_ms: int = 0
    cap_ms: int = MAX_DELAY_MS

    def __post_init__(self) -> None:
        _check_limits("backoff", self.floor_ms, self.cap_ms, self.jitter)
        if not self.delays_ms:
            raise UsageError("backoff.delays: expected at least one delay, got none")
        for delay_ms in self.delays_ms:
            _check_delay("backoff.delays", delay_ms)
        most = MAX_JITTERED_RUNGS if self.jitter else MAX_RUNGS
        if len(set(self.delays_ms)) > most:
            raise UsageError(
                f"backoff.delays: expected at most {most} different delays"
                f"{' with jitter' if self.jitter else ''}, got {len(set(self.delays_ms))}; each is a queue"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Linear:
    """`first`, `first + step`, `first + 2·step`, … up to the cap. Without `first` it begins with one step."""

    step_ms: int
    first_ms: int | None = None
    jitter: float = 0.0
    floor_ms: int = 0
    cap_ms: int = DEFAULT_CAP_MS

    def __post_init__(self) -> None:
        _check_delay("backoff.step", self.step_ms)
        if self.first_ms is not None:
            _check_delay("backoff.first", self.first_ms)
        _check_limits("backoff", self.floor_ms, self.cap_ms, self.jitter)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exponential:
    """`first`, `first·factor`, `first·factor²`, … up to the cap."""

    first_ms: int
    factor: float = 2.0
    jitter: float = 0.0
    floor_ms: int = 0
    cap_ms: int = DEFAULT_CAP_MS

    def __post_init__(self) -> None:
        _check_delay("backoff.first", self.first_ms)
        _check_limits("backoff", self.floor_ms, self.cap_ms, self.jitter)
        if not (isfinite(self.factor) and 1 <= self.factor <= 1_000):
            raise UsageError(f"backoff.factor: expected a number from 1 to 1000, got {self.factor!r}")


Backoff = Fixed | Linear | Exponential


def _check_delay(key: str, delay_ms: int) -> None:
    if not 0 < delay_ms <= MAX_DELAY_MS:
        raise UsageError(
            f"{key}: expected a delay from 1 ms to {MAX_DELAY_MS} ms (49.7 d, the longest TTL RabbitMQ "
            f"takes), got {delay_ms} ms"
        )


def _check_limits(key: str, floor_ms: int, cap_ms: int, jitter: float) -> None:
    _check_delay(f"{key}.cap", cap_ms)
    if not 0 <= floor_ms <= cap_ms:
        raise UsageError(f"{key}.floor: expected from 0 ms to the cap of {cap_ms} ms, got {floor_ms} ms")
    if not 0 <= jitter < 1:  # NaN fails too
        raise UsageError(f"{key}.jitter: expected a share from 0 to less than 1, got {jitter!r}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """A compiled back-off: `rungs[n]` are the levels that the n-th retry may use, shortest first."""

    retries: int
    rungs: tuple[tuple[int, ...], ...]
    jitter: float = 0.0

    @property
    def levels_ms(self) -> frozenset[int]:
        """Every delay it can ever ask for: the queues that must exist."""
        return frozenset(level for rung in self.rungs for level in rung)

    def choices_ms(self, attempt: int) -> tuple[int, ...]:
        """The levels for the retry after `attempt` earlier ones. Empty when there are no retries at all."""
        return self.rungs[min(max(attempt, 0), len(self.rungs) - 1)] if self.rungs else ()

    def typical_ms(self, attempt: int) -> int | None:
        """The middle one of them; None when there are no retries."""
        choices = self.choices_ms(attempt)
        return choices[len(choices) // 2] if choices else None

    def delay_ms(self, attempt: int, dice: float) -> int | None:
        """The level the dice choose, every choice as likely as the other; None when there are no retries."""
        choices = self.choices_ms(attempt)
        if not choices:
            return None
        fair = dice if 0 <= dice < 1 else 0.0  # NaN too
        return choices[int(fair * len(choices))]

    @property
    def typical_delays_ms(self) -> tuple[int, ...]:
        """One delay per rung, the middle one."""
        return tuple(rung[len(rung) // 2] for rung in self.rungs)

    @property
    def typical_total_ms(self) -> int:
        """All the waiting together, if every retry fails."""
        delays = self.typical_delays_ms
        return sum(delays) + (self.retries - len(delays)) * (delays[-1] if delays else 0)

    def text(self, then: str) -> str:
        """`1 s, 2 s, 4 s, … 10 min, then park after 8 retries ≈ 21 min`."""
        if not self.retries or not self.rungs:
            return f"{then} at once, no retries"
        delays = self.typical_delays_ms
        delays += delays[-1:] * (min(self.retries, len(delays) + _SHOWN_HEAD) - len(delays))
        words = [duration_text(d) for d in delays]
        if len(set(delays)) == 1 and self.retries > 1:
            ladder = f"{words[0]} each time"
        elif self.retries <= _SHOWN_HEAD + 2:
            ladder = ", ".join(words)
        else:
            ladder = ", ".join(words[:_SHOWN_HEAD]) + f", … {words[-1]}"
        spread = f" ± {round(self.jitter * 100)} %" if self.jitter else ""
        count = "1 retry" if self.retries == 1 else f"{self.retries} retries"
        return f"{ladder}{spread}, then {then} after {count} ≈ {rough_duration_text(self.typical_total_ms)}"


NO_RETRIES: Final = Schedule(retries=0, rungs=())


def compile_schedule(backoff: Backoff, retries: int) -> Schedule:
    """The levels of this back-off for so many retries."""
    if not 0 <= retries <= MAX_RETRIES:
        raise UsageError(f"retries: expected a number from 0 to {MAX_RETRIES}, got {retries}")
    if retries == 0:
        return NO_RETRIES
    asked = [
        min(max(delay_ms, backoff.floor_ms, 1), backoff.cap_ms) for delay_ms in _asked_ms(backoff, retries)
    ]
    steps = _thinned(sorted(set(asked)), MAX_JITTERED_RUNGS if backoff.jitter else MAX_RUNGS)
    rungs = [_rung(steps[bisect_left(steps, delay_ms)], backoff) for delay_ms in asked]
    while len(rungs) > 1 and rungs[-1] == rungs[-2]:  # the last one repeats by itself
        rungs.pop()
    return Schedule(retries=retries, rungs=tuple(rungs), jitter=backoff.jitter)


def _asked_ms(backoff: Backoff, retries: int) -> list[int]:
    """The delay of each retry, up to where they no longer change."""
    match backoff:
        case Fixed(delays_ms=delays_ms):
            return list(delays_ms[:retries])
        case Linear(step_ms=step_ms, first_ms=first_ms, cap_ms=cap_ms):
            start_ms = step_ms if first_ms is None else first_ms
            steps_to_cap = max(cap_ms - start_ms, 0) // step_ms + 2
            return [start_ms + n * step_ms for n in range(min(retries, steps_to_cap))]
        case Exponential(first_ms=first_ms, factor=factor, cap_ms=cap_ms):
            growing = [float(first_ms)]
            while len(growing) < retries and growing[-1] < cap_ms:
                growing.append(growing[-1] * factor)
            return [round(delay) for delay in growing]
        case _:
            assert_never(backoff)


def _thinned(steps: list[int], most: int) -> list[int]:
    """At most so many of these ascending steps, both ends among them, about evenly spaced by ratio."""
    if len(steps) <= most:
        return steps
    low, high = log(steps[0]), log(steps[-1])
    kept = {steps[0], steps[-1]}
    for mark in range(1, most - 1):
        wanted = low + (high - low) * mark / (most - 1)
        kept.add(min(steps, key=lambda step: abs(log(step) - wanted)))
    return sorted(kept)


def _rung(delay_ms: int, backoff: Backoff) -> tuple[int, ...]:
    if not backoff.jitter:
        return (delay_ms,)
    low = max(_rounded_towards(delay_ms * (1 - backoff.jitter), up=True), backoff.floor_ms, 1)
    high = min(_rounded_towards(delay_ms * (1 + backoff.jitter), up=False), backoff.cap_ms)
    return tuple(sorted({min(low, delay_ms), delay_ms, max(high, delay_ms)}))


def _rounded_towards(value_ms: float, *, up: bool) -> int:
    """Two digits, towards the middle: within the jitter, and likelier to be another policy's level too."""
    unit = int(10 ** max(len(str(int(value_ms))) - 2, 0))
    return (ceil(value_ms / unit) if up else floor(value_ms / unit)) * unit
