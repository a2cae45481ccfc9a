"""Acks in few words, and never one too many.

About `move.receipts`.
"""

from __future__ import annotations

from deadletter.move.receipts import Ack, Receipts


def receipts(taken: int, *, patience: int = 100) -> Receipts:
    found = Receipts(patience=patience)
    for tag in range(1, taken + 1):
        found.take(tag)
    return found


def test_nothing_is_due_before_anything_is_confirmed() -> None:
    assert receipts(0).due() == []
    assert receipts(5).due(at_once=True) == []


def test_what_is_confirmed_from_the_front_on_is_one_word() -> None:
    found = receipts(5)
    for tag in (3, 1, 2):
        found.confirm(tag)
    assert found.due() == [Ack(3, multiple=True)]
    assert (found.acked, found.unsettled, found.unacked) == (3, 2, 2)
    assert found.due() == []


def test_a_single_one_is_not_said_as_many() -> None:
    found = receipts(2)
    found.confirm(1)
    assert found.due() == [Ack(1, multiple=False)]


def test_behind_one_that_is_not_settled_it_waits() -> None:
    found = receipts(5)
    found.confirm(2)
    found.confirm(3)
    assert found.due() == []
    found.confirm(1)
    assert found.due() == [Ack(3, multiple=True)]


def test_it_waits_only_as_long_as_patience_lasts() -> None:
    found = receipts(5, patience=2)
    found.confirm(2)
    found.confirm(3)
    assert found.due() == []
    found.confirm(5)
    assert found.due() == [Ack(2, multiple=False), Ack(3, multiple=False), Ack(5, multiple=False)]


def test_at_once_means_at_once() -> None:
    found = receipts(5)
    for tag in (1, 2, 4):
        found.confirm(tag)
    assert found.due(at_once=True) == [Ack(2, multiple=True), Ack(4, multiple=False)]


def test_a_held_one_is_never_reached_across() -> None:
    found = receipts(5)
    found.hold(2)
    for tag in (1, 3, 4):
        found.confirm(tag)
    assert found.due() == [Ack(1, multiple=False)], "the others wait to be a bunch"
    assert found.due(at_once=True) == [Ack(3, multiple=False), Ack(4, multiple=False)]
    found.confirm(5)
    assert found.due(at_once=True) == [Ack(5, multiple=False)]
    assert (found.held, found.unsettled, found.unacked) == (1, 0, 1)


def test_a_tag_that_was_acked_singly_is_never_named_again() -> None:
    found = receipts(4)
    found.confirm(2)
    assert found.due(at_once=True) == [Ack(2, multiple=False)]
    found.confirm(1)
    assert found.due() == [Ack(1, multiple=False)], "2 is unknown to the broker by now"
    found.confirm(3)
    found.confirm(4)
    assert found.due() == [Ack(4, multiple=True)]


def test_no_more_than_the_most_are_acked_in_all() -> None:
    found = receipts(6)
    for tag in range(1, 7):
        found.confirm(tag)
    assert found.due(most=0) == []
    assert found.due(most=2) == [Ack(2, multiple=True)]
    assert found.due(most=2, at_once=True) == []
    assert found.due(most=3) == [Ack(3, multiple=False)]
    assert found.due() == [Ack(6, multiple=True)]
    assert found.acked == 6


def test_the_most_holds_for_single_acks_too() -> None:
    found = receipts(6)
    found.hold(1)
    for tag in range(2, 7):
        found.confirm(tag)
    assert found.due(most=2, at_once=True) == [Ack(2, multiple=False), Ack(3, multiple=False)]
    assert found.due(most=2, at_once=True) == []


def test_sealed_receipts_remember_the_number_alone() -> None:
    receipts = Receipts(patience=10)
    for tag in range(1, 6):
        receipts.take(tag)
    receipts.hold(1)
    receipts.hold(3)
    assert not receipts.seal(), "2, 4 and 5 are not settled"
    for tag in (2, 4, 5):
        receipts.confirm(tag)
    assert not receipts.seal(), "confirmed, but not acked"
    assert len(receipts.due(at_once=True)) == 3
    assert receipts.seal()
    assert (receipts.held, receipts.unacked, receipts.unsettled) == (2, 2, 0)


def test_what_comes_after_the_seal_is_acked_by_itself() -> None:
    receipts = Receipts(patience=10)
    for tag in range(1, 4):
        receipts.take(tag)
    receipts.hold(1)
    receipts.confirm(2)
    receipts.hold(3)
    assert receipts.due(at_once=True) == [Ack(2, multiple=False)]
    assert receipts.seal()
    receipts.take(4)
    receipts.take(5)
    assert (receipts.held, receipts.unsettled) == (2, 2)
    receipts.confirm(4)
    receipts.hold(5)
    assert not receipts.seal(), "confirmed, but not acked"
    assert receipts.due(at_once=True) == [Ack(4, multiple=False)], "never a multiple across 1 and 3"
    assert receipts.seal()
    assert (receipts.held, receipts.unacked, receipts.unsettled) == (3, 3, 0)
