"""`x-single-active-consumer`: one gets everything, the others wait.

About `testing.memory.contents.subscribers`, `testing.memory.connections.consuming`.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.contract.ground import Ground

from deadletter.amqp import requests
from deadletter.amqp.channel import Channel, Delivery
from deadletter.amqp.connection import Connection
from deadletter.core.letter.field_table import Value
from deadletter.errors import AccessRefused, ResourceLocked

KINDS = pytest.mark.parametrize("kind", ["classic", "quorum"])
ALONE: dict[str, Value] = {"x-single-active-consumer": True}


class Taking:
    """Consumers with names, and who was given what."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self.got: list[tuple[str, str]] = []
        self.channels: dict[str, Channel] = {}
        self.tags: dict[str, str] = {}

    async def come(
        self, name: str, *, priority: int = 0, prefetch: int = 2, connection: Connection | None = None
    ) -> None:
        channel = await self._ground.channel(connection)
        await channel.qos(prefetch)
        self.channels[name] = channel
        self.tags[name] = await channel.consume(
            "q", self._noting(name), print, arguments={"x-priority": priority} if priority else {}
        )

    def _noting(self, name: str) -> Callable[[Delivery], None]:
        return lambda delivery: self.got.append((name, delivery.message.body.decode()))

    async def leave(self, name: str) -> None:
        """What it held it acks first: 3.10 loses a classic queue's process when the active consumer is
        cancelled with its hands full and more is ready."""
        self.channels[name].ack(0, multiple=True)
        await self._ground.calm()
        await self.channels[name].cancel(self.tags[name])

    async def becomes(self, *wanted: tuple[str, str]) -> None:
        await self._ground.until(lambda: len(self.got) >= len(wanted))
        await self._ground.calm()
        assert self.got == list(wanted)
        self.got.clear()


@KINDS
async def test_one_gets_everything_and_the_next_follows_it(ground: Ground, kind: str) -> None:
    await ground.declare("q", kind, ALONE)
    taking = Taking(ground)
    for name in "ABC":
        await taking.come(name)
    await ground.put("q", b"1", b"2")
    await taking.becomes(("A", "1"), ("A", "2"))
    await taking.leave("A")
    await ground.put("q", b"3")
    await taking.becomes(("B", "3"))
    await taking.leave("B")
    await ground.put("q", b"4")
    await taking.becomes(("C", "4"))


@KINDS
async def test_what_a_lost_active_consumer_held_goes_to_the_next(ground: Ground, kind: str) -> None:
    await ground.declare("q", kind, ALONE)
    taking = Taking(ground)
    lost = await ground.connect()
    kept = await ground.connect()
    await taking.come("A", connection=lost)
    await taking.come("B", prefetch=10, connection=kept)
    await ground.put("q", b"1", b"2", b"3", b"4", channel=await ground.channel(kept))
    await taking.becomes(("A", "1"), ("A", "2"))
    await ground.vanish(lost)
    await taking.becomes(("B", "1"), ("B", "2"), ("B", "3"), ("B", "4"))


@KINDS
async def test_who_is_counted_and_who_may_get(ground: Ground, kind: str) -> None:
    """A quorum queue counts the active one, and answers no `get` at all, consumers or not."""
    await ground.declare("q", kind, ALONE)
    taking = Taking(ground)
    getting = await ground.channel()
    await ground.put("q", b"0")
    if kind == "quorum":
        with pytest.raises(ResourceLocked, match="single active consumer"):
            await getting.get("q")
    else:
        getting.ack((await ground.take(getting, "q")).tag)
    for name in "AB":
        await taking.come(name, prefetch=1)
    told = await (await ground.channel()).declare_queue("q", passive=True)
    assert told.consumer_count == (1 if kind == "quorum" else 2)


@KINDS
async def test_a_higher_priority_does_not_wait_in_a_quorum_queue_of_4(ground: Ground, kind: str) -> None:
    """It becomes active as soon as the one before it has settled what it holds."""
    await ground.declare("q", kind, ALONE)
    taking = Taking(ground)
    await taking.come("low", prefetch=1)
    await ground.put("q", b"1", b"2", b"3")
    await taking.becomes(("low", "1"))
    await taking.come("high", priority=5)
    await ground.calm()
    taking.channels["low"].ack(0, multiple=True)
    if kind == "quorum" and ground.traits.active_by_priority:
        await taking.becomes(("high", "2"), ("high", "3"))
    else:
        await taking.becomes(("low", "2"))


@KINDS
async def test_who_follows(ground: Ground, kind: str) -> None:
    """The highest priority; a quorum queue of 3.10 knows only who came first."""
    await ground.declare("q", kind, ALONE)
    taking = Taking(ground)
    for name, priority in (("A", 0), ("B", 0), ("C", 5)):
        await taking.come(name, priority=priority)
    await ground.put("q", b"1")
    overtaking = kind == "quorum" and ground.traits.active_by_priority
    await taking.becomes(("C" if overtaking else "A", "1"))
    await taking.leave("A")
    await ground.put("q", b"2")
    in_turn = kind == "quorum" and not ground.traits.active_by_priority
    await taking.becomes(("B" if in_turn else "C", "2"))


@KINDS
@pytest.mark.parametrize("single", [True, False])
async def test_exclusive_consumers(ground: Ground, kind: str, single: bool) -> None:
    """A quorum queue takes the word and does not keep it."""
    await ground.declare("q", kind, ALONE if single else {})
    first, second, third = [await ground.channel() for _ in range(3)]
    if kind == "quorum" or not single:
        await first._ask_any(requests.consume("q", "first", exclusive=True))
    if kind == "quorum":
        await second._ask_any(requests.consume("q", "second", exclusive=True))
        await third.consume("q", print, print)
        return
    with pytest.raises(AccessRefused, match="in exclusive use"):
        await second._ask_any(requests.consume("q", "second", exclusive=True))
    if not single:
        with pytest.raises(AccessRefused, match="in exclusive use"):
            await third.consume("q", print, print)
