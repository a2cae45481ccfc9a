"""Pattern to target: the examples people start from, and everything that leaves a doubt.

About `core.topology.queue_patterns`.
"""

from __future__ import annotations

import pytest

from deadletter.core.topology.queue_patterns import mapping
from deadletter.errors import UsageError


@pytest.mark.parametrize(
    ("source", "target", "queue", "expected"),
    [
        ("dlq.*", "dead.*", "dlq.orders", "dead.orders"),
        ("dlq.*", "dead.*", "dlq.orders.eu", "dead.orders.eu"),
        ("*_dlq_*", "*_failed_*", "v1_dlq_orders", "v1_failed_orders"),
        ("dlq.*", "permanent", "dlq.orders", "permanent"),
        ("orders.dlq", "orders.dead", "orders.dlq", "orders.dead"),
        ("*.dlq", "*.dead", "a+b(c).dlq", "a+b(c).dead"),
        (r"dlq\*.*", r"dead\*.*", "dlq*.x", "dead*.x"),
        ("größe.*", "tot.*", "größe.ü\nx", "tot.ü\nx"),
    ],
)
def test_what_a_star_stands_for(source: str, target: str, queue: str, expected: str) -> None:
    assert mapping(source, target).target_of(queue) == expected


@pytest.mark.parametrize(
    ("source", "queue"),
    [("dlq.*", "dlq"), ("dlq.*", "dlq."), ("dlq.*", "xdlq.a"), ("DLQ.*", "dlq.a"), ("a.b", "axb")],
)
def test_what_is_not_named(source: str, queue: str) -> None:
    assert mapping(source, "dead").target_of(queue) is None


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        ("dlq", "dead.*", "has 1 stars and the pattern 'dlq' only 0"),
        ("dlq.*", "*.dead.*", "has 2 stars and the pattern 'dlq.*' only 1"),
        ("*.dlq.*", "dead.*", "it is not clear which"),
        ("dlq.**", "dead", "two stars beside each other"),
        ("*a*b*c*d*e*", "dead", "at most 5 stars"),
        ("", "dead", "expected a pattern"),
        ("dlq", "", "expected a target"),
    ],
)
def test_doubts_are_refused_before_anything_moves(source: str, target: str, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        mapping(source, target)
    assert said in str(raised.value)


def test_a_name_that_fits_in_two_ways_is_refused() -> None:
    with pytest.raises(UsageError, match="in more than one way"):
        mapping("*_dlq_*", "*_failed_*").target_of("a_dlq_b_dlq_c")
    assert mapping("*_dlq_*", "dead").target_of("a_dlq_b_dlq_c") == "dead", "a fixed target leaves no doubt"


def test_a_target_the_pattern_names_too_is_refused() -> None:
    with pytest.raises(UsageError, match="the next run would move letters on"):
        mapping("dlq*", "dlq-dead*").target_of("dlq.orders")
    with pytest.raises(UsageError, match="itself"):
        mapping("a", "a").target_of("a")
    with pytest.raises(UsageError, match="more than 255 bytes"):
        mapping("*.dlq", "x*" + "y" * 10).target_of("z" * 250 + ".dlq")


def test_many_stars_do_not_take_for_ever() -> None:
    assert mapping("*a*a*a*a*b", "dead").target_of("a" * 255) is None


def test_a_fixed_source_asks_nobody() -> None:
    assert mapping("dlq.orders", "dead").is_fixed
    assert mapping(r"dlq\*", "dead").is_fixed
    assert mapping(r"dlq\*", "dead").name == "dlq*"
    assert not mapping("dlq.*", "dead").is_fixed
