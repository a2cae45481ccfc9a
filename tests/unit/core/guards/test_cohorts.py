"""Letters by when they were released: a share is always a share of the same letters.

About `core.guards.cohorts`.
"""

from __future__ import annotations

from deadletter.core.guards.cohorts import Cohorts, Share


def made(*, buckets: int = 300) -> Cohorts:
    return Cohorts(bucket_s=1.0, buckets=buckets)


def die(cohorts: Cohorts, now: float, released_at: float, count: int) -> None:
    for _ in range(count):
        assert cohorts.died(now, released_at, within=60)


def test_a_death_counts_where_its_release_was_counted() -> None:
    cohorts = made()
    cohorts.released(0.0, 100)
    cohorts.released(50.0, 10)
    die(cohorts, 55.0, 0.0, 20)
    assert cohorts.shares(55.0, 15) == (Share(20, 100),)


def test_what_was_just_released_is_not_among_those_that_should_have_died() -> None:
    """A handler that fails after five seconds, and 100 letters a second."""
    cohorts = made()
    for second in range(20):
        cohorts.released(float(second), 100)
        if second >= 5:
            die(cohorts, float(second), second - 5.0, 100)
    found = max(share.died / share.released for share in cohorts.shares(19.0, 15))
    assert found > 0.9


def test_some_that_die_late_are_waited_for() -> None:
    """Half of them die at once and half after ten seconds: of the last ten seconds only half can be dead."""
    cohorts = made()
    for second in range(60):
        cohorts.released(float(second), 10)
        die(cohorts, float(second), float(second), 5)
        if second >= 10:
            die(cohorts, float(second), second - 10.0, 5)
    newest, settled = cohorts.shares(59.0, 15)
    assert newest.died / newest.released < 0.7
    assert settled.died / settled.released > 0.9


def test_some_that_were_held_up_say_nothing_where_all_others_live() -> None:
    cohorts = made()
    cohorts.released(0.0, 30)
    for second in range(1, 100):
        cohorts.released(float(second), 100)
    die(cohorts, 99.0, 95.0, 1)
    die(cohorts, 99.0, 0.0, 30)
    assert all(share.died / share.released < 0.5 for share in cohorts.shares(99.0, 60))


def test_others_may_have_released_them() -> None:
    cohorts = made()
    cohorts.released(0.0, 3)
    die(cohorts, 1.0, 0.0, 20)
    assert cohorts.shares(1.0, 60) == (Share(20, 20),)


def test_what_is_too_long_ago_is_not_counted() -> None:
    cohorts = made(buckets=10)
    cohorts.released(0.0, 10)
    assert not cohorts.died(10.0, 0.0, within=60)
    assert cohorts.total == 0
    die(cohorts, 10.0, 1.0, 2)
    assert cohorts.total == 2
    cohorts.released(11.0)
    assert cohorts.total == 0


def test_a_clock_that_goes_back_and_one_that_is_ahead_count_as_now() -> None:
    cohorts = made()
    cohorts.released(5.0, 4)
    cohorts.released(4.0, 4)
    die(cohorts, 5.0, 9.0, 8)
    assert cohorts.shares(5.0, 60) == (Share(8, 8),)


def test_a_share_needs_enough_of_them() -> None:
    assert not Share(19, 19).reaches(0.9, 20)
    assert Share(20, 22).reaches(0.9, 20)
    assert not Share(20, 23).reaches(0.9, 20)
