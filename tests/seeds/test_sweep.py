"""One owner for every dead-letter queue: `bot_events` and `notification_queue` behind `game_scheduler`.

A message is rejected, waits in its dead-letter queue, is swept back, and parked when it goes on failing: with
dead-letter queues made by us, one for each queue; and with the topology the document ends with, where both
die into one fanout and every death makes a copy in the other's dead-letter queue. There each still comes
back to its own queue alone, and what the fanout makes is said.

About `core.layouts.sweeping`, `service.sweeps`.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest
from tests.broker.service.test_sweep_service import (
    DLQS,
    EXCHANGE,
    KEYS,
    NO_BREAKER,
    letter,
    never,
    parked,
    sweeping,
)
from tests.brokers import Vhost
from tests.commanding import command
from tests.postbox import Post
from tests.serving import Application, served

from deadletter.core.letter import names

HOUR_MS = 3_600_000
RETRIES = 2
BINDINGS = {"bot_events": ("game.*", "guild.*", "channel.*"), "notification_queue": ("notification.send_dm",)}


async def dlq(vhost: Vhost, *arguments: str) -> str:
    where = {**os.environ, "DLQ_URL": vhost.url, "DLQ_API": vhost.api}
    told = await asyncio.to_thread(command, *arguments, environment=where)
    assert told.returncode in (0, 1), told.stderr
    return told.stdout


async def declare_all(app: Application) -> None:
    """As the document has it after its clean-up."""
    await app.channel.declare_exchange("game_scheduler.dlx", "fanout")
    for queue in KEYS:
        await app.channel.declare_queue(f"{queue}.dlq")
        await app.channel.bind_queue(f"{queue}.dlq", "game_scheduler.dlx")
        await app.channel.declare_queue(
            queue, arguments={"x-message-ttl": HOUR_MS, "x-dead-letter-exchange": "game_scheduler.dlx"}
        )


@pytest.mark.parametrize("made_by", ["us", "the document"])
async def test_it_fails_waits_comes_back_and_is_parked(vhost: Vhost, tmp_path: Path, made_by: str) -> None:
    async with Application(vhost.url) as app:
        await app.channel.declare_exchange(EXCHANGE, "topic")
        if made_by == "the document":
            await declare_all(app)
        else:
            for queue in KEYS:
                await app.declare(queue)  # of the document's own application; what it dies into is ours
                await dlq(vhost, "topology", "apply", "--queue", queue, "--layout", "sweep")
        for queue, keys in BINDINGS.items():
            for key in keys:
                await app.channel.bind_queue(queue, EXCHANGE, key)
        await app.consume("bot_events", never)
        await app.consume("notification_queue", lambda _d, count: count > 1)
        told = sweeping(retries=RETRIES, more=NO_BREAKER)
        with served(vhost, tmp_path, told) as (one,):
            for queue, key in KEYS.items():
                await app.publish(EXCHANGE, key, [letter(queue.encode())])
            await app.until(
                lambda: (
                    app.seen["bot_events", b"bot_events"] == RETRIES + 1
                    and app.seen["notification_queue", b"notification_queue"] == 2
                ),
                120,
                "failed for good, and handled",
            )
            found: list[Post] = []
            while not any(post.headers[names.CAUSE] == "retries-exhausted" for post in found):
                found += await parked(vhost, 1)
            assert set(app.seen) == {(queue, queue.encode()) for queue in KEYS}, "a letter was in the other"
            failed = [post for post in found if post.headers[names.CAUSE] == "retries-exhausted"]
            assert {post.body for post in failed} == {b"bot_events"}
            assert {post.headers[names.ORIGIN_QUEUE] for post in failed} == {"bot_events"}
            shared = {
                told["subject"]
                for told in one.get("/api/status")["findings"]
                if told["rule"] == "shared-dlx-fanout"
            }
            others = {post.headers[names.CAUSE] for post in found if post not in failed}
        if made_by == "us":
            assert (shared, others) == (set(), set())
        else:
            assert (shared, others) == (set(KEYS), {"copied-by-fanout"})
            findings = json.loads(await dlq(vhost, "doctor", "--json"))["vhosts"][0]["findings"]
            assert "shared-dlx-fanout" in {finding["rule"] for finding in findings}
    assert set(DLQS) <= {queue["name"] for queue in vhost.list("queues")}
