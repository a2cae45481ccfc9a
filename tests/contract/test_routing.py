"""Which queues a message comes to.

About `testing.memory.contents.exchange_routing`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from tests.contract.ground import Ground, seen

from deadletter.core.letter.field_table import Value


async def arrivals(ground: Ground, *queues: str) -> dict[str, int]:
    return {queue: len(await ground.drain(queue)) for queue in queues}


async def test_the_default_exchange_goes_by_name(ground: Ground) -> None:
    await ground.declare("a")
    assert (await ground.put("a", b"1")).confirmed == 1
    assert [r.code for r in (await ground.put("b", b"1")).returned] == [312]
    assert await arrivals(ground, "a") == {"a": 1}


async def test_direct_and_fanout(ground: Ground) -> None:
    channel = await ground.channel()
    await channel.declare_exchange("direct", "direct")
    await channel.declare_exchange("fanout", "fanout")
    for queue in ("a", "b"):
        await ground.declare(queue)
        await channel.bind_queue(queue, "direct", "both")
        await channel.bind_queue(queue, "direct", queue)
        await channel.bind_queue(queue, "fanout", "whatever")
    for key in ("a", "both", "neither"):
        await ground.put(key, b"1", exchange="direct")
    assert await arrivals(ground, "a", "b") == {"a": 2, "b": 1}
    await ground.put("neither", b"1", exchange="fanout")
    assert await arrivals(ground, "a", "b") == {"a": 1, "b": 1}
    await channel.unbind_queue("a", "fanout", "whatever")
    await ground.put("neither", b"1", exchange="fanout")
    assert await arrivals(ground, "a", "b") == {"a": 0, "b": 1}


KEYS = ("", "a", "a.b", "a.b.c", "b", "a.", "x.b")
TOPICS: dict[str, Sequence[int]] = {
    "#": (1, 1, 1, 1, 1, 1, 1),
    "a.#": (0, 1, 1, 1, 0, 1, 0),
    "a.*": (0, 0, 1, 0, 0, 1, 0),
    "*": (0, 1, 0, 0, 1, 0, 0),
    "*.b": (0, 0, 1, 0, 0, 0, 1),
    "#.b": (0, 0, 1, 0, 1, 0, 1),
    "a.*.c": (0, 0, 0, 1, 0, 0, 0),
    "": (1, 0, 0, 0, 0, 0, 0),
}


@pytest.mark.parametrize("pattern", TOPICS)
async def test_topics(ground: Ground, pattern: str) -> None:
    channel = await ground.channel()
    await channel.declare_exchange("topic", "topic")
    await ground.declare("q")
    await channel.bind_queue("q", "topic", pattern)
    taken = [int(not (await ground.put(key, b"1", exchange="topic")).returned) for key in KEYS]
    assert taken == list(TOPICS[pattern])


HEADERS: Sequence[Mapping[str, Value] | None] = (
    None, {"a": 1}, {"a": "1"}, {"a": 1, "b": 2}, {"x-a": 5}, {"a": True}, {"b": 2}, {"a": 1.0},
)  # fmt: skip
MATCHING: Sequence[tuple[Mapping[str, Value], str]] = (
    ({"x-match": "all", "a": 1}, "0101000?"),
    ({"a": "1"}, "00100000"),
    ({"a": 1, "b": None}, "00010000"),
    ({"x-match": "any", "a": 1, "b": 2}, "0101001?"),
    ({"x-match": "all", "x-a": 5}, "11111111"),
    ({"x-match": "all-with-x", "x-a": 5}, "00001000"),
    ({"x-match": "any-with-x", "x-a": 5, "q": 1}, "00001000"),
    ({}, "11111111"),
    ({"x-match": "any"}, "00000000"),
    ({"a": True}, "00000100"),
)


@pytest.mark.parametrize("number", range(len(MATCHING)))
async def test_headers(ground: Ground, number: int) -> None:
    arguments, expected = MATCHING[number]
    # 3.x compares numbers by their worth, 4.x by their type too.
    expected = expected.replace("?", "1" if ground.traits.believes_clients else "0")
    channel = await ground.channel()
    await channel.declare_exchange("headers", "headers")
    await ground.declare("q")
    await channel.bind_queue("q", "headers", "k", arguments)
    outcomes = [await ground.put("key", b"1", exchange="headers", headers=headers) for headers in HEADERS]
    assert "".join("0" if outcome.returned else "1" for outcome in outcomes) == expected


async def test_an_alternate_exchange_takes_what_no_binding_takes(ground: Ground) -> None:
    channel = await ground.channel()
    await channel.declare_exchange("other", "fanout")
    await channel.declare_exchange("main", "direct", arguments={"alternate-exchange": "other"})
    await channel.declare_exchange("astray", "direct", arguments={"alternate-exchange": "nowhere"})
    await ground.declare("a")
    await ground.declare("b")
    await channel.bind_queue("a", "main", "a")
    await channel.bind_queue("b", "other")
    assert (await ground.put("a", b"1", exchange="main")).returned == ()
    assert await arrivals(ground, "a", "b") == {"a": 1, "b": 0}
    assert (await ground.put("else", b"1", exchange="main")).returned == ()
    assert await arrivals(ground, "a", "b") == {"a": 0, "b": 1}
    assert len((await ground.put("else", b"1", exchange="astray")).returned) == 1


async def test_an_alternate_exchange_by_policy(ground: Ground) -> None:
    channel = await ground.channel()
    await channel.declare_exchange("main", "direct")
    await ground.declare("b")
    await channel.bind_queue("b", "amq.fanout")
    ground.site.set_policy("p", "^main$", {"alternate-exchange": "amq.fanout"}, 1)
    for _ in range(50):
        if not (await ground.put("k", b"1", exchange="main")).returned:
            break
        await ground.calm()
    assert len(await ground.drain("b")) == 1


async def test_cc_and_bcc_make_copies(ground: Ground) -> None:
    await ground.declare("a")
    await ground.declare("b")
    channel = await ground.channel()
    for header, left in (("CC", {"CC": ["b"]}), ("BCC", {})):
        await ground.put("a", b"1", headers={header: ["b"]})
        for queue in ("a", "b"):
            found = seen(await ground.take(channel, queue))
            assert (found.key, found.headers) == ("a", left)


async def test_a_queue_gets_a_message_once_however_many_ways_lead_to_it(ground: Ground) -> None:
    channel = await ground.channel()
    await ground.declare("a")
    await channel.bind_queue("a", "amq.topic", "a.#")
    await channel.bind_queue("a", "amq.topic", "#")
    await ground.put("a", b"1", headers={"CC": ["a", "none"]})
    await ground.put("a.b", b"1", exchange="amq.topic", headers={"BCC": ["a.c"]})
    assert await arrivals(ground, "a") == {"a": 2}


async def test_exchanges_bound_to_exchanges(ground: Ground) -> None:
    """By two ways into one queue a message arrives once; each exchange has an alternate of its own."""
    channel = await ground.channel()
    await channel.declare_exchange("lost", "fanout")
    await channel.declare_exchange("first", "topic")
    await channel.declare_exchange("second", "fanout", arguments={"alternate-exchange": "lost"})
    for queue in ("a", "waiting"):
        await ground.declare(queue)
    await channel.bind_queue("waiting", "lost")
    await channel.bind_exchange("second", "first", "orders.*")
    await channel.bind_queue("a", "first", "orders.#")
    await channel.bind_queue("a", "second")
    assert (await ground.put("orders.1", b"1", exchange="first")).confirmed == 1
    assert await arrivals(ground, "a", "waiting") == {"a": 1, "waiting": 0}
    await channel.unbind_queue("a", "second")
    await ground.put("orders.1", b"1", exchange="first")
    assert await arrivals(ground, "a", "waiting") == {"a": 1, "waiting": 1}
    await channel.unbind_queue("a", "first", "orders.#")
    await ground.put("orders.1", b"1", exchange="first")
    assert await arrivals(ground, "a", "waiting") == {"a": 0, "waiting": 1}
    await channel.unbind_exchange("second", "first", "orders.*")
    assert [r.code for r in (await ground.put("orders.1", b"1", exchange="first")).returned] == [312]
    await channel.bind_exchange("second", "first", "orders.*")
    await channel.delete_exchange("second")
    assert [r.code for r in (await ground.put("orders.1", b"1", exchange="first")).returned] == [312]


async def test_exchanges_in_a_circle(ground: Ground) -> None:
    channel = await ground.channel()
    for name in ("one", "other"):
        await channel.declare_exchange(name, "fanout")
    await ground.declare("a")
    await channel.bind_exchange("one", "other")
    await channel.bind_exchange("other", "one")
    await channel.bind_queue("a", "other")
    await ground.put("", b"1", exchange="one")
    assert await arrivals(ground, "a") == {"a": 1}
