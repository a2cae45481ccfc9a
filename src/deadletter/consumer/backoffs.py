"""Back-offs as a developer writes them: in seconds, by name, or as a function of the attempt.

    exponential(1, cap=600, jitter=0.2)      1, 2, 4, … up to 600 s, each ± 20 %
    linear(1)                                1, 2, 3, … s
    fixed(1, 10, 60)                         1, 10, then 60 s each time
    own(lambda attempt: attempt ** 2)        1, 4, 9, … s; the first attempt is 1

They become levels when the queue is declared (`core.deciding.backoff`): a delay is a queue with one TTL, so
the set is small and known beforehand.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from typing import TypeAlias

from deadletter.core.deciding.backoff import (
    DEFAULT_CAP_MS,
    MAX_DELAY_MS,
    Backoff,
    Exponential,
    Fixed,
    Linear,
    Schedule,
    compile_schedule,
)
from deadletter.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Own:
    """A delay in seconds for each attempt, from 1."""

    delay: Callable[[int], float]
    jitter: float = 0.0


Delays: TypeAlias = Backoff | Own


def fixed(*delays: float, jitter: float = 0.0) -> Fixed:
    """These delays in seconds, one after the other, and the last one from there on."""
    return Fixed(delays_ms=tuple(milliseconds("fixed", delay) for delay in delays), jitter=jitter)


def linear(
    step: float = 1.0, *, first: float | None = None, cap: float | None = None, jitter: float = 0.0
) -> Linear:
    """`step`, twice `step`, three times, … seconds."""
    return Linear(
        step_ms=milliseconds("linear", step),
        first_ms=None if first is None else milliseconds("linear first", first),
        cap_ms=DEFAULT_CAP_MS if cap is None else milliseconds("linear cap", cap),
        jitter=jitter,
    )


def exponential(
    first: float = 1.0, *, factor: float = 2.0, cap: float | None = None, jitter: float = 0.0
) -> Exponential:
    """`first`, `first × factor`, `first × factor²`, … seconds."""
    return Exponential(
        first_ms=milliseconds("exponential", first),
        factor=factor,
        cap_ms=DEFAULT_CAP_MS if cap is None else milliseconds("exponential cap", cap),
        jitter=jitter,
    )


def own(delay: Callable[[int], float], *, jitter: float = 0.0) -> Own:
    """Whatever this function says, in seconds, for attempt 1, 2, 3, …

    It is asked once per attempt when the queue is declared, not when a message fails.
    """
    return Own(delay=delay, jitter=jitter)


def compiled(delays: Delays, retries: int) -> Schedule:
    """The levels of a back-off."""
    if not isinstance(delays, Own):
        return compile_schedule(delays, retries)
    asked = tuple(
        milliseconds(f"own, attempt {attempt}", delays.delay(attempt)) for attempt in range(1, retries + 1)
    )
    return compile_schedule(Fixed(delays_ms=asked or (1,), jitter=delays.jitter), retries)


def milliseconds(what: str, seconds: float) -> int:
    """A delay that RabbitMQ can keep. A second has 1,000 milliseconds."""
    told: object = seconds  # whatever an application gives
    if isinstance(told, bool) or not isinstance(told, int | float) or not isfinite(told):
        raise UsageError(f"{what}: expected a number of seconds, got {seconds!r}")
    found = round(seconds * 1000)
    if not 1 <= found <= MAX_DELAY_MS:
        raise UsageError(
            f"{what}: expected from 0.001 s to {MAX_DELAY_MS / 1000:.0f} s (49.7 d), got {seconds!r}"
        )
    return found
