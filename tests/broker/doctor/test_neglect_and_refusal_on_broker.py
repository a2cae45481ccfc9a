"""What the doctor says of refusals, neglect, versions, access and live state, shown on a real broker.

Each test builds the broken shape, sees the loss, the refusal, the stop or the growth happen, and finds it in
what the management API tells; then it builds the mended twin, sees no harm, and hears nothing.

About `doctor.rules.refusal`, `doctor.rules.neglect`, `doctor.rules.upgrades`, `doctor.rules.access`,
`doctor.rules.live`, `doctor.rules.effects`.
"""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pika
import pika.exceptions
import pytest
from tests.brokers import Vhost, call
from tests.postbox import run, wait_for

from deadletter.amqp.address import parse_addresses
from deadletter.broker.live_topology import read_topology
from deadletter.core.topology.merging import BrokerPolicy
from deadletter.core.topology.rabbitmq_versions import version_of
from deadletter.core.topology.vhost import Queue, Topology, topology
from deadletter.doctor.finding import Finding, Severity
from deadletter.doctor.rules import access, alternates, effects, live, neglect, refusal, rules_in, upgrades
from deadletter.doctor.rules.case import Case

ALL = rules_in(refusal, alternates, neglect, effects, upgrades, access, live)
SLOW_S = 90.0
"""Figures of a quorum queue are up to ten seconds old."""


def findings(shape: Topology, watched: frozenset[str] | None = None, later_ms: int = 0) -> list[Finding]:
    case = Case(topology=shape, now_ms=int(time.time() * 1000) + later_ms, watched=watched)
    return [finding for rule in ALL for finding in rule.check(case)]


@contextmanager
def connected(url: str) -> Iterator[Any]:
    """A connection of pika, which the broker may have closed before us."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        yield connection
    finally:
        if connection.is_open:
            connection.close()


def refusal_of(url: str, action: Callable[[Any], object]) -> int:
    with connected(url) as connection:
        try:
            action(connection.channel())
        except (pika.exceptions.ChannelClosedByBroker, pika.exceptions.ConnectionClosedByBroker) as told:
            return int(told.reply_code)
    return 0


class Bench:
    """One vhost with a channel of pika, and the doctor's eyes on it."""

    def __init__(self, vhost: Vhost, connection: Any) -> None:
        self.vhost = vhost
        self.connection = connection
        self.channel = connection.channel()
        self.version = vhost.broker.version

    @property
    def is_4(self) -> bool:
        return version_of(self.version) >= (4, 0)

    @property
    def is_43(self) -> bool:
        return version_of(self.version) >= (4, 3)

    def queue(self, name: str, *, to: tuple[str, str] | None = None, **arguments: object) -> None:
        """A durable queue; `to` is where its dead letters go, `x_max_length=1` stands for `x-max-length`."""
        spelled = {argument.replace("_", "-"): value for argument, value in arguments.items()}
        if to is not None:
            spelled["x-dead-letter-exchange"] = to[0]
        if to is not None and to[1]:
            spelled["x-dead-letter-routing-key"] = to[1]
        self.channel.queue_declare(name, durable=True, arguments=spelled)

    def level(self, name: str, *, to: tuple[str, str]) -> None:
        """A quorum queue that dead-letters at least once after a tenth of a second."""
        self.queue(
            name,
            to=to,
            x_queue_type="quorum",
            x_message_ttl=100,
            x_dead_letter_strategy="at-least-once",
            x_overflow="reject-publish",
        )

    def exchange(self, name: str, kind: str = "direct", **arguments: object) -> None:
        spelled = {argument.replace("_", "-"): value for argument, value in arguments.items()}
        self.channel.exchange_declare(name, kind, durable=True, arguments=spelled)

    def bind(self, exchange: str, queue: str, key: str = "") -> None:
        self.channel.queue_bind(queue, exchange, key)

    def send(self, queue: str, count: int = 1, *, exchange: str = "", **properties: object) -> None:
        stamp = int(time.time())
        for _ in range(count):
            self.channel.basic_publish(
                exchange, queue, b"{}", pika.BasicProperties(delivery_mode=2, timestamp=stamp, **properties)
            )

    def returned(self, exchange: str, key: str) -> bool:
        """Whether a mandatory publish comes back."""
        channel = self.connection.channel()
        channel.confirm_delivery()
        try:
            channel.basic_publish(exchange, key, b"{}", mandatory=True)
        except pika.exceptions.UnroutableError:
            return True
        finally:
            channel.close()
        return False

    def depth(self, queue: str) -> int:
        return int(self.channel.queue_declare(queue, passive=True).method.message_count)

    def arrives(self, queue: str, count: int = 1, seconds: float = 60.0) -> None:
        wait_for(lambda: self.depth(queue) >= count, f"{count} letters in {queue}", seconds)

    def stays_empty(self, queue: str, seconds: float = 1.0) -> None:
        time.sleep(seconds)
        assert self.depth(queue) == 0

    def reject(self, queue: str, *, requeue: bool = False) -> None:
        wait_for(lambda: self.depth(queue) > 0, f"a letter in {queue}")
        method, _, _ = self.channel.basic_get(queue)
        assert method is not None
        self.channel.basic_reject(method.delivery_tag, requeue=requeue)

    def refuses(self, action: Callable[[Any], object]) -> int:
        """The code with which the broker refuses what is done on a channel of its own; 0: it does not."""
        return refusal_of(self.vhost.url, action)

    def shape(self) -> Topology:
        return run(read_topology(parse_addresses(self.vhost.url)[0], self.vhost.api))

    def found(self, rule: str, subject: str, watched: frozenset[str] | None = None) -> Finding:
        """What the doctor says of it, once the broker's figures show it."""
        told: list[Finding] = []

        def look() -> bool:
            told[:] = [
                each
                for each in findings(self.shape(), watched)
                if (each.rule, each.subject) == (rule, subject)
            ]
            return bool(told)

        wait_for(look, f"{rule} of {subject}", SLOW_S)
        return told[0]

    def is_clean(self, watched: frozenset[str] | None = None) -> None:
        until = time.monotonic() + SLOW_S
        while told := findings(self.shape(), watched):
            assert time.monotonic() < until, told
            time.sleep(0.1)

    def apply(self, finding: Finding) -> None:
        """Run a fix as it stands there."""
        command, *arguments = shlex.split(finding.fix)
        assert command == "rabbitmqctl"
        self.vhost.broker.rabbitmqctl(*arguments)


@pytest.fixture
def bench(vhost: Vhost) -> Iterator[Bench]:
    with connected(vhost.url) as connection:
        yield Bench(vhost, connection)


@contextmanager
def consumer(url: str, queue: str, *, prefetch: int = 10, ack: bool = True) -> Iterator[list[bytes]]:
    """Somebody who consumes; turn the wheel with `turn`. Acknowledges nothing unless `ack` is off."""
    with connected(url) as connection:
        channel = connection.channel()
        if prefetch:
            channel.basic_qos(prefetch_count=prefetch)
        taken = _Taken(connection)
        channel.basic_consume(
            queue, lambda _channel, _method, _properties, body: taken.append(body), auto_ack=not ack
        )
        yield taken


class _Taken(list[bytes]):
    def __init__(self, connection: Any) -> None:
        super().__init__()
        self.connection = connection


def turn(taken: list[bytes], seconds: float = 1.0) -> int:
    """Let a consumer take what it is given for so long; how much it has."""
    assert isinstance(taken, _Taken)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        taken.connection.process_data_events(0.05)
    return len(taken)


@contextmanager
def user(vhost: Vhost, name: str, *, configure: str, write: str, read: str) -> Iterator[str]:
    """Another user of the vhost; yields its URL."""
    call(vhost.broker, "PUT", "users", name, content={"password": "pw", "tags": ""})
    call(
        vhost.broker,
        "PUT",
        "permissions",
        vhost.name,
        name,
        content={"configure": configure, "write": write, "read": read},
    )
    parts = urlsplit(vhost.url)
    try:
        yield parts._replace(netloc=f"{name}:pw@{parts.hostname}:{parts.port}").geturl()
    finally:
        call(vhost.broker, "DELETE", "users", name)


# -- refusals ----------------------------------------------------------------------------------------------
def level_with_bad_and_good(bench: Bench) -> None:
    """Letters of two keys through one at-least-once queue; only the good ones have a home."""
    bench.exchange("in")
    bench.exchange("dlx")
    bench.level("level", to=("dlx", ""))
    bench.queue("good")
    for key in ("good", "bad"):
        bench.bind("in", "level", key)
    bench.bind("dlx", "good", "good")


def test_32_letters_without_a_target_stop_an_at_least_once_queue(bench: Bench) -> None:
    level_with_bad_and_good(bench)
    bench.send("bad", 32, exchange="in")
    time.sleep(1)
    bench.send("good", 20, exchange="in")
    bench.stays_empty("good", 3)

    found = bench.found("at-least-once-into-refusing", "level")

    assert found.severity is Severity.ERROR
    assert found.path[:5] == ("queue level", "expired after 100 ms", "exchange dlx", "key bad", "no binding")


def test_with_a_catch_all_it_does_not_stop(bench: Bench) -> None:
    level_with_bad_and_good(bench)
    bench.exchange("caught", "fanout")
    bench.queue("caught")
    bench.bind("caught", "caught")
    bench.vhost.put(
        "policies",
        "catch",
        pattern="^dlx$",
        definition={"alternate-exchange": "caught"},
        **{"apply-to": "exchanges"},
    )
    bench.send("bad", 32, exchange="in")
    bench.arrives("caught", 32, 20)
    bench.send("good", 20, exchange="in")
    bench.arrives("good", 20, 20)

    bench.is_clean(frozenset({"good", "caught"}))


def test_32_letters_for_a_full_queue_stop_it_too(bench: Bench) -> None:
    level_with_bad_and_good(bench)
    bench.queue("full", x_max_length=1, x_overflow="reject-publish")
    bench.bind("dlx", "full", "bad")
    bench.send("full", 1)
    bench.arrives("full")
    bench.send("bad", 32, exchange="in")
    time.sleep(1)
    bench.send("good", 20, exchange="in")
    bench.stays_empty("good", 3)

    found = bench.found("at-least-once-into-refusing", "level")

    assert found.path[4:6] == ("queue full", "max-length 1, reject-publish")
    held = bench.found("held-letters", "level")
    assert (held.severity, held.path[4]) == (Severity.ERROR, "queue full")


def test_a_target_without_a_limit_takes_them_all(bench: Bench) -> None:
    level_with_bad_and_good(bench)
    bench.queue("roomy", x_overflow="reject-publish")
    bench.bind("dlx", "roomy", "bad")
    bench.send("bad", 32, exchange="in")
    bench.send("good", 20, exchange="in")
    bench.arrives("good", 20, 20)

    bench.is_clean()


def test_a_short_delay_waits_behind_a_long_one(bench: Bench) -> None:
    bench.queue("orders", to=("", "orders.dlq"))
    bench.queue("orders.dlq")
    bench.queue("wait", to=("", "orders"))
    with consumer(bench.vhost.url, "orders") as taken:
        bench.send("wait", expiration="20000")
        bench.send("wait", expiration="200")
        assert turn(taken, 1.5) == 0
        found = bench.found("mixed-ttl", "wait")
        assert found.severity in (Severity.NOTE, Severity.WARNING)  # a warning once the depth is known
        assert found.path[-1] == "queue orders"


def test_with_one_ttl_for_the_queue_it_does_not(bench: Bench) -> None:
    bench.queue("orders", to=("", "orders.dlq"))
    bench.queue("orders.dlq")
    bench.queue("wait", to=("", "orders"), x_message_ttl=200)
    with consumer(bench.vhost.url, "orders") as taken:
        bench.send("wait", 2)
        assert turn(taken, 1.5) == 2
        bench.is_clean()


# -- alternate exchanges -----------------------------------------------------------------------------------
def test_an_alternate_exchange_that_is_missing_loses_letters(bench: Bench) -> None:
    bench.exchange("dlx", alternate_exchange="lost")
    bench.queue("orders", to=("dlx", ""))
    bench.send("orders", 2)
    bench.reject("orders")
    assert bench.returned("dlx", "orders"), "no queue took it"
    assert bench.found("alternate-exchange", "dlx").path[-2:] == ("exchange lost", "no such exchange")

    bench.exchange("lost", "fanout")
    bench.queue("caught")
    bench.bind("lost", "caught")
    bench.reject("orders")
    bench.arrives("caught")
    bench.is_clean(frozenset({"caught"}))


def test_alternate_exchanges_in_a_circle_lose_letters(bench: Bench) -> None:
    bench.exchange("one", alternate_exchange="two")
    bench.exchange("two", alternate_exchange="one")
    assert bench.returned("one", "orders")
    assert bench.found("alternate-exchange", "one").path[-1] == "has been there: dropped"

    bench.queue("caught")
    bench.channel.exchange_delete("two")
    bench.exchange("two", "fanout")
    bench.bind("two", "caught")
    assert not bench.returned("one", "orders")
    bench.is_clean()


def test_an_alternate_exchange_hides_that_an_origin_is_gone(bench: Bench) -> None:
    bench.exchange("deadletter.return.orders", "fanout")
    assert bench.returned("deadletter.return.orders", "orders"), "as it should"
    bench.exchange("catch", "fanout")
    bench.queue("caught")
    bench.bind("catch", "caught")
    bench.vhost.put(
        "policies",
        "catch-all",
        pattern="^dead",
        definition={"alternate-exchange": "catch"},
        **{"apply-to": "exchanges"},
    )
    wait_for(lambda: not bench.returned("deadletter.return.orders", "orders"), "the policy")
    found = bench.found("alternate-exchange", "deadletter.return.orders")

    bench.apply(found)

    wait_for(lambda: bench.returned("deadletter.return.orders", "orders"), "the fix")
    bench.is_clean()


def test_an_alternate_exchange_leads_back_to_where_the_letter_died(bench: Bench) -> None:
    bench.exchange("shop")
    bench.exchange("dlx", alternate_exchange="shop")
    bench.queue("orders", to=("dlx", ""))
    bench.bind("shop", "orders", "order.new")
    bench.send("order.new", exchange="shop")
    for _ in range(5):
        bench.reject("orders")
    bench.arrives("orders")
    assert bench.found("alternate-exchange", "orders").path[-2:] == ("exchange shop", "queue orders")

    bench.queue("orders.dlq")
    bench.bind("dlx", "orders.dlq", "order.new")
    bench.reject("orders")
    bench.arrives("orders.dlq")
    bench.stays_empty("orders", 0.2)
    bench.is_clean()


def test_an_alternate_exchange_takes_letters_where_nobody_looks(bench: Bench) -> None:
    bench.exchange("catch", "fanout")
    bench.exchange("dlx", alternate_exchange="catch")
    bench.queue("orders", to=("dlx", ""))
    bench.queue("caught")
    bench.bind("catch", "caught")
    bench.send("orders")
    bench.reject("orders")
    bench.arrives("caught")
    assert bench.found("alternate-exchange", "orders").path[-2:] == ("queue caught", "no consumer")

    with consumer(bench.vhost.url, "caught") as taken:
        assert turn(taken, 0.5) == 1
        bench.is_clean()


# -- neglect -----------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("argument", "value", "left"),
    [("x-message-ttl", 300, 0), ("x-max-length", 1, 1), ("x-expires", 3000, None)],
    ids=["ttl", "length", "expires"],
)
def test_limits_throw_parked_letters_away(bench: Bench, argument: str, value: int, left: int | None) -> None:
    bench.queue("orders", to=("", "orders.dlq"))
    bench.channel.queue_declare("orders.dlq", durable=True, arguments={argument: value})
    using = bench.connection.channel()
    if left is None:
        using.basic_consume(
            "orders.dlq", lambda *_: None
        )  # unused, it goes with its letters, before the look
    bench.send("orders", 3)
    for _ in range(3):
        bench.reject("orders")
    found = next(each for each in findings(bench.shape()) if each.rule == "dlq-limits")
    assert (found.subject, found.path[-1]) == ("orders.dlq", "gone")
    using.close()
    if left is None:
        wait_for(lambda: bench.vhost.get("queues", "orders.dlq") is None, "the queue to go")
        return
    time.sleep(1)
    assert bench.depth("orders.dlq") == left


def test_without_limits_they_stay(bench: Bench) -> None:
    bench.queue("orders", to=("", "orders.dlq"))
    bench.queue("orders.dlq")
    bench.send("orders", 3)
    for _ in range(3):
        bench.reject("orders")
    time.sleep(2)
    assert bench.depth("orders.dlq") == 3

    bench.is_clean()


def test_a_queue_without_a_consumer_grows(bench: Bench) -> None:
    bench.queue("orders")
    with background(bench.vhost.url, "orders"):
        found = bench.found("unused-queue", "orders")
        assert found.path[:2] == ("queue orders", "no consumer")
        assert bench.vhost.depth("orders")

        with consumer(bench.vhost.url, "orders", ack=False) as taken:
            turn(taken, 2)
            assert not [each for each in findings(bench.shape()) if each.rule == "unused-queue"]


def test_a_queue_without_a_consumer_expires_into_the_dead_letters_of_others(bench: Bench) -> None:
    bench.exchange("shop", "fanout")
    bench.queue("orders", to=("", "orders.dlq"))
    bench.queue("old", to=("", "orders.dlq"), x_message_ttl=4000)
    bench.queue("orders.dlq")
    for name in ("orders", "old"):
        bench.bind("shop", name)
    with consumer(bench.vhost.url, "orders", ack=False) as taken:
        bench.send("order.new", exchange="shop")
        assert turn(taken, 0.5) == 1, "worked on, nothing failed"
        assert bench.found("unused-queue", "old").path[-1] == "queue orders.dlq"
        bench.arrives("orders.dlq")  # and yet there is a dead letter

        bench.channel.queue_delete("old")
        bench.channel.queue_purge("orders.dlq")
        bench.send("order.new", exchange="shop")
        assert turn(taken, 0.5) == 2
        bench.stays_empty("orders.dlq", 5)
        bench.is_clean()


def test_letters_stay_in_a_queue_that_nobody_watches(bench: Bench) -> None:
    bench.queue("orders", to=("", "orders.dlq"))
    bench.queue("orders.dlq")
    bench.send("orders", 3)
    for _ in range(3):
        bench.reject("orders")
    wait_for(lambda: bench.vhost.depth("orders.dlq") == 3, "the figures")
    found = bench.found("unwatched-dlq", "orders.dlq", frozenset())
    assert "3 letters lie there" in found.why
    assert bench.depth("orders.dlq") == 3

    bench.is_clean(frozenset({"orders.dlq"}))
    bench.is_clean(None)
    with consumer(bench.vhost.url, "orders.dlq", ack=False) as taken:
        assert turn(taken, 0.5) == 3
        bench.is_clean(frozenset())


def test_two_services_take_each_others_letters(bench: Bench) -> None:
    bench.queue("orders", to=("", "orders.dlq"))
    bench.queue("orders.dlq")
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    with (
        user(bench.vhost, "billing", **everything) as other,
        consumer(bench.vhost.url, "orders.dlq") as own,
    ):
        with consumer(other, "orders.dlq") as foreign:
            bench.send("orders", 10)
            for _ in range(10):
                bench.reject("orders")
            assert turn(own, 0.5) + turn(foreign, 0.5) == 10
            assert len(foreign) == 5, "letters of orders, in the hands of billing"
            assert bench.found("mixed-services", "orders.dlq").severity is Severity.WARNING

        with consumer(bench.vhost.url, "orders.dlq"):
            bench.is_clean()


def test_a_consumer_without_a_prefetch_takes_everything(bench: Bench) -> None:
    bench.queue("orders", x_queue_type="quorum")
    bench.send("orders", 200)
    with consumer(bench.vhost.url, "orders", prefetch=0) as greedy:
        assert turn(greedy, 1) == 200
        with consumer(bench.vhost.url, "orders") as second:
            assert turn(second, 1) == 0
            found = bench.found("no-prefetch", "orders")
            assert found.path[2] == "acknowledges, prefetch 0"
            assert found.harm.value == ("lost" if bench.is_4 else "stuck")

    with consumer(bench.vhost.url, "orders") as first, consumer(bench.vhost.url, "orders") as second:
        assert (turn(first, 1), turn(second, 1)) == (10, 10)
        bench.is_clean()


# -- versions ----------------------------------------------------------------------------------------------
def test_delayed_retries_need_4_3(bench: Bench) -> None:
    """On 3.10 and 4.0 the arguments do nothing and the policy is refused; 4.3.6 has both."""
    bench.queue("orders", x_queue_type="quorum", x_delayed_retry_type="all", x_delayed_retry_min=600_000)
    bench.send("orders")
    bench.reject("orders", requeue=True)
    if bench.is_43:
        bench.stays_empty("orders")
    else:
        bench.arrives("orders")
    classic = bench.refuses(
        lambda channel: channel.queue_declare(
            "plain",
            durable=True,
            arguments={"x-delayed-retry-type": "all", "x-delayed-retry-min": 1500},
        )
    )

    def by_policy() -> None:
        bench.vhost.put(
            "policies",
            "delay",
            pattern="^orders$",
            definition={"delayed-retry-type": "all", "delayed-retry-min": 1500},
            **{"apply-to": "quorum_queues" if bench.is_4 else "queues"},
        )

    if bench.is_43:
        assert classic == 406
        by_policy()
        bench.is_clean()
        return
    assert classic == 0
    assert bench.found("native-delay-ignored", "orders").severity is Severity.ERROR
    assert bench.found("native-delay-ignored", "plain").severity is Severity.ERROR
    with pytest.raises(AssertionError, match="not recognised policy settings"):
        by_policy()
    asked = BrokerPolicy(name="delay", pattern="^orders$", definition={"delayed-retry-type": "all"})
    [found] = findings(topology(version=bench.version, policies=[asked]))
    assert (found.rule, found.severity) == ("native-delay-ignored", Severity.ERROR)
    for name in ("orders", "plain"):
        bench.channel.queue_delete(name)
    bench.queue("orders", x_queue_type="quorum")
    bench.is_clean()


def test_policies_for_mirrors_are_refused_by_4(bench: Bench) -> None:
    """3.10 takes them, with a warning of ours; 4.0 and 4.3 refuse them, and the file that has one."""
    content = {"pattern": "^x", "definition": {"ha-mode": "all"}, "apply-to": "queues"}
    if not bench.is_4:
        bench.vhost.put("policies", "ha", **content)
        assert bench.found("refused-by-4", "ha").severity is Severity.WARNING
        bench.vhost.delete("policies", "ha")
        bench.is_clean()
        return
    with pytest.raises(AssertionError, match="not recognised policy settings"):
        bench.vhost.put("policies", "ha", **content)
    file = {"policies": [{"name": "ha", "priority": 0, **content}]}
    with pytest.raises(AssertionError, match="not recognised policy settings"):
        call(bench.vhost.broker, "POST", "definitions", bench.vhost.name, content=file)
    mirrored = BrokerPolicy(name="ha", pattern="^x", definition={"ha-mode": "all"})
    [found] = findings(topology(version=bench.version, policies=[mirrored]))
    assert found.severity is Severity.ERROR


@pytest.mark.parametrize(
    ("argument", "value", "code"),
    [("x-queue-master-locator", "min-masters", 541), ("x-queue-version", 1, 406)],
    ids=["locator", "version"],
)
def test_arguments_that_4_3_refuses(bench: Bench, argument: str, value: str | int, code: int) -> None:
    """3.10 and 4.0 take them, with a warning of ours; 4.3 does not let the application in."""
    told = bench.refuses(
        lambda channel: channel.queue_declare("orders", durable=True, arguments={argument: value})
    )
    if not bench.is_43:
        assert told == 0
        assert bench.found("refused-by-4", "orders").severity is Severity.WARNING
        bench.channel.queue_delete("orders")
        bench.queue("orders")
        bench.is_clean()
        return
    assert told == code
    declared = Queue(name="orders", arguments={argument: value})
    [found] = findings(topology(version=bench.version, queues=[declared]))
    assert (found.rule, found.severity) == ("refused-by-4", Severity.ERROR)


def test_lazy_means_nothing_to_4(bench: Bench) -> None:
    """On 3.10 a lazy queue keeps letters out of memory; on 4.x it is a queue like any other."""
    bench.queue("lazy", x_queue_mode="lazy")
    bench.queue("plain")
    for name in ("lazy", "plain"):
        bench.send(name, 50)

    def in_memory(name: str) -> int | None:
        return (bench.vhost.get("queues", name) or {}).get("messages_ram")

    wait_for(lambda: bench.vhost.depth("lazy") == bench.vhost.depth("plain") == 50, "the figures")
    if bench.is_4:
        wait_for(lambda: in_memory("lazy") == in_memory("plain"), "no difference")
    else:
        wait_for(lambda: (in_memory("lazy"), in_memory("plain")) == (0, 50), "a difference")
    assert bench.found("refused-by-4", "lazy").severity is Severity.NOTE

    bench.channel.queue_delete("lazy")
    bench.is_clean()


@pytest.mark.slow
@pytest.mark.kills
def test_a_transient_queue_is_gone_after_a_restart(bench: Bench) -> None:
    """Every version takes it, 4.3.6 too, and calls it deprecated."""
    bench.channel.queue_declare("passing", durable=False)
    bench.queue("staying")
    for name in ("passing", "staying"):
        bench.send(name)
        bench.arrives(name)
    assert bench.found("refused-by-4", "passing").path[-1] == "gone"

    bench.connection.close()
    bench.vhost.broker.restart()

    assert bench.refuses(lambda channel: channel.queue_declare("passing", passive=True)) == 404
    assert bench.refuses(lambda channel: channel.queue_declare("staying", passive=True)) == 0
    bench.is_clean()


# -- access ------------------------------------------------------------------------------------------------
def test_a_user_without_write_on_the_dlx_cannot_create_the_queue_anew(bench: Bench) -> None:
    bench.queue("orders", to=("", "orders.dlq"))
    bench.queue("orders.dlq")
    wanted = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders.dlq"}

    with user(bench.vhost, "app", configure="^orders", write="^orders", read="^orders") as url:

        def declares() -> int:
            return refusal_of(url, lambda c: c.queue_declare("orders", durable=True, arguments=wanted))

        assert declares() == 0, "while it is there, nobody notices"
        with consumer(url, "orders"):
            found = bench.found("retry-permissions", "orders")
        bench.channel.queue_delete("orders")
        assert declares() == 403

        bench.apply(found)

        assert declares() == 0
        with consumer(url, "orders"):
            assert not [each for each in findings(bench.shape()) if each.rule == "retry-permissions"]


def test_a_service_without_the_default_exchange_cannot_retry(bench: Bench) -> None:
    bench.queue("deadletter.due")
    ours = {"configure": r"^deadletter\.", "read": ".*"}

    def publish(channel: Any) -> None:
        channel.confirm_delivery()
        channel.basic_publish("", "deadletter.due", b"{}", mandatory=True)

    with user(bench.vhost, "dlq", write=r"^deadletter\.", **ours) as url:
        assert refusal_of(url, publish) == 403
        with consumer(url, "deadletter.due"):
            found = bench.found("retry-permissions", "deadletter.due")
            assert found.severity is Severity.ERROR
            bench.apply(found)
            assert refusal_of(url, publish) == 0
            bench.is_clean()


# -- live --------------------------------------------------------------------------------------------------
def test_a_dead_letter_queue_grows_while_something_fails(bench: Bench) -> None:
    bench.queue("orders", to=("", "orders.dlq"), x_max_length=0)
    bench.queue("orders.dlq")
    with background(bench.vhost.url, "orders"):
        found = bench.found("growing-dlq", "orders.dlq")
        assert found.path[-1].startswith("grows by ")
    assert bench.depth("orders.dlq") > 0

    bench.is_clean()


def test_letters_without_a_target_are_held_and_nobody_sees_them(bench: Bench) -> None:
    bench.level("level", to=("", "due"))
    bench.level("healthy", to=("", "home"))
    bench.queue("home")
    bench.send("level", 3)
    bench.send("healthy", 3)
    found = bench.found("held-letters", "level")

    assert found.path[-2:] == ("no such queue", "3 held")
    assert bench.channel.basic_get("level")[0] is None, "no client can take them"
    assert bench.depth("level") == 0
    assert bench.depth("home") == 3
    assert not [each for each in findings(bench.shape()) if each.subject == "healthy"]


def test_a_shorter_ttl_does_not_hold_for_letters_that_wait_already(bench: Bench) -> None:
    def ttl(duration_ms: int) -> None:
        bench.vhost.put(
            "policies",
            "delay",
            pattern="^wait$",
            definition={"message-ttl": duration_ms},
            **{"apply-to": "queues"},
        )
        time.sleep(0.5)

    ttl(600_000)
    bench.queue("orders")
    bench.queue("wait", to=("", "orders"))
    bench.send("wait")
    time.sleep(0.5)
    ttl(300)
    bench.send("wait")
    bench.stays_empty("orders", 2)
    wait_for(lambda: bench.vhost.depth("wait") == 2, "the figures")

    def overdue(shape: Topology) -> list[str]:
        # A minute later: the rule allows for another machine's clock.
        return [each.subject for each in findings(shape, later_ms=70_000) if each.rule == "overdue-level"]

    wait_for(lambda: overdue(bench.shape()) == ["wait"], "the head's age")

    bench.channel.queue_purge("wait")
    bench.send("wait")
    bench.arrives("orders")
    wait_for(lambda: overdue(bench.shape()) == [], "no letter")


# -- settings that do not hold -------------------------------------------------------------------------------
def test_a_policy_with_a_key_that_the_queue_does_not_take(bench: Bench) -> None:
    bench.queue("orders")
    bench.queue("orders.retry", to=("", "orders"))
    void = {"message-ttl": 100, "delivery-limit": 30}
    bench.vhost.put("policies", "retry", pattern="retry$", definition=void, priority=7)
    bench.send("orders.retry")
    bench.stays_empty("orders")
    found = bench.found("policy-without-effect", "orders.retry")
    assert found.severity is Severity.ERROR
    assert "delivery-limit makes all of it void" in found.why

    bench.channel.queue_purge("orders.retry")
    bench.apply(found)
    bench.send("orders.retry")
    bench.arrives("orders")
    wait_for(lambda: not rules_of(bench, "policy-without-effect"), "nothing more to say", SLOW_S)


def test_a_void_policy_lets_the_next_one_apply(bench: Bench) -> None:
    bench.queue("orders")
    bench.queue("orders.retry", to=("", "orders"))
    void = {"message-ttl": 60_000, "delivery-limit": 30}
    bench.vhost.put("policies", "retry", pattern="retry$", definition=void, priority=7)
    bench.vhost.put("policies", "low", pattern="retry$", definition={"message-ttl": 100}, priority=1)
    bench.send("orders.retry")
    bench.arrives("orders")
    assert bench.shape().queues["orders.retry"].policy == "low"
    assert "policy low applies instead" in bench.found("policy-without-effect", "orders.retry").path


def test_a_delay_without_a_ttl_keeps_what_died_into_it(bench: Bench) -> None:
    bench.queue("orders", to=("", "orders.retry"))
    bench.queue("orders.retry", to=("", "orders"))
    with consumer(bench.vhost.url, "orders"):
        bench.send("orders.retry")
        found = bench.found("delay-without-ttl", "orders.retry")
        assert found.path[-1] == "never back in queue orders"
        bench.vhost.put("policies", "delay", pattern="retry$", definition={"message-ttl": 100})
        wait_for(lambda: not rules_of(bench, "delay-without-ttl"), "nothing more to say", SLOW_S)


def test_a_declared_delay_is_not_made_longer_by_a_policy(bench: Bench) -> None:
    bench.queue("orders")
    bench.queue("orders.retry", to=("", "orders"), x_message_ttl=100)
    slower = {"pattern": "retry$", "definition": {"message-ttl": 60_000}}
    bench.vhost.put("policies", "slower", **slower)
    bench.send("orders.retry")
    bench.arrives("orders")
    assert "x-message-ttl=60000" in bench.found("argument-over-policy", "orders.retry").fix

    bench.channel.queue_delete("orders.retry")
    bench.queue("orders.retry", to=("", "orders"))
    bench.channel.queue_purge("orders")
    bench.send("orders.retry")
    bench.stays_empty("orders")
    assert not rules_of(bench, "argument-over-policy")


def rules_of(bench: Bench, rule: str) -> list[Finding]:
    return [each for each in findings(bench.shape()) if each.rule == rule]


@contextmanager
def background(url: str, queue: str) -> Iterator[None]:
    """Somebody who publishes fifty letters a second."""
    stop = threading.Event()

    def publish() -> None:
        with connected(url) as connection:
            channel = connection.channel()
            while not stop.wait(0.02):
                channel.basic_publish("", queue, b"{}")

    thread = threading.Thread(target=publish)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(10)
