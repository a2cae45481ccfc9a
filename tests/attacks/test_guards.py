"""Guards that see nothing, and guards that see ghosts.

On RabbitMQ 4 a dead letter may be marked `redelivered` on its very first delivery, so whoever takes that flag
for "the same letter again" sees no deaths at all there. The other way round, a breaker that counts deaths
instead of the share of what went back holds letters that only need another try. Each guard, on classic and
quorum queues; what is asserted are counts and states, never how long something took.

About `service.guarding.gates`, `core.guards.breaker`, `core.guards.copies_alarm`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import pytest
from tests.brokers import Vhost
from tests.letters import headers_of, letter, letters
from tests.serving import Application, Served, served

from deadletter.amqp.channel import Delivery
from deadletter.core.layouts.naming import held_name
from deadletter.core.letter import message, names
from deadletter.core.letter.message import View
from deadletter.errors import NotFound

WATCH = '[[watches]]\ndlq = "*.dlq"\n'
LONG_S = 240.0
"""Far longer than anything takes here: what is waited for is a state."""
KINDS = pytest.mark.parametrize("kind", ["classic", "quorum"])


def policy(retries: int, *delays: str) -> str:
    listed = ", ".join(f'"{delay}"' for delay in delays)
    return f'[default_policy]\nretries = {retries}\nbackoff = {{ kind = "fixed", delays = [{listed}] }}\n'


def guards(**settings: object) -> str:
    lines = "".join(f"{key} = {str(value).lower()}\n" for key, value in settings.items())
    return f"[guards]\n{lines}"


NO_BREAKER = "[guards.breaker]\nenabled = false\n"
PATIENT = '[guards.breaker]\npause = "1min"\n'
"""So that no probe goes while a test counts."""


async def depth(app: Application, queue: str) -> int:
    try:
        return await app.depth(queue)
    except NotFound:
        return 0


async def until_depth(app: Application, queue: str, least: int, seconds: float = LONG_S) -> None:
    async with asyncio.timeout(seconds):
        while await depth(app, queue) < least:  # noqa: ASYNC110 -- the broker tells nobody
            await asyncio.sleep(0.05)


async def gates(one: Served) -> dict[str, dict[str, object]]:
    told = await asyncio.to_thread(one.get, "/api/status")
    return {gate["gate"]: gate for gate in told["gates"]}


async def until_gate(one: Served, gate: str, guard: str, seconds: float = LONG_S) -> dict[str, object]:
    async with asyncio.timeout(seconds):
        while (found := (await gates(one)).get(gate, {})).get("guard") != guard:  # noqa: ASYNC110 -- polled
            await asyncio.sleep(0.1)
    return found


def back(app: Application) -> int:
    """Deliveries of letters that we had sent home."""
    return sum(bool(headers_of(d)) for _, d, _ in app.deliveries)


# -- the breaker ---------------------------------------------------------------------------------------------
@KINDS
async def test_two_hundred_letters_that_all_die_again_close_the_breaker(
    vhost: Vhost, tmp_path: Path, kind: str
) -> None:
    """Fourteen retries each would be 3,000 deliveries. The first wave goes, and then nothing."""
    async with Application(vhost.url) as app:
        await app.with_dlq("orders", kind=kind)
        await app.consume("orders", lambda _d, _times: False, keep=True)
        with served(vhost, tmp_path, policy(14, "500ms") + WATCH + PATIENT) as (one,):
            await app.publish("", "orders", letters("n", 200))
            found = await until_gate(one, "orders", "breaker")
            assert "died again" in str(found["why"])
            await until_depth(app, held_name("orders"), 190)
            assert back(app) <= 230, "one wave, and a letter or two to find out"
            # Where somebody would look: how many are held, where, and why.
            async with asyncio.timeout(LONG_S):
                while int(str((await gates(one))["orders"].get("held", 0))) < 190:  # noqa: ASYNC110 -- polled
                    await asyncio.sleep(0.2)
            metrics = await asyncio.to_thread(one.metrics)
            assert 'deadletter_gate_state{gate="orders",guard="breaker"} 3' in metrics
            assert await depth(app, names.PARKED) == 0


@pytest.mark.slow
@KINDS
@pytest.mark.parametrize("failures", [2, 3])
async def test_letters_that_fail_a_few_times_and_then_succeed_all_get_done(
    vhost: Vhost, tmp_path: Path, kind: str, failures: int
) -> None:
    """54 at once, as they are by default retried and guarded; each needs another try or two."""
    async with Application(vhost.url) as app:
        await app.with_dlq("orders", kind=kind)
        await app.consume("orders", lambda _d, times: times > failures)
        with served(vhost, tmp_path, WATCH):
            await app.publish("", "orders", letters("n", 54))
            await app.until(lambda: len(app.handled["orders"]) == 54, LONG_S, "all of them done")
            assert await depth(app, names.PARKED) == 0
        assert set(app.seen.values()) == {failures + 1}


@pytest.mark.slow
@KINDS
async def test_frequent_sweeps_do_not_close_the_breaker(vhost: Vhost, tmp_path: Path, kind: str) -> None:
    """Each sweep finds at once what died since the last one; that is no outage of now."""
    watch = '[[watches]]\ndlq = "*.dlq"\nmode = "sweep"\nlayout = "sweep"\nevery = "3s"\n'
    async with Application(vhost.url) as app:
        await app.with_dlq("orders", kind=kind)
        await app.consume("orders", lambda _d, times: times > 4)
        with served(vhost, tmp_path, policy(9, "1s") + watch) as (one,):
            await app.publish("", "orders", letters("n", 60))
            await app.until(lambda: len(app.handled["orders"]) == 60, LONG_S, "all of them done")
            assert "breaker" not in one.log.read_text()
        assert set(app.seen.values()) == {5}


# -- growth --------------------------------------------------------------------------------------------------
@KINDS
async def test_a_republisher_that_makes_copies_is_stopped(vhost: Vhost, tmp_path: Path, kind: str) -> None:
    async with Application(vhost.url) as app:
        await app.with_dlq("orders", kind=kind)
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
        with served(vhost, tmp_path, policy(40, "300ms") + WATCH + NO_BREAKER) as (one,):
            await copying.consume("orders", on_delivery, lambda: None)
            await app.publish("", "orders", [letter(b"one")])
            await until_gate(one, "orders", "growth")
            assert published.total() < 100
            assert "something copies them" in one.log.read_text()


@KINDS
async def test_equal_letters_are_not_taken_for_copies(vhost: Vhost, tmp_path: Path, kind: str) -> None:
    """Twenty messages alike in every byte that die in the same second have one id, and are twenty."""
    async with Application(vhost.url) as app:
        await app.with_dlq("orders", kind=kind)
        await app.consume("orders", lambda _d, times: times > 60)
        with served(vhost, tmp_path, policy(9, "300ms") + WATCH + NO_BREAKER) as (one,):
            await app.publish("", "orders", [letter(b"tick") for _ in range(20)])
            await app.until(
                lambda: app.seen.total() >= 80, LONG_S, "three failures each, and then all of them"
            )
            assert "something copies them" not in one.log.read_text()
            assert await depth(app, names.PARKED) == 0


# -- the others ----------------------------------------------------------------------------------------------
@KINDS
async def test_nothing_goes_to_an_origin_that_nobody_consumes(
    vhost: Vhost, tmp_path: Path, kind: str
) -> None:
    async with Application(vhost.url) as app:
        await app.with_dlq("orders", kind=kind)
        tag = await app.consume("orders", lambda _d, _times: False)
        await app.publish("", "orders", letters("n", 30))
        await until_depth(app, "orders.dlq", 30)
        await app.connection.close()
        assert tag
        async with Application(vhost.url) as later:
            with served(vhost, tmp_path, policy(5, "200ms") + WATCH) as (one,):
                await until_gate(one, "orders", "consumers")
                await until_depth(later, held_name("orders"), 30)
                assert await depth(later, "orders") == 0
                await later.consume("orders", lambda _d, _times: True)
                await later.until(lambda: len(later.handled["orders"]) == 30, LONG_S, "each at home")
            assert set(later.seen.values()) == {1}


@KINDS
async def test_a_full_origin_gets_its_letters_when_it_has_room(
    vhost: Vhost, tmp_path: Path, kind: str
) -> None:
    async with Application(vhost.url) as app:
        await app.with_dlq("orders", kind=kind)
        await app.consume("orders", lambda _d, _times: False)
        await app.publish("", "orders", letters("n", 30))
        await until_depth(app, "orders.dlq", 30)
        await app.connection.close()
    async with Application(vhost.url) as app:
        await app.channel.delete_queue("orders")
        await app.with_dlq("orders", kind=kind, x_max_length=5, x_overflow="reject-publish")
        for filler in letters(
            "filler", 20
        ):  # one by one: a quorum queue takes more of those that come at once
            await app.publish("", "orders", [filler])
        fillers = await depth(app, "orders")
        settings = policy(5, "200ms") + WATCH + guards(require_consumers=False)
        with served(vhost, tmp_path, settings) as (one,):
            await until_gate(one, "orders", "full")
            await until_depth(app, held_name("orders"), 20)
            await app.consume("orders", lambda _d, _times: True)
            await app.until(lambda: len(app.handled["orders"]) == 30 + fillers, LONG_S, "each at home")
            assert await depth(app, names.PARKED) == 0
        assert set(app.seen.values()) == {1}


@KINDS
async def test_what_is_over_budget_is_held_and_comes_later(vhost: Vhost, tmp_path: Path, kind: str) -> None:
    async with Application(vhost.url) as app:
        await app.with_dlq("orders", kind=kind)
        await app.consume("orders", lambda _d, times: times > 1)
        settings = policy(5, "200ms") + WATCH + guards(budget_per_minute=600) + NO_BREAKER
        with served(vhost, tmp_path, settings):
            await app.publish("", "orders", letters("n", 100))
            await until_depth(app, held_name("budget"), 20)
            await app.until(lambda: len(app.handled["orders"]) == 100, LONG_S, "each at home")
            assert await depth(app, names.PARKED) == 0
        assert set(app.seen.values()) == {2}
