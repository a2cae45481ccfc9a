"""The safe move when everything goes wrong: kills, cut lines, restarts, a broker out of memory.

The claim each time: every letter is in its source or in its target, and copies carry the same id.

About `move.courier`, `move.passage`, `broker.session`.
"""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from functools import partial

import pytest
from tests import postbox
from tests.brokers import Vhost, end_memory_alarm, raise_memory_alarm

from deadletter.amqp.address import Address, parse_addresses
from deadletter.amqp.channel import Delivery
from deadletter.broker.session import Connected, Link, Persistence, Waiting, supervise
from deadletter.core.letter import names
from deadletter.move.courier import (
    Bounds,
    BrokerBlocked,
    Courier,
    Ended,
    Letter,
    MoveEvent,
    MoveTally,
    Send,
    Verdict,
)
from deadletter.move.verdict import Later
from deadletter.testing.cuttable_line import Plug

PATIENT = Persistence(first_s=60, again_s=120, pause_s=0.05, pause_max_s=1.0)


def check(vhost: Vhost, bodies: list[bytes], *, copies_most: int) -> None:
    """Nothing is lost, copies are few and carry one id."""
    posts = postbox.drain(vhost.url, "source") + postbox.drain(vhost.url, "target")
    found = Counter(post.body for post in posts)
    assert set(found) == set(bodies), f"{len(set(bodies) - set(found))} lost"
    assert found.total() - len(found) <= copies_most
    ids: dict[bytes, set[str]] = {}
    for post in posts:
        if names.ID in post.headers:
            ids.setdefault(post.body, set()).add(post.headers[names.ID])
    assert all(len(known) == 1 for known in ids.values()), "copies of a letter differ in their id"


def let_go(vhost: Vhost, queue: str) -> bool:
    return postbox.consumers(vhost.url, queue) == 0


@pytest.mark.parametrize(
    ("kind", "kills"),
    [pytest.param("classic", 10, marks=[pytest.mark.slow, pytest.mark.kills]), ("quorum", 25)],
)
def test_killed_again_and_again(vhost: Vhost, kind: str, kills: int) -> None:
    """kill -9 at random moments. A quorum queue destroys letters after 20 lost deliveries: hence 25.

    The letters go back and forth: a quick machine has moved all of them after a few kills.
    """
    postbox.declare(vhost.url, "source", "target", kind=kind)
    bodies = [b"%d" % n for n in range(20_000)]
    postbox.fill(vhost.url, "source", bodies)
    command = [sys.executable, "-m", "deadletter.cli.main", "move", "--url", vhost.url]
    dice = random.Random(7)
    killed = 0
    for _ in range(kills):
        fuller = sorted(("target", "source"), key=lambda queue: -postbox.depth(vhost.url, queue))
        with subprocess.Popen(
            [*command, *fuller], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as process:
            time.sleep(dice.uniform(0.2, 0.6))
            process.send_signal(signal.SIGKILL)
        killed += process.returncode == -signal.SIGKILL
    assert killed >= 5, "the moves ended before they could be killed; nothing was tested"
    for queue in ("source", "target"):  # what the killed one held is in no queue before the broker notices
        postbox.wait_for(partial(let_go, vhost, queue), f"{queue} to be let go")
    last = subprocess.run(
        [*command, "source", "target"], capture_output=True, text=True, timeout=120, check=False
    )
    assert last.returncode == 0, last.stderr
    assert postbox.depth(vhost.url, "source") == 0
    check(vhost, bodies, copies_most=1000 * killed)


@pytest.mark.parametrize("direction", ["sent", "heard"])
@pytest.mark.slow
@pytest.mark.kills
def test_the_line_is_cut_after_any_number_of_bytes(vhost: Vhost, direction: str) -> None:
    """At every power of two up to 10 MB. The letters go back and forth, so a lost one stays lost."""
    postbox.declare(vhost.url, "source", "target")
    bodies = [b"%09d" % n + b"x" * 7991 for n in range(1500)]
    postbox.fill(vhost.url, "source", bodies)
    (address,) = parse_addresses(vhost.url)
    for power in range(25):
        size = min(2**power, 10_000_000)
        depths = {queue: postbox.depth(vhost.url, queue) for queue in ("source", "target")}
        source, target = sorted(depths, key=lambda queue: -depths[queue])
        count = 60 if size < 250_000 else None
        tally, cuts = postbox.run(_move_cut(address, source, target, direction, size, count))
        assert cuts == 1, f"the line was not cut after {size} bytes {direction}; nothing was tested"
        together = postbox.depth(vhost.url, "source") + postbox.depth(vhost.url, "target")
        assert together >= len(bodies), f"lost with a cut after {size} bytes {direction}: {tally}"
    check(vhost, bodies, copies_most=25 * 1000)


async def _move_cut(
    address: Address, source: str, target: str, direction: str, size: int, count: int | None
) -> tuple[MoveTally, int]:
    verdict = Send(routing_key=target)
    sent, heard = (size, None) if direction == "sent" else (None, size)
    async with Plug(address, cut_after_sent_bytes=sent, cut_after_heard_bytes=heard) as plug:
        tally = await Courier(
            [plug.address],
            source=source,
            decide=lambda _letter: verdict,
            bounds=Bounds(count=count),
            persistence=PATIENT,
        ).run()
        return tally, plug.cuts


@pytest.mark.slow
@pytest.mark.kills
def test_the_broker_restarts_in_the_middle(vhost: Vhost) -> None:
    """The move goes on and completes, classic and quorum at the same time."""
    bodies = [b"%d" % n for n in range(8000)]
    for kind in ("classic", "quorum"):
        postbox.declare(vhost.url, f"{kind}.source", f"{kind}.target", kind=kind)
        postbox.fill(vhost.url, f"{kind}.source", bodies)
    addresses = parse_addresses(vhost.url)
    events: list[MoveEvent] = []

    async def one(kind: str) -> MoveTally:
        verdict = Send(routing_key=f"{kind}.target")
        courier = Courier(
            addresses,
            source=f"{kind}.source",
            decide=lambda _letter: verdict,
            terms=postbox.slow(1500),
            persistence=PATIENT,
            on_event=events.append,
        )
        return await courier.run()

    async def restart() -> None:
        await asyncio.sleep(2.0)
        await asyncio.to_thread(vhost.broker.restart)

    async def everything() -> tuple[MoveTally, MoveTally]:
        classic, quorum, _ = await asyncio.gather(one("classic"), one("quorum"), restart())
        return classic, quorum

    tallies = postbox.run(everything())
    assert [tally.reconnects >= 1 for tally in tallies] == [True, True], tallies
    assert any(isinstance(event, Waiting) for event in events)
    for kind in ("classic", "quorum"):
        assert postbox.depth(vhost.url, f"{kind}.source") == 0
        found = Counter(post.body for post in postbox.drain(vhost.url, f"{kind}.target"))
        assert set(found) == set(bodies)
        assert found.total() - len(found) <= 2000


@pytest.mark.slow
@pytest.mark.kills
def test_a_broker_out_of_memory_is_waited_for(vhost: Vhost) -> None:
    """No verdict is there before the alarm is: however quick the move is, every letter meets it."""
    postbox.declare(vhost.url, "source", "target")
    bodies = [b"%d" % n for n in range(1000)]
    postbox.fill(vhost.url, "source", bodies)
    events: list[MoveEvent] = []

    async def everything() -> MoveTally:
        taken, blocked = asyncio.Event(), asyncio.Event()
        gate: asyncio.Future[Verdict] = asyncio.get_running_loop().create_future()

        def decide(_letter: Letter) -> Verdict:
            taken.set()
            return Later(gate)

        def hear(event: MoveEvent) -> None:
            events.append(event)
            if isinstance(event, BrokerBlocked) and event.reason is not None:
                blocked.set()

        courier = Courier(parse_addresses(vhost.url), source="source", decide=decide, on_event=hear)
        moving = asyncio.create_task(courier.run())
        await asyncio.wait_for(taken.wait(), 60)
        await asyncio.to_thread(raise_memory_alarm, vhost.broker)
        gate.set_result(Send(routing_key="target"))
        await asyncio.wait_for(blocked.wait(), 60)
        assert not moving.done()
        await asyncio.to_thread(end_memory_alarm, vhost.broker)
        return await moving

    try:
        tally = postbox.run(everything())
    finally:
        end_memory_alarm(vhost.broker)
    assert (tally.moved, tally.ended, tally.reconnects) == (1000, Ended.COMPLETE, 0)
    reasons = [event.reason for event in events if isinstance(event, BrokerBlocked)]
    assert reasons[-1] is None
    assert any(reason and "memory" in reason for reason in reasons)
    check(vhost, bodies, copies_most=0)


def test_a_supervised_consumer_is_resumed(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "work")
    (address,) = parse_addresses(vhost.url)
    got: list[bytes] = []
    events: list[object] = []

    async def everything() -> None:
        async with Plug(address) as plug:

            async def consume(link: Link) -> None:
                connection = await link.connection("consume")
                channel = await connection.channel()

                def on_delivery(delivery: Delivery) -> None:
                    got.append(delivery.message.body)
                    channel.ack(delivery.tag)

                await channel.consume("work", on_delivery, lambda: None)
                raise await connection.closed

            dead = Address(host="127.0.0.1", port=1, vhost=address.vhost)
            running = asyncio.create_task(
                supervise([dead, plug.address], consume, persistence=PATIENT, on_event=events.append)
            )
            for number in range(3):
                await asyncio.to_thread(postbox.fill_one, vhost.url, "work", b"%d" % number)
                async with asyncio.timeout(60):
                    while b"%d" % number not in got:  # noqa: ASYNC110 -- the consumer is another task
                        await asyncio.sleep(0.02)
                plug.cut()
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    postbox.run(everything())
    # An ack that was lost with the line brings its message back: each came, in order, some of them twice.
    assert list(dict.fromkeys(got)) == [b"0", b"1", b"2"]
    assert len([event for event in events if isinstance(event, Connected)]) >= 3
    assert all(event.address.port != 1 for event in events if isinstance(event, Connected))
