"""The switch: when something that fails is left alone, and how it comes back.

About `core.guards.switch`.
"""

from __future__ import annotations

from deadletter.core.guards.switch import FAILURES, MAKES_UP, PAUSE_MAX_S, PAUSE_S, Position, Switch


def off(now: float = 0.0) -> Switch:
    switch = Switch()
    assert [switch.failed(now) for _ in range(FAILURES)] == [False] * (FAILURES - 1) + [True]
    return switch


def test_it_is_on_until_it_fails_too_often() -> None:
    switch = Switch()
    assert switch.position(0.0) is Position.ON
    assert switch.idle
    assert off().position(PAUSE_S - 1) is Position.OFF


def test_after_a_pause_one_is_tried_and_a_success_switches_it_on() -> None:
    switch = off()
    assert switch.position(PAUSE_S) is Position.TRIAL
    assert switch.worked()
    assert switch.position(PAUSE_S) is Position.ON
    assert not switch.idle, "what happened is remembered"


def test_each_trial_that_fails_doubles_the_pause_up_to_its_most() -> None:
    switch, now, pauses = off(), 0.0, []
    for _ in range(8):
        pauses.append(switch.pause_s)
        now += switch.pause_s
        assert switch.position(now) is Position.TRIAL
        assert switch.failed(now)
    assert pauses[:3] == [PAUSE_S, PAUSE_S * 2, PAUSE_S * 4]
    assert pauses[-1] == PAUSE_MAX_S


def test_what_works_makes_up_for_what_failed() -> None:
    switch = Switch()
    for _ in range(10 * FAILURES):
        assert not switch.failed(0.0)
        for _ in range(MAKES_UP):
            assert not switch.worked()
        assert switch.idle


def test_back_from_a_trial_it_has_less_patience_and_a_short_pause_only_when_it_is_well() -> None:
    switch = off()
    switch.position(PAUSE_S)
    switch.failed(PAUSE_S)  # the trial
    assert switch.worked()
    assert not switch.failed(200.0)
    assert switch.failed(200.0), "two, and not three"
    assert switch.pause_s == PAUSE_S * 2
    assert switch.worked()
    for _ in range(FAILURES * MAKES_UP):
        switch.worked()
    assert switch.idle
    assert switch.pause_s == PAUSE_S
