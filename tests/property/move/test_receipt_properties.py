"""Receipts and flights against a broker that keeps its own books.

The model knows what AMQP says about acks: a `multiple` covers every outstanding tag up to its own, and an
ack for a tag the broker does not know closes the channel. Whatever the order of events, no letter is acked
whose copy is not confirmed.

About `move.receipts`, `move.flights`.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from deadletter.move.flights import Flights, Landing
from deadletter.move.receipts import Receipts


class Books(RuleBasedStateMachine):
    """One channel: what the broker handed out, and what became of it."""

    def __init__(self) -> None:
        super().__init__()
        self.receipts = Receipts(patience=1)
        self.taken = 0
        self.outstanding: set[int] = set()
        self.open: list[int] = []
        """Neither confirmed nor held."""
        self.confirmed: set[int] = set()
        """Confirmed and not acked."""
        self.held: set[int] = set()
        self.acked = 0

    @initialize(patience=st.integers(1, 6))
    def begin(self, patience: int) -> None:
        self.receipts = Receipts(patience=patience)

    @rule(count=st.integers(1, 8))
    def take(self, count: int) -> None:
        for _ in range(count):
            self.taken += 1
            self.receipts.take(self.taken)
            self.outstanding.add(self.taken)
            self.open.append(self.taken)

    @precondition(lambda self: self.open)
    @rule(data=st.data(), count=st.integers(1, 6))
    def confirm(self, data: st.DataObject, count: int) -> None:
        for _ in range(min(count, len(self.open))):
            tag = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
            self.receipts.confirm(tag)
            self.confirmed.add(tag)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def hold(self, data: st.DataObject) -> None:
        tag = self.open.pop(data.draw(st.integers(0, len(self.open) - 1)))
        self.receipts.hold(tag)
        self.held.add(tag)

    @rule(at_once=st.booleans())
    def ack_any_number(self, at_once: bool) -> None:
        self._ack(None, at_once=at_once)
        assert not at_once or not self.confirmed
        assert len(self.confirmed) <= self.receipts.patience

    @rule(more=st.integers(-2, 6), at_once=st.booleans())
    def ack_at_most(self, more: int, at_once: bool) -> None:
        most, before, waiting = self.acked + more, self.acked, len(self.confirmed)
        self._ack(most, at_once=at_once)
        assert self.acked <= max(most, before)
        if at_once:
            assert self.acked - before == max(0, min(more, waiting))

    def _ack(self, most: int | None, *, at_once: bool) -> None:
        for tag, multiple in self.receipts.due(most=most, at_once=at_once):
            assert tag in self.outstanding, f"the broker does not know {tag}: it would close the channel"
            covered = {known for known in self.outstanding if known <= tag} if multiple else {tag}
            assert covered <= self.confirmed, "a letter was acked whose copy is not confirmed"
            self.outstanding -= covered
            self.confirmed -= covered
            self.acked += len(covered)

    @invariant()
    def the_counts_agree(self) -> None:
        assert self.receipts.seen == self.taken
        assert self.receipts.acked == self.acked
        assert self.receipts.held == len(self.held)
        assert self.receipts.unsettled == len(self.open)
        assert self.receipts.unacked == len(self.outstanding)

    def teardown(self) -> None:
        self._ack(None, at_once=True)
        assert self.outstanding == self.held | set(self.open), "everything confirmed is acked in the end"


TestBooks = Books.TestCase


class Publish:
    """One publish as the broker sees it."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.returned = False


@given(st.data(), st.integers(0, 30))
def test_every_flight_lands_once_with_its_own_outcome(data: st.DataObject, count: int) -> None:
    flights: Flights[Publish] = Flights()
    air: list[Publish] = []
    for number in range(1, count + 1):
        publish = Publish(number)
        flights.launch(number, publish)
        air.append(publish)
    while air:
        if data.draw(st.booleans()):
            returned = data.draw(st.sampled_from(air))
            returned.returned = flights.returned(returned.number)
            assert returned.returned
        number, multiple, ok = (
            data.draw(st.integers(0, count + 1)),
            data.draw(st.booleans()),
            data.draw(st.booleans()),
        )
        settled = [p for p in air if (p.number <= number if multiple else p.number == number)]
        expected = [
            (p, Landing.UNROUTABLE if p.returned else Landing.SAFE if ok else Landing.REFUSED)
            for p in settled
        ]
        assert flights.land(number, multiple=multiple, ok=ok) == expected
        air = [p for p in air if p not in settled]
        assert len(flights) == len(air)
        assert flights.oldest == (air[0].number if air else None)
        if not settled:  # the broker says something at last
            last = air[-1].number
            assert len(flights.land(last, multiple=True, ok=True)) == len(air)
            air = []
    assert len(flights) == 0
