"""Letters on their trips: dead, delayed, back, and dead again, with a running service on a real broker.

A spy queue on an origin's own return exchange gets a copy of every letter exactly as it comes home.

About `service.intake.sorting`, `service.guarding.guarded_release`, `service.telling.fate_counter`,
`core.letter.envelope`.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from tests.brokers import Vhost
from tests.letters import headers_of, letter, letters
from tests.serving import Application, served

from deadletter.amqp.channel import Delivery
from deadletter.core.layouts.naming import level_name, return_exchange_name
from deadletter.core.letter import field_table, message, names
from deadletter.core.letter.envelope import MAX_DEATHS_BYTES
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.message import RawMessage
from deadletter.core.letter.wrapping import unwrap

LETTERS = int(os.environ.get("DLQ_TEST_LETTERS", "2000"))
UNGUARDED = """
[guards]
require_consumers = false
[guards.breaker]
enabled = false
"""
WATCH = '[[watches]]\ndlq = "*.dlq"\n'
X_DEATHS = names.DEATH_SUMMARY | {names.X_DEATH}


def policy(retries: int, *delays: str) -> str:
    listed = ", ".join(f'"{delay}"' for delay in delays)
    return f'[default_policy]\nretries = {retries}\nbackoff = {{ kind = "fixed", delays = [{listed}] }}\n'


async def spy_on(app: Application, origin: str) -> str:
    """The name of a queue that gets a copy of what comes home to `origin`, as it comes."""
    exchange, spy = return_exchange_name(origin), f"spy.{origin}"
    await app.channel.declare_exchange(exchange, "fanout")
    await app.declare(spy, kind="classic")
    await app.channel.bind_queue(spy, exchange)
    await app.consume(spy, lambda _delivery, _times: True, keep=True)
    return spy


def came_home(app: Application, origin: str) -> list[Delivery]:
    return [delivery for queue, delivery, _ in app.deliveries if queue == f"spy.{origin}"]


async def parked(app: Application, count: int, seconds: float = 60) -> list[Delivery]:
    """The parked letters, taken out; exactly so many must come."""
    await app.consume(names.PARKED, lambda _delivery, _times: True, keep=True)
    found: list[Delivery] = []

    def enough() -> bool:
        found[:] = [delivery for queue, delivery, _ in app.deliveries if queue == names.PARKED]
        return len(found) >= count

    await app.until(enough, seconds, f"{count} parked letters")
    assert len(found) == count
    return found


# -- every way to die ----------------------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.kills
async def test_six_trips_for_every_way_to_die(vhost: Vhost, tmp_path: Path) -> None:
    """Rejected, expired, pushed out, over the delivery limit; classic and quorum; none lost, each counted."""
    origins = {
        f"{kind}.{reason}": (kind, reason)
        for kind in ("classic", "quorum")
        for reason in ("rejected", "expired", "maxlen", "delivery_limit")
        if (kind, reason) != ("classic", "delivery_limit")  # classic queues count no deliveries
    }
    amount = {origin: 3 if reason == "maxlen" else 20 for origin, (_, reason) in origins.items()}
    extra: dict[str, dict[str, Value]] = {
        "rejected": {},
        "expired": {"x_message_ttl": 100},
        "maxlen": {"x_max_length": 3, "x_overflow": "drop-head"},
        "delivery_limit": {"x_delivery_limit": 1},
    }
    async with Application(vhost.url) as app:
        for origin, (kind, reason) in origins.items():
            await app.with_dlq(origin, kind=kind, **extra[reason])
            await spy_on(app, origin)
        await app.channel.declare_exchange("shop", "topic")
        for origin in origins:
            await app.channel.bind_queue(origin, "shop", f"key.{origin}.#")
        settings = policy(6, "200ms") + WATCH + UNGUARDED
        with served(vhost, tmp_path, settings):
            async with asyncio.TaskGroup() as group:
                killers = [
                    group.create_task(_killer(app, origin, reason)) for origin, (_, reason) in origins.items()
                ]
                for origin, (_, reason) in origins.items():
                    properties = {"expiration": "3600000"} if reason != "expired" else {}
                    made = letters(origin, amount[origin], priority=0, **properties)
                    await app.publish("shop", f"key.{origin}.ä", made)
                found = await parked(app, sum(amount.values()), 150)
                for killer in killers:
                    killer.cancel()
        for origin, (_, reason) in origins.items():
            _check_trips(app, origin, amount[origin])
            last = [d for d in found if d.message.body.startswith(origin.encode())]
            assert len(last) == amount[origin]
            for delivery in last:
                headers = headers_of(delivery)
                assert headers[names.ATTEMPT] == 6
                assert headers[names.CAUSE] == "retries-exhausted"
                assert headers[names.ORIGIN_QUEUE] == origin
                deaths = headers[names.X_DEATH]
                assert isinstance(deaths, list)
                assert isinstance(deaths[0], dict)
                assert (deaths[0]["queue"], deaths[0]["reason"]) == (origin, reason)
                assert _deaths_bytes(delivery) <= MAX_DEATHS_BYTES


def _check_trips(app: Application, origin: str, amount: int) -> None:
    attempts: dict[bytes, list[Value]] = defaultdict(list)
    ids: dict[bytes, set[Value]] = defaultdict(set)
    for delivery in came_home(app, origin):
        headers = headers_of(delivery)
        body = delivery.message.body
        if not body.startswith(origin.encode()):
            continue
        attempts[body].append(headers[names.ATTEMPT])
        ids[body].add(headers[names.ID])
        assert delivery.routing_key.decode() == f"key.{origin}.ä"
        assert not X_DEATHS & headers.keys(), "the broker's deaths are still on a letter that is home"
        assert message.view(delivery.message.properties).expiration is None
        assert message.view(delivery.message.properties).priority == 0
        assert _deaths_bytes(delivery) <= MAX_DEATHS_BYTES
    assert len(attempts) == amount, origin
    assert all(each == [1, 2, 3, 4, 5, 6] for each in attempts.values()), (origin, attempts)
    assert all(len(each) == 1 for each in ids.values()), "a letter changed its id on the way"


def _deaths_bytes(delivery: Delivery) -> int:
    raw = message.header_table(delivery.message.properties)
    found = field_table.find(raw, frozenset({names.DEATHS.encode()}))
    return sum(end - start for _, _, start, end in found)


async def _killer(app: Application, origin: str, reason: str) -> None:
    """Makes everything in this origin die, each in its own way."""
    match reason:
        case "expired":
            return
        case "maxlen":
            await _push_out(app, origin)
        case _:
            channel = await app.connection.channel()
            await channel.qos(100)
            requeue = reason == "delivery_limit"  # the second delivery is one too many
            await channel.consume(origin, lambda d: channel.reject(d.tag, requeue=requeue), lambda: None)


async def _push_out(app: Application, origin: str) -> None:
    """When all three letters are in the origin, three others take their place, and are taken away again."""
    channel = await app.connection.channel()
    while True:
        if await app.depth(origin) < 3:
            await asyncio.sleep(0.05)
            continue
        await app.publish("", origin, letters("filler", 3, priority=0))
        taken = 0
        while taken < 3:
            if (delivery := await channel.get(origin)) is None:
                await asyncio.sleep(0.02)
                continue
            assert delivery.message.body.startswith(b"filler")
            channel.ack(delivery.tag)
            taken += 1


# -- headers that somebody copied ----------------------------------------------------------------------------
async def test_a_message_with_copied_headers_is_a_new_letter(vhost: Vhost, tmp_path: Path) -> None:
    async with Application(vhost.url) as app:
        for origin in ("first", "second"):
            await app.with_dlq(origin)
            await spy_on(app, origin)
        with served(vhost, tmp_path, policy(5, "200ms") + WATCH + UNGUARDED):
            await app.consume("first", lambda _d, times: times > 2)
            await app.publish("", "first", [letter(b"old", headers={"tenant": "t1"})])
            await app.until(lambda: len(came_home(app, "first")) == 2, 120, "the old letter's second return")
            old = headers_of(came_home(app, "first")[-1])
            assert old[names.ATTEMPT] == 2
            await app.consume("second", lambda _d, times: times > 1)
            await app.publish("", "second", [letter(b"new", headers=old)])
            await app.until(lambda: bool(came_home(app, "second")), 120, "the new letter's return")
            new = headers_of(came_home(app, "second")[0])
            await app.until(lambda: app.seen["second", b"new"] == 2, 120)
        assert new[names.PARENT_ID] == old[names.ID]
        assert new[names.ID] != old[names.ID]
        assert new[names.ATTEMPT] == 1, "it died with attempt 0 and was sent back once"
        assert new[names.ORIGIN_QUEUE] == "second"
        assert new["tenant"] == "t1"
        assert app.seen["first", b"new"] == 0, "it went to the other letter's origin"


async def test_copied_headers_with_deaths_in_them_make_a_new_letter(vhost: Vhost, tmp_path: Path) -> None:
    """4.x writes `x-death` anew; 3.10 goes on with the copied one, and the bindings tell the two apart."""
    async with Application(vhost.url) as app:
        await app.with_dlq("first")
        await app.with_dlq("second")
        await app.declare("aside")
        await app.declare("third", x_dead_letter_exchange="", x_dead_letter_routing_key="aside")
        await spy_on(app, "second")
        with served(vhost, tmp_path, policy(5, "200ms") + WATCH + UNGUARDED):
            await app.consume("first", lambda _d, times: times > 1, keep=True)
            await app.publish("", "first", [letter(b"old")])
            await app.until(lambda: app.seen["first", b"old"] == 2, 120)
            _, returned, _ = app.deliveries[-1]
            # It dies once more where no watch looks, and there somebody makes a new message of its headers.
            await app.consume("third", lambda _d, _times: False)
            await app.publish("", "third", [RawMessage(returned.message.properties, b"old")])
            await app.consume("aside", lambda _d, _times: True, keep=True)
            await app.until(lambda: app.seen["aside", b"old"] == 1, 120)
            dead = headers_of(app.deliveries[-1][1])
            assert names.X_DEATH in dead
            assert names.ID in dead
            await app.consume("second", lambda _d, times: times > 1)
            await app.publish("", "second", [letter(b"new", headers=dead)])
            await app.until(lambda: bool(came_home(app, "second")), 120)
            new = headers_of(came_home(app, "second")[0])
            assert new[names.PARENT_ID] == dead[names.ID]
            assert new[names.ID] != dead[names.ID]
            assert new[names.ATTEMPT] == 1
        assert app.seen["first", b"new"] == 0


# -- what must be the same when it is home -------------------------------------------------------------------
@pytest.mark.slow
async def test_cc_priority_and_trace_are_as_they_were(vhost: Vhost, tmp_path: Path) -> None:
    """One copy only, three trips long; in the level no CC and no priority."""
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    entry = field_table.entry("traceparent", trace)
    async with Application(vhost.url) as app:
        await app.channel.declare_exchange("dead", "fanout")
        await app.declare("orders.dlq")
        await app.channel.bind_queue("orders.dlq", "dead")
        await app.declare("orders", kind="classic", x_dead_letter_exchange="dead", x_max_priority=10)
        await app.declare("bystander", kind="classic")
        await spy_on(app, "orders")
        settings = policy(5, "3s") + WATCH + UNGUARDED
        with served(vhost, tmp_path, settings):
            await app.consume("orders", lambda _d, times: times > 3)
            headers: dict[str, Value] = {"CC": ["bystander"], "traceparent": trace}
            await app.publish("", "orders", [letter(b"one", headers=headers, priority=7)])
            waiting = await _peek(app, level_name(3000))
            view = message.view(waiting.message.properties)
            assert view.priority is None
            assert view.headers is not None
            assert "CC" not in view.headers
            await app.until(lambda: app.seen["orders", b"one"] == 4, 120, "the third return")
            assert await app.depth("bystander") == 1, "the CC of a letter made copies"
        home = came_home(app, "orders")
        assert len(home) == 3
        for delivery in home:
            view = message.view(delivery.message.properties)
            assert view.priority == 7
            assert view.headers is not None
            assert view.headers["CC"] == ["bystander"]
            assert entry in message.header_table(delivery.message.properties)
            assert not {names.CC, names.PRIORITY} & view.headers.keys()


async def _peek(app: Application, queue: str) -> Delivery:
    until = time.monotonic() + 120
    while time.monotonic() < until:
        channel = await app.connection.channel()
        delivery = await channel.get(queue)
        if delivery is not None:
            channel.nack(delivery.tag, requeue=True)
            await channel.close()
            return delivery
        await channel.close()
        await asyncio.sleep(0.02)
    raise AssertionError(f"nothing came to {queue}")


# -- many ----------------------------------------------------------------------------------------------------
async def test_each_letter_is_seen_exactly_four_times(vhost: Vhost, tmp_path: Path) -> None:
    """2,000 letters (DLQ_TEST_LETTERS=20000 for the whole claim) fail three times and then succeed."""
    async with Application(vhost.url) as app:
        await app.with_dlq("orders")
        await app.consume("orders", lambda _d, times: times > 3)
        with served(vhost, tmp_path, policy(5, "200ms", "500ms", "1s") + WATCH + UNGUARDED):
            await app.publish("", "orders", letters("n", LETTERS, expiration="3600000"))
            await app.until(lambda: app.seen.total() >= 4 * LETTERS, 240, "four deliveries of each")
            for queue in ("orders", "orders.dlq", names.DUE, names.PARKED):
                assert await app.depth(queue) == 0, queue
        assert len(app.seen) == LETTERS
        assert set(app.seen.values()) == {4}


@pytest.mark.slow
async def test_letters_that_cannot_go_home_hold_up_nobody(vhost: Vhost, tmp_path: Path) -> None:
    """A deleted origin and a full one beside a good one, all in the same level."""
    sent, good = max(300, LETTERS // 20), max(2000, LETTERS // 2)
    async with Application(vhost.url) as app:
        await app.with_dlq("gone")
        # Classic: a quorum queue notices that it is full only after some hundreds more, and confirms those.
        await app.with_dlq("full", kind="classic", x_max_length=50, x_overflow="reject-publish")
        await app.with_dlq("good")
        for origin in ("gone", "full"):
            await _let_die(app, origin, sent)
        await app.channel.delete_queue("gone")
        await app.publish("", "full", letters("filler", 50))
        assert await app.depth("full") == 50
        died: dict[bytes, float] = {}
        late: dict[bytes, float] = {}

        def succeeds(delivery: Delivery, times: int) -> bool:
            (died if times == 1 else late).setdefault(delivery.message.body, time.time())
            return times > 1

        await app.consume("good", succeeds)
        with served(vhost, tmp_path, policy(5, "1s") + WATCH + UNGUARDED):
            await app.publish("", "good", letters("good", good))
            gone = await parked(app, sent, 120)
            await app.until(lambda: len(late) == good, 120, "the good ones")
            assert await app.depth("full") == 50, "the full one had no room, and got letters all the same"
            slowest = max(late[body] - died[body] for body in late)
            assert slowest < 30, f"a good letter waited {slowest:.1f} s instead of one"
            assert all(headers_of(d)[names.CAUSE] == "origin-missing" for d in gone)
            assert {d.message.body for d in gone} == _bodies("gone", sent)
            assert set(app.seen.values()) <= {1, 2}
            # Now there is room.
            await app.consume("full", lambda _d, _times: True, keep=True)
            await app.until(lambda: _seen(app, "full-") >= sent, 120, "the letters of the full one")
        arrived = [d for queue, d, _ in app.deliveries if queue == "full" and d.message.body[:5] == b"full-"]
        twice = [body for body, times in Counter(d.message.body for d in arrived).items() if times > 1]
        assert not twice, [headers_of(d) for d in arrived if d.message.body in twice]
        assert {d.message.body for d in arrived} == _bodies("full", sent)
        assert {headers_of(d)[names.ATTEMPT] for d in arrived} == {1}, "waiting for room was counted"


async def _let_die(app: Application, origin: str, count: int) -> None:
    """In handfuls: a small queue takes no more at a time."""
    channel = await app.connection.channel()
    await channel.qos(200)
    tag = await channel.consume(origin, lambda d: channel.reject(d.tag, requeue=False), lambda: None)
    for sent in range(0, count, 25):
        await app.publish("", origin, letters(f"{origin}-{sent}", 25))
        await _until_depth(app, f"{origin}.dlq", sent + 25)
    await channel.cancel(tag)


async def _until_depth(app: Application, queue: str, depth: int) -> None:
    async with asyncio.timeout(60):
        while await app.depth(queue) < depth:  # noqa: ASYNC110 -- the broker tells nobody
            await asyncio.sleep(0.02)


def _bodies(origin: str, sent: int) -> set[bytes]:
    return {b"%s-%d-%d" % (origin.encode(), at, n) for at in range(0, sent, 25) for n in range(25)}


def _seen(app: Application, prefix: str) -> int:
    return sum(times for (_, body), times in app.seen.items() if body.startswith(prefix.encode()))


# -- one that cannot travel ----------------------------------------------------------------------------------
async def test_a_letter_too_large_for_a_frame_is_parked_whole(vhost: Vhost, tmp_path: Path) -> None:
    """A header table of 131,046 bytes is accepted, and grows when it dies; 500 others behind it pass."""
    big = field_table.raw_entry(b"x", b"S" + (131_039).to_bytes(4, "big") + b"v" * 131_039)
    assert len(big) == 131_046
    properties = message.HEADERS.to_bytes(2, "big") + len(big).to_bytes(4, "big") + big
    async with Application(vhost.url) as app:
        await app.with_dlq("orders")
        await app.consume("orders", lambda _d, times: times > 1)
        await app.publish("", "orders", [RawMessage(properties, b"poison")])
        await app.publish("", "orders", letters("innocent", 500))
        await _until_depth(app, "orders.dlq", 501)
        with served(vhost, tmp_path, policy(5, "500ms") + WATCH + UNGUARDED):
            await app.until(lambda: _seen(app, "innocent") >= 1000, 120, "the innocent ones")
            (found,) = await parked(app, 1)
        inside = unwrap(found.message)
        assert inside is not None
        assert inside.body == b"poison"
        assert big in message.header_table(inside.properties)
        assert names.X_DEATH in (message.view(inside.properties).headers or {})
        assert headers_of(found)[names.CAUSE] == "unreadable"
        assert app.seen["orders", b"poison"] == 1
        assert {times for (_, body), times in app.seen.items() if body.startswith(b"innocent")} == {2}


# -- time ----------------------------------------------------------------------------------------------------
async def test_a_short_delay_does_not_wait_behind_a_long_one(vhost: Vhost, tmp_path: Path) -> None:
    """One second and five, in turns, in one queue. None comes early."""
    died: dict[bytes, float] = {}
    back: dict[bytes, float] = {}
    slow = '[[policies]]\nname = "slow"\nmatch = { header = { pace = "slow" } }\nretries = 3\n'
    slow += 'backoff = { kind = "fixed", delays = ["5s"] }\n'

    def succeeds(delivery: Delivery, times: int) -> bool:
        (died if times == 1 else back).setdefault(delivery.message.body, time.time())
        return times > 1

    async with Application(vhost.url) as app:
        await app.with_dlq("orders")
        await app.consume("orders", succeeds)
        with served(vhost, tmp_path, slow + policy(3, "1s") + WATCH + UNGUARDED):
            turns = zip(
                letters("slow", 200, headers={"pace": "slow"}),
                letters("quick", 200, headers={"pace": "quick"}),
                strict=True,
            )
            await app.publish("", "orders", [one for both in turns for one in both])
            await app.until(lambda: len(back) == 400, 120, "all of them")
        waited = {body: back[body] - died[body] for body in back}
        quick = [s for body, s in waited.items() if body.startswith(b"quick")]
        slowly = [s for body, s in waited.items() if body.startswith(b"slow")]
        assert min(quick) >= 1.0, "early"
        assert min(slowly) >= 5.0, "early"
        first_slow = min(at for body, at in back.items() if body.startswith(b"slow"))
        assert all(at < first_slow for body, at in back.items() if body.startswith(b"quick"))
