"""The checker for cron: `dlq.*` to `dead.*`, or everything to one queue for permanent failures.

A main queue dies into its dead-letter queue, which sends back after a while; what died too often is moved
aside. The targets are made by us, or are there before us.

About `operations.checking`, `cli.check_command`, `core.topology.queue_patterns`.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import closing

import pika
import pytest
from tests import postbox
from tests.brokers import Vhost
from tests.commanding import command

MAX = 2
WAIT_MS = 300


def declare(vhost: Vhost, name: str, kind: str) -> None:
    """`name` dies into `dlq.name`, which sends back: how long it waits, a policy says."""
    back = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": name}
    postbox.declare(vhost.url, f"dlq.{name}", kind=kind, **back)
    into = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": f"dlq.{name}"}
    postbox.declare(vhost.url, name, kind=kind, **into)


def fail(vhost: Vhost, name: str, times: int) -> None:
    """Its consumer rejects a message so often; in between it waits and comes back. Then it stays where it
    is, dead: the policy is gone, and with it the TTL of what dies from now on."""
    vhost.put("policies", "wait", pattern=r"^dlq\.", definition={"message-ttl": WAIT_MS}, priority=1)
    with closing(pika.BlockingConnection(pika.URLParameters(vhost.url))) as connection:
        channel = connection.channel()
        channel.basic_publish("", name, name.encode(), pika.BasicProperties(delivery_mode=2))
        for number in range(times):
            postbox.wait_for(lambda: postbox.depth_of(channel, name) == 1, f"{name}, the {number + 1}. time")
            if number == times - 1:
                vhost.delete("policies", "wait")
            method, _, _ = channel.basic_get(name)
            channel.basic_reject(method.delivery_tag, requeue=False)
        since = time.monotonic()
        while time.monotonic() - since < 3 * WAIT_MS / 1000:  # the policy may go a moment later than we asked
            method, _, _ = channel.basic_get(name)
            if method is not None:
                channel.basic_reject(method.delivery_tag, requeue=False)
                since = time.monotonic()
            time.sleep(0.05)
        postbox.wait_for(lambda: postbox.depth_of(channel, f"dlq.{name}") == 1, "it is dead")


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@pytest.mark.parametrize("target", ["dead.*", "permanent_failure_queue"])
def test_what_died_too_often_is_put_aside(vhost: Vhost, kind: str, target: str) -> None:
    """Made by us where the target is a pattern, made before us where it is one queue."""
    ours = target == "dead.*"
    for name in ("orders", "users"):
        declare(vhost, name, kind)
    if not ours:
        postbox.declare(vhost.url, target, kind=kind)
    fail(vhost, "orders", MAX + 1)
    fail(vhost, "users", 1)
    told = command(
        *("check", "--dlq", "dlq.*", "--target", target, "--max-retries", str(MAX), "--json"),
        *(["--create"] if ours else []),
        environment={**os.environ, "DLQ_URL": vhost.url, "DLQ_API": vhost.api},
    )
    assert told.returncode == 0, told.stderr
    found = {queue["queue"]: queue for queue in json.loads(told.stdout)["queues"]}
    assert {name: (one["seen"], one["moved"], one["left"]) for name, one in found.items()} == {
        "dlq.orders": (1, 1, 0),
        "dlq.users": (1, 0, 1),
    }
    (letter,) = postbox.drain(vhost.url, "dead.orders" if ours else target, expect=1)
    assert (letter.body, letter.properties.delivery_mode) == (b"orders", 2)
    rejected = [death for death in letter.headers["x-death"] if death["reason"] == "rejected"]
    assert [(death["queue"], death["count"]) for death in rejected] == [("orders", MAX + 1)]
    assert [post.body for post in postbox.drain(vhost.url, "dlq.users", expect=1)] == [b"users"]
