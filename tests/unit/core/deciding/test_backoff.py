"""Back-off compiled to levels.

About `core.deciding.backoff`, `core.text.durations`.
"""

from __future__ import annotations

import pytest

from deadletter.core.deciding.backoff import (
    MAX_DELAY_MS,
    MAX_JITTERED_RUNGS,
    MAX_RUNGS,
    NO_RETRIES,
    Backoff,
    Exponential,
    Fixed,
    Linear,
    compile_schedule,
)
from deadletter.core.text.durations import duration_text, rough_duration_text
from deadletter.errors import UsageError


def delays(backoff: Backoff, retries: int) -> list[int | None]:
    schedule = compile_schedule(backoff, retries)
    return [schedule.delay_ms(attempt, 0.5) for attempt in range(retries)]


@pytest.mark.parametrize(
    ("backoff", "expected"),
    [
        (Linear(step_ms=1_000), [1_000, 2_000, 3_000, 4_000, 5_000]),
        (Linear(step_ms=1_000, first_ms=5_000, cap_ms=6_500), [5_000, 6_000, 6_500, 6_500, 6_500]),
        (Exponential(first_ms=1_000), [1_000, 2_000, 4_000, 8_000, 16_000]),
        (
            Exponential(first_ms=300_000, factor=3, cap_ms=1_000_000),
            [300_000, 900_000, 1_000_000, 1_000_000, 1_000_000],
        ),
        (Exponential(first_ms=100, floor_ms=300), [300, 300, 400, 800, 1_600]),
        (Fixed(delays_ms=(10_000, 15_000, 20_000)), [10_000, 15_000, 20_000, 20_000, 20_000]),
        (Fixed(delays_ms=(5, 1, 9)), [5, 1, 9, 9, 9]),
        (Exponential(first_ms=7, factor=1), [7, 7, 7, 7, 7]),
    ],
)
def test_delays_are_what_was_asked(backoff: Backoff, expected: list[int]) -> None:
    assert delays(backoff, 5) == expected


def test_attempt_ten_thousand_and_beyond_uses_the_last_level() -> None:
    schedule = compile_schedule(Exponential(first_ms=1, factor=1_000, cap_ms=MAX_DELAY_MS), 10_000)
    assert schedule.delay_ms(10_000, 0.99) == MAX_DELAY_MS
    assert schedule.delay_ms(2**63, 0.0) == MAX_DELAY_MS
    assert schedule.delay_ms(-5, 0.0) == 1


def test_jitter_chooses_among_three_neighbours() -> None:
    schedule = compile_schedule(Fixed(delays_ms=(10_000,), jitter=0.2), 1)
    assert [schedule.delay_ms(0, dice) for dice in (0.0, 0.4, 0.9999)] == [8_000, 10_000, 12_000]
    assert schedule.levels_ms == {8_000, 10_000, 12_000}


def test_jitter_stays_within_floor_and_cap() -> None:
    schedule = compile_schedule(Fixed(delays_ms=(1_000,), jitter=0.5, floor_ms=900, cap_ms=1_100), 1)
    assert schedule.levels_ms == {900, 1_000, 1_100}


@pytest.mark.parametrize("dice", [-1.0, 1.0, 7.0, float("nan"), float("inf")])
def test_loaded_dice_do_not_break_it(dice: float) -> None:
    schedule = compile_schedule(Fixed(delays_ms=(1_000,), jitter=0.5), 1)
    assert schedule.delay_ms(0, dice) in schedule.levels_ms


def test_a_long_ladder_is_thinned_and_never_early() -> None:
    schedule = compile_schedule(Linear(step_ms=1_000), 1_000)
    assert len(schedule.levels_ms) <= MAX_RUNGS
    assert min(schedule.levels_ms) == 1_000
    assert max(schedule.levels_ms) == 1_000_000
    for attempt in range(1_000):
        delay_ms = schedule.delay_ms(attempt, 0)
        assert delay_ms is not None
        assert delay_ms >= (attempt + 1) * 1_000


def test_no_retries_need_no_levels() -> None:
    assert compile_schedule(Linear(step_ms=1), 0) is NO_RETRIES
    assert NO_RETRIES.delay_ms(0, 0.5) is None
    assert NO_RETRIES.levels_ms == frozenset()


@pytest.mark.parametrize(
    ("backoff", "retries", "expected"),
    [
        (Exponential(first_ms=1_000), 8, "1 s, 2 s, 4 s, … 128 s, then park after 8 retries ≈ 4.2 min"),
        (
            Exponential(first_ms=1_000, cap_ms=600_000),
            12,
            "1 s, 2 s, 4 s, … 10 min, then park after 12 retries ≈ 37 min",
        ),
        (Linear(step_ms=1_000), 3, "1 s, 2 s, 3 s, then park after 3 retries ≈ 6 s"),
        (Fixed(delays_ms=(60_000,)), 3, "1 min each time, then park after 3 retries ≈ 3 min"),
        (Fixed(delays_ms=(1_500,)), 1, "1.5 s, then park after 1 retry ≈ 1.5 s"),
        (Fixed(delays_ms=(10_000, 15_000)), 4, "10 s, 15 s, 15 s, 15 s, then park after 4 retries ≈ 55 s"),
        (Fixed(delays_ms=(1_000,), jitter=0.2), 2, "1 s each time ± 20 %, then park after 2 retries ≈ 2 s"),
        (Linear(step_ms=1_000), 0, "park at once, no retries"),
    ],
)
def test_a_schedule_reads_like_a_sentence(backoff: Backoff, retries: int, expected: str) -> None:
    assert compile_schedule(backoff, retries).text("park") == expected


@pytest.mark.parametrize(
    ("duration_ms", "exact", "rough"),
    [
        (0, "0 ms", "0 ms"),
        (999, "999 ms", "999 ms"),
        (61_000, "61 s", "1 min"),
        (90_000, "1.5 min", "1.5 min"),
        (3_600_000, "1 h", "1 h"),
        (86_400_000, "1 d", "1 d"),
        (1_234, "1234 ms", "1.2 s"),
        (1_260_000, "21 min", "21 min"),
    ],
)
def test_durations(duration_ms: int, exact: str, rough: str) -> None:
    assert duration_text(duration_ms) == exact
    assert rough_duration_text(duration_ms) == rough


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Fixed(delays_ms=()), r"backoff\.delays: expected at least one"),
        (
            lambda: Fixed(delays_ms=(2**32,)),
            r"backoff\.delays: expected .* to 4294967295 ms .* got 4294967296 ms",
        ),
        (lambda: Fixed(delays_ms=(0,)), r"backoff\.delays: expected .* got 0 ms"),
        (lambda: Fixed(delays_ms=tuple(range(1, MAX_RUNGS + 2))), r"at most 20 different delays, got 21"),
        (
            lambda: Fixed(delays_ms=tuple(range(1, MAX_JITTERED_RUNGS + 2)), jitter=0.1),
            r"at most 12 different delays with jitter, got 13",
        ),
        (lambda: Linear(step_ms=0), r"backoff\.step: expected"),
        (lambda: Linear(step_ms=1, first_ms=2**32), r"backoff\.first: expected"),
        (lambda: Linear(step_ms=1, cap_ms=2**32), r"backoff\.cap: expected .* got 4294967296 ms"),
        (lambda: Exponential(first_ms=-1), r"backoff\.first: expected"),
        (
            lambda: Exponential(first_ms=1, factor=0.5),
            r"backoff\.factor: expected a number from 1 to 1000, got 0\.5",
        ),
        (lambda: Exponential(first_ms=1, factor=float("nan")), r"backoff\.factor: .* got nan"),
        (lambda: Exponential(first_ms=1, jitter=1.0), r"backoff\.jitter: .* got 1\.0"),
        (lambda: Exponential(first_ms=1, jitter=float("nan")), r"backoff\.jitter: .* got nan"),
        (lambda: Exponential(first_ms=1, floor_ms=9, cap_ms=8), r"backoff\.floor: .* cap of 8 ms, got 9 ms"),
        (
            lambda: compile_schedule(Linear(step_ms=1), -1),
            r"retries: expected a number from 0 to 10000, got -1",
        ),
        (lambda: compile_schedule(Linear(step_ms=1), 10_001), r"retries: .* got 10001"),
    ],
)
def test_nonsense_is_refused_by_key_expectation_and_value(make: object, said: str) -> None:
    assert callable(make)
    with pytest.raises(UsageError, match=said):
        make()
