"""An orderly stop leaves every letter in one place: what is safe in its new home is gone from the old one.

A quorum queue applies acks in its own time, and a channel that closes overtakes them. So moves and looks are
stopped in the middle again and again, and after each stop the letters of both queues are counted.

About `move.courier`, `move.intake_series`, `broker.delivery_limits`.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from itertools import count

import pytest
from tests import postbox
from tests.brokers import Vhost

from deadletter.amqp.address import parse_addresses
from deadletter.broker import delivery_limits
from deadletter.broker.session import Link
from deadletter.core.topology.look_cost import Deliveries
from deadletter.core.topology.rabbitmq_versions import traits_of
from deadletter.move.asked_limits import LimitSource, by_default
from deadletter.move.courier import Courier, Leave, Letter, MoveTally, Send, Terms, Verdict

COUNT = 1500
STOPS = 12


def both(vhost: Vhost) -> int:
    return postbox.depth(vhost.url, "a") + postbox.depth(vhost.url, "b")


def all_back(vhost: Vhost, times: int) -> None:
    """Given back takes a moment; then there are as many as before, however long one waits."""
    postbox.wait_for(lambda: both(vhost) >= COUNT, "what was given back")
    assert both(vhost) == COUNT, f"{both(vhost) - COUNT} are in both queues after stop {times}"


async def stopped(
    vhost: Vhost,
    source: str,
    decide: Callable[[Letter], Verdict],
    after: int,
    *,
    cancel: bool,
    limits: LimitSource,
) -> MoveTally | None:
    begun = asyncio.Event()
    seen = count(1)

    def noted(letter: Letter) -> Verdict:
        if next(seen) == after:
            begun.set()
        return decide(letter)

    courier = Courier(
        parse_addresses(vhost.url), source=source, decide=noted, terms=Terms(prefetch=300), limits=limits
    )
    moving = asyncio.create_task(courier.run())
    # Told by letters, not by a clock: a quick machine ends before it. And not before the first one: uvloop
    # cannot close a loop in which a dial was cancelled half way.
    waiting = asyncio.create_task(begun.wait())
    await asyncio.wait({moving, waiting}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if cancel:
        moving.cancel()
        await asyncio.wait({moving})
        return None if moving.cancelled() else moving.result()
    courier.stop()
    return await moving


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@pytest.mark.parametrize("how", ["move", "some stay", "cancelled"])
@pytest.mark.parametrize("knows", [True, False], ids=["knows the queue", "does not"])
def test_nothing_is_in_both_places(vhost: Vhost, kind: str, how: str, knows: bool) -> None:
    """Also where the management API told that the queue has no limit: it is no less late for that."""

    async def told(link: Link, queue: str) -> Deliveries:
        return (await delivery_limits.ask(link, vhost.api, queue)).deliveries

    if knows and kind == "quorum" and traits_of(vhost.broker.version).unlimited_by_minus_one:
        never = {"delivery-limit": -1}
        vhost.put("policies", "off", pattern="", definition=never, **{"apply-to": "quorum_queues"})
    postbox.declare(vhost.url, "a", "b", kind=kind)
    bodies = [b"%d" % n for n in range(COUNT)]
    postbox.fill(vhost.url, "a", bodies, dead=False)
    dice = random.Random(11)

    def decide_towards(target: str) -> Callable[[Letter], Verdict]:
        go, stay = Send(routing_key=target), Leave()

        def decide(_letter: Letter) -> Verdict:
            return stay if how != "move" and dice.random() < 0.5 else go

        return decide

    moved = 0
    for times in range(STOPS):
        source, target = ("a", "b") if postbox.depth(vhost.url, "a") * 2 >= COUNT else ("b", "a")
        after = dice.randrange(1, COUNT // 2)
        cancel = how == "cancelled"
        tally = postbox.run(
            stopped(
                vhost,
                source,
                decide_towards(target),
                after,
                cancel=cancel,
                limits=told if knows else by_default,
            )
        )
        if tally is not None:
            assert tally.maybe_twice == 0
            moved += tally.moved
        all_back(vhost, times)
    assert moved > 0 or how == "cancelled"
    found = Counter(post.body for queue in ("a", "b") for post in postbox.drain(vhost.url, queue))
    assert found == Counter(bodies)
