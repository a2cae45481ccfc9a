"""What waits is counted, let out and parked, and each letter has one home throughout.

About `operations.waiting`, `cli.waiting_command`, `cli.waiting_options`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.brokers import Vhost
from tests.commanding import command
from tests.letters import headers_of, letters
from tests.serving import Application, depth, let_die, served, until_depth

from deadletter.amqp.address import parse_addresses
from deadletter.amqp.channel import Delivery
from deadletter.core.layouts.naming import held_name, level_name
from deadletter.core.letter import names
from deadletter.operations.waiting import WaitingChoice, look

WATCH = '[[watches]]\ndlq = "*.dlq"\n'
HOUR = '[default_policy]\nretries = 5\nbackoff = { kind = "fixed", delays = ["1h"] }\n'
SOON = '[default_policy]\nretries = 5\nbackoff = { kind = "fixed", delays = ["200ms"] }\n'
LEVEL = level_name(3_600_000)


async def dlq(vhost: Vhost, home: Path, *arguments: str) -> tuple[int, Any]:
    """In a process of its own: it has a loop and signals of its own."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "deadletter.cli.main", *arguments, "--json"),
        env={**os.environ, "DLQ_URL": vhost.url, "DLQ_API": vhost.api, "HOME": str(home)},
        cwd=home,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, complained = await process.communicate()
    assert said, complained.decode()
    assert process.returncode is not None
    return process.returncode, json.loads(said)


async def waiting_an_hour(app: Application, vhost: Vhost, home: Path, **counts: int) -> None:
    """So many letters of each origin wait an hour, and nobody serves any more."""
    for origin, count in counts.items():
        await app.with_dlq(origin)
        await let_die(app, origin, letters(origin, count))
    with served(vhost, home, HOUR + WATCH) as (one,):
        await until_depth(app, LEVEL, sum(counts.values()))
        assert one.end() == 0


@pytest.mark.parametrize("how", ["release", pytest.param("park", marks=pytest.mark.slow)])
async def test_only_what_was_meant_goes(vhost: Vhost, tmp_path: Path, how: str) -> None:
    async with Application(vhost.url) as app:
        await waiting_an_hour(app, vhost, tmp_path, orders=30, billing=20)
        code, seen = await dlq(vhost, tmp_path, "waiting")
        assert code == 0
        kinds = {(kind["origin"], kind["waits"], kind["letters"]) for kind in seen["kinds"]}
        assert kinds == {("orders", "delay", 30), ("billing", "delay", 20)}
        assert seen["letters"] == 50
        assert await app.depth(LEVEL) == 50, "a look leaves them"

        code, would = await dlq(vhost, tmp_path, "waiting", how, "--origin", "orders", "--dry-run")
        assert (code, would["would"]) == (0, 30)
        assert await app.depth(LEVEL) == 50

        code, told = await dlq(vhost, tmp_path, "waiting", how, "--origin", "orders")
        assert code == 0
        parked, released = (30, 0) if how == "park" else (0, 30)
        assert (told["released"], told["parked"], told["failed"]) == (released, parked, 0)
        assert await app.depth(LEVEL) == 20
        assert await app.depth("orders") == released
        assert await app.depth(names.PARKED) == parked
        assert await app.depth("billing") == 0
        if how == "park":
            await app.consume(names.PARKED, lambda _d, _times: True, keep=True)
            await app.until(lambda: len(app.deliveries) == 30, 120, "all seen")
            headers = [headers_of(delivery) for _, delivery, _ in app.deliveries]
            assert {one[names.CAUSE] for one in headers} == {"by-hand"}
            assert {one[names.ORIGIN_QUEUE] for one in headers} == {"orders"}


@pytest.mark.slow
async def test_a_guard_is_passed_knowingly(vhost: Vhost, tmp_path: Path) -> None:
    """Nobody consumes, so they are held; a person sends them home all the same."""
    async with Application(vhost.url) as app:
        await app.with_dlq("orders")
        await let_die(app, "orders", letters("n", 20))
        with served(vhost, tmp_path, SOON + WATCH):
            await until_depth(app, held_name("orders"), 20)
            _, seen = await dlq(vhost, tmp_path, "waiting", "--for", "held")
            assert [(k["origin"], k["waits"], k["letters"]) for k in seen["kinds"]] == [
                ("orders", "held", 20)
            ]
            assert "consume" in seen["kinds"][0]["why"]
            code, told = await dlq(vhost, tmp_path, "waiting", "release", "--for", "held", "--origin", "ord*")
            assert (code, told["released"]) == (0, 20)
            await until_depth(app, "orders", 20)
            assert await depth(app, held_name("orders")) == 0
        assert await depth(app, names.PARKED) == 0


@pytest.mark.slow
async def test_what_its_origin_refuses_stays(vhost: Vhost, tmp_path: Path) -> None:
    async with Application(vhost.url) as app:
        await waiting_an_hour(app, vhost, tmp_path, orders=10)
        await app.publish("", "orders", letters("filler", 10))
        full = {"max-length": 4, "overflow": "reject-publish"}
        vhost.put("policies", "full", pattern="^orders$", definition=full, priority=10)
        await app.until(lambda: vhost.get("queues", "orders").get("policy") == "full", 120, "the policy")
        code, told = await dlq(vhost, tmp_path, "waiting", "release", "--all")
        assert (code, told["released"], told["left"]) == (1, 0, 10)
        assert await depth(app, LEVEL) == 10
        assert await depth(app, names.PARKED) == 0


@pytest.mark.slow
async def test_an_origin_that_is_gone_parks(vhost: Vhost, tmp_path: Path) -> None:
    async with Application(vhost.url) as app:
        await waiting_an_hour(app, vhost, tmp_path, orders=5)
        vhost.delete("queues", "orders")
        code, told = await dlq(vhost, tmp_path, "waiting", "release", "--origin", "orders")
        assert (code, told["released"], told["parked"]) == (0, 0, 5)
        await until_depth(app, names.PARKED, 5)


@pytest.mark.parametrize("wrong", [["release"], ["park", "--for", "nothing"], ["--for", "x"]])
def test_what_is_not_said_is_asked_for(vhost: Vhost, tmp_path: Path, wrong: list[str]) -> None:
    environment = {"DLQ_URL": vhost.url, "DLQ_API": vhost.api, "HOME": str(tmp_path)}
    done = command("waiting", *wrong, environment=environment, directory=tmp_path)
    assert done.returncode == 2
    assert "expected" in done.stderr


async def test_nothing_waits(vhost: Vhost, tmp_path: Path) -> None:
    code, seen = await dlq(vhost, tmp_path, "waiting")
    assert (code, seen["letters"], seen["kinds"]) == (0, 0, [])


async def test_where_nothing_parks_they_stay(vhost: Vhost, tmp_path: Path) -> None:
    """The service declares the queue for parked letters; without one nobody tries for ever."""
    async with Application(vhost.url) as app:
        await waiting_an_hour(app, vhost, tmp_path, orders=5)
        vhost.delete("queues", names.PARKED)
        code, told = await dlq(vhost, tmp_path, "waiting", "park", "--all")
        assert (code, told["parked"], told["left"]) == (1, 0, 5)
        assert await depth(app, LEVEL) == 5


async def test_looks_are_free_and_renew_nothing(vhost: Vhost, tmp_path: Path) -> None:
    """More looks than RabbitMQ 4 allows returns; a renewed letter would begin its delay anew."""
    async with Application(vhost.url) as app:
        await waiting_an_hour(app, vhost, tmp_path, orders=3)
        for _ in range(25):
            seen = await look(parse_addresses(vhost.url), vhost.api, WaitingChoice(), most=100)
            assert [kind.letters for kind in seen.kinds] == [3]
            await until_depth(app, LEVEL, 3)
        moves: set[object] = set()

        def note_its_source(delivery: Delivery, _times: int) -> bool:
            moves.add(headers_of(delivery)[names.SOURCE])
            return True

        await app.consume(LEVEL, note_its_source, keep=True)
        await app.until(lambda: len(app.deliveries) == 3, 120, "all seen")
        assert moves == {"orders.dlq"}, "they were last taken from their dead-letter queue"
