"""Sweeps against closed gates: what a gate held goes on when it opens, counts no sweep, and is said.

Service and application start together, and the sweep comes first; the only sweep of a boot meets an origin
nobody consumes; the connection is lost meanwhile; one of several origins of a queue stays closed; two
instances wait for the same gate.

About `service.sweeps`, `service.guarding.kept`.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.brokers import Vhost
from tests.letters import letters
from tests.serving import Application, Served, served

from deadletter.amqp.channel import Delivery

COUNT = 20
KINDS = pytest.mark.parametrize("kind", ["classic", "quorum"])
QUIET = "[guards.breaker]\nenabled = false\n"


def watch(mode: str, more: str = "") -> str:
    return f'[[watches]]\ndlq = "*.dlq"\nmode = "{mode}"\n{more}'


async def until(holds: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    for _ in range(int(seconds / 0.1)):
        if await asyncio.to_thread(holds):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"not within {seconds} s: {what}")


async def let_die(app: Application, origin: str, count: int, *, name: str = "", dlq: str = "") -> None:
    """So many die in `origin`, which nobody consumes afterwards."""
    channel = await app.connection.channel()
    dlq = dlq or f"{origin}.dlq"
    before = await app.depth(dlq)
    tag = await channel.consume(origin, lambda d: channel.reject(d.tag, requeue=False), lambda: None)
    await app.publish("", origin, letters(name or origin, count))
    await settled(app, dlq, before + count)
    await channel.cancel(tag)
    await channel.close()


async def die_unconsumed(app: Application, origin: str, count: int) -> None:
    """So many more die there, and no gate sees a consumer for it: that would let the others go."""
    channel = await app.connection.channel()
    before = await app.depth(f"{origin}.dlq")
    await app.publish("", origin, letters("late", count))
    for _ in range(count):
        taken = None
        while taken is None:
            taken = await channel.get(origin)
        channel.reject(taken.tag, requeue=False)
    await settled(app, f"{origin}.dlq", before + count)
    await channel.close()


async def settled(app: Application, queue: str, count: int, seconds: float = 60.0) -> None:
    found = -1
    for _ in range(int(seconds / 0.1)):
        if (found := await app.depth(queue)) == count:
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"{queue}: expected {count} letters, found {found}")


def swept(one: Served, dlq: str = "orders.dlq") -> list[dict[str, str]]:
    """What it says of each sweep."""
    lines = [
        line for line in one.log.read_text().splitlines() if " swept " in line and f"queue={dlq}" in line
    ]
    return [dict(re.findall(r'(\w+)=("[^"]*"|\S+)', line)) for line in lines]


def dlq_sweep(one: Served, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "deadletter.cli.main", "sweep", "--at", f"http://127.0.0.1:{one.port}"]
    own = {**os.environ, "HOME": str(one.home)}
    return subprocess.run(
        [*command, *arguments], capture_output=True, text=True, timeout=120, check=False, env=own
    )


def status_of(one: Served, dlq: str = "orders.dlq") -> dict[str, Any]:
    found: dict[str, Any] = next(q for q in one.get("/api/status")["queues"] if q["queue"] == dlq)
    return found


def works(_delivery: Delivery, _count: int) -> bool:
    return True


def each_once(app: Application, origin: str = "orders", count: int = COUNT) -> bool:
    return {body: n for (queue, body), n in app.seen.items() if queue == origin} == {
        f"{origin}-{n}".encode(): 1 for n in range(count)
    }


@KINDS
async def test_the_sweep_of_the_start_comes_before_the_application(
    vhost: Vhost, tmp_path: Path, kind: str
) -> None:
    async with Application(vhost.url) as app:
        await app.with_dlq("orders", kind=kind)
        await let_die(app, "orders", COUNT)
        with served(vhost, tmp_path, watch("startup", QUIET)) as (one,):
            await until(lambda: bool(swept(one)), "the sweep of the start")
            await settled(app, "orders.dlq", COUNT)
            (told,) = swept(one)
            assert (told["moved"], told["left"]) == ("0", str(COUNT))
            assert "nobody consumes the origin" in told["why"]
            assert "nobody consumes the origin" in status_of(one)["last_sweep"]

            await app.consume("orders", works)
            await app.until(lambda: each_once(app), 120, "all of them home")
            await until(lambda: swept(one)[-1]["asked_by"] == "gate", "it says that it went on")
            await settled(app, "orders.dlq", 0)
            assert swept(one)[-1]["left"] == "0"
            assert "nobody" not in status_of(one)["last_sweep"]


async def test_a_sweep_goes_on_after_the_connection_was_lost(vhost: Vhost, tmp_path: Path) -> None:
    async with Application(vhost.url) as app:
        await app.with_dlq("orders")
        await let_die(app, "orders", COUNT)
    with served(vhost, tmp_path, watch("startup", QUIET)) as (one,):
        await until(lambda: bool(swept(one)), "the sweep of the start")
        cut = ("close_all_connections", "--vhost", vhost.name, "the cable is cut")
        await asyncio.to_thread(vhost.broker.rabbitmqctl, *cut)
        await until(lambda: "works again" in one.log.read_text(), "it is back")
        async with Application(vhost.url) as app:
            await app.consume("orders", works)
            await app.until(lambda: each_once(app), 120, "all of them home")
            await settled(app, "orders.dlq", 0)


@KINDS
async def test_sweeps_against_a_closed_gate_use_up_no_limit(vhost: Vhost, tmp_path: Path, kind: str) -> None:
    async with Application(vhost.url) as app:
        await app.with_dlq("orders", kind=kind)
        await let_die(app, "orders", COUNT)
        told = watch("sweep", f'every = "500ms"\nlimit_per_boot = 2\n{QUIET}')
        with served(vhost, tmp_path, told) as (one,):
            await until(lambda: len(swept(one)) >= 4, "more sweeps in vain than are allowed")
            await settled(app, "orders.dlq", COUNT)
            await app.consume("orders", works)
            await app.until(lambda: each_once(app), 120, "all of them home")

            # What was swept counts: in the end the limit is reached.
            def over() -> bool:
                return status_of(one)["next_sweep_at"] is None

            await until(over, "no sweep is planned any more")
            made = len(swept(one))
            await asyncio.sleep(2)
            assert len(swept(one)) == made
            assert each_once(app)


async def test_just_after_the_consumer_is_back_all_of_them_go(vhost: Vhost, tmp_path: Path) -> None:
    async with Application(vhost.url) as app:
        await app.with_dlq("orders")
        await let_die(app, "orders", COUNT)
        with served(vhost, tmp_path, watch("manual", QUIET)) as (one,):
            first = await asyncio.to_thread(dlq_sweep, one, "orders.dlq")
            assert first.returncode == 1
            assert "nobody consumes the origin" in first.stdout
            assert "once somebody consumes" in first.stdout
            await app.consume("orders", works)
            told = await asyncio.to_thread(dlq_sweep, one, "--json", "orders.dlq")
            (answer,) = json.loads(told.stdout)["sweeps"]
            # It may have met the gate closed still, open, or the first sweep that goes on already.
            assert told.returncode == int(bool(answer["left"]))
            assert bool(answer["left"]) == bool(answer["state"] == "swept" and answer["why"])
            await app.until(lambda: each_once(app), 120, "all of them home")
            await settled(app, "orders.dlq", 0)


async def test_one_origin_that_stays_closed_holds_up_no_other(vhost: Vhost, tmp_path: Path) -> None:
    """One dead-letter queue of three origins: one is never consumed, one later, one all the time."""
    async with Application(vhost.url) as app:
        await app.declare("shared.dlq")
        dead = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "shared.dlq"}
        for origin in ("never", "later", "now"):
            await app.declare(origin, **dead)
            await let_die(app, origin, COUNT, dlq="shared.dlq")
        await app.consume("now", works)
        with served(vhost, tmp_path, watch("startup", QUIET)) as (one,):
            await app.until(lambda: each_once(app, "now"), 120, "those of the open origin")
            await until(lambda: bool(swept(one, "shared.dlq")), "the sweep of the start")
            (told,) = swept(one, "shared.dlq")
            assert (told["moved"], told["left"]) == (str(COUNT), str(2 * COUNT))
            assert "'never'" in told["why"]
            assert "'later'" in told["why"]
            await settled(app, "shared.dlq", 2 * COUNT)
            await app.consume("later", works)
            await app.until(lambda: each_once(app, "later"), 120, "those of the one that opened")
            await settled(app, "shared.dlq", COUNT)
            assert each_once(app, "now")
            assert not any(queue == "never" for queue, _ in app.seen)
            # What dies while the others wait is the next sweep's.
            assert await asyncio.to_thread(one.end) == 0
            await settled(app, "shared.dlq", COUNT)


async def test_what_dies_while_a_sweep_waits_makes_it_no_longer(vhost: Vhost, tmp_path: Path) -> None:
    """It moves as many as it found. Which ones is the queue's: quorum queues do not keep the order of what is
    given back."""
    async with Application(vhost.url) as app:
        await app.with_dlq("orders")
        await let_die(app, "orders", COUNT)
        with served(vhost, tmp_path, watch("startup", QUIET)) as (one,):
            await until(lambda: bool(swept(one)), "the sweep of the start")
            await die_unconsumed(app, "orders", 5)
            await app.consume("orders", works)
            await until(lambda: swept(one)[-1]["asked_by"] == "gate", "it went on")
            await app.until(lambda: len({body for _, body in app.seen}) == COUNT, 120, "home")
            await settled(app, "orders.dlq", 5)


async def test_two_instances_wait_for_one_gate(vhost: Vhost, tmp_path: Path) -> None:
    async with Application(vhost.url) as app:
        await app.with_dlq("orders")
        await let_die(app, "orders", COUNT)
        with served(vhost, tmp_path, watch("startup", QUIET), instances=2) as instances:
            for one in instances:
                await until(lambda one=one: bool(swept(one)), "the sweep of the start")  # type: ignore[misc]
            await app.consume("orders", works)
            await app.until(lambda: each_once(app), 120, "each of them home once")
            await settled(app, "orders.dlq", 0)


async def test_stopped_while_it_waits_it_ends_at_once_and_nothing_is_gone(
    vhost: Vhost, tmp_path: Path
) -> None:
    async with Application(vhost.url) as app:
        await app.with_dlq("orders")
        await let_die(app, "orders", COUNT)
        with served(vhost, tmp_path, watch("startup", QUIET)) as (one,):
            await until(lambda: bool(swept(one)), "the sweep of the start")
            assert await asyncio.to_thread(one.end, 25) == 0
            await settled(app, "orders.dlq", COUNT)
            await app.consume("orders", works)
            one.start()
            await app.until(lambda: each_once(app), 120, "the next start takes them")
