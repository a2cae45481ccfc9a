"""Guards and alerts, whatever happens: budgets are kept, breakers slow down, alerts come in pairs.

About `core.guards.breaker`, `core.guards.budget`, `core.guards.copies_alarm`, `service.telling.alerting`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from deadletter.core.guards.breaker import Breaker, BreakerTerms
from deadletter.core.guards.budget import Budget
from deadletter.core.guards.copies_alarm import CopiesAlarm
from deadletter.core.guards.flow import Free, Hold, Probe, Ramp
from deadletter.service.telling.alerting import AlertChange, Alerts, AlertSeverity, Notice

RATES = st.floats(0.1, 10_000)


@given(rate=RATES, pauses_s=st.lists(st.floats(0, 90), min_size=1, max_size=60), greed=st.integers(1, 200))
def test_no_stretch_of_time_sees_more_than_the_budget_and_one_burst(
    rate: float, pauses_s: list[float], greed: int
) -> None:
    budget, now, taken = Budget(rate, 0.0), 0.0, []
    for pause_s in pauses_s:
        now += pause_s
        taken.append((now, sum(budget.take(now) for _ in range(greed))))
    for start, (begin, _) in enumerate(taken):
        gone = 0
        for end, count in taken[start:]:
            gone += count
            assert gone <= budget.burst + (end - begin) * rate / 60 + 1e-6


@given(
    rates=st.lists(st.tuples(RATES, st.floats(0.001, 30)), min_size=1, max_size=30),
    greed=st.integers(1, 100),
)
def test_a_budget_that_is_resized_never_gives_more_than_its_largest_rate(
    rates: list[tuple[float, float]], greed: int
) -> None:
    most = max(rate for rate, _ in rates)
    budget, now, gone = Budget(rates[0][0], 0.0), 0.0, 0
    for rate, pause_s in rates:
        budget.resize(rate, now)
        now += pause_s
        gone += sum(budget.take(now) for _ in range(greed))
        assert gone <= max(1, most / 10) + now * most / 60 + 1e-6
        assert budget.used(now) <= gone


@given(
    lag_s=st.floats(0, 4.9),
    offered_per_s=st.integers(20, 300),
    shown=st.floats(0.3, 1),
    seconds=st.integers(30, 120),
    letters=st.integers(1, 50),
)
def test_while_everything_dies_the_breaker_lets_ever_less_through(
    lag_s: float, offered_per_s: int, shown: float, seconds: int, letters: int
) -> None:
    """A handler that fails after `lag_s`; of the deaths and of the releases we see the share `shown`."""
    terms = BreakerTerms(letters=letters)
    breaker, number, go = Breaker(terms), 0, 0
    dying: deque[tuple[float, str]] = deque()
    step_s, tokens, debt = 0.1, 0.0, 0.0
    by_second = [0] * seconds
    for tick in range(seconds * 10):
        now = tick * step_s
        while dying and dying[0][0] <= now:
            at, name = dying.popleft()
            breaker.died_again(now, name, released_at=at - lag_s)
        match breaker.flow(now):
            case Free():
                go, tokens = offered_per_s // 10, 0.0
            case Ramp(rate_per_s=rate_per_s):
                tokens += rate_per_s * step_s
                go, tokens = int(tokens), tokens % 1
            case Probe():
                breaker.probe_sent(now, f"probe-{tick}")
                dying.append((now + lag_s, f"probe-{tick}"))
                by_second[tick // 10] += 1
                continue
            case Hold():
                continue
        # the same share of both is ours to see
        debt += go * shown
        seen, debt = int(debt), debt % 1
        breaker.released(now, seen)
        for _ in range(seen):
            number += 1
            dying.append((now + lag_s, str(number)))
        by_second[tick // 10] += go
    # what was just released cannot have died yet: it takes ten times the lag until 90 % have, or a quarter
    # of the window; and the first `letters` deaths must be there
    blind_s = min(10 * lag_s, 16 + lag_s) + lag_s + (letters + 1) / (offered_per_s * shown) + 1
    after = by_second[int(blind_s) + 1 :]
    assert sum(after) <= len(after), "no more than one a second, on average"


@given(
    share=st.floats(0, 0.6),
    lag_s=st.floats(0, 25),
    rates=st.lists(st.integers(0, 60), min_size=60, max_size=200),
)
def test_a_breaker_never_trips_while_less_than_its_share_dies(
    share: float, lag_s: float, rates: list[int]
) -> None:
    breaker, due, debt = Breaker(BreakerTerms()), [], 0.0
    for second, rate in enumerate(rates):
        breaker.released(float(second), rate)
        debt += rate * share
        died, debt = int(debt), debt % 1
        due.append((second + lag_s, died))
        while due and due[0][0] <= second + 1:
            at, count = due.pop(0)
            for number in range(count):
                breaker.died_again(at, f"{at}-{number}", released_at=at - lag_s)
        assert isinstance(breaker.flow(second + 1.0), Free)


SEVERITIES = st.sampled_from([None, None, AlertSeverity.WARNING, AlertSeverity.CRITICAL])
OBSERVATIONS = st.lists(
    st.tuples(st.floats(0, 40), st.sampled_from("abcdef"), SEVERITIES), min_size=1, max_size=200
)


def flat(notices: list[Notice]) -> Iterator[Notice]:
    for notice in notices:
        yield notice
        yield from notice.folded


@given(observations=OBSERVATIONS, settle_s=st.floats(0, 60), fold_after=st.integers(1, 30), ask=st.booleans())
def test_every_alert_is_told_in_pairs_and_in_order(
    observations: list[tuple[float, str, AlertSeverity | None]], settle_s: float, fold_after: int, ask: bool
) -> None:
    alerts = Alerts(settle_s=settle_s, fold_after=fold_after)
    told: dict[str, AlertSeverity] = {}
    now = 0.0

    def hear(notices: list[Notice]) -> None:
        for notice in flat(notices):
            match notice.change:
                case AlertChange.RAISED:
                    assert notice.key not in told
                    told[notice.key] = notice.severity
                case AlertChange.ESCALATED:
                    assert told[notice.key] is AlertSeverity.WARNING
                    assert notice.severity is AlertSeverity.CRITICAL
                    told[notice.key] = notice.severity
                case AlertChange.EASED:
                    assert told[notice.key] is AlertSeverity.CRITICAL
                    assert notice.severity is AlertSeverity.WARNING
                    told[notice.key] = notice.severity
                case AlertChange.RECOVERED:
                    del told[notice.key]
            assert notice.since <= now

    for pause_s, key, severity in observations:
        now += pause_s
        hear(alerts.observe(key, severity, key, now))
        if ask:
            hear(alerts.due(now))
    now += 61
    hear(alerts.due(now))
    now += 61
    hear(alerts.due(now))
    assert told == {alert.key: alert.severity for alert in alerts.active()}


@given(observations=OBSERVATIONS, fold_after=st.integers(1, 10))
def test_no_window_sees_more_notices_than_allowed(
    observations: list[tuple[float, str, AlertSeverity | None]], fold_after: int
) -> None:
    alerts, now, times = Alerts(settle_s=0, fold_after=fold_after), 0.0, []
    for pause_s, key, severity in observations:
        now += pause_s
        times += [now] * len(alerts.observe(key, severity, key, now))
    for begin in times:
        assert sum(begin <= at < begin + 60 for at in times) <= fold_after


@given(
    trips=st.lists(st.integers(1, 30), min_size=1, max_size=8),
    equals=st.integers(1, 30),
    copies=st.integers(1, 6),
)
def test_letters_that_do_not_multiply_never_raise_the_growth_alarm(
    trips: list[int], equals: int, copies: int
) -> None:
    """Each goes and comes once per attempt, as many equal ones as there may be; passes are broken off."""
    growth, number = CopiesAlarm(copies), 0
    for attempt, passes in enumerate(trips, 1):
        for _ in range(equals):
            growth.went("id", attempt, origin="q")
        for _ in range(passes):
            number += 1
            came = [growth.came("id", attempt, origin="q", seen_in=number) for _ in range(equals)]
            assert all(one.copies is None for one in came)
            assert sum(one.new for one in came) == (
                equals if passes and number == _first(trips, attempt) else 0
            )


def _first(trips: list[int], attempt: int) -> int:
    """The number of the first pass that shows an attempt."""
    return sum(trips[: attempt - 1]) + 1
