"""Queues of held letters that come and go under attack, and strangers' letters in them.

A gate keeps letters in `deadletter.held.<gate>`. When nobody needs that queue any more it goes; a letter that
a gate keeps later finds it shut or gone, and waits in it all the same. Against it: a housekeeper in a hurry,
several services, a death between shutting and deleting, queues of an older version that were reached by their
name, and whatever somebody puts there by hand. A held letter comes home once, a stranger's goes to no queue
that it does not belong to, and none is deleted.

About `broker.housekeeping`, `broker.asked_delays`, `broker.return_exchanges`,
`service.guarding.held_letters`, `service.guarding.guarded_release`, `service.intake.addressing`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from tests import postbox
from tests.brokers import Vhost
from tests.housekeepers import asked_keys, keeping, linked, publish_asked, rounds
from tests.letters import letter, letters
from tests.serving import Application, Served, served

from deadletter.broker import housekeeping
from deadletter.broker.asked_delays import closing_key
from deadletter.broker.housekeeping import Housekeeper, Tidied
from deadletter.broker.return_exchanges import WaysBack
from deadletter.broker.session import Link
from deadletter.core.layouts.naming import ASKED, HELD, held_name
from deadletter.core.letter import names
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.message import RawMessage
from deadletter.errors import ClosedByBroker, NotFound

SETTINGS: Final = (
    '[default_policy]\nretries = 5\nbackoff = { kind = "fixed", delays = ["200ms"] }\n'
    '[[watches]]\ndlq = "*.dlq"\n[guards.breaker]\nenabled = false\n'
)
LONG_S: Final = 240.0
"""Far longer than anything takes here: what is waited for is a state."""
ORDERS: Final = held_name("orders")
HOME: Final[dict[str, Value]] = {
    names.ORIGIN_QUEUE: "orders",
    names.ORIGIN_ROUTING_KEY: "orders",
    names.ATTEMPT: 1,
    names.POLICY: "default",
}
"""What a letter carries that an older version held."""


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping, "_LAG_S", 0.0)


def held_queues(vhost: Vhost) -> set[str]:
    return {q["name"] for q in vhost.list("queues") if q["name"].startswith(HELD)}


async def until_held(vhost: Vhost, count: int, queue: str = ORDERS) -> None:
    await asyncio.to_thread(
        postbox.wait_for, lambda: (vhost.depth(queue) or 0) == count, f"{count} letters in {queue}", LONG_S
    )


async def let_die(app: Application, prefix: str, count: int) -> None:
    """In `orders`, which nobody consumes."""
    await app.publish("", "orders", letters(prefix, count, expiration="1"))


@asynccontextmanager
async def at_work(vhost: Vhost) -> AsyncIterator[Application]:
    """Somebody consumes `orders`, so the gate opens."""
    async with Application(vhost.url) as worker:
        await worker.consume("orders", lambda _d, _times: True)
        yield worker


async def until_shut(*instances: Served) -> None:
    """Each of them knows that nobody consumes `orders` any more: else a letter goes there."""
    for one in instances:
        await asyncio.to_thread(postbox.wait_for, partial(_is_shut, one), "the gate", LONG_S)


def _is_shut(one: Served) -> bool:
    known = [gate for gate in one.get("/api/status")["gates"] if gate["gate"] == "orders"]
    return all(gate["guard"] == "consumers" for gate in known)


async def get_done(vhost: Vhost, *bodies: bytes) -> None:
    """These come home, once each, and no others."""
    async with at_work(vhost) as worker:
        await worker.until(lambda: worker.handled["orders"] >= set(bodies), LONG_S, "each at home")
        await until_held(vhost, 0)
    assert dict(worker.seen) == {("orders", body): 1 for body in bodies}


def bodies(prefix: str, count: int) -> list[bytes]:
    return [made.body for made in letters(prefix, count)]


async def tidied(keeper: Housekeeper, vhost: Vhost) -> Tidied:
    total = await rounds(keeper, until=lambda: not held_queues(vhost))
    assert (held_queues(vhost), total.letters) == (set(), 0)
    return total


# -- they go, and come again ------------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.kills
async def test_a_queue_that_holds_nothing_goes_and_both_services_make_it_anew(
    vhost: Vhost, tmp_path: Path
) -> None:
    async with Application(vhost.url) as app, keeping(vhost) as keeper:
        await app.with_dlq("orders")
        await keeper.round()  # the lease is ours from here on
        with served(vhost, tmp_path, SETTINGS, instances=2) as services:
            for day in ("monday", "tuesday"):
                await let_die(app, day, 40)
                await until_held(vhost, 40)
                assert (await rounds(keeper, times=6)).held == 0, "it holds letters"
                await get_done(vhost, *bodies(day, 40))
                await until_shut(*services)
                assert (await tidied(keeper, vhost)).held == 1
    assert postbox.depth(vhost.url, names.PARKED) == 0


@pytest.mark.slow
async def test_a_housekeeper_in_a_hurry_against_a_gate_that_opens_and_closes(
    vhost: Vhost, tmp_path: Path
) -> None:
    """It never stops, while letters come to the queue that it deletes."""
    over = asyncio.Event()
    gone: list[Tidied] = []

    async def hurry(keeper: Housekeeper) -> None:
        while not over.is_set():
            gone.append(await keeper.round())
            await asyncio.sleep(0.1)

    async with Application(vhost.url) as app, keeping(vhost) as keeper:
        await app.with_dlq("orders")
        await keeper.round()
        with served(vhost, tmp_path, SETTINGS, instances=2):
            keeps = asyncio.create_task(hurry(keeper))
            for day in ("monday", "tuesday"):
                for hour in range(4):
                    await let_die(app, f"{day}-{hour}", 10)
                    await asyncio.sleep(0.3)
                await get_done(vhost, *(body for hour in range(4) for body in bodies(f"{day}-{hour}", 10)))
                since = len(gone)
                await app.until(partial(_went, gone, since), LONG_S, "a deletion")
            over.set()
            await keeps
    assert sum(found.letters for found in gone) == 0
    assert postbox.depth(vhost.url, names.PARKED) == 0


def _went(gone: list[Tidied], since: int) -> bool:
    return any(found.held for found in gone[since:])


async def test_deletions_against_publishers_that_hammer(vhost: Vhost) -> None:
    """Three services and a housekeeper meet at four gates until twenty queues were deleted."""
    gates = ["orders", "budget", "budget/p", "long." * 60]
    over = asyncio.Event()

    async def hammer(dice: random.Random, sent: set[bytes]) -> None:
        async with linked(vhost) as link:
            ways = _ways(link)
            while not over.is_set():
                gate, body = dice.choice(gates), dice.randbytes(8)
                await ways.holding(gate)
                while await publish_asked(link, held_name(gate), body) == "returned":
                    await ways.holding(gate, again=True)
                sent.add(body)
                await asyncio.sleep(dice.random() / 3)

    async def take(queue: str) -> set[bytes]:
        """What is there; without a consumer, which would keep the queue."""
        taken: set[bytes] = set()
        # RabbitMQ 4.3 closes the connection of whoever gets from a queue that is being made or deleted.
        with suppress(NotFound, ClosedByBroker):
            async with Application(vhost.url) as app:
                while (found := await app.channel.get(queue)) is not None:
                    taken.add(found.message.body)
                    app.channel.ack(found.tag)
        return taken

    sent: set[bytes] = set()
    taken: set[bytes] = set()
    total = Tidied()
    async with keeping(vhost) as keeper:
        hammers = [asyncio.create_task(hammer(random.Random(seed), sent)) for seed in range(3)]
        async with asyncio.timeout(LONG_S):
            while total.held < 20:
                found = await keeper.round()
                total = Tidied(held=total.held + found.held, letters=total.letters + found.letters)
                for gate in gates:
                    taken |= await take(held_name(gate))
        over.set()
        await asyncio.gather(*hammers)
        for queue in held_queues(vhost):
            taken |= {post.body for post in postbox.drain(vhost.url, queue)}
    assert (total.letters, taken) == (0, sent)


def _ways(link: Link) -> WaysBack:
    ways = WaysBack(_nothing, lambda *_: None)
    ways.renew(link)
    return ways


async def _nothing() -> None:
    return


# -- between two steps ------------------------------------------------------------------------------------
async def test_a_housekeeper_that_died_after_shutting_a_queue(vhost: Vhost, tmp_path: Path) -> None:
    """The service knows the queue from before, and opens it for the next letter."""
    async with Application(vhost.url) as app:
        await app.with_dlq("orders")
        with served(vhost, tmp_path, SETTINGS) as (one,):
            async with keeping(vhost, closed_s=3600.0, after_s=3600.0) as keeper:
                keeper._after_s = 0.0
                await keeper.round()
                await let_die(app, "before", 10)
                await until_held(vhost, 10)
                await get_done(vhost, *bodies("before", 10))
                await until_shut(one)
                await rounds(keeper, until=lambda: asked_keys(vhost) == {closing_key(ORDERS)})
                assert await asyncio.to_thread(asked_keys, vhost) == {closing_key(ORDERS)}
            await let_die(app, "after", 10)
            await until_held(vhost, 10)
            assert await asyncio.to_thread(asked_keys, vhost) == {ORDERS}
            await get_done(vhost, *bodies("after", 10))
            async with keeping(vhost) as another:
                await tidied(another, vhost)


@pytest.mark.slow
async def test_the_exchange_and_the_queue_deleted_under_a_service_that_knows_them(
    vhost: Vhost, tmp_path: Path
) -> None:
    async with Application(vhost.url) as app:
        await app.with_dlq("orders")
        with served(vhost, tmp_path, SETTINGS) as (one,):
            for deleted in ("nothing", "exchange", "queue", "both"):
                if deleted in ("exchange", "both"):
                    await app.channel.delete_exchange(ASKED)
                if deleted in ("queue", "both"):
                    await app.channel.delete_queue(ORDERS)
                await let_die(app, deleted, 10)
                await until_held(vhost, 10)
                await get_done(vhost, *bodies(deleted, 10))
                await until_shut(one)
    assert postbox.depth(vhost.url, names.PARKED) == 0


# -- an older version -------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("kind", "arguments"), [("quorum", {}), ("quorum", {"x_overflow": "reject-publish"}), ("classic", {})]
)
async def test_a_queue_that_was_reached_by_its_name(
    vhost: Vhost, tmp_path: Path, kind: str, arguments: dict[str, Any]
) -> None:
    """What an older version held goes home, more is held there as it is, and then it goes, too."""
    old = [RawMessage(letter(b"", headers=HOME).properties, body) for body in bodies("old", 10)]
    async with Application(vhost.url) as app, keeping(vhost) as keeper:
        await app.with_dlq("orders")
        await app.declare(ORDERS, kind=kind, **arguments)
        await app.publish("", ORDERS, old)
        assert (await rounds(keeper, times=4)).held == 0
        with served(vhost, tmp_path, SETTINGS):
            await let_die(app, "new", 10)
            await until_held(vhost, 20)
            assert await asyncio.to_thread(asked_keys, vhost) == {ORDERS}
            await get_done(vhost, *bodies("old", 10), *bodies("new", 10))
            await tidied(keeper, vhost)


async def test_an_old_queue_that_nobody_uses_goes(vhost: Vhost) -> None:
    await asyncio.to_thread(postbox.declare, vhost.url, ORDERS, held_name("full"), kind="quorum")
    await asyncio.to_thread(postbox.fill, vhost.url, held_name("full"), [b"one"], dead=False)
    async with keeping(vhost) as keeper:
        total = await rounds(keeper, until=lambda: held_queues(vhost) == {held_name("full")})
        assert total == Tidied(held=1)
        assert await rounds(keeper, times=6) == Tidied()
    assert postbox.depth(vhost.url, held_name("full")) == 1


# -- strangers --------------------------------------------------------------------------------------------
def strange() -> list[RawMessage]:
    """What somebody may put there by hand: nothing of ours on it, half of it, and more than fits a frame."""
    nowhere = letter(b"nowhere", headers={**HOME, names.ORIGIN_QUEUE: "nowhere"})
    odd = letter(b"odd", headers={names.ORIGIN_QUEUE: 7, names.ATTEMPT: "two"})
    copied = letter(b"copied", headers={"x-death": [], names.CC: ["bystander"]})
    big = letter(b"big", headers={"x": "v" * 130_900})
    return [letter(b"bare"), odd, copied, nowhere, big]


@pytest.mark.parametrize("queue", [ORDERS, held_name("nobody")])
async def test_a_strangers_letter_is_parked_and_the_others_come_home(
    vhost: Vhost, tmp_path: Path, queue: str
) -> None:
    """At the head of the queue, among held letters, and in one that no gate knows."""
    async with Application(vhost.url) as app, keeping(vhost) as keeper:
        await app.with_dlq("orders")
        await app.declare("bystander")
        await keeper.round()
        with served(vhost, tmp_path, SETTINGS):
            await app.declare(queue, x_overflow="reject-publish")
            await app.publish("", queue, strange())
            await let_die(app, "n", 10)
            await until_held(vhost, 15 if queue == ORDERS else 10)
            await get_done(vhost, *bodies("n", 10))
            found = await asyncio.to_thread(postbox.drain, vhost.url, names.PARKED, expect=5)
            assert (await tidied(keeper, vhost)).held == len({ORDERS, queue})
    told = {post.headers.get(names.CAUSE) for post in found}
    assert len(found) == 5
    assert told == {"origin-unknown", "origin-missing", "unreadable"}
    assert sorted(post.body for post in found if post.headers[names.CAUSE] == "origin-unknown") == [
        b"bare",
        b"copied",
        b"odd",
    ]
    for empty in ("orders", "orders.dlq", "bystander", names.DUE):
        assert postbox.depth(vhost.url, empty) == 0, empty


async def test_a_strangers_letter_in_a_queue_that_is_shut(vhost: Vhost) -> None:
    """By its name it comes in all the same: the queue stays while the letter is there."""
    async with linked(vhost) as link:
        await _ways(link).holding("orders")
        async with keeping(vhost, closed_s=3600.0, after_s=3600.0) as keeper:
            keeper._after_s = 0.0
            await rounds(keeper, until=lambda: asked_keys(vhost) == {closing_key(ORDERS)})
    await asyncio.to_thread(postbox.fill, vhost.url, ORDERS, [b"a stranger's"], dead=False)
    async with keeping(vhost) as another:
        assert await rounds(another, times=12) == Tidied()
        assert [post.body for post in postbox.drain(vhost.url, ORDERS)] == [b"a stranger's"]
        await tidied(another, vhost)
