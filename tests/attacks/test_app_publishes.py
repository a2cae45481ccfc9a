"""An application that publishes, killed with -9 at the worst moments, and refused by its broker.

Between a handler's publish and its ack: what it published is there twice at most, under one id. Between the
commit of its transaction and the publish: it is published by whoever has the message next, and the handler
does not run again. A body that the broker does not take, a right that is missing: told, and nobody else
suffers.

About `consumer.publishing.publisher`, `consumer.publishing.mailing`, `consumer.handlers.once`.
"""

from __future__ import annotations

import asyncio
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest
from tests import postbox
from tests.brokers import Vhost, call
from tests.consuming import serving, until

from deadletter import Consumer, Message
from deadletter.core.topology.rabbitmq_versions import version_of
from deadletter.errors import PublishRefused

MESSAGES = 12
DEADLY = 4
"""So many of them kill their process once."""
SCRIPT = """
import os, signal, sys
from contextlib import asynccontextmanager
from pathlib import Path

from deadletter import Consumer, Message, StoreIds, Transaction

url, api, folder, kind = sys.argv[1:]
app = Consumer(url, api=api)


def die_once(name: str) -> None:
    if int(name) < 4 and not (mark := Path(folder, f"died-{name}")).exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)


class Dying(StoreIds):
    @asynccontextmanager
    async def transaction(self, queue, key):
        async with super().transaction(queue, key) as transaction:
            yield transaction
        die_once(key)


ids = Dying(f"sqlite:///{folder}/shop.db")


async def published(body: str, message: Message) -> None:
    await message.publish({"of": body}, key="out")
    die_once(body)


async def transacted(body: str, message: Message, transaction: Transaction) -> None:
    await transaction.execute("CREATE TABLE IF NOT EXISTS paid (id text)")
    await transaction.execute("INSERT INTO paid VALUES (:id)", {"id": body})
    await message.publish({"of": body}, key="out")


if kind == "transacted":
    app.queue("orders", idempotent=ids)(transacted)
else:
    app.queue("orders")(published)
app.run()
"""


def live_until_done(vhost: Vhost, folder: Path, kind: str) -> int:
    """As a supervisor does: started again whenever it dies; returns how often that was."""
    script, deaths = folder / "app.py", 0
    script.write_text(SCRIPT)
    deadline = time.monotonic() + 150
    while True:
        process = subprocess.Popen([sys.executable, script, vhost.url, vhost.api, str(folder), kind])
        try:
            while process.poll() is None:
                assert time.monotonic() < deadline
                if postbox.depth(vhost.url, "out") >= MESSAGES and deaths == DEADLY:
                    left = vhost.get("queues", "orders") or {}
                    if not left.get("messages"):
                        process.terminate()
                        process.wait(60)
                        return deaths
                time.sleep(0.1)
        finally:
            process.kill()
            process.wait()
        assert process.returncode == -signal.SIGKILL
        deaths += 1


@pytest.mark.slow
@pytest.mark.kills
@pytest.mark.parametrize("kind", ["published", "transacted"])
def test_killed_at_the_worst_moment(vhost: Vhost, tmp_path: Path, kind: str) -> None:
    postbox.declare(vhost.url, "out", kind="quorum")
    postbox.declare(vhost.url, "orders", kind="quorum")
    app = Consumer(vhost.url)

    async def fill() -> None:
        async with app.publishing():
            for n in range(MESSAGES):
                await app.publish(str(n), key="orders", message_id=str(n))

    asyncio.run(fill())
    assert live_until_done(vhost, tmp_path, kind) == DEADLY
    found = postbox.drain(vhost.url, "out")
    copies = Counter((post.properties.message_id, post.body) for post in found)
    assert {body for _, body in copies} == {b'{"of":"%d"}' % n for n in range(MESSAGES)}
    assert len(copies) == MESSAGES, "copies of one message have one id"
    if kind == "transacted":
        with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
            paid = [row[0] for row in database.execute("SELECT id FROM paid")]
            assert database.execute("SELECT count(*) FROM deadletter_outbox").fetchone() == (0,)
        assert sorted(map(int, paid)) == list(range(MESSAGES)), "each handler's effect is there once"


async def test_a_body_too_large_for_the_broker_is_refused_alone(vhost: Vhost) -> None:
    done: list[int] = []
    app = Consumer(vhost.url, api=vhost.api)

    @app.queue("orders")
    async def handle(body: bytes, message: Message) -> None:
        done.append(len(body))

    huge = b"x" * (17 * 2**20)
    async with serving(app):
        if version_of(vhost.broker.version) >= (4, 0):
            with pytest.raises(PublishRefused, match="size"):
                await app.publish(huge, key="orders")
        else:
            await app.publish(huge, key="orders")
            await until(lambda: done == [len(huge)], "the large one")
        await app.publish(b"small", key="orders")
        await until(lambda: done[-1:] == [5], "the small one")


async def test_a_right_that_is_missing_is_told_and_the_consumer_goes_on(vhost: Vhost) -> None:
    """A user that may write to nothing but what its layout needs."""
    done: list[bytes] = []
    call(vhost.broker, "PUT", "users", "shy", content={"password": "shy", "tags": "monitoring,policymaker"})
    rights = {"configure": ".*", "write": r"^(amq\.default|deadletter.*|orders.*)?$", "read": ".*"}
    call(vhost.broker, "PUT", "permissions", vhost.name, "shy", content=rights)
    owner = Consumer(vhost.url)
    owner.exchange("closed", type="fanout")
    async with owner.publishing():
        await owner.publish(b"", exchange="closed", mandatory=False)
    host = vhost.url.rpartition("@")[2]
    app = Consumer(f"amqp://shy:shy@{host}", api=vhost.api)

    @app.queue("orders")
    async def handle(body: bytes, message: Message) -> None:
        with pytest.raises(PublishRefused, match="may not write there"):
            await message.publish(b"x", exchange="closed")
        done.append(body)

    try:
        async with serving(app):
            for n in range(5):
                await app.publish(b"%d" % n, key="orders")
            await until(lambda: len(done) == 5, "all of them")
    finally:
        call(vhost.broker, "DELETE", "users", "shy")
