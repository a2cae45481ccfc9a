"""How many letters an intake may hold: few where a crash would be dear.

About `move.intake`.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from deadletter.core.topology.look_cost import UNLIMITED, Deliveries
from deadletter.move.intake import (
    CALM_AFTER,
    CAUTION_COUNT,
    CAUTION_PREFETCH,
    FEW,
    HELD_MAX,
    HELD_MAX_LATE,
    MORE_HELD,
    ROOM,
    SCOUT,
    Intake,
    Window,
    window,
)
from deadletter.move.verdict import Terms

FREE = UNLIMITED
LIMITED = Deliveries(limit=20, nack_costs=True, known=True)
LIFTED = Deliveries(limit=20, nack_costs=True, known=True, lifted=True)
UNKNOWN = Deliveries(limit=None, nack_costs=False, known=False)


def after(
    *,
    highest_count: int = 0,
    held: int = 0,
    went: int = 1,
    prefetch: int = 1000,
    alarmed: bool = False,
    shape: Window | None = None,
) -> Intake:
    """An intake that has seen this; a real one needs a broker and is tested there."""
    seen = SimpleNamespace(
        highest_count=highest_count,
        receipts=SimpleNamespace(held=held, only_held=not went),
        prefetch=prefetch,
        alarmed=alarmed,
        shape=shape or Window(prefetch, None),
    )
    return cast("Intake", seen)


def test_the_first_is_a_scout() -> None:
    assert window(Terms(), FREE, one_by_one=0, last=None, holding=0) == Window(SCOUT, SCOUT)
    assert window(Terms(prefetch=5), FREE, one_by_one=0, last=None, holding=0) == Window(5, 5)


def test_then_the_full_window() -> None:
    assert window(Terms(prefetch=700), FREE, one_by_one=0, last=after(), holding=0) == Window(700, None)


def test_where_deliveries_are_nearly_spent_few_are_held() -> None:
    dear = after(highest_count=CAUTION_COUNT)
    few = Window(CAUTION_PREFETCH, 10 * CAUTION_PREFETCH)
    assert window(Terms(), UNKNOWN, one_by_one=0, last=dear, holding=0) == few
    assert window(Terms(), LIMITED, one_by_one=0, last=dear, holding=0) == few
    assert window(Terms(), FREE, one_by_one=0, last=dear, holding=0) == Window(1000, None)


def test_where_a_crash_may_destroy_letters_one_is_taken_first_then_few() -> None:
    assert window(Terms(), LIMITED, one_by_one=0, last=None, holding=0) == Window(1, 1)
    few = window(Terms(), LIMITED, one_by_one=0, last=after(prefetch=1), holding=0)
    assert few == Window(FEW, FEW)
    assert window(Terms(), LIMITED, one_by_one=0, last=after(prefetch=FEW), holding=0) == Window(1000, None)
    assert window(Terms(), LIFTED, one_by_one=0, last=None, holding=0) == Window(SCOUT, SCOUT)


def test_while_a_crash_would_destroy_letters_they_are_taken_singly() -> None:
    alarmed = after(highest_count=20, alarmed=True)
    assert window(Terms(), LIMITED, one_by_one=0, last=alarmed, holding=0) == Window(1, CALM_AFTER)
    assert window(Terms(), LIMITED, one_by_one=0, last=alarmed, holding=3000).prefetch == 1


def test_a_rate_holds_less_where_a_crash_may_destroy_letters() -> None:
    assert window(Terms(rate_per_s=10), LIMITED, one_by_one=0, last=after(), holding=0) == Window(1, None)
    assert window(Terms(rate_per_s=500), LIMITED, one_by_one=0, last=after(), holding=0) == Window(50, None)


def test_suspects_go_one_by_one() -> None:
    assert window(Terms(), FREE, one_by_one=37, last=after(), holding=0) == Window(1, 37)
    assert window(Terms(), FREE, one_by_one=37, last=None, holding=0) == Window(1, 37)


def test_a_rate_holds_no_more_than_it_moves_soon() -> None:
    assert window(Terms(rate_per_s=10), FREE, one_by_one=0, last=after(), holding=0) == Window(50, None)
    assert window(Terms(rate_per_s=0.01), FREE, one_by_one=0, last=after(), holding=0) == Window(1, None)


def test_what_is_held_does_not_use_up_the_window() -> None:
    early = window(Terms(), FREE, one_by_one=0, last=after(held=3), holding=1)
    assert (early.prefetch - early.held_max, early.held_max) == (ROOM, HELD_MAX)
    assert early.together
    late = window(Terms(), FREE, one_by_one=0, last=after(held=3), holding=5000)
    assert late.held_max > HELD_MAX
    assert late.prefetch <= 65535


def test_where_all_stay_each_holds_more_than_the_one_before() -> None:
    shape: Window | None = None
    most: list[int] = []
    for _ in range(6):
        last = after(held=HELD_MAX, went=0, shape=shape)
        shape = window(Terms(), FREE, one_by_one=0, last=last, holding=1)
        assert shape.held_max == HELD_MAX, "what it may hold beside others that go"
        assert shape.prefetch == ROOM + shape.all_held_max
        most.append(shape.all_held_max)
    assert most[:2] == [MORE_HELD * HELD_MAX, MORE_HELD**2 * HELD_MAX]
    assert most[-1] == HELD_MAX_LATE
    one_went = window(Terms(), FREE, one_by_one=0, last=after(held=3, went=1, shape=shape), holding=1)
    assert one_went.all_held_max == HELD_MAX


def test_with_a_rate_none_holds_more_where_a_crash_is_dear() -> None:
    slow = Terms(rate_per_s=500)
    shape = window(slow, LIMITED, one_by_one=0, last=after(held=3, went=0), holding=8)
    assert shape.all_held_max == shape.held_max == 3
