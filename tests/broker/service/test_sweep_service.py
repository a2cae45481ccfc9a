"""One owner for every dead-letter queue: drained by the clock, each letter back to its own queue.

Two applications' queues, `bot_events` and `notification_queue`, each with a dead-letter queue of its own.
What is claimed: an outage is over within an interval after its end; no letter is ever in the other queue, or
twice; and where a fanout makes copies of dead letters, none of them is made more.

About `service.sweeps`, `service.survey`, `core.layouts.sweeping`.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from tests import postbox
from tests.brokers import Vhost
from tests.postbox import Post
from tests.serving import Application, Served, served

from deadletter.amqp.channel import Delivery
from deadletter.core.letter import message, names
from deadletter.core.letter.message import RawMessage, View
from deadletter.core.letter.wrapping import unwrap

EXCHANGE = "game_scheduler"
KEYS = {"bot_events": "game.started", "notification_queue": "notification.send_dm"}
DLQS = tuple(f"{queue}.dlq" for queue in KEYS)
PARKED = "deadletter.parked"
NO_BREAKER = "[guards.breaker]\nenabled = false\n"
COUNT = 30


def sweeping(*, every: str = "1s", retries: int = 100, more: str = "") -> str:
    told = f'[[watches]]\ndlq = "*.dlq"\nmode = "sweep"\nevery = "{every}"\n'
    return f"[default_policy]\nretries = {retries}\n{told}{more}"


def watching(mode: str, more: str = "") -> str:
    return f'[[watches]]\ndlq = "*.dlq"\nmode = "{mode}"\n{more}'


def letter(body: bytes) -> RawMessage:
    return RawMessage(message.encode(View(content_type="application/json", delivery_mode=2)), body)


def bodies(queue: str, count: int = COUNT) -> list[bytes]:
    return [b"%s %d" % (queue.encode(), n) for n in range(count)]


async def declare(app: Application, *, ttl_ms: int | None = None, kind: str = "classic") -> None:
    """The two queues behind one exchange, each with a dead-letter queue of its own."""
    await app.channel.declare_exchange(EXCHANGE, "topic")
    for queue, key in KEYS.items():
        more = {} if ttl_ms is None else {"x_message_ttl": ttl_ms}
        await app.with_dlq(queue, kind=kind, **more)
        await app.channel.bind_queue(queue, EXCHANGE, key.split(".", 1)[0] + ".*")


async def publish(app: Application, count: int = COUNT) -> None:
    for queue, key in KEYS.items():
        await app.publish(EXCHANGE, key, map(letter, bodies(queue, count)))


async def reject_all(vhost: Vhost, count: int = COUNT) -> None:
    """Publish, and let a consumer reject everything into the dead-letter queues, once."""
    async with Application(vhost.url) as app:
        for queue in KEYS:
            await app.consume(queue, never)
        await publish(app, count)
        await settled(app, dict.fromkeys(DLQS, count))


async def settled(app: Application, wanted: dict[str, int], seconds: float = 120.0) -> None:
    """Until the queues hold so many letters each."""
    found: dict[str, int] = {}
    for _ in range(int(seconds / 0.1)):
        found = {queue: await app.depth(queue) for queue in wanted}
        if found == wanted:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"not within {seconds} s: expected {wanted}, got {found}")


def never(_delivery: Delivery, _count: int) -> bool:
    return False


def always(_delivery: Delivery, _count: int) -> bool:
    return True


def each_once_in_its_own(app: Application, count: int = COUNT) -> bool:
    return app.seen == {(queue, body): 1 for queue in KEYS for body in bodies(queue, count)}


def sweeps(one: Served, dlq: str = DLQS[0]) -> list[tuple[datetime, dict[str, str]]]:
    """The sweeps that it says it made of this queue: when, and what is told of them."""
    told = []
    for line in one.log.read_text().splitlines():
        if " swept " in line and f"queue={dlq} " in line:
            at = datetime.fromisoformat(line.split(" ", 1)[0])
            told.append((at, dict(re.findall(r"(\w+)=(\S+)", line))))
    return told


def holder(instances: Iterable[Served], lease: str) -> Served | None:
    for one in instances:
        if {"lease": lease, "held": True} in one.get("/api/status")["leases"]:
            return one
    return None


async def until(holds: Callable[[], bool], what: str, seconds: float = 120.0) -> None:
    for _ in range(int(seconds / 0.1)):
        if await asyncio.to_thread(holds):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"not within {seconds} s: {what}")


def all_letters(vhost: Vhost) -> Counter[bytes]:
    """Everything in every queue, taken out: how often each body is there."""
    found: Counter[bytes] = Counter()
    for queue in vhost.list("queues"):
        if not queue.get("exclusive"):
            found += Counter(post.body for post in postbox.drain(vhost.url, queue["name"]))
    return found


async def parked(vhost: Vhost, count: int) -> list[Post]:
    return await asyncio.to_thread(postbox.drain, vhost.url, PARKED, expect=count)


def dlq_sweep(one: Served, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [
            sys.executable, "-m", "deadletter.cli.main", "sweep",
            "--at", f"http://127.0.0.1:{one.port}", "--json", *arguments,
        ],
        capture_output=True, text=True, timeout=60, check=False,
        env={**os.environ, "HOME": str(one.home)},
    )  # fmt: skip


# -- an outage --------------------------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_letters_of_an_outage_are_back_within_an_interval(
    vhost: Vhost, tmp_path: Path, kind: str
) -> None:
    """The service is up all the time; nothing goes to a queue nobody consumes, so no attempt is spent."""
    async with Application(vhost.url) as app:
        await declare(app, ttl_ms=500, kind=kind)
        with served(vhost, tmp_path, sweeping()) as (one,):
            await publish(app)
            await settled(app, dict.fromkeys(DLQS, COUNT))
            await until(lambda: len(sweeps(one)) >= 3, "sweeps that let everything lie")
            await settled(app, dict.fromkeys([*KEYS, PARKED], 0) | dict.fromkeys(DLQS, COUNT))

            for queue in KEYS:
                await app.consume(queue, always, keep=True)
            await app.until(lambda: len(app.seen) >= 2 * COUNT, 120, "all of them back")
            assert each_once_in_its_own(app)
            for queue, delivery, _ in app.deliveries:
                view = message.view(delivery.message.properties)
                assert delivery.routing_key.decode() == KEYS[queue]
                assert (view.headers or {})[names.ATTEMPT] == 1, "the outage spent attempts"
                assert view.expiration is None
            await settled(app, dict.fromkeys([*KEYS, *DLQS, PARKED], 0))


async def test_a_service_that_starts_after_the_outage_needs_one_sweep(vhost: Vhost, tmp_path: Path) -> None:
    async with Application(vhost.url) as app:
        await declare(app, ttl_ms=200)
        await publish(app)
        await settled(app, dict.fromkeys(DLQS, COUNT))
        for queue in KEYS:
            await app.consume(queue, always)
        with served(vhost, tmp_path, sweeping(every="15min")) as (one,):
            await app.until(lambda: len(app.seen) >= 2 * COUNT, 120, "all of them back with the first sweep")
            assert each_once_in_its_own(app)
            for dlq in DLQS:
                await until(lambda dlq=dlq: len(sweeps(one, dlq)) == 1, "it says so")  # type: ignore[misc]
                assert sweeps(one, dlq)[0][1]["moved"] == str(COUNT)


async def test_a_service_that_starts_within_the_outage_sends_nothing_into_it(
    vhost: Vhost, tmp_path: Path
) -> None:
    async with Application(vhost.url) as app:
        await declare(app, ttl_ms=200)
        await publish(app)
        await settled(app, dict.fromkeys(DLQS, COUNT))
        with served(vhost, tmp_path, sweeping()) as (one,):
            await until(lambda: len(sweeps(one)) >= 3, "three sweeps")
            assert [told["moved"] for _, told in sweeps(one)[:3]] == ["0", "0", "0"]
            assert [told["left"] for _, told in sweeps(one)[:3]] == [str(COUNT)] * 3
            await settled(app, dict.fromkeys(DLQS, COUNT) | {PARKED: 0})
            gates = {gate["origin"]: gate["guard"] for gate in one.get("/api/status")["gates"]}
            assert gates == dict.fromkeys(KEYS, "consumers")


async def test_without_require_consumers_letters_go_back_all_the_same(vhost: Vhost, tmp_path: Path) -> None:
    async with Application(vhost.url) as app:
        await declare(app)
        await reject_all(vhost)
        with served(vhost, tmp_path, sweeping(more="[guards]\nrequire_consumers = false\n")):
            await settled(app, dict.fromkeys(KEYS, COUNT) | dict.fromkeys(DLQS, 0))
    found = {queue: sorted(post.body for post in postbox.drain(vhost.url, queue)) for queue in KEYS}
    assert found == {queue: sorted(bodies(queue)) for queue in KEYS}


# -- no growth --------------------------------------------------------------------------------------------
@pytest.mark.slow
async def test_five_instances_and_twenty_cycles_make_no_letter_more(vhost: Vhost, tmp_path: Path) -> None:
    """A letter that were sent back twice would be delivered twice with one attempt."""
    async with Application(vhost.url) as app:
        await declare(app)
        for queue in KEYS:
            await app.consume(queue, never, keep=True)
        with served(vhost, tmp_path, sweeping(more=NO_BREAKER), instances=5) as instances:
            await publish(app)
            every = [(queue, body) for queue in KEYS for body in bodies(queue)]
            await app.until(lambda: min(app.seen[one] for one in every) > 20, 120, "20 cycles")
            for one in instances:
                one.process.send_signal(signal.SIGTERM)
            for one in instances:
                assert await asyncio.to_thread(one.process.wait, 30) == 0
            made = [told for one in instances for _, told in sweeps(one)]
            assert len(made) >= 20
        await settled(app, dict.fromkeys(KEYS, 0) | dict.fromkeys(DLQS, COUNT))
        attempts: dict[tuple[str, bytes], list[int]] = {}
        for queue, delivery, _ in app.deliveries:
            headers = message.view(delivery.message.properties).headers or {}
            attempt = headers.get(names.ATTEMPT, 0)
            assert isinstance(attempt, int)
            attempts.setdefault((queue, delivery.message.body), []).append(attempt)
        assert attempts.keys() == set(every), "a letter was in the other queue"
        assert all(found == list(range(len(found))) for found in attempts.values())
    assert all_letters(vhost) == Counter({body: 1 for queue in KEYS for body in bodies(queue)})


@pytest.mark.slow
@pytest.mark.kills
async def test_a_fanout_that_two_queues_share_makes_no_letter_more(vhost: Vhost, tmp_path: Path) -> None:
    """The topology stays as it was built: each death gives a copy to both dead-letter queues."""
    async with Application(vhost.url) as app:
        await app.channel.declare_exchange("dlx", "fanout")
        for queue in KEYS:
            await app.declare(f"{queue}.dlq", kind="classic")
            await app.channel.bind_queue(f"{queue}.dlq", "dlx")
            await app.declare(queue, kind="classic", x_dead_letter_exchange="dlx")
            await app.consume(queue, lambda _d, count: count > 3, keep=True)
        with served(vhost, tmp_path, sweeping(more=NO_BREAKER), instances=2) as instances:
            for queue in KEYS:
                await app.publish("", queue, map(letter, bodies(queue)))
            every = [(queue, body) for queue in KEYS for body in bodies(queue)]
            await app.until(lambda: all(app.seen[one] == 4 for one in every), 120, "three failures, success")
            copies = await parked(vhost, 2 * COUNT)
            await settled(app, dict.fromkeys([*KEYS, *DLQS, PARKED], 0))
            assert set(app.seen) == set(every), "a letter was in the other queue"
            assert set(app.seen.values()) == {4}, "a copy went back"
            assert Counter(post.body for post in copies) == Counter({body: 1 for _, body in every})
            assert {post.headers[names.CAUSE] for post in copies} == {"copied-by-fanout"}
            assert all("shared-dlx-fanout" in post.headers[names.WHY] for post in copies)
            for one in instances:
                found = one.get("/api/status")["findings"]
                assert {told["subject"] for told in found if told["rule"] == "shared-dlx-fanout"} == set(KEYS)
                assert "rule=shared-dlx-fanout" in one.log.read_text()


@pytest.mark.slow
@pytest.mark.kills
async def test_deaths_of_an_hour_ago_do_not_break_the_next_sweep(vhost: Vhost, tmp_path: Path) -> None:
    """The breaker looks back over its window; letters that died before it and were only swept up now are no
    reason to hold the others."""
    window = '[guards.breaker]\nwindow = "1s"\nletters = 5\npause = "10s"\n'
    async with Application(vhost.url) as app:
        await declare(app)
        for queue in KEYS:
            await app.consume(queue, lambda _d, count: count > 3)
        await publish(app)
        await settled(app, dict.fromkeys(DLQS, COUNT))
        with served(vhost, tmp_path, sweeping(every="4s", more=window)) as (one,):
            await app.until(
                lambda: min(app.seen.values()) == 4, 120, "all of them through, with three sweeps"
            )
            assert {told["left"] for dlq in DLQS for _, told in sweeps(one, dlq)} == {"0"}
            await settled(app, dict.fromkeys([*KEYS, *DLQS, PARKED], 0))


# -- by the clock -----------------------------------------------------------------------------------------
@pytest.mark.slow
async def test_another_instance_takes_over_the_clock(vhost: Vhost, tmp_path: Path) -> None:
    async with Application(vhost.url) as app:
        await declare(app)
        with served(vhost, tmp_path, sweeping(), instances=3) as instances:
            lease = f"clock.{DLQS[0]}"
            await until(lambda: holder(instances, lease) is not None, "somebody has the clock")
            first = holder(instances, lease)
            assert first is not None
            first.kill()
            rest = [one for one in instances if one is not first]
            await until(lambda: holder(rest, lease) is not None, "another one has it")
            for queue in KEYS:
                await app.consume(queue, lambda _d, count: count > 1)
            await publish(app)
            await app.until(lambda: len(app.seen) == 2 * COUNT and min(app.seen.values()) == 2, 120)
            assert max(app.seen.values()) == 2


async def test_sigterm_within_a_long_wait_ends_it(vhost: Vhost, tmp_path: Path) -> None:
    async with Application(vhost.url) as app:
        await declare(app)
        with served(vhost, tmp_path, sweeping(every="15min")) as (one,):
            await until(lambda: len(sweeps(one)) == 1, "it waits for the next sweep")
            assert await asyncio.to_thread(one.end, 10) == 0


@pytest.mark.slow
async def test_pauses_grow_and_a_boot_has_so_many_sweeps(vhost: Vhost, tmp_path: Path) -> None:
    pauses = 'backoff = { kind = "exponential", first = "400ms", factor = 3 }\nlimit_per_boot = 3\n'
    async with Application(vhost.url) as app:
        await declare(app)
        with served(vhost, tmp_path, watching("sweep", pauses)) as (one,):
            await until(lambda: len(sweeps(one)) == 3, "three sweeps")
            at = [when for when, _ in sweeps(one)]
            assert (at[1] - at[0]).total_seconds() >= 1.2
            assert (at[2] - at[1]).total_seconds() >= 3.6
            for queue in KEYS:
                await app.consume(queue, lambda _d, count: count > 1)
            await publish(app)
            await settled(app, dict.fromkeys(DLQS, COUNT))
            await asyncio.sleep(3)
            assert len(sweeps(one)) == 3, "more sweeps than were allowed"
            await settled(app, dict.fromkeys(DLQS, COUNT))
            assert (await asyncio.to_thread(dlq_sweep, one)).returncode == 0, "a person may still ask"
            await settled(app, dict.fromkeys(DLQS, 0))
            assert await asyncio.to_thread(one.end) == 0

            one.log.unlink()
            one.start()
            await until(lambda: len(sweeps(one)) == 1, "the next boot counts anew")


@pytest.mark.slow
@pytest.mark.kills
async def test_on_start_only(vhost: Vhost, tmp_path: Path) -> None:
    async with Application(vhost.url) as app:
        await declare(app)
        await reject_all(vhost)
        for queue in KEYS:
            await app.consume(queue, lambda _d, count: count > 1)
        with served(vhost, tmp_path, watching("startup", NO_BREAKER)) as (one,):
            await app.until(lambda: sum(app.seen.values()) == 2 * COUNT, 120, "the sweep at the start")
            await settled(app, dict.fromkeys(DLQS, COUNT))
            await asyncio.sleep(3)
            await settled(app, dict.fromkeys(DLQS, COUNT))
            assert [len(sweeps(one, dlq)) for dlq in DLQS] == [1, 1]
            assert await asyncio.to_thread(one.end) == 0
            one.start()
            await app.until(lambda: sum(app.seen.values()) == 4 * COUNT, 120, "the sweep at the next start")
            await settled(app, dict.fromkeys([*KEYS, *DLQS, PARKED], 0))


async def test_only_when_somebody_asks(vhost: Vhost, tmp_path: Path) -> None:
    async with Application(vhost.url) as app:
        await declare(app)
        await reject_all(vhost)
        for queue in KEYS:
            await app.consume(queue, always)
        with served(vhost, tmp_path, watching("manual")) as (one,):
            await asyncio.sleep(2)
            await settled(app, dict.fromkeys(DLQS, COUNT))

            told = await asyncio.to_thread(dlq_sweep, one, DLQS[0])
            assert told.returncode == 0, told.stderr
            (swept,) = json.loads(told.stdout)["sweeps"]
            assert (swept["dlq"], swept["state"], swept["moved"]) == (DLQS[0], "swept", COUNT)
            await settled(app, {DLQS[0]: 0, DLQS[1]: COUNT})

            one.process.send_signal(signal.SIGUSR1)
            await settled(app, dict.fromkeys([*KEYS, *DLQS, PARKED], 0))
            await app.until(lambda: each_once_in_its_own(app), 120)

            refused = await asyncio.to_thread(dlq_sweep, one, "nobody.knows.it")
            assert refused.returncode == 2
            assert "nobody.knows.it" in refused.stderr


# -- what must not stop a sweep ---------------------------------------------------------------------------
async def test_poison_neither_stops_nor_spins_a_sweep(vhost: Vhost, tmp_path: Path) -> None:
    def raw(body: bytes, **headers: Any) -> RawMessage:
        return RawMessage(message.encode(View(delivery_mode=2, headers=headers)), body)

    poison = [
        raw(b"no death"),
        raw(b"no list", **{"x-death": "yesterday"}),
        raw(b"no text", **{"x-death": [{"queue": 7, "reason": ["rejected"], "count": "many"}]}),
        raw(b"no room", big="x" * 131_000),
    ]
    async with Application(vhost.url) as app:
        await declare(app)
        await reject_all(vhost, 5)
        await app.publish("", DLQS[0], poison)
        await settled(app, {DLQS[0]: 5 + len(poison)})
        for queue in KEYS:
            await app.consume(queue, always)
        with served(vhost, tmp_path, sweeping()) as (one,):
            await app.until(lambda: len(app.seen) == 10, 120, "the good ones")
            await settled(app, dict.fromkeys([*KEYS, *DLQS], 0) | {PARKED: len(poison)})
            before = len(sweeps(one))
            # the sweep that parked them may be told only now
            await until(lambda: len(sweeps(one)) >= before + 3, "it goes on")
            assert {told["seen"] for _, told in sweeps(one)[-2:]} == {"0"}, "it is taken again and again"
            assert each_once_in_its_own(app, 5)
    kept = await asyncio.to_thread(postbox.take_raw, vhost.url, PARKED)
    assert {(unwrap(post) or post).body for post in kept} == {bad.body for bad in poison}
    for post in kept:
        headers = message.view(post.properties).headers or {}
        assert headers[names.CAUSE]
        assert headers[names.WHY]


@pytest.mark.slow
@pytest.mark.kills
async def test_empty_and_missing_queues_are_no_trouble(vhost: Vhost, tmp_path: Path) -> None:
    async with Application(vhost.url) as app:
        await declare(app)
        with served(vhost, tmp_path, sweeping()) as (one,):
            await until(lambda: len(sweeps(one)) >= 2, "sweeps of nothing")
            assert {told["seen"] for _, told in sweeps(one)} == {"0"}
            await app.channel.delete_queue(DLQS[0])
            before = len(sweeps(one, DLQS[1]))
            await until(lambda: len(sweeps(one, DLQS[1])) >= before + 3, "the other one is swept")
            assert one.get("/health/ready")["ok"]

            await app.declare(DLQS[0], kind="classic")
            for queue in KEYS:
                await app.consume(queue, lambda _d, count: count > 1)
            await publish(app)
            await app.until(lambda: len(app.seen) == 2 * COUNT and min(app.seen.values()) == 2, 120)
