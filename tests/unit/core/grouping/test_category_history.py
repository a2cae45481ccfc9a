"""What the past of a group tells of its category. About `core.grouping.category_history`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from deadletter.core.grouping.category import By, Category, Judgement
from deadletter.core.grouping.category_history import GroupPast, judge

HOUR_MS = 3_600_000
NOW_MS = 1_790_812_800_000
BURST = GroupPast(
    letters=12,
    first_ms=NOW_MS - 49 * HOUR_MS,
    last_ms=NOW_MS - 49 * HOUR_MS + 8 * 60_000,
    hours=1,
    tries=36,
    releases=1,
    own_code=False,
)
STEADY = GroupPast(
    letters=40,
    first_ms=NOW_MS - 72 * HOUR_MS,
    last_ms=NOW_MS - HOUR_MS,
    hours=30,
    tries=120,
    releases=2,
    own_code=True,
)


def _first(category: Category = Category.UNKNOWN, by: By = By.GUESS) -> Judgement:
    return Judgement(category=category, by=by, why="so it seems")


def _judged(first: Judgement, history: GroupPast) -> tuple[Category, By]:
    found = judge(first, history, now_ms=NOW_MS)
    return found.category, found.by


@pytest.mark.parametrize("guess", [Category.UNKNOWN, Category.BUG, Category.PERMANENT, Category.TRANSIENT])
def test_a_burst_that_ended_by_itself_is_transient(guess: Category) -> None:
    found = judge(_first(guess), BURST, now_ms=NOW_MS)
    assert (found.category, found.by) == (Category.TRANSIENT, By.HISTORY)
    assert found.why == "12 letters died within 8 min, and none in the 2 d since"


@pytest.mark.parametrize(
    "history",
    [
        replace(BURST, letters=2),
        replace(BURST, last_ms=BURST.first_ms + 2 * HOUR_MS),
        replace(BURST, first_ms=NOW_MS - HOUR_MS, last_ms=NOW_MS - HOUR_MS),
    ],
    ids=["two letters", "over two hours", "an hour ago"],
)
def test_what_is_no_burst_says_nothing(history: GroupPast) -> None:
    assert _judged(_first(), history) == (Category.UNKNOWN, By.GUESS)


def test_what_never_goes_through_is_permanent_or_a_bug() -> None:
    found = judge(_first(Category.TRANSIENT), STEADY, now_ms=NOW_MS)
    assert (found.category, found.by) == (Category.PERMANENT, By.HISTORY)
    assert "over 2 releases, and none of 120 tries went through" in found.why
    assert _judged(_first(Category.BUG), STEADY) == (Category.BUG, By.HISTORY)
    assert _judged(_first(), replace(STEADY, releases=1)) == (Category.BUG, By.HISTORY)
    assert _judged(_first(), replace(STEADY, releases=1, own_code=False)) == (Category.PERMANENT, By.HISTORY)


@pytest.mark.parametrize(
    "history",
    [
        replace(STEADY, tries=19),
        replace(STEADY, hours=5),
        replace(STEADY, first_ms=NOW_MS - 20 * HOUR_MS),
        replace(STEADY, last_ms=NOW_MS - 25 * HOUR_MS),
    ],
    ids=["few tries", "few hours", "not a day", "over"],
)
def test_what_is_not_steady_says_nothing(history: GroupPast) -> None:
    assert _judged(_first(Category.TRANSIENT), history) == (Category.TRANSIENT, By.GUESS)


@pytest.mark.parametrize("history", [BURST, STEADY], ids=["burst", "steady"])
def test_a_person_a_rule_and_what_history_cannot_know_stay(history: GroupPast) -> None:
    for by in (By.PERSON, By.RULE):
        assert _judged(_first(Category.BUG, by), history) == (Category.BUG, by)
    for category in (Category.DATA, Category.OVERLOAD):
        assert _judged(_first(category), history) == (category, By.GUESS)
