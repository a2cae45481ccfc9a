"""Coverage: whoever is told that a policy is never reached can rely on it.

About `core.deciding.coverage`, `core.text.glob`.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deadletter.core.deciding.coverage import covers
from deadletter.core.deciding.letter_view import view_letter
from deadletter.core.deciding.policy import HeaderMatch, JqCondition, Match
from deadletter.core.text.glob import glob
from deadletter.core.topology.routing_keys import topic_covers, topic_matches

_globs = st.text("ab*", max_size=5)
_topics = st.lists(st.sampled_from(["a", "b", "*", "#", ""]), max_size=4).map(".".join)
_keys = st.lists(st.sampled_from(["a", "b", ""]), max_size=5).map(".".join)


@settings(max_examples=500)
@given(wide=_globs, narrow=_globs, text=st.text("ab", max_size=6))
def test_a_covering_glob_matches_whatever_the_other_does(wide: str, narrow: str, text: str) -> None:
    if glob(wide, narrow) and glob(narrow, text):
        assert glob(wide, text)


@settings(max_examples=500)
@given(wide=_topics, narrow=_topics, key=_keys)
def test_a_covering_topic_matches_whatever_the_other_does(wide: str, narrow: str, key: str) -> None:
    if topic_covers(wide, narrow) and topic_matches(narrow, key):
        assert topic_matches(wide, key)


@pytest.mark.parametrize(
    ("wide", "narrow", "covered"),
    [
        ("#", "a.*", True),
        ("a.#", "a.b", True),
        ("a.*", "a.#", False),
        ("*", "#", False),
        ("a.*", "a.*", True),
    ],
)
def test_topics(wide: str, narrow: str, covered: bool) -> None:
    assert topic_covers(wide, narrow) is covered


_JQ = JqCondition(program=".x")
_matches = st.builds(
    Match,
    queue=st.sampled_from([None, "a", "a*", "*"]),
    routing_key=st.sampled_from([None, "k.1", "k.*", "#"]),
    reasons=st.frozensets(st.sampled_from(["rejected", "expired"])),
    error_types=st.lists(st.sampled_from(["E", "x.E", "*"]), max_size=2).map(tuple),
    headers=st.lists(
        st.builds(HeaderMatch, header=st.sampled_from(["h", "i"]), value=st.sampled_from(["1", "*"])),
        max_size=2,
    ).map(tuple),
    content_type=st.sampled_from([None, "text/plain", "text/*"]),
    body=st.sampled_from([None, _JQ]),
)


@settings(max_examples=500)
@given(
    wide=_matches,
    narrow=_matches,
    queue=st.sampled_from(["a", "ab", "b"]),
    key=st.sampled_from(["k.1", "k.2", "z"]),
    reason=st.sampled_from(["rejected", "expired"]),
    headers=st.dictionaries(st.sampled_from(["h", "i"]), st.sampled_from(["1", "2"])),
    error=st.sampled_from([None, "E", "x.E", "F"]),
    content_type=st.sampled_from([None, "text/plain", "text/html"]),
)
def test_a_covering_match_takes_whatever_the_other_does(
    wide: Match,
    narrow: Match,
    queue: str,
    key: str,
    reason: str,
    headers: dict[str, str],
    error: str | None,
    content_type: str | None,
) -> None:
    all_headers: dict[str, object] = {
        **headers,
        "x-death": [{"queue": queue, "reason": reason, "exchange": "", "routing-keys": [key]}],
        **({"deadletter-error-type": error} if error else {}),
    }
    letter = view_letter(all_headers, broker_keeps_client_deaths=False, content_type=content_type)
    if covers(wide, narrow):
        assert wide.body in (None, narrow.body)
        assert not narrow.holds(letter) or wide.holds(letter)


def test_nothing_is_narrower_than_everything() -> None:
    assert covers(Match(), Match(queue="a", body=_JQ))
    assert not covers(Match(queue="*"), Match())
    assert not covers(Match(body=_JQ), Match())
    assert covers(Match(queue="o*"), Match(queue="orders", reasons=frozenset({"expired"})))
