"""The breaker: it trips when everything dies again, and only then; it comes back carefully.

About `core.guards.breaker`, `core.guards.phase`, `core.guards.flow`.
"""

from __future__ import annotations

from collections import deque
from typing import TypeVar

import pytest

from deadletter.core.guards.breaker import MAX_PROBES, PIONEERS, Breaker, BreakerTerms
from deadletter.core.guards.flow import FREE, Free, Hold, Probe, Ramp
from deadletter.core.guards.phase import Phase

TERMS = BreakerTerms()


def tripped(now: float = 0.0, terms: BreakerTerms = TERMS) -> Breaker:
    breaker = Breaker(terms)
    breaker.released(now, 20)
    for number in range(20):
        breaker.died_again(now, f"first-{number}")
    assert breaker.phase is Phase.HELD
    return breaker


def ramping(now: float = 0.0) -> Breaker:
    breaker = tripped(now)
    assert isinstance(breaker.flow(now + 5), Probe)
    breaker.probe_sent(now + 5, "probe")
    assert isinstance(breaker.flow(now + 10), Ramp)
    return breaker


def rate(breaker: Breaker, now: float) -> float:
    answer = breaker.flow(now)
    assert isinstance(answer, Ramp)
    return answer.rate_per_s


def test_it_trips_when_enough_letters_and_most_of_them_died() -> None:
    breaker = Breaker(TERMS)
    breaker.released(0.0, 22)
    for number in range(19):
        breaker.died_again(1.0, str(number))
    assert breaker.flow(1.0) is FREE
    breaker.died_again(1.0, "20th")
    answer = breaker.flow(1.0)
    assert isinstance(answer, Hold)
    assert (answer.until, answer.guard) == (6.0, "breaker")
    assert answer.why == "20 of 22 letters died again within 1 min"


def test_half_of_them_is_not_everything() -> None:
    breaker = Breaker(TERMS)
    for second in range(300):
        breaker.released(float(second), 20)
        for number in range(10):
            breaker.died_again(second + 0.5, f"{second}-{number}")
        assert breaker.flow(float(second)) is FREE


def test_few_deaths_are_not_an_outage_however_long_they_go_on() -> None:
    breaker = Breaker(TERMS)
    for second in range(0, 3_600, 4):
        breaker.released(float(second))
        breaker.died_again(float(second), "x")
    assert breaker.flow(3_600.0) is FREE


def test_deaths_may_outnumber_releases() -> None:
    breaker = Breaker(TERMS)
    breaker.released(0.0, 3)
    for number in range(20):
        breaker.died_again(0.0, str(number))
    answer = breaker.flow(0.0)
    assert isinstance(answer, Hold)
    assert answer.why == "20 of 20 letters died again within 1 min"


def test_failures_of_a_burst_that_come_late_are_not_an_outage() -> None:
    """100 at once, a fifth of them fails, and the handler takes a minute; nothing is released by then."""
    breaker = Breaker(TERMS)
    breaker.released(0.0, 100)
    for number in range(20):
        breaker.died_again(61 + number, str(number), released_at=0.0)
    assert breaker.flow(81.0) is FREE


def test_what_went_before_anybody_counted_says_nothing() -> None:
    """A service that starts again does not know how many went before; a ramp not how many before it."""
    breaker = Breaker(TERMS, since=100.0)
    for number in range(50):
        breaker.died_again(101.0, str(number), released_at=99.0)
    assert breaker.flow(101.0) is FREE
    breaker = ramping()
    for number in range(50):
        breaker.died_again(11.0, str(number), released_at=0.0)
    assert isinstance(breaker.flow(11.0), Ramp)


def test_after_a_good_minute_an_outage_is_seen_in_a_quarter_of_one() -> None:
    breaker = Breaker(TERMS)
    for second in range(60):
        breaker.released(float(second), 100)
    second = 60
    while breaker.phase is Phase.FREE:
        assert second < 80, "16 s should do"
        breaker.released(float(second), 100)
        for number in range(100):
            breaker.died_again(second + 0.9, f"{second}-{number}")
        second += 1
    assert second >= 70, "and not on the first bad second"
    held = breaker.flow(float(second))
    assert isinstance(held, Hold)
    assert held.why.endswith("within 15 s")


def test_a_busy_time_long_ago_does_not_hide_an_outage() -> None:
    breaker = Breaker(TERMS)
    breaker.released(0.0, 1_000_000)
    for second in range(1, 200):
        breaker.released(float(second))
        breaker.died_again(float(second), str(second))
    assert breaker.phase is not Phase.FREE


def test_pause_probe_ramp_free() -> None:
    breaker = tripped()
    assert isinstance(breaker.flow(4.9), Hold)
    assert isinstance(breaker.flow(5.0), Probe)
    assert isinstance(breaker.flow(6.0), Probe), "until somebody sent it"
    breaker.probe_sent(6.0, "probe")
    answer = breaker.flow(6.0)
    assert isinstance(answer, Hold)
    assert answer.until == 11.0
    assert [rate(breaker, 11.0 + second) for second in (0, 0.9, 1, 2, 3, 8)] == [1, 1, 2, 4, 8, 256]
    assert breaker.flow(20.0) is FREE
    assert breaker.phase is Phase.FREE


def test_a_probe_that_dies_doubles_the_pause_up_to_the_most() -> None:
    breaker, now, pauses = tripped(), 0.0, []
    for number in range(9):
        answer = breaker.flow(now)
        assert isinstance(answer, Hold)
        pauses.append(answer.until - now)
        now = answer.until
        assert isinstance(breaker.flow(now), Probe)
        breaker.probe_sent(now, f"probe-{number}")
        now += 1
        breaker.died_again(now, f"probe-{number}")
    assert pauses == [5, 10, 20, 40, 80, 160, 300, 300, 300]


def test_another_letter_than_the_probe_does_not_fail_it() -> None:
    breaker = tripped()
    breaker.flow(5.0)
    breaker.probe_sent(5.0, "probe")
    breaker.died_again(6.0, "from before")
    assert isinstance(breaker.flow(10.0), Ramp)


@pytest.mark.parametrize("died_at", [12.0, 40.0], ids=["on the ramp", "when all is free again"])
def test_a_probe_that_dies_late_is_not_forgotten(died_at: float) -> None:
    breaker = ramping()
    breaker.flow(died_at)
    breaker.died_again(died_at, "probe")
    answer = breaker.flow(died_at)
    assert isinstance(answer, Hold)
    assert answer.until == died_at + 10
    assert "the probe died again" in answer.why
    # and the next one is given the time this one took
    breaker.flow(died_at + 10)
    breaker.probe_sent(died_at + 10, "probe 2")
    answer = breaker.flow(died_at + 10)
    assert isinstance(answer, Hold)
    assert answer.until == died_at + 10 + (died_at - 5) * 1.5


def test_a_probe_of_long_ago_is_a_letter_like_others() -> None:
    breaker = ramping()
    assert breaker.flow(20.0) is FREE
    breaker.died_again(100.0, "probe")
    assert breaker.flow(100.0) is FREE


def test_the_probe_of_one_outage_says_nothing_about_the_next() -> None:
    breaker = ramping()
    assert breaker.flow(20.0) is FREE
    breaker.trip(200.0, "another outage")
    breaker.flow(205.0)
    breaker.probe_sent(205.0, "probe 2")
    breaker.died_again(206.0, "probe")
    assert isinstance(breaker.flow(210.0), Ramp)


def test_what_dies_on_the_ramp_closes_it_again() -> None:
    breaker, died = ramping(), 0
    for second in range(10, 40):
        if breaker.phase is not Phase.RAMPING:
            break
        assert rate(breaker, float(second)) <= 2, "it does not go faster while letters die"
        breaker.released(float(second))
        breaker.died_again(second + 0.5, str(second))
        died += 1
    assert breaker.phase is Phase.HELD
    assert died < 15
    answer = breaker.flow(second + 0.0)
    assert isinstance(answer, Hold)
    assert "on the ramp" in answer.why
    assert answer.until == second - 0.5 + 10


def test_one_poisonous_letter_does_not_stop_the_ramp() -> None:
    breaker = ramping()
    breaker.released(10.0)
    breaker.died_again(10.5, "poison")
    for second in range(11, 25):
        breaker.released(float(second), 10)
        breaker.flow(float(second))
    assert breaker.phase is Phase.FREE


def test_old_deaths_do_not_trip_it_again_when_it_is_free() -> None:
    breaker = ramping()
    assert breaker.flow(20.0) is FREE
    breaker.released(21.0)
    breaker.died_again(21.0, "one")
    assert breaker.flow(21.0) is FREE


def test_a_relapse_doubles_the_pause_and_a_good_minute_resets_it() -> None:
    breaker = ramping()
    assert breaker.flow(20.0) is FREE
    breaker.trip(30.0, "told by another")
    answer = breaker.flow(30.0)
    assert isinstance(answer, Hold)
    assert (answer.until, answer.why) == (40.0, "told by another")
    breaker.open(50.0)
    assert breaker.flow(50.0) is FREE
    breaker.trip(111.0, "told by another")
    answer = breaker.flow(111.0)
    assert isinstance(answer, Hold)
    assert answer.until == 116.0


def test_being_told_twice_is_being_told_once() -> None:
    breaker = tripped()
    breaker.trip(4.0, "told by another")
    answer = breaker.flow(4.0)
    assert isinstance(answer, Hold)
    assert answer.until == 5.0


def test_where_no_letter_comes_to_probe_with_it_opens_in_the_end() -> None:
    breaker = tripped()
    assert isinstance(breaker.flow(5.0), Probe)
    assert isinstance(breaker.flow(304.0), Probe)
    assert rate(breaker, 305.0) == 1


def test_a_probe_nobody_asked_for_changes_nothing() -> None:
    breaker = Breaker(TERMS)
    breaker.probe_sent(0.0, "letter")
    assert breaker.flow(0.0) is FREE
    breaker.died_again(1.0, "letter")
    assert breaker.flow(1.0) is FREE


def test_a_breaker_that_is_off_never_trips() -> None:
    breaker = Breaker(BreakerTerms(enabled=False))
    for number in range(1_000):
        breaker.died_again(0.0, str(number))
    breaker.trip(0.0, "told by another")
    assert breaker.flow(0.0) is FREE


def test_only_so_many_probes_are_known() -> None:
    breaker, now = tripped(), 0.0
    for number in range(MAX_PROBES * 3):
        answer = breaker.flow(now)
        assert isinstance(answer, Hold)
        now = answer.until
        breaker.flow(now)
        breaker.probe_sent(now, f"probe-{number}")
        now += 6
        assert isinstance(breaker.flow(now), Ramp)
        breaker.trip(now, "again")
    assert len(breaker._probes) == MAX_PROBES


# -- letters that need another try --------------------------------------------------------------------------
def test_while_letters_are_held_one_of_a_higher_attempt_may_try() -> None:
    breaker = Breaker(TERMS)
    assert not breaker.pioneer(0.0, 1), "where nothing is held nobody has to"
    breaker.released(0.0, 20, attempt=2)
    for number in range(20):
        breaker.died_again(0.0, str(number), attempt=2)
    assert [breaker.pioneer(1.0, attempt) for attempt in (0, 1, 2, 3)] == [False, False, False, True]
    breaker.pioneer_sent(1.0, "pioneer", 3)
    assert not breaker.pioneer(1.0, 3), "one of each is enough"
    assert isinstance(breaker.flow(4.0), Hold)
    assert isinstance(breaker.flow(6.0), Ramp), "it lives"


def test_a_pioneer_that_dies_leaves_everything_as_it_is() -> None:
    breaker = tripped()
    breaker.pioneer_sent(1.0, "pioneer", 1)
    breaker.died_again(2.0, "pioneer", attempt=1)
    assert isinstance(breaker.flow(4.9), Hold)
    assert isinstance(breaker.flow(5.0), Probe), "the pause is what it was"
    assert not breaker.pioneer(5.0, 1)
    assert breaker.pioneer(5.0, 2)


def test_a_probe_that_dies_does_not_stop_a_pioneer_that_lives() -> None:
    breaker = tripped()
    breaker.pioneer_sent(3.0, "pioneer", 2)
    assert isinstance(breaker.flow(5.0), Probe)
    breaker.probe_sent(5.0, "probe", 1)
    breaker.died_again(6.0, "probe", attempt=1)
    assert isinstance(breaker.flow(7.0), Hold)
    assert isinstance(breaker.flow(8.0), Ramp)


def test_a_probe_that_dies_after_a_pioneer_lived_closes_nothing() -> None:
    breaker = tripped()
    breaker.pioneer_sent(3.0, "pioneer", 2)
    assert isinstance(breaker.flow(5.0), Probe)
    breaker.probe_sent(5.0, "probe", 1)
    assert isinstance(breaker.flow(8.0), Ramp)
    breaker.died_again(9.0, "probe", attempt=1)
    assert isinstance(breaker.flow(9.0), Ramp)
    breaker.died_again(9.5, "pioneer", attempt=2)
    assert isinstance(breaker.flow(9.5), Hold), "but when the pioneer itself dies after all"


def test_in_one_outage_only_so_many_try() -> None:
    breaker = tripped()
    for attempt in range(1, PIONEERS + 1):
        assert breaker.pioneer(1.0, attempt)
        breaker.pioneer_sent(1.0, str(attempt), attempt)
        breaker.died_again(1.5, str(attempt), attempt=attempt)
    assert not breaker.pioneer(1.0, PIONEERS + 1)


def test_a_few_that_always_die_do_not_hide_that_others_failed_less_often() -> None:
    breaker = Breaker(TERMS)
    breaker.released(0.0, 20)
    for number in range(20):
        breaker.died_again(0.0, str(number), attempt=9 if number == 7 else 1)
    assert breaker.phase is Phase.HELD
    assert breaker.pioneer(1.0, 2)


def test_after_a_pioneer_lived_letters_that_failed_less_often_do_not_count() -> None:
    breaker = tripped()
    breaker.pioneer_sent(1.0, "pioneer", 2)
    assert isinstance(breaker.flow(6.0), Ramp)
    for second in range(7, 60):
        breaker.flow(float(second))
        breaker.released(float(second), 10, attempt=1)
        for number in range(10):
            breaker.died_again(float(second), f"{second}-{number}", attempt=1)
    assert breaker.flow(60.0) is FREE
    breaker.released(60.0, 20, attempt=2)
    for number in range(20):
        breaker.died_again(60.0, f"two-{number}", attempt=2)
    assert isinstance(breaker.flow(60.0), Hold), "those that should live do count"


def test_a_good_minute_later_all_of_them_count_again() -> None:
    breaker = tripped()
    breaker.pioneer_sent(1.0, "pioneer", 2)
    assert isinstance(breaker.flow(6.0), Ramp)
    assert breaker.flow(20.0) is FREE
    breaker.released(90.0, 20, attempt=1)
    for number in range(20):
        breaker.died_again(90.0, str(number), attempt=1)
    assert breaker.phase is Phase.HELD


class Origin:
    """Letters, their delays, what is held and the origin, by a clock of tenths of a second."""

    def __init__(self, letters: int, failures: float, *, lag_s: float = 0.2) -> None:
        self.breaker = Breaker(TERMS)
        self.due = [(1.0, name, 1) for name in range(letters)]
        self.held: deque[tuple[int, int]] = deque()
        self.dying: list[tuple[float, float, int, int]] = []
        self.done = self.sent = self.parked = 0
        self.failures = failures
        self.lag_s = lag_s
        self.tokens = 0.0

    def run(self, until: float) -> None:
        for tick in range(int(until * 10)):
            self.step(tick / 10)

    def step(self, now: float) -> None:
        breaker = self.breaker
        dead, self.dying = _parted(self.dying, now)
        for _, released_at, name, attempt in dead:
            breaker.died_again(now, str(name), attempt=attempt, released_at=released_at)
            if attempt < 5:
                self.due.append((now + 2.0**attempt, name, attempt + 1))
            else:
                self.parked += 1
        due, self.due = _parted(self.due, now)
        for _, name, attempt in due:
            if breaker.flow(now) is FREE:
                self.release(now, name, attempt)
            elif breaker.pioneer(now, attempt):
                self.release(now, name, attempt)
                breaker.pioneer_sent(now, str(name), attempt)
            else:
                self.held.append((name, attempt))
        self.let_go(now)

    def let_go(self, now: float) -> None:
        match self.breaker.flow(now):
            case Probe() if self.held:
                name, attempt = self.held.popleft()
                self.release(now, name, attempt)
                self.breaker.probe_sent(now, str(name), attempt)
            case Ramp(rate_per_s=rate_per_s):
                self.tokens += rate_per_s / 10
                while self.held and self.tokens >= 1:
                    self.tokens -= 1
                    self.release(now, *self.held.popleft())
            case Free():
                while self.held and self.breaker.flow(now) is FREE:
                    self.release(now, *self.held.popleft())
            case _:
                pass

    def release(self, now: float, name: int, attempt: int) -> None:
        self.sent += 1
        self.breaker.released(now, attempt=attempt)
        if attempt < self.failures:
            self.dying.append((now + self.lag_s, now, name, attempt))
        else:
            self.done += 1


_Timed = TypeVar("_Timed", bound=tuple[float, *tuple[float, ...]])


def _parted(timed: list[_Timed], now: float) -> tuple[list[_Timed], list[_Timed]]:
    return [one for one in timed if one[0] <= now], [one for one in timed if one[0] > now]


@pytest.mark.parametrize("letters", [20, 54, 1_000])
@pytest.mark.parametrize("failures", [1, 2, 3, 4, 5])
@pytest.mark.parametrize("lag_s", [0.0, 0.2, 3.0])
def test_letters_that_fail_some_times_all_get_done(letters: int, failures: int, lag_s: float) -> None:
    """Each fails so often, counting its first death, and would be parked only after that."""
    origin = Origin(letters, failures, lag_s=lag_s)
    origin.run(150.0)
    assert (origin.done, origin.parked) == (letters, 0)
    assert origin.sent == letters * failures


@pytest.mark.parametrize("letters", [200, 2_000])
@pytest.mark.parametrize("lag_s", [0.0, 0.2, 3.0])
def test_in_an_outage_hardly_any_letter_loses_its_attempts(letters: int, lag_s: float) -> None:
    origin = Origin(letters, float("inf"), lag_s=lag_s)
    origin.run(300.0)
    assert origin.sent <= letters + 60, "the first wave, and what it takes to find out how things are"
    assert origin.parked <= 10
