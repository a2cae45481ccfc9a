"""The corners of topic matching.

That they are the broker's corners, `tests/broker/core/topology/test_topic_on_broker.py` checks.

About `core.topology.routing_keys`, `core.text.glob`.
"""

from __future__ import annotations

import pytest
from tests.effort import lines_run

from deadletter.core.text.glob import glob
from deadletter.core.topology.routing_keys import topic_matches


@pytest.mark.parametrize(
    ("pattern", "key"),
    [
        ("a.b", "a.b"),
        ("a.*", "a.b"),
        ("*.b", "a.b"),
        ("a.#", "a"),
        ("a.#", "a.b.c"),
        ("#.a", "a"),
        ("#", ""),
        ("#", "a.b"),
        ("#.#", ""),
        ("", ""),
        ("*", "a"),
        ("a.*.b", "a..b"),
        ("a.*", "a."),
        ("*.*", "."),
        ("#.b.#", "a.b.c"),
        ("#.b.*.#", "b.b.b"),
        ("a*", "a*"),
        ("retry.#.1", "retry.rk.test.fail.1"),
        ("retry.#.1", "retry.1"),
    ],
)
def test_matches(pattern: str, key: str) -> None:
    assert topic_matches(pattern, key)


@pytest.mark.parametrize(
    ("pattern", "key"),
    [
        ("*", ""),
        ("", "a"),
        ("a", "a.b"),
        ("a.*", "a"),
        ("a.*", "a.b.c"),
        ("a*", "ab"),
        ("a#", "a.b"),
        ("*", "."),
        ("#.b.*", "a.b"),
        ("a.b", "A.b"),
        ("retry.#.1", "retry.rk.2"),
    ],
)
def test_does_not_match(pattern: str, key: str) -> None:
    assert not topic_matches(pattern, key)


def test_many_wildcards_are_little_work() -> None:
    """Going back at every wildcard would be more steps than there are atoms."""
    pattern, key = ".".join(["#"] * 100 + ["x"]), ".".join(["a"] * 128)
    assert not topic_matches(pattern, key)
    assert not glob("*a" * 100 + "*b", "a" * 4_000)
    assert lines_run(lambda: topic_matches(pattern, key)) < 100_000
    assert lines_run(lambda: glob("*a" * 100 + "*b", "a" * 4_000)) < 100_000


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        ("dlq.*", "dlq.orders", True),
        ("dlq.*", "dlq.", True),
        ("dlq.*", "xdlq.orders", False),
        ("*_dlq_*", "v1_dlq_orders", True),
        ("orders", "orders", True),
        ("orders", "orders2", False),
        ("*", "", True),
        ("[a]", "a", False),
        ("a?c", "abc", False),
        ("*ab", "aab", True),
    ],
)
def test_glob(pattern: str, text: str, *, expected: bool) -> None:
    assert glob(pattern, text) is expected
