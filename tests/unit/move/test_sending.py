"""Letters that are in no queue, sent: each arrives or stays with a reason, and lost lines are told.

About `move.sending`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from deadletter.amqp.address import parse_addresses
from deadletter.broker.session import Link
from deadletter.core.letter.message import RawMessage, View, encode
from deadletter.errors import ConnectionLost, MessageError, TargetMissing
from deadletter.move.sending import PackedLetter, Sending, Stayed
from deadletter.testing.memory import MemoryBroker

(ADDRESS,) = parse_addresses("amqp://guest:guest@broker.example/")


class Letters:
    """So many, in portions; each by its number."""

    def __init__(self, count: int, *, portion: int = 7) -> None:
        self.left = list(range(count))
        self.portion = portion
        self.came: list[int] = []
        self.kept: dict[int, tuple[Stayed, str]] = {}
        self.doubts: list[int] = []
        self.keys: dict[int, tuple[str, str]] = {}
        self.links = 0
        self.held: asyncio.Event | None = None

    async def on(self, _link: Link) -> None:
        self.links += 1

    async def more(self) -> Sequence[int] | None:
        if self.held is not None and not self.left[self.portion :]:
            await self.held.wait()
        some, self.left = self.left[: self.portion], self.left[self.portion :]
        return some or None

    def pack(self, one: int, number: int, _user: str) -> PackedLetter:
        if one == 3 and 3 not in self.keys:
            raise MessageError("no such thing")
        exchange, key = self.keys.get(one, ("", "orders"))
        return PackedLetter(exchange, key, encode(View(delivery_mode=2, message_id=str(number))), b"%d" % one)

    def number_of(self, _returned: RawMessage) -> int | None:
        return None

    def arrived(self, some: Sequence[int]) -> None:
        self.came += some

    def stayed(self, one: int, what: Stayed, why: str) -> None:
        self.kept[one] = what, why

    def doubtful(self, some: Sequence[int]) -> None:
        self.doubts += some


async def ground() -> tuple[MemoryBroker, Link]:
    broker = MemoryBroker("4.0.5")
    link = Link(ADDRESS, "test", broker.connect)
    channel = await link.channel()
    await channel.declare_queue("orders")
    await channel.declare_queue("full", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    return broker, link


async def test_each_arrives_or_stays_with_a_reason() -> None:
    broker, link = await ground()
    letters = Letters(50)
    letters.keys = {10: ("", "nowhere"), 20: ("", "full"), 21: ("", "full")}
    await Sending(letters, in_flight=5, ahead=3).on(link)
    assert set(letters.came) == set(range(50)) - {3, 10, 21}
    assert {one: what for one, (what, _) in letters.kept.items()} == {
        3: Stayed.UNFIT,
        10: Stayed.UNROUTABLE,
        21: Stayed.REFUSED,
    }
    assert len(broker.messages("orders")) == 46
    assert letters.doubts == []
    await link.close()


async def test_a_lost_line_is_told_and_the_rest_goes_on() -> None:
    """Also while it waits for more letters: nobody else would notice."""
    broker, link = await ground()
    letters = Letters(20, portion=10)
    letters.held = asyncio.Event()
    sending = Sending(letters)
    working = asyncio.ensure_future(sending.on(link))
    while len(letters.came) < 9:  # noqa: ASYNC110 -- the letters tell nobody
        await asyncio.sleep(0.01)
    link.abort(ConnectionLost("cut"))
    with pytest.raises(ConnectionLost):
        await working
    again = Link(ADDRESS, "test", broker.connect)
    letters.held.set()
    await sending.on(again)
    assert (letters.links, sending.links) == (2, 2)
    assert set(letters.came) == set(range(20)) - {3}
    assert set(letters.doubts) <= set(range(10))
    await again.close()


async def test_cancelled_on_one_line_it_goes_on_with_the_next() -> None:
    """What was under way is in doubt, and what the old line still says is about other letters."""
    broker, link = await ground()
    letters = Letters(30, portion=10)
    sending = Sending(letters)
    working = asyncio.ensure_future(sending.on(link))
    while not sending.under_way:  # noqa: ASYNC110 -- it tells nobody
        await asyncio.sleep(0)
    under_way = sending.under_way
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    came = len(letters.came)
    await asyncio.sleep(0.05)
    assert len(letters.came) == came, "nobody listens there any more"
    again = Link(ADDRESS, "test", broker.connect)
    await sending.on(again)
    assert set(letters.came) == set(range(30)) - {3}
    assert len(letters.doubts) >= under_way - came
    assert sending.under_way == 0
    await asyncio.gather(link.close(), again.close())


async def test_an_exchange_that_is_not_there() -> None:
    _, link = await ground()
    letters = Letters(5)
    letters.keys = {0: ("none", "k")}
    sending = Sending(letters)
    with pytest.raises(TargetMissing):
        await sending.on(link)
    assert 0 in sending.unsent
    await link.close()


async def test_stopped_it_tells_what_was_not_sent() -> None:
    _, link = await ground()
    letters = Letters(1_000, portion=100)
    sending = Sending(letters, in_flight=1, ahead=100)
    working = asyncio.ensure_future(sending.on(link))
    while len(letters.came) < 10:  # noqa: ASYNC110 -- the letters tell nobody
        await asyncio.sleep(0)
    sending.stop()
    await working
    await sending.close()
    accounted = [*letters.came, *letters.kept, *sending.unsent, *letters.left]
    assert sorted(accounted) == list(range(1_000))
