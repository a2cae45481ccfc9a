"""The guards at work: what may not go back now waits in the broker, is not parked, and goes when it may.

About `service.guarding.gates`, `service.guarding.held_letters`, `service.guarding.origins`,
`service.guarding.origin_looks`, `service.telling.instance_news`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from tests.brokers import Vhost
from tests.letters import headers_of, letter, letters
from tests.serving import Application, Served, depth, let_die, served, until_depth, until_empty

from deadletter.amqp.address import parse_addresses
from deadletter.amqp.channel import Delivery
from deadletter.core.layouts.naming import held_name
from deadletter.core.letter import message, names
from deadletter.core.letter.message import View
from deadletter.move.courier import Bounds, Courier, Ended, Send, Terms

WATCH = '[[watches]]\ndlq = "*.dlq"\n'
NO_BREAKER = "[guards.breaker]\nenabled = false\n"


def policy(retries: int, *delays: str) -> str:
    listed = ", ".join(f'"{delay}"' for delay in delays)
    return f'[default_policy]\nretries = {retries}\nbackoff = {{ kind = "fixed", delays = [{listed}] }}\n'


def guards(**settings: object) -> str:
    lines = "".join(f"{key} = {str(value).lower()}\n" for key, value in settings.items())
    return f"[guards]\n{lines}"


def gates(one: Served) -> dict[str, str]:
    """Gates that are not open, and which guard closed each."""
    return {
        gate["gate"]: gate["guard"] for gate in one.get("/api/status")["gates"] if gate["state"] != "open"
    }


async def until_gate(one: Served, gate: str, guard: str, seconds: float = 120) -> None:
    async with asyncio.timeout(seconds):
        while (await asyncio.to_thread(gates, one)).get(gate) != guard:  # noqa: ASYNC110 -- it tells when asked
            await asyncio.sleep(0.1)


def busiest(times: list[float], seconds: float) -> int:
    """The most deliveries in any stretch of so many seconds."""
    ordered = sorted(times)
    return max(sum(start <= at < start + seconds for at in ordered) for start in ordered)


# -- budgets -------------------------------------------------------------------------------------------------
@pytest.mark.slow
async def test_a_budget_over_all_is_kept_and_nothing_is_parked(vhost: Vhost, tmp_path: Path) -> None:
    """240 a minute: four a second, and at most a tenth of a minute's worth at once."""
    async with Application(vhost.url) as app:
        await app.with_dlq("orders")
        await app.consume("orders", lambda _d, times: times > 1, keep=True)
        settings = policy(5, "200ms") + WATCH + guards(budget_per_minute=240) + NO_BREAKER
        with served(vhost, tmp_path, settings):
            await app.publish("", "orders", letters("n", 120))
            await until_depth(app, held_name("budget"), 60)
            await app.until(lambda: app.seen.total() == 240, 120, "each at home")
            assert await depth(app, names.PARKED) == 0
        back = [at for _, d, at in app.deliveries if headers_of(d)]
        assert len(back) == 120
        assert busiest(back, 10.0) <= 40 + 24 + 10, "more than the budget allows"
        assert set(app.seen.values()) == {2}
        assert {headers_of(d)[names.ATTEMPT] for _, d, _ in app.deliveries if headers_of(d)} == {1}


@pytest.mark.slow
async def test_a_budget_of_one_policy_does_not_hold_up_another(vhost: Vhost, tmp_path: Path) -> None:
    meagre = (
        '[[policies]]\nname = "meagre"\nmatch = { queue = "few" }\nretries = 5\nbudget_per_minute = 240\n'
    )
    meagre += 'backoff = { kind = "fixed", delays = ["200ms"] }\n'
    async with Application(vhost.url) as app:
        for origin in ("few", "many"):
            await app.with_dlq(origin)
            await app.consume(origin, lambda _d, times: times > 1, keep=True)
        with served(vhost, tmp_path, meagre + policy(5, "200ms") + WATCH + NO_BREAKER):
            await app.publish("", "few", letters("few", 80))
            await until_depth(app, held_name("budget/meagre"), 40)
            await app.publish("", "many", letters("many", 500))
            await app.until(lambda: _seen(app, "many") == 1000, 120, "the others")
            assert await depth(app, held_name("budget/meagre")) > 0, "the budget held nothing any more"
            await app.until(lambda: _seen(app, "few") == 160, 120, "those over budget")
            assert await depth(app, names.PARKED) == 0
        back = [at for queue, d, at in app.deliveries if queue == "few" and headers_of(d)]
        assert busiest(back, 5.0) <= 20 + 24 + 10


def _seen(app: Application, queue: str) -> int:
    return sum(times for (name, _), times in app.seen.items() if name == queue)


# -- the breaker ---------------------------------------------------------------------------------------------
@pytest.mark.slow
async def test_the_breaker_holds_probes_and_lets_go(vhost: Vhost, tmp_path: Path) -> None:
    breaker = '[guards.breaker]\nletters = 10\nwindow = "10s"\npause = "1s"\npause_max = "2s"\nprobe = "2s"\n'
    well = False
    async with Application(vhost.url) as app:
        for origin in ("sick", "sound"):
            await app.with_dlq(origin)
        await app.consume("sick", lambda _d, _times: well)
        await app.consume("sound", lambda _d, times: times > 1)
        with served(vhost, tmp_path, policy(200, "200ms") + WATCH + breaker) as (one,):
            await app.publish("", "sick", letters("sick", 100))
            await until_gate(one, "sick", "breaker")
            await until_depth(app, held_name("sick"), 95)
            before = _seen(app, "sick")
            await app.publish("", "sound", letters("sound", 500))
            await app.until(lambda: _seen(app, "sound") == 1000, 120, "another origin's letters")
            await app.until(lambda: _seen(app, "sick") > before, 120, "a probe")
            await asyncio.sleep(5)
            probes = _seen(app, "sick") - before
            assert probes <= 25, f"{probes} of 100 letters went back while everything died"
            well = True
            await app.until(lambda: len(app.handled["sick"]) == 100, 120, "all of them at home")
            for queue in (held_name("sick"), "sick.dlq"):
                await until_empty(app, queue)
            assert await depth(app, names.PARKED) == 0


@pytest.mark.slow
async def test_three_instances_have_one_breaker(vhost: Vhost, tmp_path: Path) -> None:
    """One of them probes, and most of its probes die into the hands of the others."""
    breaker = '[guards.breaker]\nletters = 10\nwindow = "10s"\npause = "1s"\npause_max = "2s"\nprobe = "2s"\n'
    well = False
    async with Application(vhost.url) as app:
        await app.with_dlq("sick")
        await app.consume("sick", lambda _d, _times: well, prefetch=10)
        with served(vhost, tmp_path, policy(200, "200ms") + WATCH + breaker, instances=3) as instances:
            await app.publish("", "sick", letters("sick", 300))
            for one in instances:
                await until_gate(one, "sick", "breaker")
            await until_depth(app, held_name("sick"), 280)
            before = _seen(app, "sick")
            await app.until(lambda: _seen(app, "sick") > before, 120, "a probe")
            await asyncio.sleep(15)  # time enough for a probe whose death the prober does not see itself
            probes = _seen(app, "sick") - before
            assert probes <= 40, f"{probes} of 300 letters went back while everything died"
            well = True
            await app.until(lambda: len(app.handled["sick"]) == 300, 120, "all of them at home")
            assert await depth(app, names.PARKED) == 0


# -- health --------------------------------------------------------------------------------------------------
@pytest.mark.slow
async def test_letters_wait_until_somebody_consumes(vhost: Vhost, tmp_path: Path) -> None:
    """Held over the end of the service, too: another instance lets them go."""
    async with Application(vhost.url) as app:
        await app.with_dlq("orders")
        await let_die(app, "orders", letters("n", 50))
        settings = policy(5, "200ms") + WATCH
        with served(vhost, tmp_path, settings) as (one,):
            await until_depth(app, held_name("orders"), 50)
            await until_gate(one, "orders", "consumers")
            assert await depth(app, "orders") == 0
            assert one.end() == 0
        assert await depth(app, held_name("orders")) == 50
        with served(vhost, tmp_path / "other", settings):
            await asyncio.sleep(2)
            assert await depth(app, "orders") == 0
            await app.consume("orders", lambda _d, _times: True, keep=True)
            await app.until(lambda: _seen(app, "orders") >= 50, 120, "each at home")
            assert await depth(app, names.PARKED) == 0
        assert len(app.seen) == 50
        assert set(app.seen.values()) == {1}
        assert {headers_of(d)[names.ATTEMPT] for _, d, _ in app.deliveries} == {1}


@pytest.mark.slow
async def test_nothing_goes_into_an_origin_that_is_too_deep(vhost: Vhost, tmp_path: Path) -> None:
    async with Application(vhost.url) as app:
        await app.with_dlq("orders")
        await let_die(app, "orders", letters("n", 30))
        await app.publish("", "orders", letters("filler", 20))
        settings = policy(5, "200ms") + WATCH + guards(max_depth=20, require_consumers=False)
        with served(vhost, tmp_path, settings) as (one,):
            await until_depth(app, held_name("orders"), 30)
            await until_gate(one, "orders", "depth")
            assert await depth(app, "orders") == 20
            await app.consume("orders", lambda _d, _times: True)
            await app.until(lambda: _seen(app, "orders") >= 50, 120, "each at home")
        assert len(app.seen) == 50
        assert set(app.seen.values()) == {1}


@pytest.mark.slow
@pytest.mark.parametrize("waiting", [10, 4])
async def test_a_queue_that_drops_its_oldest_loses_nothing_by_us(
    vhost: Vhost, tmp_path: Path, waiting: int
) -> None:
    """It holds ten. It is full, or it has room for six of thirty letters; nobody consumes."""
    async with Application(vhost.url) as app:
        await app.with_dlq("orders", kind="classic", x_max_length=10, x_overflow="drop-head")
        await let_die(app, "orders", letters("n", 30))
        await app.publish("", "orders", letters("filler", waiting))
        settings = policy(5, "200ms") + WATCH + guards(require_consumers=False)
        with served(vhost, tmp_path, settings) as (one,):
            await until_gate(one, "orders", "depth")
            await asyncio.sleep(5)
            assert await depth(app, "orders") <= 10
            await app.consume("orders", lambda _d, _times: True, keep=True)
            await app.until(lambda: len(app.seen) == 30 + waiting, 120, "everything")
            assert await depth(app, names.PARKED) == 0
        assert set(app.seen.values()) == {1}
        assert all(not headers_of(d) for d in _of(app, b"filler")), "a message was pushed out by our letters"
        assert {headers_of(d)[names.ATTEMPT] for d in _of(app, b"n-")} == {1}, (
            "a letter was pushed out by ours"
        )


def _of(app: Application, prefix: bytes) -> list[Delivery]:
    return [d for _, d, _ in app.deliveries if d.message.body.startswith(prefix)]


# -- growth --------------------------------------------------------------------------------------------------
@pytest.mark.slow
async def test_a_republisher_that_makes_copies_is_stopped(vhost: Vhost, tmp_path: Path) -> None:
    """Each letter that comes back is rejected and published once more: 2, 4, 8, 16 of one. Not with us."""
    async with Application(vhost.url) as app:
        await app.with_dlq("orders")
        await app.with_dlq("others")
        await app.consume("others", lambda _d, times: times > 1)
        copying = await app.connection.channel()
        published: Counter[bytes] = Counter()

        def on_delivery(delivery: Delivery) -> None:
            headers = headers_of(delivery)
            attempt = headers.get(names.ATTEMPT)
            if attempt is not None and headers.get("copied-at") != attempt:
                again = message.encode(View(headers={**headers, "copied-at": attempt}, delivery_mode=2))
                copying.publish(
                    copying.publishing("", "orders", mandatory=True), again, delivery.message.body
                )
                published[delivery.message.body] += 1
            copying.reject(delivery.tag, requeue=False)

        await copying.qos(10)
        settings = policy(40, "300ms") + WATCH + NO_BREAKER
        with served(vhost, tmp_path, settings) as (one,):
            await copying.consume("orders", on_delivery, lambda: None)
            await app.publish("", "orders", [letter(b"one")])
            await until_gate(one, "orders", "growth", 60)
            await asyncio.sleep(2)
            before = published.total()
            await asyncio.sleep(4)
            assert published.total() <= before + 1, "letters went back after the alarm"
            assert published.total() < 300
            assert "something copies them" in one.log.read_text()
            await app.publish("", "others", letters("n", 50))
            await app.until(lambda: _seen(app, "others") == 100, 120, "letters of another origin")
            assert await depth(app, names.PARKED) == 0


# -- the move under it ---------------------------------------------------------------------------------------
async def test_a_slow_step_of_exactly_the_first_window_acks_what_it_moved(vhost: Vhost) -> None:
    """Held letters go in steps with a rate. One of 64 letters was moved and given back: all were doubled."""
    async with Application(vhost.url) as app:
        for queue in ("held", "home"):
            await app.declare(queue)
        await app.publish("", "held", letters("n", 100))
        courier = Courier(
            parse_addresses(vhost.url),
            source="held",
            decide=lambda _letter: Send(routing_key="home"),
            bounds=Bounds(count=64),
            terms=Terms(rate_per_s=200),
        )
        tally = await courier.run()
        assert (tally.moved, tally.ended) == (64, Ended.COMPLETE)
        assert await app.depth("held") == 36
        assert await app.depth("home") == 64
