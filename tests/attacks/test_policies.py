"""Somebody sets, raises or deletes RabbitMQ policies over names of ours while the service runs.

What is attacked: that a letter is safe in a delay, in due, parked or on its way back only as long as the
policies over these names are what they were at the start. Each test counts letters, reads what the service
says, does literally what it is told to do, and sees letters flow again.

About `service.own_topology.custody`, `service.own_topology.policy_events`, `service.own_topology.vigil`,
`core.topology.safekeeping`.
"""

from __future__ import annotations

import asyncio
import json
import shlex
import signal
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from tests import postbox
from tests.brokers import Vhost, call
from tests.serving import Application, Served, served

from deadletter.amqp.channel import Delivery
from deadletter.core.letter import message
from deadletter.core.letter.message import RawMessage, View
from deadletter.core.topology.rabbitmq_versions import version_of
from deadletter.testing.node.private import private_broker

PARKED = "deadletter.parked"
GUARDS = "[guards.breaker]\nenabled = false\n"
WATCH = '[[watches]]\ndlq = "*.dlq"\n'
TTL: dict[str, object] = {"message-ttl": 200}


def policy(retries: int = 2, delay: str = "500ms") -> str:
    return f'[default_policy]\nretries = {retries}\nbackoff = {{ kind = "fixed", delays = ["{delay}"] }}\n'


def letters(count: int, start: int = 0) -> list[RawMessage]:
    head = message.encode(View(delivery_mode=2))
    return [RawMessage(head, b"%d" % n) for n in range(start, start + count)]


def second_time(_delivery: Delivery, count: int) -> bool:
    return count > 1


def never(_delivery: Delivery, _count: int) -> bool:
    return False


async def until(holds: Callable[[], bool], what: Callable[[], object], seconds: float = 60.0) -> None:
    for _ in range(int(seconds / 0.1)):
        if await asyncio.to_thread(holds):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"not within {seconds} s: {what()}")


def readiness(one: Served) -> Any:
    try:
        return one.get("/health/ready")
    except urllib.error.HTTPError as answer:
        return json.loads(answer.read())


async def until_unready(one: Served, *words: str) -> str:
    """The reason, once it is not ready for a reason with all these words."""

    def reasons() -> list[str]:
        told = readiness(one)
        return [] if told["ok"] else [str(why) for why in told["reasons"]]

    def found() -> bool:
        return any(all(word in why for word in words) for why in reasons())

    await until(found, lambda: (words, readiness(one), one.said()))
    return next(why for why in reasons() if all(word in why for word in words))


def intrude(vhost: Vhost, kind: str, pattern: str, definition: dict[str, object], priority: int) -> str:
    name = "not ours; really"
    content = {"pattern": pattern, "definition": definition, "apply-to": "all", "priority": priority}
    call(vhost.broker, "PUT", kind, vhost.name, name, content=content)
    return name


def obey(vhost: Vhost, said: str, *, literally: bool = False) -> None:
    """Do what the command says that we are told; `literally` takes seconds more."""
    command = said.partition("mended: ")[2].split(", or let", 1)[0]
    tool, verb, option, where, name = shlex.split(command)
    assert (tool, option, where) == ("rabbitmqctl", "-p", vhost.name)
    if literally:
        vhost.broker.rabbitmqctl(verb, option, where, name)
    else:
        kinds = {"clear_operator_policy": "operator-policies", "clear_policy": "policies"}
        assert vhost.get(kinds[verb], name) is not None
        vhost.delete(kinds[verb], name)


def in_ours(vhost: Vhost) -> int:
    return sum(q.get("messages", 0) for q in vhost.list("queues") if q["name"].startswith("deadletter."))


@asynccontextmanager
async def at_work(vhost: Vhost, home: Path, settings: str) -> AsyncIterator[tuple[Application, Served]]:
    async with Application(vhost.url) as app:
        await app.with_dlq("orders")
        with served(vhost, home, settings + WATCH + GUARDS, start=False) as (one,):
            await asyncio.to_thread(one.start)
            yield app, one


async def all_home(app: Application, count: int, one: Served) -> None:
    try:
        await app.until(lambda: len(app.handled["orders"]) == count, 120, f"{count} letters handled")
    except AssertionError as error:
        raise AssertionError(f"{error}: {len(app.handled['orders'])} of {count}; {one.said()}") from None


# -- operator policies: nothing of ours goes before them --------------------------------------------------
OPERATORS: list[tuple[str, dict[str, object], str]] = [
    (r"^deadletter\.due$", TTL, "destroyed after 200 ms"),
    (r"^deadletter\.parked$", TTL, "destroyed after 200 ms"),
    (r"^deadletter\.delay\.", TTL, "instead of 500 ms"),
    (r".*parked", {"expires": 3_600_000}, "deleted with all its letters"),
    (r"^deadletter\.", {"delivery-limit": 3}, "after 3 deliveries"),
    (r"^deadletter\.", {"max-length": 5, "overflow": "drop-head"}, "drops letters"),
]


@pytest.mark.parametrize(("pattern", "definition", "words"), OPERATORS)
async def test_nothing_is_taken_under_an_operator_policy_that_destroys(
    vhost: Vhost, tmp_path: Path, pattern: str, definition: dict[str, object], words: str
) -> None:
    if "overflow" in definition and version_of(vhost.broker.version) < (4, 0):
        pytest.skip("operators cannot set overflow before 4.0")
    async with at_work(vhost, tmp_path, policy()) as (app, one):
        name = intrude(vhost, "operator-policies", pattern, definition, 1)
        said = await until_unready(one, name, words, "clear_operator_policy")
        await app.consume("orders", second_time)
        await app.publish("", "orders", letters(60))
        await until(lambda: postbox.depth(vhost.url, "orders.dlq") == 60, one.said)
        await asyncio.sleep(2.5)  # two looks around
        assert postbox.depth(vhost.url, "orders.dlq") == 60, "they are in their home"
        (trouble,) = (t for t in one.get("/api/status")["troubles"] if t["what"].startswith("policy:"))
        assert name in trouble["what"]
        assert trouble["why"] in said or said in trouble["why"]
        assert "alert" in one.log.read_text()
        obey(vhost, said, literally=pattern == OPERATORS[0][0])
        await asyncio.to_thread(one.until_ready)
        await all_home(app, 60, one)
        assert set(app.seen.values()) == {2}
        assert not one.get("/api/status")["troubles"]


async def test_no_sweep_brings_letters_into_danger(vhost: Vhost, tmp_path: Path) -> None:
    manual = WATCH + 'mode = "manual"\n' + GUARDS + policy()
    async with Application(vhost.url) as app:
        await app.with_dlq("orders")
        await app.consume("orders", second_time)
        await app.publish("", "orders", letters(20))
        with served(vhost, tmp_path, manual, start=False) as (one,):
            await asyncio.to_thread(one.start)
            await until(lambda: postbox.depth(vhost.url, "orders.dlq") == 20, one.said)
            name = intrude(vhost, "operator-policies", r"^deadletter\.", TTL, 1)
            said = await until_unready(one, name)
            (answer,) = await asyncio.to_thread(sweep, one)
            assert answer["state"] == "failed"
            assert name in answer["why"]
            assert postbox.depth(vhost.url, "orders.dlq") == 20
            obey(vhost, said)
            await asyncio.to_thread(one.until_ready)
            (answer,) = await asyncio.to_thread(sweep, one)
            assert answer["moved"] == 20
            await all_home(app, 20, one)


def sweep(one: Served) -> Any:
    asked = urllib.request.Request(
        f"http://127.0.0.1:{one.port}/api/sweeps",
        data=json.dumps({"dlqs": ["orders.dlq"]}).encode(),
        headers={"Content-Type": "application/json", "Authorization": f"Bearer {one.token}"},
        method="POST",
    )
    with urllib.request.urlopen(asked, timeout=30) as answer:
        return json.loads(answer.read())["sweeps"]


async def test_letters_under_way_leave_a_due_queue_where_they_would_be_destroyed(
    vhost: Vhost, tmp_path: Path
) -> None:
    """What waits in a delay comes into due after the policy: out of it, it is safe."""
    async with at_work(vhost, tmp_path, policy(delay="5s")) as (app, one):
        await app.consume("orders", second_time)
        await app.publish("", "orders", letters(200))
        await app.until(lambda: len(app.seen) == 200, 120)
        await until(lambda: postbox.depth(vhost.url, "orders.dlq") == 0, one.said)
        name = intrude(vhost, "operator-policies", r"^deadletter\.", {"message-ttl": 30_000}, 1)
        said = await until_unready(one, name, "deadletter.due")
        await all_home(app, 200, one)
        obey(vhost, said)
        await asyncio.to_thread(one.until_ready)


async def test_what_is_due_stays_where_it_is_safe(vhost: Vhost, tmp_path: Path) -> None:
    """Of due letters some would be parked: their origin is gone. Parked is where letters vanish."""
    async with at_work(vhost, tmp_path, policy(delay="4s")) as (app, one):
        await app.consume("orders", never)
        await app.publish("", "orders", letters(40))
        await app.until(lambda: len(app.seen) == 40, 120)
        await until(lambda: postbox.depth(vhost.url, "orders.dlq") == 0, one.said)
        name = intrude(vhost, "operator-policies", r"^deadletter\.parked$", TTL, 1)
        said = await until_unready(one, name)
        vhost.delete("queues", "orders")
        await until(lambda: postbox.depth(vhost.url, "deadletter.delay.4000") == 0, one.said)
        await asyncio.sleep(2)
        # Those that were back before the policy was seen, and died again, are in their dead-letter queue.
        homes = ("deadletter.due", "orders.dlq")
        assert sum(postbox.depth(vhost.url, queue) for queue in homes) == 40
        obey(vhost, said)
        await until(lambda: postbox.depth(vhost.url, PARKED) == 40, one.said)
        await asyncio.to_thread(one.until_ready)


@pytest.mark.slow
@pytest.mark.kills
async def test_a_delay_that_would_be_deleted_with_its_letters_is_kept(vhost: Vhost, tmp_path: Path) -> None:
    """Nobody consumes a delay, and declaring it again does not count as use."""
    async with at_work(vhost, tmp_path, policy(delay="15s")) as (app, one):
        await app.consume("orders", second_time)
        await app.publish("", "orders", letters(20))
        await app.until(lambda: len(app.seen) == 20, 120)
        await until(lambda: postbox.depth(vhost.url, "orders.dlq") == 0, one.said)
        name = intrude(vhost, "operator-policies", r"^deadletter\.", {"expires": 7_000}, 1)
        said = await until_unready(one, name, "deadletter.delay.15000")
        await asyncio.sleep(9)
        assert vhost.get("queues", "deadletter.delay.15000") is not None, "deleted with its letters"
        assert vhost.get("queues", PARKED) is not None
        obey(vhost, said)
        await asyncio.to_thread(one.until_ready)
        await all_home(app, 20, one)


async def test_an_operator_policy_is_seen_by_who_may_not_read_it(vhost: Vhost, tmp_path: Path) -> None:
    with as_user(vhost, "plain") as seen:
        async with at_work(seen, tmp_path, policy()) as (app, one):
            name = intrude(vhost, "operator-policies", r"^deadletter\.", TTL, 1)
            said = await until_unready(one, name, "destroyed after 200 ms", "clear_operator_policy")
            await app.consume("orders", second_time)
            await app.publish("", "orders", letters(30))
            await until(lambda: postbox.depth(vhost.url, "orders.dlq") == 30, one.said)
            obey(vhost, said)
            await all_home(app, 30, one)


async def test_a_length_that_only_refuses_is_said_and_loses_nothing(vhost: Vhost, tmp_path: Path) -> None:
    async with at_work(vhost, tmp_path, policy(retries=0)) as (app, one):
        name = intrude(vhost, "operator-policies", r"^deadletter\.parked$", {"max-length": 20}, 1)
        await until(lambda: any(name in f["why"] for f in one.get("/api/status")["findings"]), one.said)
        assert readiness(one)["ok"]
        await app.consume("orders", never)
        await app.publish("", "orders", letters(50))
        await app.until(lambda: len(app.seen) == 50, 120)
        await until(lambda: postbox.depth(vhost.url, PARKED) >= 20, one.said)
        vhost.delete("operator-policies", name)
        await until(lambda: postbox.depth(vhost.url, PARKED) == 50, one.said)


async def test_a_reload_under_such_a_policy_ends_nothing(vhost: Vhost, tmp_path: Path) -> None:
    async with at_work(vhost, tmp_path, policy()) as (app, one):
        name = intrude(vhost, "operator-policies", r"^deadletter\.due$", TTL, 1)
        said = await until_unready(one, name)
        one.process.send_signal(signal.SIGHUP)
        await until(lambda: "reloaded" in one.log.read_text(), one.said)
        await asyncio.sleep(2)
        assert one.process.poll() is None
        assert not readiness(one)["ok"]
        await app.consume("orders", second_time)
        await app.publish("", "orders", letters(10))
        obey(vhost, said)
        await all_home(app, 10, one)


# -- user policies: ours goes above -----------------------------------------------------------------------
USERS: list[tuple[str, dict[str, object]]] = [
    (r"^deadletter\.due$", TTL),
    (r"parked", TTL),
    (r"^deadletter\.delay\.", TTL),
    (r".*", {"expires": 5_000, "message-ttl": 1_000}),
    (r"^deadletter\.", {"max-length": 5, "overflow": "drop-head"}),
]


@pytest.mark.parametrize(("pattern", "definition"), USERS)
async def test_ours_goes_above_a_user_policy(
    vhost: Vhost, tmp_path: Path, pattern: str, definition: dict[str, object]
) -> None:
    async with at_work(vhost, tmp_path, policy(retries=1)) as (app, one):
        await app.consume("orders", never)  # else the policy might delete the application's queue too
        name = intrude(vhost, "policies", pattern, definition, 5_000)
        await until(lambda: vhost.get("policies", "deadletter")["priority"] > 5_000, one.said)
        await until(lambda: f"policy:{name}@" in one.log.read_text(), one.said)
        await asyncio.to_thread(one.until_ready)
        await app.publish("", "orders", letters(60))
        await until(lambda: postbox.depth(vhost.url, PARKED) == 60, one.said)
        assert set(app.seen.values()) == {2}
        await asyncio.sleep(1.5)
        assert postbox.depth(vhost.url, PARKED) == 60


async def test_ours_is_put_back(vhost: Vhost, tmp_path: Path) -> None:
    """A `.*` policy of somebody waits below it. Deleted again and again, while letters are parked."""
    intrude(vhost, "policies", ".*", {"max-length": 10}, 0)
    vhost.put("policies", "room", pattern="^orders", definition={"max-length": 10_000}, priority=9)
    async with at_work(vhost, tmp_path, policy(retries=0)) as (app, one):
        await app.consume("orders", never)
        for turn in range(3):
            vhost.delete("policies", "deadletter")
            await app.publish("", "orders", letters(100, start=turn * 100))
            await until(lambda: vhost.get("policies", "deadletter") is not None, one.said)
        await until(lambda: postbox.depth(vhost.url, PARKED) == 300, one.said)
        await asyncio.to_thread(one.until_ready)


async def test_ours_that_cannot_be_put_back_stops_the_intake(vhost: Vhost, tmp_path: Path) -> None:
    """The user may no longer set policies."""
    with as_user(vhost, "once") as seen:
        async with at_work(seen, tmp_path, policy()) as (app, one):
            tag(vhost, "once", "monitoring")
            name = intrude(vhost, "policies", r"^deadletter\.", {**TTL, "max-length": 7}, 2_000)
            said = await until_unready(one, name, "ours could not be set", "clear_policy")
            await app.consume("orders", second_time)
            await app.publish("", "orders", letters(30))
            await until(lambda: postbox.depth(vhost.url, "orders.dlq") == 30, one.said)
            obey(vhost, said)
            await all_home(app, 30, one)


# -- the way back -----------------------------------------------------------------------------------------
@pytest.mark.parametrize("priority", [0, 5_000])
async def test_an_alternate_exchange_by_policy_hides_no_return(
    vhost: Vhost, tmp_path: Path, priority: int
) -> None:
    vhost.put("queues", "sink", durable=True)
    call(vhost.broker, "POST", "bindings", vhost.name, "e", "amq.fanout", "q", "sink", content={})
    async with at_work(vhost, tmp_path, policy(delay="5s")) as (app, one):
        await app.consume("orders", second_time)
        await app.publish("", "orders", letters(1, start=1_000))
        await all_home(app, 1, one)  # the way back is known
        intrude(vhost, "policies", ".*", {"alternate-exchange": "amq.fanout"}, priority)
        await until(lambda: vhost.get("policies", "deadletter")["priority"] > priority, one.said)
        await asyncio.to_thread(one.until_ready)
        await app.publish("", "orders", letters(50))
        await app.until(lambda: len(app.seen) == 51, 120)
        await until(lambda: postbox.depth(vhost.url, "deadletter.delay.5000") > 0, one.said)
        await until(lambda: postbox.depth(vhost.url, "orders.dlq") == 0, one.said)
        vhost.delete("queues", "orders")
        await until(lambda: postbox.depth(vhost.url, PARKED) + len(app.handled["orders"]) == 51, one.said)
        assert postbox.depth(vhost.url, "sink") == 0


# -- the event exchange -----------------------------------------------------------------------------------
@pytest.mark.slow
@pytest.mark.kills
async def test_with_the_event_exchange_it_is_known_at_once(
    broker_version: str | None, tmp_path: Path
) -> None:
    """The next look around is an hour away."""
    with private_broker(broker_version, extra_plugins=["rabbitmq_event_exchange"]) as broker:
        vhost = Vhost(name="/", broker=broker)
        settings = policy() + '[serve]\nlisten = "127.0.0.1:{port}"\nsurvey = "1h"\n'
        async with Application(vhost.url) as app:
            await app.with_dlq("orders")
            one = Served(vhost, tmp_path, policy())
            one.write(settings.replace("{port}", str(one.port)) + WATCH + GUARDS)
            try:
                await asyncio.to_thread(one.start)
                name = intrude(vhost, "operator-policies", r"^deadletter\.due$", TTL, 1)
                said = await until_unready(one, name)
                obey(vhost, said)
                await asyncio.to_thread(one.until_ready)
                name = intrude(vhost, "policies", r"^deadletter\.", TTL, 3_000)
                await until(lambda: vhost.get("policies", "deadletter")["priority"] > 3_000, one.said)
                vhost.delete("policies", "deadletter")
                await until(lambda: vhost.get("policies", "deadletter") is not None, one.said)
                await app.consume("orders", second_time)
                await app.publish("", "orders", letters(20))
                await all_home(app, 20, one)
            finally:
                one.close()


# -- users ------------------------------------------------------------------------------------------------
def tag(vhost: Vhost, name: str, tags: str) -> None:
    call(vhost.broker, "PUT", "users", name, content={"password": "secret", "tags": tags})


@contextmanager
def as_user(vhost: Vhost, name: str) -> Iterator[Vhost]:
    """The vhost as somebody sees it who sets policies and is no administrator."""
    tag(vhost, name, "monitoring,policymaker")
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    call(vhost.broker, "PUT", "permissions", vhost.name, name, content=everything)
    parts = urlsplit(vhost.broker.url)
    url = parts._replace(netloc=f"{name}:secret@{parts.hostname}:{parts.port}").geturl()
    try:
        yield replace(vhost, broker=replace(vhost.broker, url=url))
    finally:
        call(vhost.broker, "DELETE", "users", name)
