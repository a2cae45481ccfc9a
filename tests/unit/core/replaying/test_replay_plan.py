"""What a person asks for comes back from the store as it was, and nothing more is ever selected.

About `core.replaying.replay_plan`, `core.replaying.replay_target`, `core.replaying.replay_states`.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadletter.core.grouping.letter_query import LetterOrder, LetterQuery, LetterState
from deadletter.core.replaying.replay_plan import selection_from, selection_json
from deadletter.core.replaying.replay_states import GONE, KNOWN, SentState
from deadletter.core.replaying.replay_target import (
    HOME,
    ToExchange,
    ToQueue,
    target_from,
    target_json,
    target_words,
)
from deadletter.errors import UsageError

texts = st.none() | st.text()


@given(
    selection=st.builds(
        LetterQuery,
        ids=st.lists(st.integers(1)).map(tuple),
        vhost=texts,
        queue=texts,
        group=st.none() | st.integers(1),
        error=texts,
        died_from_ms=st.none() | st.integers(0),
        headers=st.lists(st.tuples(st.text(), st.text())).map(tuple),
        text=texts,
        where=texts,
        order=st.just(LetterOrder.OLDEST),
    )
)
def test_a_selection_is_kept_whole(selection: LetterQuery) -> None:
    assert selection_from(json.loads(json.dumps(selection_json(selection)))) == selection


def test_only_open_ones_from_the_oldest() -> None:
    asked = LetterQuery(origin="a", state=None, order=LetterOrder.NEWEST, after=5, limit=3)
    found = selection_from(selection_json(asked))
    assert found == LetterQuery(origin="a", state=LetterState.OPEN, order=LetterOrder.OLDEST)


def test_a_condition_of_a_newer_version_is_not_left_out() -> None:
    with pytest.raises(ValueError, match="tenant"):
        selection_from({"origin": "a", "tenant": "b"})


@pytest.mark.parametrize(
    "target", [HOME, ToQueue(queue="a b"), ToExchange(exchange=""), ToExchange(exchange="x", key="k")]
)
def test_targets(target: ToQueue | ToExchange) -> None:
    assert target_from(json.loads(json.dumps(target_json(target)))) == target
    assert target_words(target)


@pytest.mark.parametrize(
    "told", [{}, {"to": "queue"}, {"to": "queue", "queue": ""}, {"to": "exchange", "key": 1}]
)
def test_no_targets(told: dict[str, object]) -> None:
    with pytest.raises(UsageError, match="target"):
        target_from(told)


def test_every_state_of_a_letter_is_waited_for_or_known() -> None:
    assert frozenset(SentState) - KNOWN == {SentState.WAITING, SentState.SENDING, SentState.SENT}
    assert {SentState.SENT} == GONE - KNOWN
