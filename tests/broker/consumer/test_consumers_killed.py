"""Consumers that die: processes of their own, killed by the message they handle, or told to end.

A handler sends its own process SIGKILL, as the kernel does when memory runs out: no goodbye, and everything
that was in hand goes back.

About `consumer.queues.suspicion`, `consumer.handlers.calling`, `consumer.queues.hand`.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests import postbox
from tests.brokers import Vhost
from tests.consuming import ASIDE, declare_orders, on_this_broker

from deadletter.core.letter import names
from deadletter.core.topology.layout_names import LayoutName
from deadletter.testing.node.private import PrivateBroker

DEADLY = """
import asyncio, os, signal, sys
from deadletter import Consumer, fixed

url, api, layout, log, prefetch = sys.argv[1:6]
app = Consumer(url, api=api, grace=20)

@app.queue(
    "orders", layout=layout, retries=2, backoff=fixed(1), deliveries=4, concurrency=5, prefetch=int(prefetch)
)
async def handle(body: bytes) -> None:
    with open(log, "ab", buffering=0) as file:
        file.write(body + b"\\n")
    await asyncio.sleep(0.01)
    if body == b"poison":
        os.kill(os.getpid(), signal.SIGKILL)

app.run()
"""
HANGING = """
import sys, time
from deadletter import Consumer, fixed

url, api, layout, log = sys.argv[1:5]
app = Consumer(url, api=api, grace=0.5)

@app.queue("orders", layout=layout, concurrency=2, backoff=fixed(1))
def handle(body: bytes) -> None:
    with open(log, "ab", buffering=0) as file:
        file.write(body + b"\\n")
    time.sleep(600)

app.run()
"""
GOOD = [b"good%d" % n for n in range(30)]


@contextmanager
def running(program: str, vhost: Vhost, layout: str, *arguments: object) -> Iterator[subprocess.Popen[bytes]]:
    words = [vhost.url, vhost.api, layout, *map(str, arguments)]
    process = subprocess.Popen([sys.executable, "-c", program, *words])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def deaths_until(
    done: Callable[[], bool], vhost: Vhost, layout: str, log: Path, *, prefetch: int = 100
) -> int:
    """How often it was killed, started again each time, until it was done and could be ended."""
    for deaths in range(12):
        with running(DEADLY, vhost, layout, log, prefetch) as process:
            while process.poll() is None:
                if done():
                    process.send_signal(signal.SIGTERM)
                    # It may be done before this start has come to its handlers of signals.
                    assert process.wait(60) in (0, -signal.SIGTERM)
                    return deaths
                time.sleep(0.1)
            assert process.returncode == -signal.SIGKILL
    raise AssertionError("it died too often")


def filled(vhost: Vhost, layout: str, kind: str = "quorum") -> None:
    if kind == "quorum":
        declare_orders(vhost, layout)
    elif layout == "external":
        postbox.declare(vhost.url, "orders.dlq")
        dead = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "orders.dlq"}
        postbox.declare(vhost.url, "orders", kind=kind, **dead)
    else:
        postbox.declare(vhost.url, "orders", kind=kind)
    postbox.fill(vhost.url, "orders", [*GOOD[:10], b"poison", *GOOD[10:]], dead=False)


def nothing_left(vhost: Vhost) -> None:
    for queue in [found["name"] for found in vhost.list("queues")]:
        assert postbox.depth(vhost.url, queue) == 0, queue


@pytest.mark.parametrize(
    ("kind", "layout"),
    [
        ("classic", "ladder"),
        ("quorum", "return"),
        ("quorum", "loop"),
        ("quorum", "external"),
        pytest.param("quorum", "ladder", marks=pytest.mark.slow),
        pytest.param("classic", "return", marks=pytest.mark.slow),
        pytest.param("classic", "external", marks=pytest.mark.slow),
    ],
)
def test_one_message_that_kills_is_put_aside_and_takes_no_neighbour(
    vhost: Vhost, tmp_path: Path, kind: str, layout: LayoutName
) -> None:
    filled(vhost, layout, kind)
    aside = ASIDE[layout]
    log = tmp_path / "handled"
    log.touch()

    def done() -> bool:
        return set(log.read_bytes().split()) >= set(GOOD) and postbox.depth(vhost.url, aside) > 0

    assert deaths_until(done, vhost, layout, log) == 4
    parked = postbox.drain(vhost.url, aside, expect=1)
    assert [post.body for post in parked] == [b"poison"]
    assert parked[0].headers[names.ID]
    if layout == "external":  # it is rejected, and the broker writes down no more than that
        assert parked[0].headers[names.X_DEATH][0]["reason"] == "rejected"
        assert parked[0].headers[names.DELIVERIES] == 3
    else:
        assert parked[0].headers[names.CAUSE] == "killed-its-consumer"
    handled = Counter(log.read_bytes().split())
    assert set(handled) == {*GOOD, b"poison"}
    assert handled[b"poison"] == 4
    nothing_left(vhost)


@pytest.mark.parametrize("prefetch", [1, 100])
def test_with_native_the_broker_ends_it_and_with_it_who_was_in_hand_too_often(
    vhost: Vhost, tmp_path: Path, broker: PrivateBroker, prefetch: int
) -> None:
    """There a death is a retry, for all that was in hand. With one message in hand it takes no neighbour."""
    on_this_broker("native", broker)
    filled(vhost, "native")
    log = tmp_path / "handled"
    log.touch()

    def done() -> bool:
        found = vhost.get("queues", "orders")
        return bool(vhost.depth("orders.dlq")) and found is not None and found.get("messages") == 0

    assert deaths_until(done, vhost, "native", log, prefetch=prefetch) == 3  # one and two retries
    dead = postbox.drain(vhost.url, "orders.dlq", expect=1)
    assert all(post.headers[names.X_DEATH][0]["reason"] == "delivery_limit" for post in dead)
    handled = Counter(log.read_bytes().split())
    assert handled[b"poison"] == 3
    bodies = Counter(post.body for post in dead)
    assert bodies[b"poison"] == 1
    assert max(bodies.values()) == 1
    assert set(bodies) | set(handled) == {*GOOD, b"poison"}  # nobody vanished
    if prefetch == 1:
        assert set(bodies) == {b"poison"}
        assert set(handled) == {*GOOD, b"poison"}
    nothing_left(vhost)


@pytest.mark.parametrize("layout", ["return", "ladder", "loop", "native", "external"])
def test_a_thread_that_hangs_does_not_keep_the_process_and_its_message_goes_back(
    vhost: Vhost, tmp_path: Path, broker: PrivateBroker, layout: LayoutName
) -> None:
    on_this_broker(layout, broker)
    declare_orders(vhost, layout)
    bodies = [b"%d" % n for n in range(5)]
    postbox.fill(vhost.url, "orders", bodies, dead=False)
    log = tmp_path / "handled"
    log.touch()
    with running(HANGING, vhost, layout, log) as process:
        while len(log.read_bytes().split()) < 2:
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    begun = log.read_bytes().split()
    assert len(begun) == 2
    left = postbox.drain(vhost.url, "orders", expect=5)
    assert sorted(post.body for post in left) == bodies
    assert {post.body for post in left if post.redelivered} >= set(begun)
    nothing_left(vhost)
