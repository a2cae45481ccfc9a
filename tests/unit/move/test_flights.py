"""Publishes under way: confirms in any order, returns before their confirm.

About `move.flights`.
"""

from __future__ import annotations

from deadletter.move.flights import Flights, Landing

SAFE, UNROUTABLE, REFUSED = Landing.SAFE, Landing.UNROUTABLE, Landing.REFUSED


def flights(count: int) -> Flights[str]:
    found: Flights[str] = Flights()
    for number in range(1, count + 1):
        found.launch(number, f"cargo {number}")
    return found


def test_an_ack_lands_one() -> None:
    found = flights(3)
    assert found.land(2, multiple=False, ok=True) == [("cargo 2", SAFE)]
    assert len(found) == 2
    assert found.oldest == 1


def test_acks_come_in_any_order() -> None:
    found = flights(3)
    landed = [found.land(number, multiple=False, ok=True)[0][0] for number in (3, 1, 2)]
    assert landed == ["cargo 3", "cargo 1", "cargo 2"]
    assert len(found) == 0
    assert found.oldest is None


def test_multiple_lands_all_up_to_its_number_and_none_after() -> None:
    found = flights(5)
    found.land(2, multiple=False, ok=True)
    assert found.land(4, multiple=True, ok=True) == [("cargo 1", SAFE), ("cargo 3", SAFE), ("cargo 4", SAFE)]
    assert found.oldest == 5


def test_multiple_may_name_one_that_has_landed() -> None:
    found = flights(3)
    found.land(2, multiple=False, ok=True)
    assert found.land(2, multiple=True, ok=True) == [("cargo 1", SAFE)]
    assert found.land(2, multiple=True, ok=True) == []
    assert found.oldest == 3


def test_a_nack_is_a_refusal() -> None:
    found = flights(3)
    assert found.land(2, multiple=True, ok=False) == [("cargo 1", REFUSED), ("cargo 2", REFUSED)]
    assert found.land(3, multiple=False, ok=True) == [("cargo 3", SAFE)]


def test_a_return_is_known_when_its_ack_comes() -> None:
    found = flights(3)
    assert found.returned(2)
    assert len(found) == 3, "still in the air: its outcome comes with the ack"
    assert found.land(3, multiple=True, ok=True) == [
        ("cargo 1", SAFE),
        ("cargo 2", UNROUTABLE),
        ("cargo 3", SAFE),
    ]


def test_a_return_marks_its_own_publish_alone() -> None:
    found = flights(3)
    found.returned(2)
    assert found.land(1, multiple=False, ok=True) == [("cargo 1", SAFE)]
    assert found.land(3, multiple=False, ok=True) == [("cargo 3", SAFE)]
    assert found.land(2, multiple=False, ok=True) == [("cargo 2", UNROUTABLE)]


def test_a_return_that_is_nacked_is_not_safe() -> None:
    found = flights(1)
    found.returned(1)
    assert found.land(1, multiple=False, ok=False) == [("cargo 1", UNROUTABLE)]


def test_a_return_told_twice_is_one_return() -> None:
    found = flights(2)
    assert found.returned(1)
    assert found.returned(1)
    assert found.land(1, multiple=False, ok=True) == [("cargo 1", UNROUTABLE)]
    assert found.land(2, multiple=False, ok=True) == [("cargo 2", SAFE)]


def test_numbers_nobody_launched_settle_nothing() -> None:
    found = flights(2)
    assert not found.returned(9)
    assert found.land(9, multiple=False, ok=True) == []
    assert found.land(0, multiple=True, ok=True) == []
    found.land(1, multiple=False, ok=True)
    assert found.land(1, multiple=False, ok=False) == []
    assert not found.returned(1), "a return after its ack is none of ours any more"
    assert found.land(2, multiple=False, ok=True) == [("cargo 2", SAFE)]


def test_a_crash_gives_back_everything_in_the_air() -> None:
    found = flights(3)
    found.returned(1)
    found.land(2, multiple=False, ok=True)
    assert found.crash() == ["cargo 1", "cargo 3"]
    assert len(found) == 0
    assert found.crash() == []
    found.launch(1, "again")  # a new channel counts from 1 again
    assert found.land(1, multiple=False, ok=True) == [("again", SAFE)]
