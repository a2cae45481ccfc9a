"""Migrations under attack: several at once, killed at every step, under traffic, and meddled with.

The queue `orders` is bound to a topic, a direct and a headers exchange. After each attack every letter is in
it once (or, where nobody can tell, one copy of it is set aside and counted), every binding is exactly what it
was, and nothing of the migration is left.

About `operations.migrating.migrate`, `operations.migrating.swap`, `operations.migrating.carry`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pika
import pytest
from tests import postbox
from tests.brokers import Vhost, call
from tests.commanding import command
from tests.paths import ROOT

from deadletter.amqp.address import parse_addresses
from deadletter.amqp.channel import Channel
from deadletter.amqp.handshake import connect
from deadletter.broker.lease import Lease
from deadletter.broker.queue_removal import delete_empty
from deadletter.core.letter.field_table import Value
from deadletter.core.topology.migration import copies_name, waiting_name
from deadletter.core.topology.vhost import Queue
from deadletter.move.courier import Terms
from deadletter.operations.migrating import swap
from deadletter.operations.migrating.migrate import Migrated, NotMigrated, Result, migrate

SETTLE_S = 2.0
"""The brokers of these tests tell their figures every second."""
OLD: dict[str, Value] = {"x-max-length": 50_000}
NEW: dict[str, Value] = {"x-max-length": 100_000, "x-overflow": "reject-publish"}
BOUND = {
    ("shop", "order.#", "{}"),
    ("shop", "refund.*", "{}"),
    ("desk", "orders", "{}"),
    ("till", "", '{"amount": 7, "x-match": "all"}'),
    ("till", "", '{"urgent": true, "x-match": "any"}'),
}
HEADERS = {"amount": 7, "urgent": False}
WAYS = [("shop", "order.1"), ("desk", "orders"), ("till", "")]
FIRST = [b"old %d" % number for number in range(60)]


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swap, "SETTLE_S", SETTLE_S)


def planned(kind: str = "quorum") -> Queue:
    return Queue(name="orders", type=kind, arguments=NEW)


def old_queue(vhost: Vhost, kind: str = "classic") -> None:
    with closing(pika.BlockingConnection(pika.URLParameters(vhost.url))) as connection:
        channel = connection.channel()
        for exchange, way in (("shop", "topic"), ("desk", "direct"), ("till", "headers")):
            channel.exchange_declare(exchange, way, durable=True)
        channel.queue_declare("orders", durable=True, arguments={"x-queue-type": kind, **OLD})
        for exchange, key in (("shop", "order.#"), ("shop", "refund.*"), ("desk", "orders")):
            channel.queue_bind("orders", exchange, key)
        # By two clients, which write the number and the truth in AMQP types of their own.
        channel.queue_bind("orders", "till", "", {"x-match": "all", "amount": 7})
    where = ("bindings", vhost.name, "e", "till", "q", "orders")
    content = {"routing_key": "", "arguments": {"x-match": "any", "urgent": True}}
    call(vhost.broker, "POST", *where, content=content)
    postbox.fill(vhost.url, "orders", FIRST, dead=False)


def bindings(vhost: Vhost) -> Counter[tuple[str, str, str]]:
    return Counter(
        (bound["source"], bound["routing_key"], json.dumps(bound["arguments"], sort_keys=True))
        for bound in vhost.list("bindings")
        if bound["source"]
    )


def check(
    vhost: Vhost, sent: list[bytes], *, aside: int | None = 0, arguments: dict[str, Value] = NEW
) -> None:
    """Everything once, bound as it was, and nothing else left. `aside`: copies; None: any number."""
    assert bindings(vhost) == Counter(BOUND)
    assert (vhost.get("queues", "orders") or {})["arguments"].items() >= arguments.items()
    ours = {item["name"] for kind in ("queues", "exchanges") for item in vhost.list(kind)}
    assert {name for name in ours if name.startswith("deadletter.")} <= {copies_name("orders")}
    there = Counter(post.body for post in postbox.drain(vhost.url, "orders", expect=len(sent)))
    copies = Counter[bytes]()
    if copies_name("orders") in ours:
        copies.update(post.body for post in postbox.drain(vhost.url, copies_name("orders")))
    assert there == Counter(sent), f"{len(sent)} sent, {there.total()} there, {copies.total()} set aside"
    assert aside is None or copies.total() == aside
    assert copies.keys() <= there.keys()


async def _migrate(vhost: Vhost, rate: float | None = None, kind: str = "quorum") -> Result:
    return await migrate(parse_addresses(vhost.url), vhost.api, planned(kind), terms=Terms(rate_per_s=rate))


def run(vhost: Vhost, rate: float | None = None, kind: str = "quorum") -> Result:
    return postbox.run(_migrate(vhost, rate, kind))


class Traffic(threading.Thread):
    """About 200 letters a second, each of its own bytes, confirmed; mandatory, so that none is missed."""

    def __init__(self, vhost: Vhost, ways: list[tuple[str, str]]) -> None:
        super().__init__()
        self.sent: list[bytes] = []
        self.refused = 0
        self._url = vhost.url
        self._ways = ways
        self._over = threading.Event()

    def run(self) -> None:
        with closing(pika.BlockingConnection(pika.URLParameters(self._url))) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            number = 0
            while not self._over.wait(0.004):
                exchange, key = self._ways[number % len(self._ways)]
                body = b"%s %d" % (exchange.encode() or b"by name", number)
                number += 1
                properties = pika.BasicProperties(delivery_mode=2, headers=HEADERS)
                try:
                    channel.basic_publish(exchange, key, body, properties, mandatory=True)
                    self.sent.append(body)
                except pika.exceptions.UnroutableError:
                    self.refused += 1

    @contextmanager
    def flowing(self) -> Iterator[None]:
        self.start()
        try:
            postbox.wait_for(lambda: len(self.sent) > 20, "traffic")
            yield
            before = len(self.sent)
            postbox.wait_for(lambda: len(self.sent) > before + 20, "traffic afterwards")
        finally:
            self._over.set()
            self.join()


# -- several at once --------------------------------------------------------------------------------------
@pytest.mark.parametrize("runs", [2, 3])
@pytest.mark.parametrize("rate", [None, 40.0])
def test_several_at_once_are_one_and_others_that_say_so(vhost: Vhost, runs: int, rate: float | None) -> None:
    old_queue(vhost)

    async def together() -> list[Result]:
        return await asyncio.gather(*(_migrate(vhost, rate) for _ in range(runs)))

    results = postbox.run(together())
    done = [result for result in results if isinstance(result, Migrated)]
    refused = [result for result in results if isinstance(result, NotMigrated)]
    assert done, results
    # One that asked when the first had just ended finds the queue as planned: nothing to do for it.
    assert sum(result.moved > 0 for result in done) == 1, results
    if rate is not None:
        assert len(refused) == runs - 1
    assert all("is migrating it" in result.why for result in refused), results
    check(vhost, FIRST)
    assert run(vhost) == Migrated(
        queue="orders", moved=0, set_aside=0, copies=copies_name("orders"), maybe_twice=0
    )
    assert bindings(vhost) == Counter(BOUND)


def test_the_second_says_who_has_it(vhost: Vhost) -> None:
    level = "deadletter.delay.1000"
    postbox.declare(vhost.url, "orders", level)
    environment = {**os.environ, "DLQ_URL": vhost.url, "DLQ_API": vhost.api}
    asked = ("topology", "apply", "--migrate", "--queue", "orders", "--layout", "return", "--backoff", "1s")

    async def held() -> subprocess.CompletedProcess[str]:
        connection = await connect(parse_addresses(vhost.url)[0], name="dlq on host seven")
        lease = await Lease.take(connection, f"migration.{level}")
        assert lease is not None
        await asyncio.to_thread(
            postbox.wait_for,
            lambda: any(
                (one.get("client_properties") or {}).get("connection_name") == "dlq on host seven"
                for one in call(vhost.broker, "GET", "vhosts", vhost.name, "connections")
            ),
            "the connection in the management API",
        )
        try:
            return await asyncio.to_thread(command, *asked, environment=environment)
        finally:
            await connection.close()

    done = postbox.run(held())
    assert done.returncode == 1, done.stderr
    assert f"not migrated {level}: dlq on host seven is migrating it" in done.stdout
    assert vhost.get("queues", waiting_name(level)) is None
    assert command(*asked, environment=environment).returncode == 0


# -- killed -----------------------------------------------------------------------------------------------
_SCRIPT = """
import asyncio, os, signal, sys
sys.path.insert(0, {root!r})
from tests.attacks.test_migrations import SETTLE_S, planned
from deadletter.amqp.address import parse_addresses
from deadletter.amqp.channel import Channel
from deadletter.move.courier import Terms
from deadletter.broker.management import Management
from deadletter.operations.migrating import swap
from deadletter.operations.migrating.migrate import migrate

swap.SETTLE_S = SETTLE_S
left = {after}

def deadly(kind, name):
    work = getattr(kind, name)
    async def counted(self, *arguments, **more):
        global left
        answer = await work(self, *arguments, **more)
        if not more.get("passive") and not more.get("exclusive"):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return answer
    setattr(kind, name, counted)

for name in ("declare_queue", "declare_exchange", "bind_queue", "unbind_queue", "bind_exchange",
             "delete_queue", "delete_exchange"):
    deadly(Channel, name)
deadly(Management, "delete")
terms = Terms(rate_per_s={rate})
print(asyncio.run(migrate(parse_addresses({url!r}), {api!r}, planned({kind!r}), terms=terms)))
"""


def _script(vhost: Vhost, kind: str, *, after: int = 0, rate: float | None = None) -> str:
    root = str(ROOT)
    return _SCRIPT.format(root=root, after=after, url=vhost.url, api=vhost.api, kind=kind, rate=rate)


def killed_after(vhost: Vhost, steps: int, kind: str) -> bool:
    """Whether it was killed: False, it had fewer steps than that."""
    script = _script(vhost, kind, after=steps)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode == -signal.SIGKILL


@pytest.mark.slow
@pytest.mark.kills
@pytest.mark.parametrize(
    ("kind", "first"), [*(("classic", first) for first in range(1, 13, 2)), ("quorum", 2), ("quorum", 8)]
)
def test_killed_after_each_step_the_second_run_ends_it(vhost: Vhost, kind: str, first: int) -> None:
    """Every second step that changes the broker's shape, of some forty; traffic goes on all the while."""
    for steps in range(first, 100, 12):
        old_queue(vhost, kind)
        traffic = Traffic(vhost, WAYS)
        with traffic.flowing():
            killed = killed_after(vhost, steps, kind)
            result = run(vhost, kind=kind)
        assert isinstance(result, Migrated), (steps, result)
        assert traffic.refused == 0, steps
        check(vhost, FIRST + traffic.sent, aside=result.set_aside)
        if not killed:
            assert steps > 20
            return
        vhost.delete("queues", "orders")


def test_killed_while_letters_move_and_taken_over(vhost: Vhost) -> None:
    old_queue(vhost)
    script = _script(vhost, "quorum", rate=30.0)
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        try:
            postbox.wait_for(lambda: _depth(vhost, waiting_name("orders")) >= 20, "letters that wait")
        finally:
            process.kill()
    result = run(vhost)
    assert isinstance(result, Migrated), result
    check(vhost, FIRST, aside=result.set_aside)


def _depth(vhost: Vhost, queue: str) -> int:
    found = vhost.get("queues", queue)
    return -1 if found is None else int(found.get("messages") or 0)


# -- traffic ----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("before", "after"), [("classic", "quorum"), ("quorum", "classic")])
def test_it_ends_while_letters_come_through_exchanges(vhost: Vhost, before: str, after: str) -> None:
    """200 a second, confirmed and mandatory: none is lost, none is refused, none comes twice."""
    old_queue(vhost, before)
    traffic = Traffic(vhost, WAYS)
    with traffic.flowing():
        result = run(vhost, kind=after)
    assert isinstance(result, Migrated), result
    assert (result.set_aside, result.maybe_twice, result.gone) == (0, 0, 0)
    assert traffic.refused == 0
    check(vhost, FIRST + traffic.sent)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_letters_by_name_are_said_and_everything_is_put_back(vhost: Vhost, kind: str) -> None:
    """The queue cannot go while somebody publishes to it by its name; it works as before."""
    old_queue(vhost, kind)
    traffic = Traffic(vhost, [*WAYS, ("", "orders")])
    with traffic.flowing():
        result = run(vhost)
    assert isinstance(result, NotMigrated)
    assert "by its name" in result.why
    assert "put back" in result.why
    assert traffic.refused == 0
    check(vhost, FIRST + traffic.sent, arguments=OLD)
    assert isinstance(run(vhost), Migrated)  # nobody publishes any more
    check(vhost, [])


# -- meddled with -----------------------------------------------------------------------------------------
def test_the_lease_s_connection_is_cut_and_it_goes_on(vhost: Vhost) -> None:
    old_queue(vhost)
    cut: list[str] = []

    def cutting() -> None:
        postbox.wait_for(lambda: _depth(vhost, waiting_name("orders")) >= 10, "letters that wait")
        for one in call(vhost.broker, "GET", "vhosts", vhost.name, "connections"):
            if "apply --migrate" in str(one.get("user_provided_name")):
                call(vhost.broker, "DELETE", "connections", one["name"])
                cut.append(one["name"])

    cutter = threading.Thread(target=cutting)
    cutter.start()
    result = run(vhost, rate=20.0)
    cutter.join()
    assert len(cut) == 1
    assert isinstance(result, Migrated), result
    check(vhost, FIRST, aside=result.set_aside)


def test_an_application_that_binds_its_queue_again_meanwhile(vhost: Vhost) -> None:
    """Its letters come to both queues for a while; each is delivered once, and the copies are counted."""
    old_queue(vhost)
    sent: list[bytes] = []

    def binding() -> None:
        postbox.wait_for(lambda: _depth(vhost, waiting_name("orders")) >= 10, "letters that wait")
        with closing(pika.BlockingConnection(pika.URLParameters(vhost.url))) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_bind("orders", "desk", "orders")
            for number in range(5):
                sent.append(b"again %d" % number)
                channel.basic_publish("desk", "orders", sent[-1], pika.BasicProperties(delivery_mode=2))

    binder = threading.Thread(target=binding)
    binder.start()
    result = run(vhost, rate=20.0)
    binder.join()
    assert isinstance(result, Migrated), result
    assert len(sent) == 5
    check(vhost, FIRST + sent, aside=5)
    assert result.set_aside == 5


def test_an_application_that_declares_the_old_queue_again(
    vhost: Vhost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the moment in which there is none. It gets its letters and its bindings, and that is said."""
    old_queue(vhost)

    async def and_again(channel: Channel, queue: Queue) -> int:
        gone = await delete_empty(channel, queue)
        if queue.name == "orders":
            await asyncio.to_thread(postbox.declare, vhost.url, "orders", x_max_length=50_000)
        return gone

    monkeypatch.setattr(swap, "delete_empty", and_again)
    result = run(vhost)
    assert isinstance(result, NotMigrated)
    assert "somebody declared orders meanwhile" in result.why
    check(vhost, FIRST, arguments=OLD)


def test_a_queue_that_somebody_replaced_is_not_deleted(vhost: Vhost, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the last look and the deletion: the queue that is there is not the one that was emptied."""
    old_queue(vhost)

    async def replaced(channel: Channel, queue: Queue) -> int:
        if queue.name == "orders":
            await asyncio.to_thread(vhost.delete, "queues", "orders")
            await asyncio.to_thread(postbox.declare, vhost.url, "orders", kind="quorum", x_max_length=7_777)
        return await delete_empty(channel, queue)

    monkeypatch.setattr(swap, "delete_empty", replaced)
    result = run(vhost)
    assert isinstance(result, NotMigrated)
    assert "no longer the queue it was" in result.why
    check(vhost, FIRST, arguments={"x-max-length": 7_777})


def test_arguments_that_the_broker_does_not_take_are_known_before(vhost: Vhost) -> None:
    old_queue(vhost)
    wrong = Queue(name="orders", type="quorum", arguments={"x-overflow": "sideways"})
    result = postbox.run(migrate(parse_addresses(vhost.url), vhost.api, wrong))
    assert isinstance(result, NotMigrated)
    assert "x-overflow" in result.why
    check(vhost, FIRST, arguments=OLD)
