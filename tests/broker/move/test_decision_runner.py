"""What becomes of each letter of a passage, on a real broker: second thoughts, decisions late or failing.

About `move.decision_runner`, `move.verdict`, `move.rescue`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import pytest
from tests import amqp_oracle as oracle
from tests import postbox
from tests.brokers import Vhost

from deadletter.amqp.address import parse_addresses
from deadletter.core.letter import field_table, message, names
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.message import RawMessage
from deadletter.core.letter.parking import Cause
from deadletter.core.letter.wrapping import unwrap
from deadletter.move.courier import Bounds, Courier, Ended, MoveTally
from deadletter.move.decision_runner import TRIES_MAX, Judging
from deadletter.move.verdict import Drop, Later, Leave, MoveFailure, Send, Setback, Stamped, Verdict, Wrap

GONE = Send(routing_key="nowhere", fate="to nowhere")
TARGET = Send(routing_key="target", fate="to the target")
WRAPPED = Wrap(routing_key="target", cause=Cause.UNREADABLE, why="it cannot travel", at_ms=1, fate="wrapped")
KINDS = pytest.mark.parametrize("kind", ["classic", "quorum"])


class Thinker:
    """Decides as it is told, and notes all it hears."""

    def __init__(
        self,
        decide: Callable[[Letter], Verdict],
        again: Callable[[Letter, Send | Wrap, Setback, str], Verdict] | None = None,
    ) -> None:
        self.setbacks: list[tuple[bytes, Setback]] = []
        self.fates: Counter[object] = Counter()
        self.failures: list[MoveFailure] = []
        self._again = again
        self.judging = Judging(
            decide=decide,
            again=None if again is None else self._second_thought,
            on_fate=self._on_fate,
            on_failure=self.failures.append,
        )

    def _second_thought(self, letter: Letter, verdict: Send | Wrap, setback: Setback, why: str) -> Verdict:
        assert self._again is not None
        self.setbacks.append((letter.body, setback))
        return self._again(letter, verdict, setback, why)

    def _on_fate(self, fate: object) -> None:
        self.fates[fate] += 1


def go(vhost: Vhost, thinker: Thinker, bounds: Bounds | None = None) -> MoveTally:
    return postbox.run(taken(vhost, thinker, bounds))


async def taken(vhost: Vhost, thinker: Thinker, bounds: Bounds | None = None) -> MoveTally:
    courier = Courier(
        parse_addresses(vhost.url), source="source", decide=thinker.judging, bounds=bounds or Bounds()
    )
    return await courier.run()


def filled(vhost: Vhost, count: int, kind: str = "quorum") -> list[bytes]:
    postbox.declare(vhost.url, "source", "target", kind=kind)
    bodies = [b"%d" % number for number in range(count)]
    postbox.fill(vhost.url, "source", bodies)
    return bodies


def bodies_in(vhost: Vhost, queue: str, expect: int) -> list[bytes]:
    return sorted((post.body for post in postbox.drain(vhost.url, queue, expect=expect)), key=int)


# -- second thoughts --------------------------------------------------------------------------------------
@KINDS
@pytest.mark.parametrize("count", [1, 300])
def test_what_no_queue_takes_is_thought_about_again(vhost: Vhost, kind: str, count: int) -> None:
    bodies = filled(vhost, count, kind)
    thinker = Thinker(lambda _letter: GONE, lambda *_: TARGET)
    tally = go(vhost, thinker)
    assert (tally.moved, tally.failed) == (count, 0)
    assert sorted(thinker.setbacks) == sorted((body, Setback.UNROUTABLE) for body in bodies)
    assert thinker.fates == {"to the target": count}
    assert bodies_in(vhost, "target", count) == bodies
    assert postbox.depth(vhost.url, "source") == 0


def test_what_a_full_queue_refuses_is_thought_about_again(vhost: Vhost) -> None:
    filled(vhost, 20)
    postbox.declare(vhost.url, "full", kind="classic", x_max_length=5, x_overflow="reject-publish")
    full = Send(routing_key="full", fate="to the full one")
    thinker = Thinker(lambda _letter: full, lambda *_: TARGET)
    tally = go(vhost, thinker)
    assert (tally.moved, tally.failed) == (20, 0)
    assert thinker.setbacks
    assert {setback for _, setback in thinker.setbacks} == {Setback.REFUSED}
    assert thinker.fates["to the full one"] == 20 - len(thinker.setbacks)
    assert postbox.depth(vhost.url, "source") == 0


def test_the_second_thought_may_be_to_leave_it(vhost: Vhost) -> None:
    bodies = filled(vhost, 3)
    thinker = Thinker(lambda _letter: GONE, lambda *_: Leave(fate="left"))
    tally = go(vhost, thinker)
    assert (tally.moved, tally.left, tally.failed) == (0, 3, 0)
    assert thinker.fates == {"left": 3}
    assert bodies_in(vhost, "source", 3) == bodies


def test_what_cannot_travel_as_it_is_goes_whole_inside_another_message(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "source", "target", kind="classic")
    large = oracle.table_bytes([(b"large", oracle.text(b"x" * 131_000))])
    odd = RawMessage(oracle.properties(headers=large, priority=3), b"body")
    postbox.publish_raw(vhost.url, "source", odd)
    thinker = Thinker(lambda _letter: TARGET, lambda *_: WRAPPED)
    tally = go(vhost, thinker)
    assert (tally.moved, tally.failed) == (1, 0)
    assert thinker.setbacks == [(b"body", Setback.UNFIT)]
    assert thinker.fates == {"wrapped": 1}
    (parked,) = postbox.take_raw(vhost.url, "target")
    assert unwrap(parked) == odd
    headers = field_table.decode(message.header_table(parked.properties))
    assert (headers[names.CAUSE], headers[names.SOURCE]) == ("unreadable", "source")


@pytest.mark.parametrize(
    "unfit",
    [
        Send(routing_key="order.\ud800"),
        Send(routing_key="target", headers={"key": "order.\ud800"}),
        Send(routing_key="x" * 300),
        Send(routing_key="target", headers={"count": 2**70}),
    ],
)
def test_a_name_that_is_no_text_costs_that_letter_alone(vhost: Vhost, unfit: Send) -> None:
    bodies = filled(vhost, 5)
    thinker = Thinker(lambda letter: unfit if letter.body == b"2" else TARGET, lambda *_: WRAPPED)
    tally = go(vhost, thinker)
    assert (tally.moved, tally.failed, tally.reconnects) == (5, 0, 0)
    assert thinker.setbacks == [(b"2", Setback.UNFIT)]
    found = postbox.take_raw(vhost.url, "target")
    inside = [unwrap(one) or one for one in found]
    assert sorted(one.body for one in inside) == bodies


def test_without_a_second_thought_it_stays_and_is_reported(vhost: Vhost) -> None:
    bodies = filled(vhost, 3)
    thinker = Thinker(lambda letter: GONE if letter.body == b"1" else TARGET)
    tally = go(vhost, thinker)
    assert (tally.moved, tally.failed) == (2, 1)
    assert [failure.why for failure in thinker.failures] == [Setback.UNROUTABLE.value]
    assert bodies_in(vhost, "source", 1) == [bodies[1]]


def test_thinking_again_has_an_end(vhost: Vhost) -> None:
    bodies = filled(vhost, 2)
    thinker = Thinker(lambda _letter: GONE, lambda *_: GONE)
    tally = go(vhost, thinker)
    assert (tally.moved, tally.failed) == (0, 2)
    assert Counter(body for body, _ in thinker.setbacks) == dict.fromkeys(bodies, TRIES_MAX)
    assert bodies_in(vhost, "source", 2) == bodies


def test_a_second_thought_that_fails_leaves_the_letter_with_both_reasons(vhost: Vhost) -> None:
    bodies = filled(vhost, 1)

    def broken(*_: object) -> Verdict:
        raise ZeroDivisionError("no idea")

    thinker = Thinker(lambda _letter: GONE, broken)
    assert go(vhost, thinker).failed == 1
    (failure,) = thinker.failures
    assert failure.why == f"{Setback.UNROUTABLE.value}; then: ZeroDivisionError: no idea"
    assert bodies_in(vhost, "source", 1) == bodies


# -- decisions that fail, or take their time ----------------------------------------------------------------
def test_a_decision_that_fails_costs_that_letter_alone(vhost: Vhost) -> None:
    filled(vhost, 10)

    def decide(letter: Letter) -> Verdict:
        if letter.body == b"3":
            raise ZeroDivisionError("no idea")
        return TARGET

    thinker = Thinker(decide)
    tally = go(vhost, thinker)
    assert (tally.moved, tally.failed) == (9, 1)
    assert [failure.why for failure in thinker.failures] == [
        "the decision failed: ZeroDivisionError: no idea"
    ]
    assert bodies_in(vhost, "source", 1) == [b"3"]


@pytest.mark.parametrize("count", [1, 200])
def test_a_bounded_passage_waits_for_decisions_that_take_their_time(vhost: Vhost, count: int) -> None:
    bodies = filled(vhost, count)

    async def after_a_while(letter: Letter) -> Verdict:
        await asyncio.sleep(0.2)
        if letter.body == b"7":
            raise ZeroDivisionError("no idea")
        return TARGET

    thinker = Thinker(lambda letter: Later(asyncio.ensure_future(after_a_while(letter))))
    tally = go(vhost, thinker)
    failed = [body for body in bodies if body == b"7"]
    assert (tally.moved, tally.failed) == (count - len(failed), len(failed))
    assert thinker.fates == {"to the target": count - len(failed)}
    if failed:
        assert bodies_in(vhost, "source", 1) == failed


def test_what_is_not_decided_when_the_passage_ends_is_given_back(vhost: Vhost) -> None:
    bodies = filled(vhost, 3)

    async def work() -> MoveTally:
        undecided: list[asyncio.Future[Verdict]] = []

        def decide(_letter: Letter) -> Verdict:
            undecided.append(asyncio.get_running_loop().create_future())
            return Later(undecided[-1])

        thinker = Thinker(decide)
        tally = await taken(vhost, thinker, Bounds(seconds=0.5))
        assert len(undecided) == 3
        too_late: tuple[Verdict, ...] = (TARGET, Drop(), Leave())
        for future, verdict in zip(undecided, too_late, strict=True):
            future.set_result(verdict)  # nobody is there any more to act on it
        await asyncio.sleep(0.1)
        assert not thinker.fates
        return tally

    tally = postbox.run(work())
    assert (tally.moved, tally.failed, tally.ended) == (0, 0, Ended.TIME)
    assert bodies_in(vhost, "source", 3) == bodies
    assert postbox.depth(vhost.url, "target") == 0


def test_a_decision_that_was_cancelled_gives_the_letter_back(vhost: Vhost) -> None:
    filled(vhost, 2)

    def decide(letter: Letter) -> Verdict:
        future: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_soon(future.cancel)
        return Later(future) if letter.body == b"0" else TARGET

    tally = go(vhost, Thinker(decide))
    assert (tally.moved, tally.failed) == (1, 0)
    assert bodies_in(vhost, "source", 1) == [b"0"]


# -- the other ends -----------------------------------------------------------------------------------------
def test_each_end_is_told_once_it_is_reached(vhost: Vhost) -> None:
    filled(vhost, 4)
    stamp = field_table.entry(names.DUE_AT, 123)
    ends: dict[bytes, Verdict] = {
        b"0": Drop(fate="dropped"),
        b"1": Leave(fate="left"),
        b"2": Stamped(TARGET, stamp),
        b"3": WRAPPED,
    }
    thinker = Thinker(lambda letter: ends[letter.body])
    tally = go(vhost, thinker)
    assert (tally.moved, tally.left, tally.failed, tally.dropped) == (2, 1, 0, 1)
    assert thinker.fates == {"dropped": 1, "left": 1, "to the target": 1, "wrapped": 1}
    assert bodies_in(vhost, "source", 1) == [b"1"]
    found = {(unwrap(one) or one).body: one for one in postbox.take_raw(vhost.url, "target")}
    assert found.keys() == {b"2", b"3"}
    assert field_table.decode(message.header_table(found[b"2"].properties))[names.DUE_AT] == 123
