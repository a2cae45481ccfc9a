"""How many letters an intake may hold: few where a crash would be dear."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from deadletter.broker.intake import (
    CAUTION_COUNT,
    CAUTION_PREFETCH,
    HELD_MAX,
    ROOM,
    SCOUT,
    Intake,
    Window,
    window,
)
from deadletter.broker.verdict import Terms


def after(*, highest_count: int = 0, held: int = 0) -> Intake:
    """An intake that has seen this; a real one needs a broker and is tested there."""
    return cast("Intake", SimpleNamespace(highest_count=highest_count, receipts=SimpleNamespace(held=held)))


def test_the_first_is_a_scout() -> None:
    assert window(Terms(), one_by_one=0, last=None, holding=0) == Window(SCOUT, SCOUT)
    assert window(Terms(prefetch=5), one_by_one=0, last=None, holding=0) == Window(5, 5)


def test_then_the_full_window() -> None:
    assert window(Terms(prefetch=700), one_by_one=0, last=after(), holding=0) == Window(700, None)


def test_where_deliveries_are_nearly_spent_few_are_held() -> None:
    dear = after(highest_count=CAUTION_COUNT)
    assert window(Terms(), one_by_one=0, last=dear, holding=0) == Window(
        CAUTION_PREFETCH, 10 * CAUTION_PREFETCH
    )


def test_suspects_go_one_by_one() -> None:
    assert window(Terms(), one_by_one=37, last=after(), holding=0) == Window(1, 37)
    assert window(Terms(), one_by_one=37, last=None, holding=0) == Window(1, 37)


def test_a_rate_holds_no_more_than_it_moves_soon() -> None:
    assert window(Terms(rate_per_s=10), one_by_one=0, last=after(), holding=0) == Window(50, None)
    assert window(Terms(rate_per_s=0.01), one_by_one=0, last=after(), holding=0) == Window(1, None)


def test_what_is_held_does_not_use_up_the_window() -> None:
    early = window(Terms(), one_by_one=0, last=after(held=3), holding=1)
    assert (early.prefetch - early.held_max, early.held_max) == (ROOM, HELD_MAX)
    assert early.together
    late = window(Terms(), one_by_one=0, last=after(held=3), holding=5000)
    assert late.held_max > HELD_MAX
    assert late.prefetch <= 65535
