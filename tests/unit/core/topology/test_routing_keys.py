"""Which keys meet, against the plain definition: try every short key.

About `core.topology.routing_keys`.
"""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from deadletter.core.topology.routing_keys import ANY_KEY, KeyIndex, Keys, topic_matches

KEYS = [".".join(parts) for size in range(1, 6) for parts in product("ab", repeat=size)] + [""]
patterns = st.lists(st.sampled_from(["a", "b", "*", "#"]), max_size=4).map(".".join)


@given(patterns, patterns)
def test_two_patterns_meet_when_one_key_fits_both(one: str, other: str) -> None:
    shared = any(topic_matches(one, key) and topic_matches(other, key) for key in KEYS)
    assert Keys(one, pattern=True).meet(Keys(other, pattern=True)) == shared


@given(patterns, patterns)
def test_within_is_never_claimed_wrongly(narrow: str, wide: str) -> None:
    if Keys(narrow, pattern=True).all_within(Keys(wide, pattern=True)):
        assert all(topic_matches(wide, key) for key in KEYS if topic_matches(narrow, key))


@given(st.lists(patterns, max_size=8), patterns)
def test_the_index_finds_what_meets(bound: list[str], asked: str) -> None:
    index: KeyIndex[int] = KeyIndex()
    for number, text in enumerate(bound):
        index.add(Keys(text, pattern=True), number)
    expected = [n for n, text in enumerate(bound) if Keys(asked, pattern=True).meet(Keys(text, pattern=True))]
    assert sorted(index.meeting(Keys(asked, pattern=True))) == expected
    assert sorted(index.meeting(ANY_KEY)) == list(range(len(bound)))


def test_a_key_with_a_wildcard_in_it_is_a_key() -> None:
    key = Keys("retry.#.1")
    assert key.meet(Keys("retry.#.1"))
    assert key.meet(Keys("retry.*.1", pattern=True))
    assert not key.meet(Keys("retry.x.1"))
    assert not key.all_within(Keys("retry.x.#", pattern=True))
