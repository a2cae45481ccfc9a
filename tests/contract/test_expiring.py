"""`x-expires`: a queue that nobody uses goes, with all it holds and without a word.

About `testing.memory.contents.queues`, `testing.memory.contents.queue_rules`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.contract.ground import Ground
from tests.contract.test_dying import TO_DLQ

from deadletter.amqp.channel import Channel, Delivery
from deadletter.core.letter.field_table import Value
from deadletter.errors import NotFound

KINDS = pytest.mark.parametrize("kind", ["classic", "quorum"])
EXPIRES_MS = 4_000
BEAT_S = 0.4

Ask = Callable[[Channel, str], Awaitable[object]]


def arguments(kind: str) -> dict[str, Value]:
    return {"x-queue-type": kind, **TO_DLQ, "x-expires": EXPIRES_MS}


USES: dict[str, Ask] = {
    "get": lambda channel, _: channel.get("q"),
    "declare": lambda channel, kind: channel.declare_queue("q", arguments=arguments(kind)),
    "passive": lambda channel, _: channel.declare_queue("q", passive=True),
}


@KINDS
async def test_what_nobody_uses_is_gone_with_all_it_holds(ground: Ground, kind: str) -> None:
    await ground.declare("dlq")
    await ground.declare("q", kind, arguments(kind))
    await ground.put("q", b"1", b"2")
    await ground.gone("q")
    assert len((await ground.put("q", b"3")).returned) == 1
    assert await ground.depth("dlq") == 0  # the queue expires, not its messages: nothing is dead-lettered


@KINDS
@pytest.mark.parametrize("use", USES)
async def test_what_keeps_a_queue(ground: Ground, kind: str, use: str) -> None:
    """To declare it again keeps a classic queue, but no quorum queue."""
    await ground.declare("q", kind, arguments(kind))
    held = 0 if use == "get" else 1
    if held:
        await ground.put("q", b"1")  # a queue that was made anew has none
    channel = await ground.channel()
    for _ in range(int(1.5 * EXPIRES_MS / 1000 / BEAT_S)):
        await asyncio.sleep(BEAT_S)
        try:
            await USES[use](channel, kind)
        except NotFound:
            break
    kept = "q" in ground.site.queues() and await ground.depth("q") == held
    assert kept is (kind == "classic" or use == "get")


@KINDS
async def test_publishing_and_binding_do_not_keep_a_queue(ground: Ground, kind: str) -> None:
    await ground.declare("q", kind, arguments(kind))
    channel = await ground.channel()
    for number in range(int(4 * EXPIRES_MS / 1000 / BEAT_S)):
        if "q" not in ground.site.queues():
            break
        await ground.put("q", b"1", mandatory=False)
        if number == 1:
            await channel.bind_queue("q", "amq.topic", "k")
        await asyncio.sleep(BEAT_S)
    assert "q" not in ground.site.queues()


@KINDS
async def test_a_consumer_keeps_a_queue_until_it_leaves(ground: Ground, kind: str) -> None:
    await ground.declare("q", kind, arguments(kind))
    channel = await ground.channel()
    tag = await channel.consume("q", print, print)
    await asyncio.sleep(1.5 * EXPIRES_MS / 1000)
    assert "q" in ground.site.queues()
    await channel.cancel(tag)
    await ground.gone("q")


@KINDS
async def test_a_message_in_somebodys_hands_keeps_a_quorum_queue_only(ground: Ground, kind: str) -> None:
    await ground.declare("q", kind, arguments(kind))
    await ground.put("q", b"1")
    channel = await ground.channel()
    held: Delivery = await ground.take(channel, "q")
    if kind == "classic":
        await ground.gone("q")
        return
    await asyncio.sleep(1.5 * EXPIRES_MS / 1000)
    assert "q" in ground.site.queues()
    channel.nack(held.tag, requeue=True)
    await ground.gone("q")
