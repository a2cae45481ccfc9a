"""Layouts that others declared before us, where a policy of ours would have no effect, or another's wins.

What is attacked: that a retry comes back because a delay was planned. One key that a queue's type does not
take makes a whole policy void on it, a TTL or a way that was declared cannot be changed by policy, and none
of it is told by the broker. Either the retry comes back, or it is refused or said before a message is taken.

About `core.topology.merging`, `consumer.queues.declared_layouts`.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests import postbox
from tests.brokers import Vhost, call
from tests.consuming import ASIDE, consumer, post, serving, until
from tests.serving import served

from deadletter import Message, fixed
from deadletter.core.topology.layout_names import LayoutName
from deadletter.errors import ServiceRefused

RETRY = {"x_dead_letter_exchange": "orders__retry_dlx"}


def library_before_us(vhost: Vhost, kind: str) -> None:
    """A retry library's own shape: rungs without a TTL, for each retry carried its own."""
    vhost.put("exchanges", "orders__retry_exchange", type="topic", durable=True)
    vhost.put("exchanges", "orders__retry_dlx", type="fanout", durable=True)
    postbox.declare(vhost.url, "orders", kind=kind)
    bind(vhost, "orders__retry_dlx", "orders", "")
    for n in (1, 2, 3):
        postbox.declare(vhost.url, f"orders__retry.{n}", kind=kind, **RETRY)
        bind(vhost, "orders__retry_exchange", f"orders__retry.{n}", f"orders__retry.{n}")


def bind(vhost: Vhost, exchange: str, queue: str, key: str) -> None:
    content = {"routing_key": key}
    call(vhost.broker, "POST", "bindings", vhost.name, "e", exchange, "q", queue, content=content)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_retries_of_a_library_that_was_there_before_come_back(vhost: Vhost, kind: str) -> None:
    library_before_us(vhost, kind)
    app = consumer(vhost, "ladder")
    seen: list[int] = []

    @app.queue("orders", layout="ladder", retries=3, backoff=fixed(0.3))
    async def handle(body: bytes, message: Message) -> None:
        seen.append(message.attempt)
        raise ConnectionError("the warehouse does not answer")

    async with serving(app):
        await post(vhost, b"one")
        await until(lambda: postbox.depth(vhost.url, ASIDE["ladder"]) == 1, "its retries are over")
    assert seen == [0, 1, 2, 3]


@pytest.mark.parametrize("layout", ["loop", "ladder"])
async def test_a_classic_queue_with_a_policy_of_ours_has_all_of_it(vhost: Vhost, layout: LayoutName) -> None:
    """Rejected letters of a classic queue die into the layout, although it takes no delivery limit."""
    postbox.declare(vhost.url, "orders", kind="classic")
    app = consumer(vhost, layout)
    seen: list[bytes] = []

    @app.queue("orders", layout=layout, retries=1, backoff=fixed(0.3))
    async def handle(body: bytes) -> None:
        seen.append(body)
        raise ConnectionError("the warehouse does not answer")

    async with serving(app):
        await post(vhost, b"one")
        await until(lambda: postbox.depth(vhost.url, ASIDE[layout]) == 1, "its retries are over")
    assert seen == [b"one", b"one"]


async def test_a_delay_that_leads_elsewhere_is_refused(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "orders", kind="quorum")
    postbox.declare(vhost.url, "elsewhere", kind="quorum")
    away = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "elsewhere"}
    postbox.declare(vhost.url, "orders.retry", kind="quorum", **away)
    app = consumer(vhost, "loop")

    @app.queue("orders", layout="loop", retries=1, backoff=fixed(0.3))
    async def handle(body: bytes) -> None:
        raise AssertionError("nothing may be taken")

    await post(vhost, b"one")
    with pytest.raises(ServiceRefused, match=r"orders\.retry.*elsewhere instead of orders"):
        await asyncio.wait_for(app.serve(), 60)
    assert postbox.depth(vhost.url, "orders") == 1


# -- the service ------------------------------------------------------------------------------------------
LEVELS = (
    "[guards.breaker]\nenabled = false\n"
    '[[watches]]\ndlq = "retry-queue"\nlayout = "levels"\ndelays = ["1s", "2s"]\n'
    '[[policies]]\nname = "all"\nmatch = { routing_key = "#" }\nretries = 2\n'
)


async def test_a_numbered_delay_that_was_declared_shorter_is_said(vhost: Vhost, tmp_path: Path) -> None:
    onwards = {"x_dead_letter_exchange": "retry-exchange-2", "x_dead_letter_routing_key": "retry.#.2"}
    postbox.declare(vhost.url, "queue.delay.2", kind="classic", x_message_ttl=500, **onwards)
    with served(vhost, tmp_path, LEVELS, start=False) as (one,):
        await asyncio.to_thread(one.start)
        found = one.get("/api/status")["findings"]
        assert any(
            f["rule"] == "argument-over-policy"
            and f["subject"] == "queue.delay.2"
            and "500 ms instead of 2 s" in f["why"]
            for f in found
        ), found


async def test_a_numbered_delay_that_leads_elsewhere_keeps_it_from_starting(
    vhost: Vhost, tmp_path: Path
) -> None:
    postbox.declare(vhost.url, "queue.delay.1", kind="classic", x_dead_letter_exchange="elsewhere")
    with served(vhost, tmp_path, LEVELS, start=False) as (one,):
        one.start(ready=False)
        assert await asyncio.to_thread(one.process.wait, 60) == 1
        assert "queue.delay.1" in one.said()
        assert "elsewhere instead of retry-exchange-1" in one.said()
