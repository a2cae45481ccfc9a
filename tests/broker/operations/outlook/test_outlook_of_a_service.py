"""What a running service tells about its broker over HTTP, and what is let out through it.

About `operations.outlook.broker_outlook`, `operations.outlook.service_outlook`, `desk.api.broker_api`,
`desk.answers.news`, `service.storing.sampling`, `cli.serve_command`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.brokers import Vhost
from tests.letters import letters
from tests.serving import Application, Served, let_die, served, until_depth

from deadletter.core.layouts.naming import level_name
from deadletter.operations.home_key import home_token, key_file, read_key

SETTINGS = (
    '[[watches]]\ndlq = "*.dlq"\n[desk]\ningest = true\n'
    '[default_policy]\nretries = 5\nbackoff = { kind = "fixed", delays = ["1h"] }\n'
)
LEVEL = level_name(3_600_000)


@asynccontextmanager
async def client_of(one: Served) -> AsyncIterator[httpx.AsyncClient]:
    """As its owner."""
    key = read_key(key_file({}, one.config.parent))
    assert key is not None
    bearer = {"authorization": f"Bearer {home_token(key, one.port)}"}
    base = f"http://127.0.0.1:{one.port}/api/v1/"
    async with httpx.AsyncClient(base_url=base, headers=bearer, trust_env=False, timeout=60) as client:
        yield client


async def told(client: httpx.AsyncClient, path: str) -> Any:
    answer = await client.get(path)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def dlq(one: Served, *arguments: str) -> tuple[int, Any]:
    """As the user who started the service, without a way to its broker."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "deadletter.cli.main", *arguments, "--json"),
        env={**os.environ, "HOME": str(one.config.parent)},
        cwd="/",
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, complained = await process.communicate()
    assert said, complained.decode()
    assert process.returncode is not None
    return process.returncode, json.loads(said)


async def heard(client: httpx.AsyncClient, listening: asyncio.Event) -> set[str]:
    """Until somebody did something to what waits."""
    seen: set[str] = set()
    async with client.stream("GET", "events") as answer:
        listening.set()
        async for line in answer.aiter_lines():
            if line.startswith("data: "):
                seen |= set(json.loads(line.removeprefix("data: "))["about"])
            if "audit" in seen:
                return seen
    raise AssertionError("the stream ended")


async def test_what_is_on_the_broker_is_told_and_let_out(vhost: Vhost, tmp_path: Path) -> None:
    async with Application(vhost.url) as app:
        await app.with_dlq("orders")
        await let_die(app, "orders", letters("orders", 5))
        await app.with_dlq("bills")
        await let_die(app, "bills", letters("bills", 3))
        with served(vhost, tmp_path, SETTINGS) as (one,):
            await until_depth(app, LEVEL, 8)
            async with client_of(one) as client:
                counted = await told(client, "waiting")
                assert (counted["letters"], counted["kinds"], counted["looked_at"]) == (8, [], 0)
                seen = await told(client, "waiting?most=10")
                kinds = [(kind["origin"], kind["letters"]) for kind in seen["kinds"]]
                assert kinds == [("orders", 5), ("bills", 3)]
                queues = (await told(client, "queues?dead=true"))["queues"]
                found = {queue["name"]: queue for queue in queues}
                assert found["orders.dlq"]["dead_from"] == ["orders"]
                assert found["orders.dlq"]["watch"] == 1
                examined = (await client.post("findings/look", json={})).json()
                assert examined["version"].split(".")[0] in ("3", "4")
                assert (await told(client, "findings"))["at_ms"] == examined["at_ms"]
                nodes = (await told(client, "topology?around=orders"))["nodes"]
                assert {"queue orders", "queue orders.dlq"} <= {node["id"] for node in nodes}
                assert (await client.get("topology/drawn")).text.startswith("<svg")
                assert (await client.get("queues?vhost=elsewhere")).status_code == 422

                code, seen = await dlq(one, "waiting", "--at", f"127.0.0.1:{one.port}")
                assert (code, seen["letters"], seen["kinds"][0]["origin"]) == (0, 8, "orders")

                listening = asyncio.Event()
                news = asyncio.create_task(heard(client, listening))
                await asyncio.wait_for(listening.wait(), 60)
                done = await client.post(
                    "waiting/release",
                    json={"origin": "orders", "who": "ann"},
                    headers={"idempotency-key": "once"},
                )
                assert done.json()["released"] == 5, done.text
                again = await client.post(
                    "waiting/release",
                    json={"origin": "orders", "who": "ann"},
                    headers={"idempotency-key": "once"},
                )
                assert again.json() == done.json(), "nobody let them out twice"
                await until_depth(app, "orders", 5)
                assert {"audit", "groups"} <= await asyncio.wait_for(news, 60)
                (entry,) = (await told(client, "audit?action=waiting%20released"))["entries"]
                assert (entry["who"], entry["detail"]["released"]) == ("ann", 5)
                at = ("--at", f"127.0.0.1:{one.port}")
                code, done = await dlq(one, "waiting", "release", "--origin", "bills", *at)
                assert (code, done["released"]) == (0, 3)
                entry = (await told(client, "audit?action=waiting%20released"))["entries"][0]
                assert "@" in entry["who"], "the user of the command"
            assert one.end() == 0


@pytest.mark.slow
async def test_queues_are_sampled_by_the_minute(vhost: Vhost, tmp_path: Path) -> None:
    async with Application(vhost.url) as app:
        await app.with_dlq("orders")
        await let_die(app, "orders", letters("orders", 5))
        with served(vhost, tmp_path, SETTINGS) as (one,):
            async with client_of(one) as client, asyncio.timeout(200):
                while not (page := await told(client, "samples"))["queues"]:  # noqa: ASYNC110 -- nobody tells
                    await asyncio.sleep(1)
            names = {(queue["vhost"], queue["queue"]) for queue in page["queues"]}
            assert any(queue == "orders.dlq" for _, queue in names)
            assert all(place for place, _ in names), "each has its vhost"
            assert one.end() == 0
