"""What only quorum queues have: delivery limits, delayed retries, dead-lettering at least once.

About `testing.memory.contents.queues`, `testing.memory.contents.queue_rules`,
`core.topology.rabbitmq_versions`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

import pytest
from tests.contract.ground import PATIENCE_S, STEP_S, Ground, counts
from tests.contract.test_dying import TO_DLQ, deaths

from deadletter.amqp.channel import Channel, Delivery
from deadletter.core.letter.field_table import Value

DEFAULT = 20
LATE_S = 0.1
"""How late it may be seen. A busy machine sees it later, now and then: then it is measured anew."""
MEASURES = 8


async def deliveries(ground: Ground, queue: str, how: str, most: int = 25) -> int:
    """How often a message is delivered before it is gone; `most` when it stays."""
    for count in range(most):
        channel = await ground.channel()
        delivery = None
        for _ in range(40):
            delivery = await channel.get(queue)
            if delivery is not None or await arrived(ground):
                break
            await asyncio.sleep(0.02)
        if delivery is None:
            return count
        if how == "nack":
            channel.nack(delivery.tag, requeue=True)
        elif how == "reject":
            channel.reject(delivery.tag, requeue=True)
        await channel.close()
    return most


async def arrived(ground: Ground) -> bool:
    return await ground.depth("dlq") > 0


@pytest.mark.parametrize("how", ["nack", "reject", "close"])
@pytest.mark.parametrize("limit", [None, 0, 2, -1])
async def test_the_delivery_limit(ground: Ground, limit: int | None, how: str) -> None:
    await ground.declare("dlq")
    more: Mapping[str, Value] = {} if limit is None else {"x-delivery-limit": limit}
    await ground.declare("q", "quorum", {**TO_DLQ, **more})
    await ground.put("q", b"1")
    traits = ground.traits
    real = DEFAULT if limit is None and traits.default_delivery_limit is not None else limit
    if real is not None and real < 0 and traits.unlimited_by_minus_one:
        real = None
    if how == "nack" and not traits.nack_counts:
        real = None
    expected = 25 if real is None else max(real, 0) + 1
    assert await deliveries(ground, "q", how) == expected
    if real is not None:
        assert deaths(await ground.take(await ground.channel(), "dlq")) == [("q", "delivery_limit", 1)]


@pytest.mark.parametrize(("argument", "expected"), [(1, 2), (6, 4), (None, 4)])
async def test_a_delivery_limit_by_policy(ground: Ground, argument: int | None, expected: int) -> None:
    ground.site.set_policy("p", "^q$", {"delivery-limit": 3}, 1)
    await ground.declare("dlq")
    more: Mapping[str, Value] = {} if argument is None else {"x-delivery-limit": argument}
    await ground.declare("q", "quorum", {**TO_DLQ, **more})
    await ground.calm()
    await ground.calm()
    await ground.put("q", b"1")
    assert await deliveries(ground, "q", "reject") == expected


def _has(got: list[Delivery], count: int) -> bool:
    return len(got) == count


async def test_a_killed_consumer_costs_all_it_held_a_delivery(ground: Ground) -> None:
    await ground.declare("dlq")
    await ground.declare("q", "quorum", {**TO_DLQ, "x-delivery-limit": 1})
    await ground.put("q", *[b"%d" % n for n in range(10)])
    for _ in range(2):
        connection = await ground.connect()
        channel = await ground.channel(connection)
        got: list[Delivery] = []
        await channel.qos(10)
        await channel.consume("q", got.append, print)
        await ground.until(partial(_has, got, 10))
        await ground.vanish(connection)
    await ground.depth_becomes("dlq", 10)
    assert await ground.depth("q") == 0


async def test_a_count_that_a_client_wrote_is_shown_but_does_not_count(ground: Ground) -> None:
    await ground.declare("dlq")
    await ground.declare("q", "quorum", {**TO_DLQ, "x-delivery-limit": 2})
    await ground.put("q", b"1", headers={"x-delivery-count": 20})
    channel = await ground.channel()
    first = await ground.take(channel, "q")
    assert counts(first)[:2] == (False, 0 if ground.traits.first_count_shown else 20)
    channel.reject(first.tag, requeue=True)
    assert counts(await ground.take(channel, "q"))[:2] == (True, 1)


def _died(source: str, dlq: str, how: str, limit: int | None, ground: Ground) -> list[object]:
    """What is seen of a letter that came by the delivery limit of 3, until it is gone or four times."""
    traits = ground.traits
    counted = how == "reject" or how == "close" or traits.nack_counts
    if dlq == "classic":
        return [(traits.delivered_survives_death, None, None), *[(True, None, None)] * 3]
    # 4.0 shows what lost consumers cost the letter before, but begins to count anew.
    shown: int | None = (
        4 if traits.counts_go_on or (traits.counts_survive_death and source == "close") else None
    )
    began = 4 if traits.counts_go_on else 0
    first = 0 if shown is None and traits.first_count_shown else shown
    found: list[object] = [(shown is not None, first, 4 if traits.acquired_count else None)]
    for times in range(1, 4):
        count = began + times * counted
        if limit is not None and count > limit:
            return [*found, "gone"]
        found.append((True, count, times if traits.acquired_count else None))
    return found


@pytest.mark.parametrize("how", ["nack", "reject", "close"])
@pytest.mark.parametrize("limit", [1, 4, 5, None])
@pytest.mark.parametrize("dlq", ["quorum", "classic"])
@pytest.mark.parametrize("source", ["reject", "close"])
async def test_a_letter_that_died_of_the_delivery_limit(
    ground: Ground, source: str, dlq: str, limit: int | None, how: str
) -> None:
    """On 4.3 the deliveries of its first queue count in the second: one look may be the last."""
    if dlq == "classic" and limit is not None:
        return
    more: Mapping[str, Value] = {} if limit is None else {"x-delivery-limit": limit}
    await ground.declare("end")
    await ground.declare(
        "dlq", dlq, {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "end", **more}
    )
    await ground.declare("q", "quorum", {**TO_DLQ, "x-delivery-limit": 3})
    await ground.put("q", b"1")
    for _ in range(4):
        await give_back(ground, await ground.channel(), "q", source)
    found: list[object] = []
    for _ in range(4):
        channel = await ground.channel()
        if found and limit is not None and await comes_to(ground, "end", unless="dlq"):
            found.append("gone")
            break
        found.append(counts(await give_back(ground, channel, "dlq", how)))
    assert found == _died(source, dlq, how, limit, ground)


async def give_back(ground: Ground, channel: Channel, queue: str, how: str) -> Delivery:
    delivery = await ground.take(channel, queue)
    if how == "nack":
        channel.nack(delivery.tag, requeue=True)
    elif how == "reject":
        channel.reject(delivery.tag, requeue=True)
    await channel.close()
    return delivery


async def comes_to(ground: Ground, queue: str, *, unless: str) -> bool:
    """Whether the message comes there, or back to the other queue."""
    for _ in range(int(PATIENCE_S / STEP_S)):
        if await ground.depth(queue):
            return True
        if await ground.depth(unless):
            return False
        await asyncio.sleep(STEP_S)
    raise AssertionError(f"the message is neither in {queue} nor in {unless}")


# -- delayed retries ----------------------------------------------------------------------------------------
async def waits(ground: Ground, kind: str, words: str, *, most: int | None) -> list[float]:
    """How long a message is away after each word (n: nack, r: reject, c: close)."""
    arguments: dict[str, Value] = {"x-delayed-retry-type": kind, "x-delayed-retry-min": 200}
    if most is not None:
        arguments["x-delayed-retry-max"] = most
    await (await ground.channel()).delete_queue("q")
    await ground.declare("q", "quorum", arguments)
    await ground.put("q", b"1")
    loop = asyncio.get_running_loop()
    found: list[float] = []
    for word in words:
        channel = await ground.channel()
        delivery = await ground.take(channel, "q")
        if word == "n":
            channel.nack(delivery.tag, requeue=True)
        elif word == "r":
            channel.reject(delivery.tag, requeue=True)
        await channel.close()
        began = loop.time()
        await ground.depth_becomes("q", 1)
        found.append(loop.time() - began)
    return found


@pytest.mark.parametrize(
    ("kind", "words", "most", "expected"),
    [
        ("all", "rrrr", 500, [0.2, 0.4, 0.5, 0.5]),
        ("all", "nnr", 500, [0.2, 0.2, 0.2]),
        ("all", "rcc", 1000, [0.2, 0.4, 0.6]),
        ("all", "rrr", None, [0.2, 0.2, 0.2]),
        ("failed", "nr", 1000, [0.0, 0.2]),
        ("returned", "rn", 1000, [0.0, 0.2]),
        ("disabled", "rn", 1000, [0.0, 0.0]),
    ],
)
async def test_delayed_retries(
    ground: Ground, kind: str, words: str, most: int | None, expected: list[float]
) -> None:
    if not ground.traits.native_retry:
        expected = [0.0] * len(words)  # the arguments are taken and ignored
    found: list[float] = []
    for _ in range(MEASURES):
        found = await waits(ground, kind, words, most=most)
        pairs = list(zip(found, expected, strict=True))
        assert all(wanted - 0.06 <= got for got, wanted in pairs), f"{found} is earlier than {expected}"
        if all(got <= wanted + LATE_S for got, wanted in pairs):
            return
    raise AssertionError(f"{found} is later than {expected}, {MEASURES} times")


async def test_delayed_retries_end_at_the_delivery_limit(ground: Ground) -> None:
    if not ground.traits.native_retry:
        pytest.skip("this broker has no delayed retries")
    retry: dict[str, Value] = {
        "x-delayed-retry-type": "all",
        "x-delayed-retry-min": 50,
        "x-delayed-retry-max": 100,
    }
    await ground.declare("dlq")
    await ground.declare("q", "quorum", {**TO_DLQ, **retry, "x-delivery-limit": 2})
    await ground.put("q", b"1")
    channel = await ground.channel()
    for _ in range(3):
        channel.reject((await ground.take(channel, "q")).tag, requeue=True)
    assert deaths(await ground.take(channel, "dlq")) == [("q", "delivery_limit", 1)]


# -- at least once ------------------------------------------------------------------------------------------
SAFE: Mapping[str, Value] = {
    **TO_DLQ,
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
}


async def test_at_least_once_holds_what_nobody_takes(ground: Ground) -> None:
    """Until the target is there; a real broker tries again after three minutes, too long for this test."""
    await ground.declare("q", "quorum", {**SAFE, "x-message-ttl": 50})
    await ground.put("q", b"1")
    await asyncio.sleep(0.5)
    assert await ground.depth("q") == 0
    await ground.total_becomes("q", 1)


async def test_at_least_once_delivers_what_can_be_delivered(ground: Ground) -> None:
    await ground.declare("dlq")
    await ground.declare("q", "quorum", {**SAFE, "x-message-ttl": 50})
    await ground.put("q", *[b"%d" % n for n in range(100)])
    await ground.depth_becomes("dlq", 100)
    found = await ground.drain("dlq")
    assert {d.message.body for d in found} == {b"%d" % n for n in range(100)}
    assert deaths(found[0]) == [("q", "expired", 1)]


async def test_thirty_two_that_nobody_takes_stop_the_rest(ground: Ground) -> None:
    channel = await ground.channel()
    await channel.declare_exchange("dlx", "direct")
    await ground.declare("good")
    await channel.bind_queue("good", "dlx", "q")
    for held, through in ((31, True), (32, False)):
        queue = f"level.{held}"
        arguments: dict[str, Value] = {
            "x-dead-letter-exchange": "dlx",
            "x-dead-letter-strategy": "at-least-once",
            "x-overflow": "reject-publish",
            "x-message-ttl": 100,
        }
        await ground.declare(queue, "quorum", arguments)
        await channel.bind_queue(queue, "amq.fanout")
        await ground.put("nobody", *[b"x"] * held, exchange="amq.fanout")
        await ground.put("q", *[b"y"] * 5, exchange="amq.fanout")
        await channel.unbind_queue(queue, "amq.fanout")
        if through:
            await ground.depth_becomes("good", 5)
            await ground.drain("good")
        else:
            await asyncio.sleep(1.5)
            assert await ground.depth("good") == 0
