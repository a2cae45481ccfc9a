"""Stopping and standing still: an end within its grace whatever the broker does, and instances that freeze.

A broker that accepts nothing (a memory alarm), a broker that is frozen itself (SIGSTOP), the second signal;
an instance that is frozen while it holds letters, and wakes up again.

About `service.running`, `service.task_set`, `cli.serve_command`.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests import postbox
from tests.brokers import Vhost
from tests.letters import letters
from tests.serving import Application, Served

from deadletter.amqp.channel import Delivery
from deadletter.testing.node.private import PrivateBroker

GRACE_S = 4
SLACK_S = 40
"""For a loaded machine; the code that waited for answers took a minute more than its grace."""
COUNT = 200
POLICY = (
    '[default_policy]\nretries = 3\nbackoff = { kind = "fixed", delays = ["100ms"] }\n'
    '[[watches]]\ndlq = "*.dlq"\n[guards.breaker]\nenabled = false\n'
)


@contextmanager
def serving(vhost: Vhost, home: Path, more: str, *, instances: int = 1) -> Iterator[list[Served]]:
    """Instances with these lines in [serve]."""
    found = [Served(vhost, home, POLICY, name=f"s{n}") for n in range(instances)]
    for one in found:
        head = f'[serve]\nlisten = "127.0.0.1:{one.port}"\nname = "{one.name}"\nsurvey = "1s"\n'
        one.write(f"{head}{more}{POLICY}")
    try:
        for one in found:
            one.start(ready=False)
        for one in found:
            one.until_ready()
        yield found
    finally:
        for one in found:
            if one.process.poll() is None:
                one.process.send_signal(signal.SIGCONT)
            one.close()


@contextmanager
def alarm(broker: PrivateBroker) -> Iterator[None]:
    """The broker has no memory left, and takes nothing from publishers."""
    broker.rabbitmqctl("set_vm_memory_high_watermark", "0.00001")
    try:
        yield
    finally:
        broker.rabbitmqctl("set_vm_memory_high_watermark", "0.4")


@contextmanager
def frozen(broker: PrivateBroker) -> Iterator[None]:
    """The broker's process stands still: its sockets stay open and nobody answers."""
    (pid,) = [int(one.name) for one in Path("/proc").glob("[0-9]*") if _is_node(one, broker)]
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


def _is_node(process: Path, broker: PrivateBroker) -> bool:
    try:
        name = (process / "comm").read_text().strip()
        environment = (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return name == "beam.smp" and f"RABBITMQ_NODENAME={broker.node}".encode() in environment


async def until(holds: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    for _ in range(int(seconds / 0.1)):
        if await asyncio.to_thread(holds):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"not within {seconds} s: {what}")


class Hands:
    """Takes letters of `orders` and holds them, to let them die at a word: a broker in alarm takes none."""

    def __init__(self, app: Application) -> None:
        self._app = app
        self.tags: list[int] = []

    async def take(self, bodies: int) -> None:
        self.channel = await self._app.connection.channel()
        await self.channel.consume("orders", lambda delivery: self.tags.append(delivery.tag), lambda: None)
        await self._app.publish("", "orders", letters("n", bodies))
        await self._app.until(lambda: len(self.tags) == bodies, 60, "in hand")

    def let_die(self) -> None:
        for tag in self.tags:
            self.channel.reject(tag, requeue=False)


def under_way(vhost: Vhost, queue: str) -> int:
    return int((vhost.get("queues", queue) or {}).get("messages_unacknowledged", 0))


def everything(vhost: Vhost) -> Counter[bytes]:
    found: Counter[bytes] = Counter()
    for queue in vhost.list("queues"):
        if not queue.get("exclusive"):
            found += Counter(post.body for post in postbox.drain(vhost.url, queue["name"]))
    return found


@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_the_end_in_a_memory_alarm_keeps_to_its_grace(vhost: Vhost, tmp_path: Path, kind: str) -> None:
    async with Application(vhost.url) as app:
        await app.with_dlq("orders", kind=kind)
        hands = Hands(app)
        await hands.take(COUNT)
        with serving(vhost, tmp_path, f'grace = "{GRACE_S}s"\n') as (one,), alarm(vhost.broker):
            hands.let_die()
            await until(lambda: under_way(vhost, "orders.dlq") > 0, "letters under way")
            assert await asyncio.to_thread(one.end, GRACE_S + SLACK_S) == 0
            assert "by force" not in one.log.read_text()
    found = await asyncio.to_thread(everything, vhost)
    assert set(found) == {b"n-%d" % n for n in range(COUNT)}, "letters are lost"


async def test_the_end_while_the_broker_is_frozen_keeps_to_its_grace(vhost: Vhost, tmp_path: Path) -> None:
    async with Application(vhost.url) as app:
        await app.with_dlq("orders")
        hands = Hands(app)
        await hands.take(COUNT)
        with serving(vhost, tmp_path, f'grace = "{GRACE_S}s"\n') as (one,):
            hands.let_die()
            await app.until(lambda: True, 120)
            with frozen(vhost.broker):
                assert await asyncio.to_thread(one.end, GRACE_S + SLACK_S) == 0
                assert "by force" not in one.log.read_text()
    found = await asyncio.to_thread(everything, vhost)
    assert set(found) == {b"n-%d" % n for n in range(COUNT)}, "letters are lost"


async def test_the_second_signal_ends_it_at_once(vhost: Vhost, tmp_path: Path) -> None:
    async with Application(vhost.url) as app:
        await app.with_dlq("orders")
        hands = Hands(app)
        await hands.take(COUNT)
        with serving(vhost, tmp_path, 'grace = "20min"\n') as (one,), alarm(vhost.broker):
            hands.let_die()
            await until(lambda: under_way(vhost, "orders.dlq") > 0, "letters under way")
            one.process.send_signal(signal.SIGTERM)
            await until(lambda: "stopping" in one.log.read_text(), "it is about to end")
            one.process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(one.process.wait, SLACK_S) == -signal.SIGTERM
    found = await asyncio.to_thread(everything, vhost)
    assert set(found) == {b"n-%d" % n for n in range(COUNT)}, "letters are lost"


@pytest.mark.slow
@pytest.mark.kills
@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_what_a_frozen_instance_holds_goes_to_the_others(
    vhost: Vhost, tmp_path: Path, kind: str
) -> None:
    """With the settings nobody changed: after two to three heartbeats of ten seconds."""

    def second_time(_delivery: Delivery, times: int) -> bool:
        return times > 1

    async with Application(vhost.url) as app:
        await app.with_dlq("orders", kind=kind)
        with serving(vhost, tmp_path, "", instances=2) as (one, other):
            await app.consume("orders", second_time)
            one.process.send_signal(signal.SIGSTOP)
            await app.publish("", "orders", letters("n", 1000))
            await app.until(
                lambda: len(app.handled["orders"]) == 1000, 45, "what it held is with the other one"
            )
            one.process.send_signal(signal.SIGCONT)
            await asyncio.to_thread(one.until_ready)
            await app.publish("", "orders", letters("more", 1000))
            await app.until(lambda: len(app.handled["orders"]) == 2000, 120, "both go on")
            await until(lambda: app.seen.total() >= 4000, "all of them twice")
            assert app.seen.total() <= 4000 + 1000, "more copies than were in hand"
            assert await asyncio.to_thread(one.end) == 0
            assert await asyncio.to_thread(other.end) == 0
        for queue in ("orders", "orders.dlq", "deadletter.due", "deadletter.parked"):
            assert await app.depth(queue) == 0
