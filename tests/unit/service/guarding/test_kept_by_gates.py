"""What gates keep of a sweep: when it goes on, with how many letters, and what is said of the others.

About `service.guarding.kept`, `service.guarding.allowance`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from deadletter.core.guards.flow import FREE, Flow, Free, Hold, Probe, Ramp
from deadletter.service.guarding.allowance import Allowance
from deadletter.service.guarding.kept import Kept, KeptStep, Shut, Soon, Take, in_words, next_step

OPEN = Allowance(count=None)
SHUT = Allowance(count=0, wait_s=1.0)
PROBE = Allowance(count=1)
RAMP = Allowance(count=4, rate_per_s=4.0)
SPENT = Allowance(count=5, wait_s=0.5)
"""A budget that has to fill again."""


def gates(**said: Allowance) -> Callable[[str], Allowance]:
    return said.__getitem__


@pytest.mark.parametrize(
    ("said", "step"),
    [
        (OPEN, Take(count=10)),
        (SHUT, Shut()),
        (PROBE, Take(count=1)),
        (RAMP, Take(count=4, rate_per_s=4.0)),
        (SPENT, Shut()),
        (Allowance(count=50, rate_per_s=64.0), Take(count=10, rate_per_s=64.0)),
    ],
)
def test_of_one_gate_as_many_go_as_it_lets_through(said: Allowance, step: KeptStep) -> None:
    assert next_step(Kept(by={"a": 10}), gates(a=said)) == step


@pytest.mark.parametrize(
    ("said", "step"),
    [
        ({"a": SHUT, "b": SHUT}, Shut()),
        ({"a": SHUT, "b": OPEN}, Take(count=37)),
        ({"a": SHUT, "b": PROBE}, Take(count=37)),
        ({"a": SHUT, "b": RAMP}, Soon()),
        ({"a": RAMP, "b": RAMP}, Soon()),
        ({"a": RAMP, "b": OPEN}, Take(count=37)),
    ],
)
def test_of_several_all_are_looked_at_once_one_is_open(said: Mapping[str, Allowance], step: KeptStep) -> None:
    assert next_step(Kept(by={"a": 10, "b": 20}, others=7), gates(**said)) == step


def test_others_among_them_make_one_gate_like_several() -> None:
    kept = Kept(by={"a": 10}, others=1)
    assert kept.alone is None
    assert next_step(kept, gates(a=RAMP)) == Soon()
    assert next_step(kept, gates(a=OPEN)) == Take(count=11)


def test_where_no_gate_keeps_anything_there_is_nothing_to_wait_for() -> None:
    assert next_step(Kept(others=5), gates()) == Shut()


@pytest.mark.parametrize(
    ("flow", "words"),
    [
        (Hold(until=1.0, guard="consumers", why="nobody consumes the origin"), "once somebody consumes"),
        (Hold(until=1.0, guard="breaker", why="20 of 20 died again"), "one letter first"),
        (Hold(until=1.0, guard="growth", why="copies"), "only a person"),
        (Probe(guard="full", why="it is full"), "when one letter went well"),
        (Ramp(rate_per_s=1.0, guard="consumers", why="faster and faster"), "by themselves"),
        (FREE, "open again"),
    ],
)
def test_it_is_said_which_gate_why_and_what_opens_it(flow: Flow, words: str) -> None:
    said = in_words("orders", 1_234, flow)
    assert said.startswith("1,234 stay, the gate 'orders' is")
    assert words in said
    if not isinstance(flow, Free):
        assert flow.why in said
