"""Letters that the broker did not accept for a while: they go as soon as it does, without a restart.

A right that is taken away closes the channel at the next publish, as one letter does that is really not
acceptable. The first passes; the second must not take the connection down over and over.

About `move.refused_letters`, `service.queue_loop`, `move.decision_runner`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import pytest
from tests import postbox
from tests.brokers import Vhost, call

from deadletter.amqp.address import parse_addresses
from deadletter.broker.session import Link, supervise
from deadletter.move import refused_letters
from deadletter.move.courier import Letter, Send, Verdict
from deadletter.move.decision_runner import Judging
from deadletter.service.queue_loop import QueueLoop
from deadletter.service.telling.service_events import ServiceEvent

EVERYTHING = {"configure": ".*", "write": ".*", "read": ".*"}
NO_PUBLISHING = {**EVERYTHING, "write": "^nothing$"}


async def serve(vhost: Vhost, url: str, line: QueueLoop, until: asyncio.Event) -> None:
    async def work(link: Link) -> None:
        await line.on(link)

    serving = asyncio.create_task(supervise(parse_addresses(url), work))
    await until.wait()
    line.stop()
    await serving


async def when(condition: Callable[[], bool], what: str) -> None:
    await asyncio.to_thread(postbox.wait_for, condition, what, 90.0)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_right_that_was_away_for_a_while(vhost: Vhost, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused_letters, "PAUSE_S", 1.0)
    postbox.declare(vhost.url, "dlq", "target", kind=kind)
    user = f"u{vhost.name[-8:]}"
    call(vhost.broker, "PUT", "users", user, content={"password": "s", "tags": ""})
    call(vhost.broker, "PUT", "permissions", vhost.name, user, content=EVERYTHING)
    url = vhost.url.replace("guest:guest", f"{user}:s")
    go = Send(routing_key="target")
    told: list[ServiceEvent] = []
    line = QueueLoop("dlq", Judging(decide=lambda _letter: go), prefetch=100, emit=told.append)

    async def everything() -> None:
        done = asyncio.Event()
        serving = asyncio.create_task(serve(vhost, url, line, done))
        await asyncio.to_thread(postbox.fill_one, vhost.url, "dlq", b"before")
        await when(lambda: postbox.depth(vhost.url, "target") == 1, "the first one")
        call(vhost.broker, "PUT", "permissions", vhost.name, user, content=NO_PUBLISHING)
        for number in range(8):
            # One by one: each is the only one on its way when the broker refuses, and so the culprit.
            await asyncio.to_thread(postbox.fill_one, vhost.url, "dlq", b"%d" % number)
            await asyncio.sleep(1.5)
        call(vhost.broker, "PUT", "permissions", vhost.name, user, content=EVERYTHING)
        await when(lambda: postbox.depth(vhost.url, "target") >= 9, "all of them")
        done.set()
        await serving

    try:
        postbox.run(everything())
    finally:
        with suppress(AssertionError):
            call(vhost.broker, "DELETE", "users", user)
    found = Counter(post.body for post in postbox.drain(vhost.url, "target"))
    assert set(found) == {b"before", *(b"%d" % n for n in range(8))}
    assert postbox.depth(vhost.url, "dlq") == 0


def test_one_that_is_never_accepted_is_tried_seldom(vhost: Vhost, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exchange that is not there: each try closes the channel. The others go on."""
    monkeypatch.setattr(refused_letters, "PAUSE_S", 0.5)
    postbox.declare(vhost.url, "dlq", "target", kind="quorum")
    go, nowhere = Send(routing_key="target"), Send(exchange="not there", routing_key="x")
    tries = 0

    def decide(letter: Letter) -> Verdict:
        nonlocal tries
        if letter.body == b"poison":
            tries += 1
            return nowhere
        return go

    line = QueueLoop("dlq", Judging(decide=decide), prefetch=100, emit=lambda _event: None)

    async def everything() -> None:
        done = asyncio.Event()
        await asyncio.to_thread(postbox.fill, vhost.url, "dlq", [b"poison"], dead=False)
        serving = asyncio.create_task(serve(vhost, vhost.url, line, done))
        for number in range(80):
            await asyncio.to_thread(postbox.fill_one, vhost.url, "dlq", b"%d" % number)
            await asyncio.sleep(0.1)
        await when(lambda: postbox.depth(vhost.url, "target") >= 80, "all but one")
        done.set()
        await serving

    postbox.run(everything())
    assert 2 <= tries <= 12, "tried again, with pauses that grow"
    postbox.wait_for(lambda: postbox.depth(vhost.url, "dlq") == 1, "the one that stays")
    assert len(postbox.drain(vhost.url, "target")) >= 80
