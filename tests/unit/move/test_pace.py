"""The clocks of a passage: a rate that is kept, a confirm that does not come.

About `move.pace`.
"""

from __future__ import annotations

import pytest

from deadletter.move.pace import Overdue, Pace


@pytest.mark.parametrize("rate", [0.5, 1, 7, 100, 5000])
def test_a_rate_is_kept_over_time_and_bursts_are_small(rate: float) -> None:
    pace, gone, now = Pace(rate, 0.0), 0, 0.0
    while now < 20:
        burst = 0
        while pace.may_go(now):
            burst += 1
        assert burst <= max(1, rate * 0.1) + 1
        gone += burst
        now += pace.wait_s
    assert rate * 20 * 0.95 - 1 <= gone <= rate * 20 + max(1, rate * 0.1) + 1


def test_a_long_pause_is_not_made_up_for() -> None:
    pace = Pace(100, 0.0)
    assert pace.may_go(0.0)
    assert sum(pace.may_go(3600.0) for _ in range(1000)) == 10


def test_a_publish_that_nobody_confirms_is_overdue() -> None:
    watch = Overdue(30)
    assert not watch.look(0, published=5, oldest=1)
    assert not watch.look(29, published=900, oldest=1)
    assert watch.look(31, published=1000, oldest=3)


def test_what_is_confirmed_in_time_is_not_however_long_it_goes_on() -> None:
    watch = Overdue(30)
    for second in range(500):
        published = second * 100
        assert not watch.look(float(second), published=published, oldest=max(1, published - 150))
    assert not watch.look(501, published=50_000, oldest=None)


def test_the_time_a_broker_does_not_listen_does_not_count() -> None:
    watch = Overdue(30)
    watch.look(0, published=5, oldest=1)
    watch.reset()
    assert not watch.look(100, published=5, oldest=1)
    assert watch.look(131, published=5, oldest=1)
