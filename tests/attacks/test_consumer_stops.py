"""An orderly stop, a health pause, a queue of our own that goes: what was handled to its end comes no more.

A process of its own works through a queue and is told to end in the middle of it, again and again. Each line
of its log is one handler that came to its end, written before it returned. Succeeding handlers: no body has
two lines. Failing ones: none has two lines with the same attempt, and none was retried and is in its queue
as well.

About `consumer.app`, `consumer.serving`, `consumer.signals`, `consumer.queues.hand`,
`consumer.queues.health_wait`.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from tests import consuming, postbox
from tests.brokers import Vhost
from tests.consuming import until

from deadletter import Consumer
from deadletter.consumer import serving
from deadletter.consumer.events import Event, Paused
from deadletter.consumer.queues.health_wait import HealthWait

WORKING = """
import asyncio, os, sys
from deadletter import Consumer, Message, fixed

url, api, layout, log, fails = sys.argv[1:6]
app = Consumer(url, api=api, grace=20)
file = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)

@app.queue("orders", layout=layout, retries=3, backoff=fixed(600), concurrency=10, prefetch=200)
async def handle(body: bytes, message: Message) -> None:
    await asyncio.sleep(0.005)
    os.write(file, body + b" %d\\n" % message.attempt)
    if fails == "fails":
        raise ValueError("not today")

app.run()
"""
STOPS = 10
LETTERS = 10_000


@contextmanager
def working(vhost: Vhost, layout: str, log: Path, fails: str) -> Iterator[subprocess.Popen[bytes]]:
    words = [vhost.url, vhost.api, layout, str(log), fails]
    process = subprocess.Popen([sys.executable, "-c", WORKING, *words])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def ended(log: Path) -> list[tuple[bytes, ...]]:
    return [tuple(line.split()) for line in log.read_bytes().splitlines()]


def stopped_in_the_middle(vhost: Vhost, layout: str, log: Path, fails: str) -> None:
    before = len(ended(log))
    with working(vhost, layout, log, fails) as process:
        deadline = time.monotonic() + 120
        while len(ended(log)) < before + 300:
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.005)
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) == 0


@pytest.mark.slow
@pytest.mark.kills
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("kind", "fails", "layout"),
    [
        ("quorum", "succeeds", "ladder"),
        ("quorum", "fails", "ladder"),
        ("quorum", "fails", "external"),
        ("classic", "succeeds", "ladder"),
        ("classic", "fails", "ladder"),
    ],
)
def test_what_was_handled_before_an_orderly_stop_does_not_come_again(
    vhost: Vhost, tmp_path: Path, kind: str, fails: str, layout: str
) -> None:
    log = tmp_path / "ended"
    log.touch()
    dead = {}
    if layout == "external":
        postbox.declare(vhost.url, "orders.dlq", kind=kind)
        dead = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "orders.dlq"}
    postbox.declare(vhost.url, "orders", kind=kind, **dead)
    postbox.fill(vhost.url, "orders", [b"%d" % n for n in range(LETTERS)], dead=False)
    for _ in range(STOPS):
        stopped_in_the_middle(vhost, layout, log, fails)
    found = Counter(ended(log))
    assert {line: count for line, count in found.items() if count > 1} == {}
    handled = {body for body, _ in found}
    left = [post.body for post in postbox.drain(vhost.url, "orders", expect=LETTERS - len(handled))]
    assert not handled & set(left)
    assert len(left) == len(set(left))
    aside = {"fails ladder": "orders__retry.1", "fails external": "orders.dlq"}.get(f"{fails} {layout}")
    went = [] if aside is None else [post.body for post in postbox.drain(vhost.url, aside)]
    assert len(went) == len(set(went))
    assert set(left) | (set(went) if aside else handled) == {b"%d" % n for n in range(LETTERS)}


@pytest.mark.parametrize("kind", ["quorum", "classic"])
async def test_one_stop_in_the_middle_of_much_work(vhost: Vhost, kind: str) -> None:
    """The quick one: many short handlers, and an end while hundreds of acks are on their way."""
    postbox.declare(vhost.url, "orders", kind=kind)
    await asyncio.to_thread(postbox.fill, vhost.url, "orders", [b"%d" % n for n in range(4000)], dead=False)
    handled: Counter[bytes] = Counter()
    for _ in range(4):
        app = Consumer(vhost.url, api=vhost.api)

        @app.queue("orders", layout="ladder", prefetch=300, concurrency=50)
        async def handle(body: bytes) -> None:
            await asyncio.sleep(0.005)
            handled[body] += 1

        begun = handled.total()
        async with consuming.serving(app):
            await until(lambda begun=begun: handled.total() >= begun + 300, "some hundreds")  # type: ignore[misc]
    left = await asyncio.to_thread(postbox.drain, vhost.url, "orders", expect=4000 - len(handled))
    assert [body for body, count in handled.items() if count > 1] == []
    assert not set(handled) & {post.body for post in left}
    assert len(left) + len(handled) == 4000


async def test_a_health_check_that_flaps_makes_nothing_twice(
    vhost: Vhost, monkeypatch: pytest.MonkeyPatch
) -> None:
    postbox.declare(vhost.url, "orders", kind="quorum", x_delivery_limit=200)
    bodies = [b"%d" % n for n in range(4000)]
    await asyncio.to_thread(postbox.fill, vhost.url, "orders", bodies, dead=False)
    handled: Counter[bytes] = Counter()
    events: list[Event] = []
    app = Consumer(vhost.url, api=vhost.api)
    app.listen(events.append)
    noes = 0

    async def health() -> bool:
        """After some hundred messages twice no: the second makes it a pause that is told."""
        nonlocal noes
        noes -= noes > 0
        return not noes

    @app.queue("orders", layout="ladder", prefetch=100, concurrency=50, health=health)
    async def handle(body: bytes) -> None:
        await asyncio.sleep(0.005)
        nonlocal noes
        handled[body] += 1
        if handled.total() % 800 == 0:
            noes = 3

    monkeypatch.setattr(serving, "HealthWait", partial(HealthWait, every_s=0.01, pause_s=0.01))
    async with consuming.serving(app):
        await until(lambda: len(handled) == len(bodies), "all of them")
    assert [body for body, count in handled.items() if count > 1] == []
    assert sum(isinstance(event, Paused) for event in events) >= 3
    assert await consuming.depth(vhost, "orders") == 0
