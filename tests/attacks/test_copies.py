"""A fanout shared by two dead-letter queues: every death is two letters, and each of them wants to go home.

With one service, with two services that each watch one of the queues, and with forged marks: a letter is
never more than itself and one parked copy of it, never less, and it is said.

About `service.intake.copying`, `core.topology.fanout`, `core.deciding.origin`.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from tests.brokers import Vhost
from tests.commanding import command
from tests.letters import headers_of, letter, letters
from tests.serving import Application, Served

from deadletter.core.letter import message, names
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.message import RawMessage, View
from deadletter.errors import NotFound

LONG_S = 240.0
"""Far longer than anything takes here: what is waited for is a state."""
KINDS = pytest.mark.parametrize("kind", ["classic", "quorum"])
COPY = "copied-by-fanout"
NO_BREAKER = "[guards.breaker]\nenabled = false\n"


def policy(retries: int, delay: str = "300ms") -> str:
    return f'[default_policy]\nretries = {retries}\nbackoff = {{ kind = "fixed", delays = ["{delay}"] }}\n'


def watching(*dlqs: str) -> str:
    return "".join(f'[[watches]]\ndlq = "{dlq}"\n' for dlq in dlqs)


async def shared_fanout(app: Application, kind: str, *dlqs: str) -> None:
    """`orders` and `billing` die into one fanout that both dead-letter queues are bound to."""
    await app.channel.declare_exchange("dlx", "fanout")
    for name in dlqs or ("orders.dlq", "billing.dlq"):
        await app.declare(name, kind=kind)
        await app.channel.bind_queue(name, "dlx")
    for name in ("orders", "billing"):
        await app.declare(name, kind=kind, x_dead_letter_exchange="dlx")


async def depth(app: Application, queue: str) -> int:
    try:
        return await app.depth(queue)
    except NotFound:
        return 0


async def parked(app: Application) -> list[tuple[bytes, str]]:
    """Body and cause of each, taken out."""
    found: list[tuple[bytes, str]] = []
    while (delivery := await app.channel.get(names.PARKED)) is not None:
        found.append((delivery.message.body, str(headers_of(delivery).get(names.CAUSE))))
        app.channel.ack(delivery.tag)
    return found


async def until_parked(app: Application, least: int) -> None:
    async with asyncio.timeout(LONG_S):
        while await depth(app, names.PARKED) < least:  # noqa: ASYNC110 -- the broker tells nobody
            await asyncio.sleep(0.1)


async def until_still(app: Application, *queues: str, seconds: float = LONG_S) -> None:
    """Until these queues are empty and nothing arrives any more."""
    calm = 0
    async with asyncio.timeout(seconds):
        while calm < 15:
            before = app.seen.total()
            await asyncio.sleep(0.2)
            empty = not sum([await depth(app, queue) for queue in queues])
            calm = calm + 1 if empty and app.seen.total() == before else 0


async def status(one: Served) -> dict[str, list[dict[str, str]]]:
    found: dict[str, list[dict[str, str]]] = await asyncio.to_thread(one.get, "/api/status")
    return found


@KINDS
@pytest.mark.parametrize("services", [1, 2])
async def test_a_letter_of_a_shared_fanout_goes_home_once_each_time(
    vhost: Vhost, tmp_path: Path, kind: str, services: int
) -> None:
    """Three letters that fail to the end: with one service on both queues, and with one on each."""
    dlqs = ("orders.dlq", "billing.dlq")
    watches = [dlqs] if services == 1 else [(name,) for name in dlqs]
    async with Application(vhost.url) as app:
        await shared_fanout(app, kind)
        await app.consume("orders", lambda _d, _times: False)
        await app.consume("billing", lambda _d, _times: True)
        settings = policy(5) + NO_BREAKER
        several = [
            Served(vhost, tmp_path, settings + watching(*some), name=f"s{n}")
            for n, some in enumerate(watches)
        ]
        try:
            for one in several:
                one.start()
            await app.publish("", "orders", letters("n", 3))
            await app.until(lambda: app.seen.total() >= 18, LONG_S, "six deliveries each")
            await until_parked(app, 6)
            await until_still(app, *dlqs)
            assert set(app.seen.values()) == {6}, "a letter was multiplied, or lost"
            left = await parked(app)
            exhausted = sorted(body for body, cause in left if cause == "retries-exhausted")
            copies = sorted(body for body, cause in left if cause == COPY)
            assert exhausted == [b"n-0", b"n-1", b"n-2"], "one of each is at its end"
            assert copies == [b"n-0", b"n-1", b"n-2"], "one copy of each is kept, and no more"
            assert len(left) == 6
            for one in several:
                findings = (await status(one))["findings"]
                assert [(found["rule"], found["subject"]) for found in findings] == [
                    ("shared-dlx-fanout", "billing"),
                    ("shared-dlx-fanout", "orders"),
                ]
            log = several[-1].log.read_text()
            assert "letters dropped" in log, "what was dropped is told"
            told = await asyncio.to_thread(several[-1].metrics)
            assert 'outcome="dropped"' in told
            assert "alert" in log
        finally:
            for one in several:
                one.close()


@KINDS
async def test_a_mark_that_somebody_wrote_makes_nothing_vanish(
    vhost: Vhost, tmp_path: Path, kind: str
) -> None:
    """Whoever can publish to a dead-letter queue may copy every header of a letter, our mark included."""
    async with Application(vhost.url) as app:
        await shared_fanout(app, kind)
        await app.consume("orders", lambda _d, times: times > 1, keep=True)
        with_both = policy(5, "1s") + NO_BREAKER + watching("orders.dlq", "billing.dlq")
        one = Served(vhost, tmp_path, with_both, name="one").start()
        try:
            await app.publish("", "orders", [letter(b"true")])
            await app.until(lambda: b"true" in app.handled["orders"], LONG_S, "home")
            await until_parked(app, 1)
            await until_still(app, "orders.dlq", "billing.dlq")
            await parked(app)
            (marked,) = [headers_of(d) for _, d, _ in app.deliveries if headers_of(d)]
            assert names.HOME in marked
            death: dict[str, Value] = {
                "queue": "orders",
                "reason": "rejected",
                "count": 1,
                "exchange": "",
                "routing-keys": ["orders"],
            }
            forged = message.encode(View(delivery_mode=2, headers={**marked, "x-death": [death]}))
            await app.publish("", "billing.dlq", [RawMessage(forged, b"forged")])
            await until_parked(app, 1)
            assert [body for body, _ in await parked(app)] == [b"forged"]
        finally:
            one.close()


@KINDS
async def test_a_dead_letter_queue_that_may_drop_is_no_safe_home(
    vhost: Vhost, tmp_path: Path, kind: str
) -> None:
    """Where the home queue is bounded nobody knows that the other copy is still there: both are kept."""
    async with Application(vhost.url) as app:
        await app.channel.declare_exchange("dlx", "fanout")
        await app.declare("orders.dlq", kind=kind, x_max_length=10_000)
        await app.declare("billing.dlq", kind=kind)
        for name in ("orders.dlq", "billing.dlq"):
            await app.channel.bind_queue(name, "dlx")
        await app.declare("orders", kind=kind, x_dead_letter_exchange="dlx")
        await app.consume("orders", lambda _d, _times: False)
        settings = policy(2) + NO_BREAKER + watching("orders.dlq", "billing.dlq")
        one = Served(vhost, tmp_path, settings, name="one").start()
        try:
            await app.publish("", "orders", [letter(b"n")])
            await app.until(lambda: app.seen.total() >= 3, LONG_S, "three deliveries")
            await until_parked(app, 4)
            await until_still(app, "orders.dlq", "billing.dlq")
            left = [cause for _, cause in await parked(app)]
            assert sorted(left) == [COPY, COPY, COPY, "retries-exhausted"]
        finally:
            one.close()


async def test_a_letter_whose_key_leads_to_one_queue_alone_is_no_copy(vhost: Vhost, tmp_path: Path) -> None:
    """Some keys of an origin die into two queues, some into one: those go home from there."""
    async with Application(vhost.url) as app:
        await app.channel.declare_exchange("dead", "topic")
        await app.channel.declare_exchange("shop", "topic")
        for name, keys in (("orders.dlq", ("both.#",)), ("rest.dlq", ("both.#", "alone.#"))):
            await app.declare(name)
            for key in keys:
                await app.channel.bind_queue(name, "dead", key)
        await app.declare("orders", x_dead_letter_exchange="dead")
        for key in ("both.#", "alone.#"):
            await app.channel.bind_queue("orders", "shop", key)
        await app.consume("orders", lambda _d, times: times > 2)
        settings = policy(5) + NO_BREAKER + watching("orders.dlq", "rest.dlq")
        one = Served(vhost, tmp_path, settings, name="one").start()
        try:
            await app.publish("shop", "alone.x", [letter(b"alone")])
            await app.publish("shop", "both.x", [letter(b"both")])
            await app.until(lambda: app.handled["orders"] == {b"alone", b"both"}, LONG_S, "both done")
            await until_parked(app, 1)
            await until_still(app, "orders.dlq", "rest.dlq")
            assert await parked(app) == [(b"both", COPY)]
        finally:
            one.close()


async def test_diff_and_apply_say_that_the_fanout_multiplies(vhost: Vhost) -> None:
    async with Application(vhost.url) as app:
        await shared_fanout(app, "quorum")

    def topology(verb: str, *more: str) -> CompletedProcess[str]:
        environment = {**os.environ, "DLQ_URL": vhost.url, "DLQ_API": vhost.api}
        return command(
            "topology", verb, "--layout", "return", "--queue", "orders", *more, environment=environment
        )

    for verb in ("apply", "diff", "apply"):
        told = await asyncio.to_thread(topology, verb)
        assert "everything planned is there" not in told.stdout
        assert "exchange dlx" in told.stdout
        assert "one letter becomes 2, then 4, then 8" in told.stdout
        assert told.returncode == 1
    for verb in ("diff", "apply"):
        told = await asyncio.to_thread(topology, verb, "--json")
        assert [one["kind"] for one in json.loads(told.stdout)["drift"]] == ["multiplied"]
        assert told.returncode == 1
    await asyncio.to_thread(vhost_mended, vhost)
    told = await asyncio.to_thread(topology, "diff")
    assert "everything planned is there" in told.stdout
    assert told.returncode == 0


def vhost_mended(vhost: Vhost) -> None:
    """Each queue dies into its own dead-letter queue."""

    async def work() -> None:
        async with Application(vhost.url) as app:
            await app.channel.unbind_queue("billing.dlq", "dlx")

    asyncio.run(work())
