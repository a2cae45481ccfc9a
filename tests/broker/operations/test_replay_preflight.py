"""The look before a replay, on a real broker: what is there, who else gets it, what is in the way.

About `operations.replays.preflight`, `core.replaying.preflight`.
"""

from __future__ import annotations

import pytest
from tests.brokers import Vhost
from tests.serving import Application

from deadletter.amqp.address import parse_addresses
from deadletter.core.replaying.preflight import QueueFacts, RemarkLevel, ReplayFacts, preflight
from deadletter.core.replaying.replay_target import HOME, ReplayTarget, ToExchange, ToQueue
from deadletter.operations.replays.preflight import LetterKinds, Looked, look

KINDS = LetterKinds(origins={"orders": 7, "gone": 2}, keys={"order.paid": 5, "order.lost": 4})


async def looked(vhost: Vhost, target: ReplayTarget, api: str | None = None) -> Looked:
    return await look(
        parse_addresses(vhost.url),
        vhost.api if api is None else api,
        target,
        KINDS,
        looked_after=lambda queue: queue == "orders.dlq",
    )


async def ground(app: Application, kind: str) -> None:
    """orders (limited, with a TTL, its dead letters looked after), others that share its exchange."""
    await app.with_dlq("orders", kind=kind, x_max_length=5, x_overflow="reject-publish", x_message_ttl=60_000)
    await app.declare("audit", kind=kind)
    await app.channel.declare_exchange("shop", "topic")
    await app.channel.bind_queue("orders", "shop", "order.paid")
    await app.channel.bind_queue("audit", "shop", "*.paid")


@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_what_the_broker_says(vhost: Vhost, kind: str) -> None:
    async with Application(vhost.url) as app:
        await ground(app, kind)
        await app.consume("orders", lambda _delivery, _times: True)
        home = await looked(vhost, HOME)
        there, gone = home.ways
        (orders,) = there.queues
        assert home.unknown == ""
        assert (there.letters, there.place, there.alone) == (7, "queue orders", True)
        assert (orders.type, orders.max_length, orders.drops_head, orders.ttl_ms) == (kind, 5, False, 60_000)
        assert (orders.dead_letters_go, orders.comes_back_by) == (True, ("orders.dlq",))
        assert gone.queues == (QueueFacts(name="gone", there=False),)

        by_keys = await looked(vhost, ToExchange(exchange="shop", key=None))
        paid, lost = by_keys.ways
        assert [queue.name for queue in paid.queues] == ["audit", "orders"]
        assert (lost.queues, lost.complete) == ((), False)
        (missing,) = (await looked(vhost, ToExchange(exchange="none", key="k"))).ways
        assert missing.missing == "none"
        (one,) = (await looked(vhost, ToQueue(queue="audit"))).ways
        assert (one.letters, one.queues[0].dead_letters_go) == (9, False)

        remarks = preflight(ReplayFacts(letters=9, ways=home.ways))
        about = {(remark.level, remark.about) for remark in remarks}
        assert {
            (RemarkLevel.WARNING, "target"),
            (RemarkLevel.WARNING, "limit"),
            (RemarkLevel.WARNING, "ttl"),
            (RemarkLevel.NOTE, "loop"),
        } <= about


async def test_without_the_api_amqp_tells_what_it_can(vhost: Vhost) -> None:
    async with Application(vhost.url) as app:
        await ground(app, "quorum")
        await app.consume("orders", lambda _delivery, _times: True)
        told = await looked(vhost, HOME, api="http://127.0.0.1:9")
    there, gone = told.ways
    assert told.unknown
    (orders,) = there.queues
    assert (orders.there, orders.known, orders.consumers) == (True, False, 1)
    assert not gone.queues[0].there
    remarks = preflight(ReplayFacts(letters=9, ways=told.ways, unknown=told.unknown))
    assert remarks[0].level is RemarkLevel.WARNING
