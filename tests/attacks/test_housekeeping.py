"""Housekeeping under attack: what nobody uses goes, and no letter with it.

A housekeeper that is in a hurry (it deletes what was empty at two looks) works against consumers that ask for
the very delays it deletes, and against queues that come and go. Hundreds of deletions meet as many letters:
each letter comes back, once.

About `broker.housekeeping`, `broker.asked_delays`, `broker.return_exchanges`, `service.own_topology.tidying`.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from functools import partial

import pytest
from tests import consuming, postbox
from tests.brokers import Vhost
from tests.housekeepers import asked_keys, keeping, linked, publish_asked, rounds
from tests.serving import Application

from deadletter import Consumer, RetryLater, fixed
from deadletter.amqp.address import parse_addresses
from deadletter.broker import housekeeping
from deadletter.broker.asked_delays import closing_key, open_delay
from deadletter.broker.housekeeping import Tidied
from deadletter.broker.management import management
from deadletter.broker.return_exchanges import WaysBack
from deadletter.config.settings import ServeSettings
from deadletter.core.layouts.naming import ASKED, asked_name
from deadletter.core.layouts.service import level
from deadletter.core.topology.layout_names import LayoutName
from deadletter.service.own_topology.tidying import tidy
from deadletter.service.telling import service_events
from deadletter.service.telling.service_events import LeaseChanged, ServiceEvent


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(housekeeping, "_LAG_S", 0.0)


def delays(vhost: Vhost) -> set[str]:
    return {q["name"] for q in vhost.list("queues") if q["name"].startswith(f"{ASKED}.")}


def ways(vhost: Vhost) -> set[str]:
    return {x["name"] for x in vhost.list("exchanges") if x["name"].startswith("deadletter.return.")}


# -- delays -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("layout", "asked", "planned"),
    [
        (
            "return",
            "deadletter.asked.",
            {"deadletter.delay.500", "deadletter.due", "deadletter.parked", "orders.dlq"},
        ),
        ("ladder", "orders__retry.1", {"orders__retry.1", "orders__retry.2", "orders__dlq"}),
    ],
)
async def test_delays_that_handlers_asked_for_go_and_the_planned_ones_stay(
    vhost: Vhost, layout: LayoutName, asked: str, planned: set[str]
) -> None:
    tries: Counter[bytes] = Counter()
    app = Consumer(vhost.url, api=vhost.api)

    @app.queue("orders", layout=layout, retries=2, backoff=fixed(0.5))
    async def handle(body: bytes) -> None:
        tries[body] += 1
        if tries[body] == 1:
            raise RetryLater(0.1 + int(body) / 1000)

    def there() -> set[str]:
        """The delays that nobody planned."""
        names = {q["name"] for q in vhost.list("queues")}
        return {name for name in names - planned if name.startswith(asked)}

    bodies = [b"%d" % number for number in range(60)]
    async with consuming.serving(app):
        await consuming.post(vhost, *bodies)
        await consuming.until(lambda: all(tries[body] == 2 for body in bodies), "the second tries")
        assert len(await asyncio.to_thread(there)) == 60
        async with keeping(vhost) as keeper:
            total = await rounds(keeper, until=lambda: not there())
        assert (total.delays, total.letters) == (60, 0)
        assert planned <= {q["name"] for q in await asyncio.to_thread(vhost.list, "queues")}
        # And again: what was deleted is made anew.
        tries.clear()
        await consuming.post(vhost, *bodies[:10])
        await consuming.until(lambda: all(tries[body] == 2 for body in bodies[:10]), "once more")
    assert set(tries.values()) == {2}


async def test_a_housekeeper_in_a_hurry_against_handlers_that_ask(vhost: Vhost) -> None:
    """It closes and deletes as fast as it can while letters come to the same few delays."""
    tries: Counter[bytes] = Counter()
    app = Consumer(vhost.url, api=vhost.api)

    @app.queue("orders", layout="return", retries=30, backoff=fixed(5))
    async def handle(body: bytes) -> None:
        tries[body] += 1
        if tries[body] <= 6:
            raise RetryLater(0.05 + (int(body) + tries[body]) % 8 / 100)

    bodies = [b"%d" % number for number in range(150)]
    gone: list[Tidied] = []
    async with consuming.serving(app), keeping(vhost) as keeper:
        over = asyncio.Event()

        async def hurry() -> None:
            while not over.is_set():
                await asyncio.sleep(0.2)
                gone.append(await keeper.round())

        keeps = asyncio.create_task(hurry())
        for start in (0, 50, 100):
            some, before = bodies[start : start + 50], len(gone)
            await consuming.post(vhost, *some)
            done = partial(_had, tries, some, 7)
            await consuming.until(done, "every letter", 200)
            # Whatever they used is unused now.
            await consuming.until(partial(_deleted, gone, since=before), "a deletion")
        await asyncio.sleep(0.5)
        over.set()
        await keeps
    assert sum(found.letters for found in gone) == 0
    assert set(tries.values()) == {7}, "a letter came twice"


def _had(tries: Counter[bytes], bodies: list[bytes], times: int) -> bool:
    return all(tries[body] >= times for body in bodies)


def _deleted(gone: list[Tidied], *, since: int) -> bool:
    return any(found.delays for found in gone[since:])


async def test_deletions_against_publishers_that_hammer(vhost: Vhost) -> None:
    """Three publishers and a housekeeper meet at four queues until twenty were deleted: no letter is lost."""
    queues = [level(ms, asked_name(ms)) for ms in (5, 10, 15, 20)]
    await asyncio.to_thread(postbox.declare, vhost.url, "deadletter.due", kind="quorum")
    over = asyncio.Event()

    async def hammer(dice: random.Random) -> int:
        sent = 0
        async with linked(vhost) as link:
            while not over.is_set():
                queue = dice.choice(queues)
                for _ in range(dice.randrange(1, 4)):
                    while await publish_asked(link, queue.name) == "returned":
                        await open_delay(link, queue)
                    sent += 1
                await asyncio.sleep(dice.random())
        return sent

    async with linked(vhost) as link, keeping(vhost) as keeper:
        for queue in queues:
            await open_delay(link, queue)
        hammers = [asyncio.create_task(hammer(random.Random(seed))) for seed in range(3)]
        total = Tidied()
        async with asyncio.timeout(120):
            while total.delays < 20:
                found = await keeper.round()
                total = Tidied(delays=total.delays + found.delays, letters=total.letters + found.letters)
                await asyncio.sleep(0.05)
        over.set()
        sent = sum(await asyncio.gather(*hammers))
    assert total.letters == 0
    came = await asyncio.to_thread(postbox.drain, vhost.url, "deadletter.due", expect=sent)
    assert len(came) == sent


async def test_a_letter_that_waits_keeps_its_delay(vhost: Vhost) -> None:
    """Also one that is due and cannot be passed on: it is not ready, and still there."""
    held, waiting = level(200, asked_name(200)), level(600_000, asked_name(600_000))
    async with linked(vhost) as link, keeping(vhost) as keeper:
        for queue in (held, waiting):
            await open_delay(link, queue)  # and there is no deadletter.due
            await publish_asked(link, queue.name)
        await asyncio.to_thread(
            postbox.wait_for, lambda: (vhost.get("queues", held.name) or {}).get("messages_ready") == 0, "due"
        )
        assert await rounds(keeper, times=12) == Tidied()
        assert await asyncio.to_thread(delays, vhost) == {held.name, waiting.name}


async def test_a_closed_delay_takes_nothing_and_is_opened_again(vhost: Vhost) -> None:
    """Killed between closing and deleting: the next housekeeper goes on; a publisher opens it before that."""
    queue = level(600_000, asked_name(600_000))
    async with linked(vhost) as link:
        await open_delay(link, queue)
        async with keeping(vhost, closed_s=3600.0, after_s=3600.0) as keeper:
            keeper._after_s = 0.0
            await rounds(keeper, until=lambda: asked_keys(vhost) == {closing_key(queue.name)})
        assert await asyncio.to_thread(asked_keys, vhost) == {closing_key(queue.name)}
        assert await publish_asked(link, queue.name) == "returned"
        await open_delay(link, queue)
        assert await publish_asked(link, queue.name) == "confirmed"
        async with keeping(vhost) as keeper:
            assert (await rounds(keeper, times=10)).delays == 0
        assert await asyncio.to_thread(delays, vhost) == {queue.name}


async def test_an_opening_that_was_cut_short_leaves_nothing_for_ever(vhost: Vhost) -> None:
    """Killed between declaring a delay and binding it: no binding says that it is ours, its name does."""
    names = [asked_name(ms) for ms in (600_000, 700_000)]
    await asyncio.to_thread(postbox.declare, vhost.url, *names, kind="quorum")
    await asyncio.to_thread(postbox.fill, vhost.url, names[0], [b"a stranger's"], dead=False)
    async with keeping(vhost) as keeper:
        total = await rounds(keeper, until=lambda: delays(vhost) == {names[0]})
        assert (total.delays, total.letters) == (1, 0)
        assert await rounds(keeper, times=6) == Tidied()
    assert await asyncio.to_thread(delays, vhost) == {names[0]}


async def test_one_housekeeper_at_a_time(vhost: Vhost) -> None:
    async with linked(vhost) as link:
        await open_delay(link, level(1000, asked_name(1000)))
        async with keeping(vhost) as first, keeping(vhost) as second:
            await first.round()
            for _ in range(3):
                await second.round()
            assert (first.leads, second.leads) == (True, False)


# -- ways back --------------------------------------------------------------------------------------------
async def test_ways_back_to_queues_that_went_go_and_come_again(vhost: Vhost) -> None:
    async with Application(vhost.url) as application, linked(vhost) as link, keeping(vhost) as keeper:
        finder = WaysBack(_nothing, lambda *_: None)
        finder.renew(link)
        queues = [f"reply.{number}" for number in range(30)]
        for queue in queues:
            await application.declare(queue, kind="classic")
            assert await finder.find(queue) is not None
        assert len(ways(vhost)) == 30
        for queue in queues[:20]:
            await application.channel.delete_queue(queue)
        total = await rounds(keeper, until=lambda: len(ways(vhost)) == 10)
        assert total.ways == 20
        assert len(ways(vhost)) == 10
        # A letter for a queue that went finds no way, and makes none.
        finder.forget()
        assert await finder.find(queues[0]) is None
        assert len(ways(vhost)) == 10
        await application.declare(queues[0], kind="classic")
        home = await finder.find(queues[0])
        assert home is not None
        assert home.exchange in ways(vhost)


async def test_a_way_is_forgotten_before_it_may_be_deleted(
    vhost: Vhost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue went and came back between two looks: what is known of the way is false, and not for long."""
    monkeypatch.setattr("deadletter.broker.return_exchanges.HOME_S", 0.3)
    async with Application(vhost.url) as application, linked(vhost) as link:
        finder = WaysBack(_nothing, lambda *_: None)
        finder.renew(link)
        await application.declare("orders", kind="classic")
        home = await finder.find("orders")
        assert home is not None
        await application.channel.delete_queue("orders")
        await application.declare("orders", kind="classic")
        await application.channel.delete_exchange(home.exchange)
        async with asyncio.timeout(60):
            while finder.known("orders") is not None:  # noqa: ASYNC110 -- it is only forgotten
                await asyncio.sleep(0.1)
        assert await finder.find("orders") == home
        bound = [b for b in vhost.list("bindings") if b["source"] == home.exchange]
        assert [b["destination"] for b in bound] == ["orders"]


async def _nothing() -> None:
    return


# -- in a service -----------------------------------------------------------------------------------------
async def test_a_service_tells_what_went(vhost: Vhost) -> None:
    heard: list[ServiceEvent] = []
    soon = ServeSettings(tidy_ms=200, tidy_after_ms=200)
    address = parse_addresses(vhost.url)[0]
    async with linked(vhost) as link, management(address, vhost.api, need="the test asks") as asked:
        await open_delay(link, level(1000, asked_name(1000)))
        channel = await (await link.connection("declare")).channel()
        await channel.declare_exchange("deadletter.return.gone", "fanout")
        working = asyncio.create_task(tidy(link, asked, soon, heard.append))
        await consuming.until(
            lambda: (
                sum(
                    told.delays + told.ways
                    for told in heard
                    if isinstance(told, service_events.HousekeepingDone)
                )
                == 2
            ),
            "the news",
        )
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
    assert (delays(vhost), ways(vhost)) == (set(), set())
    leases = [told for told in heard if isinstance(told, LeaseChanged)]
    assert leases == [LeaseChanged(name="housekeeping", held=held) for held in (True, False)]
