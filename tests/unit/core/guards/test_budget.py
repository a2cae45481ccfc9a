"""The retry budget: so many a minute, smoothly, and a share of the traffic with a floor.

About `core.guards.budget`.
"""

from __future__ import annotations

import pytest

from deadletter.core.guards.budget import Budget, Tally, portion, share_per_minute
from deadletter.errors import UsageError


@pytest.mark.parametrize("per_minute", [0.5, 1, 7, 60, 6_000])
def test_a_budget_is_used_up_and_no_more(per_minute: float) -> None:
    budget, gone, now = Budget(per_minute, 0.0), 0, 0.0
    while now < 600:
        while budget.take(now):
            gone += 1
        now += budget.wait_s(now)
    assert per_minute * 10 * 0.97 - 1 <= gone <= per_minute * 10 + budget.burst


def test_a_quiet_hour_is_not_made_up_for() -> None:
    budget = Budget(600, 0.0)
    assert sum(budget.take(3600.0) for _ in range(1_000)) == 60


def test_a_budget_that_was_just_made_holds_one_letter() -> None:
    budget = Budget(6_000, 0.0)
    assert [budget.take(0.0), budget.take(0.0)] == [True, False]


def test_waiting_as_long_as_it_says_is_enough() -> None:
    budget = Budget(7, 0.0)
    assert budget.wait_s(0.0) == 0
    budget.take(0.0)
    wait_s = budget.wait_s(0.0)
    assert wait_s == pytest.approx(60 / 7)
    assert not budget.take(wait_s - 0.01)
    assert budget.take(wait_s)


def test_nothing_goes_with_a_budget_of_nothing() -> None:
    budget = Budget(0, 0.0)
    assert not budget.take(0.0)
    assert not budget.take(1_000.0)
    assert budget.wait_s(1_000.0) == 60
    budget.resize(60, 1_000.0)
    assert budget.take(1_001.0)


def test_a_long_wait_is_asked_again_within_a_minute() -> None:
    budget = Budget(0.1, 0.0)
    budget.take(0.0)
    assert budget.wait_s(0.0) == 60


def test_a_smaller_budget_forgets_what_the_larger_had_saved() -> None:
    budget = Budget(6_000, 0.0)
    budget.resize(60, 100.0)
    assert sum(budget.take(100.0) for _ in range(1_000)) == 6


def test_it_knows_what_went_in_the_last_minute() -> None:
    budget = Budget(600, 0.0)
    for second in range(100):
        budget.take(float(second))
    assert budget.used(99.0) == 60
    assert budget.used(120.0) == 39
    assert budget.used(10_000.0) == 0


def test_a_clock_that_goes_back_takes_nothing() -> None:
    budget = Budget(60, 0.0)
    assert budget.take(100.0)
    assert budget.take(50.0)


def test_a_clock_that_goes_back_gives_nothing() -> None:
    budget = Budget(60, 0.0)
    assert budget.take(100.0)
    for _ in range(20):
        budget.take(100.0)
    assert not budget.take(50.0)
    assert not budget.take(100.0)
    assert budget.take(101.0)


@pytest.mark.parametrize("per_minute", [-1, float("nan"), float("inf")])
def test_what_is_no_rate_is_refused(per_minute: float) -> None:
    with pytest.raises(UsageError, match="letters a minute"):
        Budget(per_minute, 0.0)


def test_a_share_of_the_traffic_and_at_least_the_floor() -> None:
    assert share_per_minute(100, 0.2, 60) == 1_200
    assert share_per_minute(1, 0.2, 60) == 60
    assert share_per_minute(0, 0.2, 60) == 60
    assert share_per_minute(-3, 0.2, 0) == 0


def test_instances_share_a_budget() -> None:
    assert portion(600, 5) == 120
    assert portion(600, 0) == 600


def test_a_tally_forgets_bucket_by_bucket() -> None:
    tally = Tally(bucket_s=1.0, buckets=3)
    for second in (0.5, 1.5, 1.9, 2.0):
        tally.add(second)
    assert tally.total(2.9) == 4
    assert tally.total(3.0) == 3
    assert tally.total(4.2) == 1
    assert tally.total(5.0) == 0
    tally.add(7.0, 5)
    tally.add(6.0)
    assert tally.total(7.0) == 6
