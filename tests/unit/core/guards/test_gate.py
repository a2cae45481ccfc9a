"""Health, refusals, growth, and all of it in one gate.

About `core.guards.gate`, `core.guards.health`, `core.guards.copies_alarm`, `core.guards.flow`,
`core.guards.phase`.
"""

from __future__ import annotations

import pytest

from deadletter.core.guards.breaker import Breaker, BreakerTerms
from deadletter.core.guards.copies_alarm import CopiesAlarm
from deadletter.core.guards.flow import FREE, Flow, Free, Hold, Probe, Ramp, strictest
from deadletter.core.guards.gate import FullOrigin, Gate, GateNotice, GateState
from deadletter.core.guards.health import OriginState, health
from deadletter.errors import UsageError

WELL = OriginState(exists=True, consumers=2, ready=10)


def asked(
    state: OriginState | None,
    *,
    require_consumers: bool = True,
    max_depth: int | None = None,
    in_flight: int = 0,
) -> Free | Hold:
    return health(
        state,
        require_consumers=require_consumers,
        max_depth=max_depth,
        in_flight=in_flight,
        now=100.0,
        again_s=5.0,
    )


# -- flow -------------------------------------------------------------------------------------------------


def _order() -> list[Flow]:
    return [
        Hold(until=9, guard="full", why=""),
        Hold(until=5, guard="breaker", why=""),
        Probe(guard="breaker", why=""),
        Ramp(rate_per_s=1, guard="full", why=""),
        Ramp(rate_per_s=8, guard="breaker", why=""),
        FREE,
    ]


@pytest.mark.parametrize("first", range(6))
@pytest.mark.parametrize("second", range(6))
def test_the_strictest_answer_counts(first: int, second: int) -> None:
    answers = _order()
    assert strictest(answers[first], answers[second]) == answers[min(first, second)]


# -- health -----------------------------------------------------------------------------------------------


def test_an_origin_that_is_well_takes_letters() -> None:
    assert asked(WELL, max_depth=1_000) is FREE


def test_what_nobody_knows_closes_nothing() -> None:
    assert asked(None) is FREE


def test_a_missing_origin_holds_nothing_up() -> None:
    assert asked(OriginState(exists=False, consumers=0, ready=0)) is FREE


def test_an_origin_nobody_consumes_is_left_alone() -> None:
    lonely = OriginState(exists=True, consumers=0, ready=0)
    answer = asked(lonely)
    assert isinstance(answer, Hold)
    assert (answer.guard, answer.until) == ("consumers", 105.0)
    assert asked(lonely, require_consumers=False) is FREE


def test_a_deep_origin_is_left_alone_and_what_is_on_its_way_counts() -> None:
    assert asked(WELL, max_depth=11) is FREE
    answer = asked(WELL, max_depth=10)
    assert isinstance(answer, Hold)
    assert answer.guard == "depth"
    assert isinstance(asked(WELL, max_depth=11, in_flight=1), Hold)


def test_a_full_drop_head_queue_would_throw_another_message_away() -> None:
    def state(ready: int, *, drops_head: bool = True) -> OriginState:
        return OriginState(exists=True, consumers=1, ready=ready, max_length=100, drops_head=drops_head)

    assert asked(state(99)) is FREE
    answer = asked(state(100))
    assert isinstance(answer, Hold)
    assert answer.guard == "depth"
    assert asked(state(90), in_flight=9) is FREE
    assert isinstance(asked(state(90), in_flight=10), Hold)
    assert asked(state(100, drops_head=False)) is FREE, "it refuses, and then we know"


# -- refusals ---------------------------------------------------------------------------------------------


def test_a_full_origin_is_tried_with_one_letter_after_growing_pauses() -> None:
    refusals, now, pauses = FullOrigin(), 0.0, []
    refusals.refused(now)
    for _ in range(7):
        refusals.refused(now + 0.1)  # others that were on their way
        answer = refusals.flow(now)
        assert isinstance(answer, Hold)
        assert answer.guard == "full"
        pauses.append(answer.until - now)
        now = answer.until
        assert isinstance(refusals.flow(now), Probe)
        refusals.probe_sent(now)
        assert isinstance(refusals.flow(now), Hold)
        refusals.refused(now)
    assert pauses == [1, 2, 4, 8, 16, 30, 30]


def test_an_origin_with_room_again_gets_letters_faster_and_faster() -> None:
    refusals = FullOrigin()
    refusals.refused(0.0)
    refusals.accepted(0.5)  # one that was on its way
    assert isinstance(refusals.flow(0.9), Hold)
    refusals.flow(1.0)
    refusals.probe_sent(1.0)
    refusals.accepted(1.1)
    assert refusals.flow(1.1) == Ramp(rate_per_s=1, guard="full", why="the origin takes letters again")
    assert isinstance(refusals.flow(9.0), Ramp)
    assert refusals.flow(10.2) is FREE


def test_who_came_too_fast_comes_half_as_fast_next_time() -> None:
    refusals = FullOrigin()
    refusals.refused(0.0)
    refusals.flow(1.0)
    refusals.probe_sent(1.0)
    refusals.accepted(1.0)
    refusals.refused(6.0)  # at 32 a second
    answer = refusals.flow(6.0)
    assert isinstance(answer, Hold)
    assert answer.until == 7.0
    refusals.flow(7.0)
    refusals.probe_sent(7.0)
    refusals.accepted(7.0)
    answer = refusals.flow(7.0)
    assert isinstance(answer, Ramp)
    assert answer.rate_per_s == 16


def test_a_probe_without_an_answer_is_tried_again() -> None:
    refusals = FullOrigin()
    refusals.refused(0.0)
    refusals.flow(1.0)
    refusals.probe_sent(1.0)
    assert isinstance(refusals.flow(30.9), Hold)
    assert isinstance(refusals.flow(31.0), Probe)


def test_where_nothing_waits_a_full_origin_is_forgotten() -> None:
    refusals = FullOrigin()
    refusals.refused(0.0)
    refusals.flow(1.0)
    assert isinstance(refusals.flow(31.0), Ramp)


# -- growth -----------------------------------------------------------------------------------------------


def came(
    growth: CopiesAlarm,
    attempt: int,
    count: int,
    *,
    letter_id: str = "a",
    origin: str = "orders",
    seen_in: int = 0,
) -> list[int]:
    told = [growth.came(letter_id, attempt, origin=origin, seen_in=seen_in).copies for _ in range(count)]
    return [number for number in told if number is not None]


def went(growth: CopiesAlarm, attempt: int, count: int) -> None:
    for _ in range(count):
        growth.went("a", attempt, origin="orders")


def test_more_copies_than_allowed_are_told() -> None:
    growth = CopiesAlarm(4)
    went(growth, 1, 1)
    assert came(growth, 1, 4) == []
    assert came(growth, 1, 2) == [5, 6]


def test_each_attempt_and_each_origin_counts_for_itself() -> None:
    growth = CopiesAlarm(1)
    for attempt in range(5):
        for origin in ("orders", "mails"):
            assert came(growth, attempt, 1, origin=origin) == []


def test_a_letter_that_was_given_back_and_is_taken_again_is_no_copy() -> None:
    """In each pass once: a sweep that leaves it, a connection that is lost."""
    growth = CopiesAlarm(1)
    for number in range(100):
        assert came(growth, 1, 1, seen_in=number) == []
    assert came(growth, 1, 1, seen_in=99) == [2]


def test_one_letter_in_two_queues_or_passes_died_once() -> None:
    growth = CopiesAlarm(4)
    passes = [1, 2, 3, 3, 2, 2, 1, 1]
    new = [growth.came("a", 1, origin="orders", seen_in=number).new for number in passes]
    assert new == [True, False, False, True, False, True, False, False]


def test_equal_letters_are_not_copies() -> None:
    growth = CopiesAlarm(4)
    for attempt in range(1, 10):
        went(growth, attempt, 100)
        assert came(growth, attempt, 100) == []


def test_doubling_is_found_although_it_began_with_two_and_each_was_sent_home() -> None:
    growth, alarms = CopiesAlarm(4), []
    for attempt in range(1, 7):
        went(growth, attempt, 2**attempt)
        alarms += [attempt] if came(growth, attempt, 2 ** (attempt + 1)) else []
    assert alarms[0] == 3  # 16 of what went home as two


def test_what_is_remembered_is_bounded_and_what_was_just_seen_is_in_it() -> None:
    growth = CopiesAlarm(1, remember=100)
    for number in range(10_000):
        growth.went(str(number), 1, origin="orders")
        assert came(growth, 1, 1, letter_id=str(number)) == []
        kept = (growth._seen, growth._here, growth._most, growth._first, growth._equals)
        assert max(map(len, kept)) <= 200
        if number >= 99:
            assert came(growth, 1, 1, letter_id=str(number - 49)) == [2]
    assert came(growth, 1, 1, letter_id="5") == []


@pytest.mark.parametrize(("copies", "remember"), [(0, 10), (4, 0)])
def test_an_alarm_that_cannot_be_is_refused(copies: int, remember: int) -> None:
    with pytest.raises(UsageError, match="growth alarm"):
        CopiesAlarm(copies, remember)


# -- the gate ---------------------------------------------------------------------------------------------


def told(gate: Gate, now: float) -> tuple[str, str] | None:
    notice = gate.changed(now)
    assert notice is None or (notice.key, notice.origin) == ("orders", "orders")
    return None if notice is None else (str(notice.state), notice.guard)


def test_a_gate_nothing_happens_at_is_free_and_silent() -> None:
    gate = Gate("orders", "orders", Breaker(BreakerTerms()))
    for tick in range(1_000):
        gate.released(tick * 0.1)
        assert gate.flow(tick * 0.1) is FREE
        assert gate.changed(tick * 0.1) is None


def test_the_breaker_of_a_gate_from_trip_to_open() -> None:
    gate = Gate("orders", "orders", Breaker(BreakerTerms()))
    assert gate.flow(0.0) is FREE
    gate.released(0.0, 20)
    for number in range(20):
        gate.died_again(0.0, str(number))
    assert isinstance(gate.flow(0.0), Hold), "at once, although Free is kept for a while"
    assert told(gate, 0.0) == ("closed", "breaker")
    assert told(gate, 1.0) is None
    assert told(gate, 5.0) == ("probing", "breaker")
    gate.probe_sent(5.0, "probe")
    assert isinstance(gate.flow(5.0), Hold)
    assert told(gate, 5.0) is None, "still probing"
    assert told(gate, 10.0) == ("ramping", "breaker")
    assert told(gate, 12.0) is None
    assert gate.flow(19.0) is FREE
    assert told(gate, 19.0) is None, "not settled"
    assert gate.changed(20.1) == GateNotice(
        key="orders", origin="orders", state=GateState.OPEN, guard="breaker", why="letters go as they come"
    )
    assert told(gate, 21.0) is None


def test_a_failed_probe_closes_the_gate_again() -> None:
    gate = Gate("orders", "orders", Breaker(BreakerTerms()))
    for number in range(20):
        gate.died_again(0.0, str(number))
    told(gate, 0.0)
    told(gate, 5.0)
    gate.probe_sent(5.0, "probe")
    gate.died_again(6.0, "probe")
    assert told(gate, 6.0) == ("closed", "breaker")


def test_a_refused_letter_closes_the_gate_and_an_accepted_one_opens_it() -> None:
    gate = Gate("orders", "orders")
    assert gate.flow(0.0) is FREE
    gate.refused(0.0)
    assert isinstance(gate.flow(0.0), Hold)
    assert told(gate, 0.0) == ("closed", "full")
    assert isinstance(gate.flow(1.0), Probe)
    gate.probe_sent(1.0, "probe")
    assert told(gate, 1.0) == ("probing", "full")
    gate.accepted(1.1)
    assert told(gate, 1.1) == ("ramping", "full")


def test_letters_for_an_origin_that_was_closed_come_back_on_a_ramp() -> None:
    gate = Gate("orders", "orders")
    assert gate.flow(0.0) is FREE
    gate.healthy(Hold(until=5.0, guard="consumers", why="nobody consumes the origin"), 0.0)
    assert isinstance(gate.flow(0.0), Hold)
    assert told(gate, 0.0) == ("closed", "consumers")
    gate.healthy(FREE, 5.0)
    answer = gate.flow(5.0)
    assert isinstance(answer, Ramp)
    assert (answer.rate_per_s, answer.guard) == (1, "consumers")
    gate.healthy(FREE, 8.0)
    assert gate.flow(8.0) != answer, "well for longer, the ramp goes on"
    assert told(gate, 8.0) == ("ramping", "consumers")
    assert gate.flow(14.0) is FREE


def test_health_that_nobody_looks_at_any_more_is_unknown() -> None:
    gate = Gate("orders", "orders")
    gate.healthy(Hold(until=5.0, guard="depth", why="too deep"), 0.0)
    assert isinstance(gate.flow(5.1), Hold), "a survey that is late opens nothing"
    assert isinstance(gate.flow(14.9), Hold)
    assert isinstance(gate.flow(15.0), Ramp)


def test_a_breaker_does_not_wait_for_its_probe_while_nobody_consumes() -> None:
    gate = Gate("orders", "orders", Breaker(BreakerTerms()))
    for number in range(20):
        gate.died_again(0.0, str(number))
    gate.healthy(Hold(until=1_000.0, guard="consumers", why="nobody consumes the origin"), 1.0)
    for second in range(1, 999):
        answer = gate.flow(float(second))
        assert isinstance(answer, Hold)
    gate.healthy(FREE, 999.0)
    assert isinstance(gate.flow(999.0), Probe), "the probe is still due"


def test_growth_stops_a_gate_until_somebody_resumes_it() -> None:
    gate = Gate("orders", "orders")
    assert gate.flow(0.0) is FREE
    gate.stop("5 copies of one letter")
    for now in (0.0, 10.0, 1e6):
        assert gate.flow(now) == Hold(until=now + 5, guard="growth", why="5 copies of one letter")
    assert told(gate, 1e6) == ("closed", "growth")
    gate.resume(1e6)
    assert told(gate, 1e6) == ("ramping", "growth")
    gate.resume(1e6 + 5)
    assert gate.flow(1e6 + 20) is FREE


def test_a_budget_holds_for_its_time_and_does_not_chatter() -> None:
    gate = Gate("orders", "orders")
    notices, now = [], 0.0
    for _ in range(100):
        gate.budget(Hold(until=now + 0.1, guard="budget", why="60 a minute"))
        assert isinstance(gate.flow(now), Hold)
        notices.append(told(gate, now))
        now += 0.1
        assert gate.flow(now) is FREE
        notices.append(told(gate, now))
    assert [notice for notice in notices if notice] == [("closed", "budget")]
    assert told(gate, now + 2) == ("open", "budget")


def test_a_budget_may_also_be_a_rate() -> None:
    gate = Gate("orders", "orders")
    gate.budget(Ramp(rate_per_s=2, guard="budget", why="120 a minute"))
    assert gate.flow(0.0) == Ramp(rate_per_s=2, guard="budget", why="120 a minute")
    gate.refused(0.0)
    assert isinstance(gate.flow(0.0), Hold)
    gate.budget(FREE)
    gate.flow(1.0)
    gate.probe_sent(1.0, "x")
    gate.accepted(1.0)
    assert gate.flow(11.0) is FREE
