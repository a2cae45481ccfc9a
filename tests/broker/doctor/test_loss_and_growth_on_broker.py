"""Rules about loss, growth and cycles, shown on a real broker.

For every rule the broken shape is declared and a message really is lost or multiplied in it, and the rule
says so of the shape as we read it from that broker. Then the corrected twin: nothing is lost, nothing said.

About `doctor.rules.loss`, `doctor.rules.multiplying`, `doctor.rules.cycles`, `doctor.rules.limits`,
`doctor.rules.strategy`.
"""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator
from typing import Any

import pika
import pytest
from tests.brokers import Vhost, call
from tests.postbox import depth_of, run, wait_for

from deadletter.amqp.address import parse_addresses
from deadletter.broker.live_topology import read_topology
from deadletter.core.topology.look_cost import no_limit_arguments
from deadletter.doctor.finding import Finding
from deadletter.doctor.rules import cycles, examine, limits, loss, multiplying, rules_in, strategy
from deadletter.doctor.rules.case import Case

MINE = {rule.id for rule in rules_in(loss, limits, strategy, multiplying, cycles)}
SETTLED_S = 0.5
"""Long enough for a letter to die and to arrive, or to be missed: the twins show that it is."""
AT_LEAST_ONCE = {"dead_letter_strategy": "at-least-once", "overflow": "reject-publish"}


class Bench:
    """A vhost to build shapes in, publish into, and look at."""

    def __init__(self, vhost: Vhost) -> None:
        self.vhost = vhost
        self.connection = pika.BlockingConnection(pika.URLParameters(vhost.url))
        self.channel = self.connection.channel()
        self.channel.confirm_delivery()

    # -- shapes ------------------------------------------------------------------------------------------
    def queue(self, name: str, kind: str = "classic", /, **arguments: object) -> None:
        spelled = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        self.channel.queue_declare(name, durable=True, arguments={"x-queue-type": kind, **spelled})

    def dead_to(self, name: str, target: str, kind: str = "classic", /, **arguments: object) -> None:
        self.queue(name, kind, dead_letter_exchange="", dead_letter_routing_key=target, **arguments)

    def exchange(self, name: str, kind: str = "fanout") -> None:
        self.channel.exchange_declare(name, kind, durable=True)

    def bind(self, exchange: str, queue: str, key: str = "") -> None:
        self.channel.queue_bind(queue, exchange, key)

    def unlimited(self) -> dict[str, object]:
        """What takes the delivery limit off a quorum queue on this broker."""
        found = no_limit_arguments(self.vhost.broker.version)
        return {name.removeprefix("x-").replace("-", "_"): value for name, value in found.items()}

    def clear(self) -> None:
        for queue in self.vhost.list("queues"):
            self.vhost.delete("queues", queue["name"])
        for exchange in self.vhost.list("exchanges"):
            if exchange["name"] and not exchange["name"].startswith("amq."):
                self.vhost.delete("exchanges", exchange["name"])
        for policy in self.vhost.list("policies"):
            self.vhost.delete("policies", policy["name"])

    # -- letters -----------------------------------------------------------------------------------------
    def publish(self, key: str, exchange: str = "", count: int = 1) -> None:
        for _ in range(count):
            self.channel.basic_publish(exchange, key, b"{}", mandatory=True)

    def reject(self, queue: str, *, requeue: bool = False) -> bool:
        """Take one and reject it; False when none comes."""
        until = time.monotonic() + 5
        while time.monotonic() < until:
            method, _, _ = self.channel.basic_get(queue)
            if method is not None:
                self.channel.basic_reject(method.delivery_tag, requeue=requeue)
                return True
            if requeue and depth_of(self.channel, queue) == 0:
                time.sleep(0.2)
                if depth_of(self.channel, queue) == 0:
                    return False
            time.sleep(0.02)
        return False

    def reject_until_gone(self, queue: str, most: int) -> None:
        times = 0
        while self.reject(queue, requeue=True):
            times += 1
            assert times <= most

    def drain(self, queue: str) -> int:
        """Take everything that is there now."""
        taken = 0
        while self.channel.basic_get(queue, auto_ack=True)[0] is not None:
            taken += 1
        return taken

    def depth(self, queue: str) -> int:
        return depth_of(self.channel, queue)

    def arrives(self, queue: str, count: int = 1) -> None:
        wait_for(lambda: self.depth(queue) == count, f"{count} letters in {queue}")

    def all_gone(self, *queues: str) -> bool:
        """Nothing is left; not only for the moment in which it is on its way to another queue."""
        wait_for(lambda: all(self.depth(queue) == 0 for queue in queues), "nothing anywhere")
        time.sleep(SETTLED_S)
        return all(self.depth(queue) == 0 for queue in queues)

    # -- findings ----------------------------------------------------------------------------------------
    def examined(self) -> tuple[Finding, ...]:
        shape = run(read_topology(parse_addresses(self.vhost.url)[0], self.vhost.api))
        return examine(Case(topology=shape, now_ms=0))

    def findings(self) -> list[Finding]:
        return [found for found in self.examined() if found.rule in MINE]

    def told(self) -> list[tuple[str, str, str]]:
        return [(found.rule, found.severity.value, found.subject) for found in self.findings()]


@pytest.fixture
def bench(vhost: Vhost) -> Iterator[Bench]:
    made = Bench(vhost)
    try:
        yield made
    finally:
        made.connection.close()


# -- loss ---------------------------------------------------------------------------------------------------


def test_a_missing_dead_letter_exchange(bench: Bench) -> None:
    bench.queue("orders", dead_letter_exchange="dlx")
    bench.publish("orders")
    assert bench.reject("orders")
    assert bench.all_gone("orders")
    assert bench.told() == [("missing-dlx", "error", "orders")]

    bench.exchange("dlx")
    bench.queue("orders.dlq")
    bench.bind("dlx", "orders.dlq")
    bench.publish("orders")
    assert bench.reject("orders")
    bench.arrives("orders.dlq")
    assert bench.told() == []


def test_a_key_that_nothing_takes(bench: Bench) -> None:
    bench.exchange("shop", "topic")
    bench.exchange("dlx", "topic")
    bench.queue("orders", dead_letter_exchange="dlx")
    bench.queue("orders.dlq")
    bench.bind("shop", "orders", "order.*")
    bench.bind("dlx", "orders.dlq", "orders")
    bench.publish("order.new", "shop")
    assert bench.reject("orders")
    assert bench.all_gone("orders", "orders.dlq")
    assert bench.told() == [("dead-letter-key-unbound", "error", "orders")]

    bench.bind("dlx", "orders.dlq", "order.new")
    bench.publish("order.new", "shop")
    bench.publish("order.old", "shop")
    assert bench.reject("orders")
    assert bench.reject("orders")
    bench.arrives("orders.dlq")
    time.sleep(SETTLED_S)
    assert bench.depth("orders.dlq") == 1  # of two
    assert bench.told() == [("dead-letter-key-unbound", "warning", "orders")]

    bench.bind("dlx", "orders.dlq", "order.*")
    bench.publish("order.old", "shop")
    assert bench.reject("orders")
    bench.arrives("orders.dlq", 2)
    assert bench.told() == []


def test_a_letter_that_comes_back_by_its_queues_name_is_lost_the_second_time(bench: Bench) -> None:
    bench.exchange("shop", "topic")
    bench.exchange("retry", "topic")
    bench.queue("orders", dead_letter_exchange="retry")
    bench.dead_to("orders.retry", "orders", message_ttl=100)
    bench.bind("shop", "orders", "order.#")
    bench.bind("retry", "orders.retry", "order.#")
    bench.publish("order.new", "shop")
    assert bench.reject("orders")
    assert bench.reject("orders")  # it came back
    assert bench.all_gone("orders", "orders.retry")
    assert bench.told() == [("dead-letter-key-unbound", "error", "orders")]

    bench.bind("retry", "orders.retry", "orders")
    bench.publish("order.new", "shop")
    assert bench.reject("orders")
    assert bench.reject("orders")
    bench.arrives("orders")
    assert bench.told() == []


def test_an_exchange_that_takes_no_key_but_its_own_name(bench: Bench) -> None:
    bench.exchange("dlq-exchange", "topic")
    bench.queue("dlq-queue")
    bench.bind("dlq-exchange", "dlq-queue", "dlq-exchange")
    with pytest.raises(pika.exceptions.UnroutableError):
        bench.publish("dlq-routing-key", "dlq-exchange")
    assert bench.told() == [("key-named-like-exchange", "note", "dlq-exchange")]

    bench.bind("dlq-exchange", "dlq-queue", "dlq-routing-key")
    bench.publish("dlq-routing-key", "dlq-exchange")
    bench.arrives("dlq-queue")
    assert bench.told() == []


# -- limits -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@pytest.mark.parametrize("limit", [{"message_ttl": 100}, {"max_length": 1}, {"max_length_bytes": 3}], ids=str)
def test_a_limit_without_a_dead_letter_exchange(bench: Bench, kind: str, limit: dict[str, Any]) -> None:
    unlimited = bench.unlimited() if kind == "quorum" else {}
    bench.queue("orders", kind, **limit, **unlimited)
    bench.publish("orders", count=3)
    # Versions differ in what they count as bytes of a letter: one may stay, three never.
    left = 0 if "message_ttl" in limit else 1
    wait_for(lambda: bench.depth("orders") <= left, "the limit")
    assert bench.told() == [("limit-without-dlx", "warning", "orders")]

    bench.clear()
    # At least once needs reject-publish, which would keep a length from pushing letters out.
    safe = {**AT_LEAST_ONCE, **unlimited} if kind == "quorum" else {}
    bench.dead_to("orders", "orders.dlq", kind, **limit, **safe)
    bench.queue("orders.dlq")
    refused = 0
    for _ in range(3):
        try:
            bench.publish("orders")
        except pika.exceptions.NackError:
            refused += 1
        time.sleep(0.1)  # a quorum queue lets a few pass before it refuses
    wait_for(
        lambda: bench.depth("orders") + bench.depth("orders.dlq") + refused == 3, "every letter somewhere"
    )
    assert bench.told() == []


def test_a_full_queue_that_refuses_loses_nothing(bench: Bench) -> None:
    bench.queue("orders", max_length=1, overflow="reject-publish")
    bench.publish("orders")
    with pytest.raises(pika.exceptions.NackError):
        bench.publish("orders")
    assert bench.told() == []


def test_a_queue_that_goes_takes_its_letters_with_it(bench: Bench) -> None:
    bench.queue("archive")
    bench.dead_to("orders", "orders.dlq")
    bench.queue("orders.dlq", expires=3000)
    bench.dead_to("delay", "archive", message_ttl=10_000, expires=3000)
    told = {(each.rule, each.severity.value, each.subject) for each in bench.examined()}
    assert {rule for rule in told if rule[0] in MINE} == {("expiring-queue", "error", "delay")}
    assert ("dlq-limits", "error", "orders.dlq") in told
    bench.publish("delay")
    bench.publish("orders")
    assert bench.reject("orders")
    wait_for(lambda: {each["name"] for each in bench.vhost.list("queues")} == {"orders", "archive"}, "expiry")
    assert bench.all_gone("orders", "archive")

    bench.queue("orders.dlq")
    bench.dead_to("delay", "archive", message_ttl=300)
    bench.publish("delay")
    bench.publish("orders")
    assert bench.reject("orders")
    bench.arrives("archive")
    bench.arrives("orders.dlq")
    assert bench.told() == []


def test_a_delivery_limit_destroys_a_queue_of_failures(bench: Bench) -> None:
    old = bench.vhost.broker.version.startswith("3.")
    bench.dead_to("orders", "orders.dlq")
    bench.queue("orders.dlq", "quorum", **({"delivery_limit": 3} if old else {}))
    bench.publish("orders")
    assert bench.reject("orders")
    bench.arrives("orders.dlq")
    bench.reject_until_gone("orders.dlq", most=22)
    assert bench.all_gone("orders", "orders.dlq")
    assert bench.told() == [("delivery-limit-into-nothing", "error", "orders.dlq")]

    bench.clear()
    bench.dead_to("orders", "orders.dlq")
    bench.queue("orders.dlq", "quorum", **bench.unlimited())
    bench.publish("orders")
    assert bench.reject("orders")
    for _ in range(25):
        assert bench.reject("orders.dlq", requeue=True)
    bench.arrives("orders.dlq")
    assert bench.told() == []


# -- at most once, at least once ----------------------------------------------------------------------------


def test_a_dead_letter_that_its_target_refuses(bench: Bench) -> None:
    """Side by side, because a broker takes seconds to tell what it holds: held letters are not ready."""
    names = ("plain", "classic", "overflowing", "safe")
    for name in names:
        bench.queue(f"{name}.dlq", max_length=1, overflow="reject-publish")
        bench.publish(f"{name}.dlq")
    bench.dead_to("plain", "plain.dlq", "quorum", **bench.unlimited())
    bench.dead_to("classic", "classic.dlq")
    bench.dead_to("overflowing", "overflowing.dlq", "quorum", **bench.unlimited())
    bench.dead_to("safe", "safe.dlq", "quorum", **AT_LEAST_ONCE, **bench.unlimited())
    kept = ("safe", "nowhere", "unbound")
    bench.exchange("dlx", "direct")
    for name, exchange in (("nowhere", "gone"), ("unbound", "dlx")):
        bench.queue(name, "quorum", dead_letter_exchange=exchange, **AT_LEAST_ONCE, **bench.unlimited())
    asked = {"dead-letter-strategy": "at-least-once"}
    asks = {"pattern": "^(classic|overflowing)$", "definition": asked, "apply-to": "queues"}
    bench.vhost.put("policies", "asks", **asks)
    for name in {*names, *kept}:
        bench.publish(name)
        assert bench.reject(name)
    told_at = time.monotonic() + 6  # every queue has told what it holds by then
    wait_for(lambda: all(bench.vhost.depth(name) == 1 for name in kept), "the letters that are held")
    time.sleep(max(0.0, told_at - time.monotonic()))
    assert [bench.vhost.depth(name) for name in names] == [0, 0, 0, 1]
    assert [bench.depth(f"{name}.dlq") for name in names] == [1, 1, 1, 1]
    assert bench.told() == [
        ("at-least-once-downgraded", "warning", "classic"),
        ("at-least-once-downgraded", "warning", "overflowing"),
        ("at-most-once-from-quorum", "warning", "plain"),
    ]


# -- growth -------------------------------------------------------------------------------------------------


def rounds(bench: Bench, *queues: str) -> list[int]:
    """Consumers reject everything, a daemon sends each dead-letter queue's letters back to its own queue."""
    counts = []
    for _ in range(3):
        for queue in queues:
            for _ in range(bench.depth(queue)):
                assert bench.reject(queue)
        time.sleep(SETTLED_S)
        for queue in queues:
            bench.publish(queue, count=bench.drain(f"{queue}.dlq"))
        counts.append(sum(bench.depth(queue) for queue in queues))
    return counts


def test_a_fanout_shared_by_two_owners(bench: Bench) -> None:
    bench.exchange("dlx")
    for name in ("orders", "invoices"):
        bench.queue(name, dead_letter_exchange="dlx")
        bench.queue(f"{name}.dlq")
        bench.bind("dlx", f"{name}.dlq")
    bench.publish("orders")
    assert rounds(bench, "orders", "invoices") == [2, 4, 8]
    assert bench.told() == [("shared-dlx-fanout", "error", "dlx")]

    bench.clear()
    bench.exchange("dlx", "direct")
    for name in ("orders", "invoices"):
        bench.queue(name, dead_letter_exchange="dlx")
        bench.queue(f"{name}.dlq")
        bench.bind("dlx", f"{name}.dlq", name)
    bench.publish("orders")
    assert rounds(bench, "orders", "invoices") == [1, 1, 1]
    assert bench.told() == []


def republished(bench: Bench) -> list[int]:
    """The worker rejects, and whatever is in the dead-letter queue goes to the exchange again."""
    counts = []
    bench.publish("order.new", "shop")
    for _ in range(3):
        for _ in range(bench.depth("orders")):
            assert bench.reject("orders")
        time.sleep(SETTLED_S)
        letters = bench.drain("orders.dlq")
        counts.append(letters)
        bench.publish("order.new", "shop", count=letters)
    return counts


def test_a_retry_through_the_exchange(bench: Bench) -> None:
    bench.exchange("shop", "topic")
    bench.dead_to("orders", "orders.dlq")
    bench.dead_to("reports", "orders.dlq", message_ttl=100)
    bench.queue("orders.dlq")
    bench.bind("shop", "orders", "order.*")
    bench.bind("shop", "reports", "order.new")
    assert republished(bench) == [2, 4, 8]
    assert bench.told() == [("republish-loop", "warning", "shop")]

    bench.clear()
    bench.exchange("shop", "topic")
    bench.dead_to("orders", "orders.dlq")
    bench.dead_to("reports", "reports.dlq", message_ttl=100)
    bench.queue("orders.dlq")
    bench.queue("reports.dlq")
    bench.bind("shop", "orders", "order.*")
    bench.bind("shop", "reports", "order.new")
    assert republished(bench) == [1, 1, 1]
    assert bench.told() == []


def test_a_queue_that_is_consumed_feeds_no_loop(bench: Bench) -> None:
    bench.exchange("shop", "topic")
    bench.queue("orders.dlq")
    for name in ("orders", "reports"):
        bench.dead_to(name, "orders.dlq", message_ttl=60_000)
        bench.bind("shop", name, "order.*")
        bench.channel.basic_consume(name, lambda *_: None, auto_ack=True)
    wait_for(lambda: len(bench.vhost.list("consumers")) == 2, "both consumers listed")
    assert bench.told() == []


# -- cycles -------------------------------------------------------------------------------------------------


def test_a_cycle_of_two_delays_drops_its_letters(bench: Bench) -> None:
    bench.dead_to("orders", "orders.retry", message_ttl=100)
    bench.dead_to("orders.retry", "orders", message_ttl=100)
    bench.publish("orders")
    time.sleep(0.5)
    assert bench.all_gone("orders", "orders.retry")
    assert bench.told() == [("cycle-without-rejection", "error", "orders")]

    bench.clear()
    bench.dead_to("orders", "orders.retry")
    bench.dead_to("orders.retry", "orders", message_ttl=100)
    bench.publish("orders")
    for _ in range(4):
        assert bench.reject("orders")
    bench.arrives("orders")
    assert bench.told() == []


def test_a_delivery_limit_makes_a_trap_of_a_retry_loop(bench: Bench) -> None:
    old = bench.vhost.broker.version.startswith("3.")
    limit = {"delivery_limit": 3} if old else {}
    bench.dead_to("orders", "orders.retry", "quorum", **AT_LEAST_ONCE, **limit)
    bench.dead_to("orders.retry", "orders", "quorum", message_ttl=100, **AT_LEAST_ONCE, **limit)
    bench.publish("orders")
    bench.reject_until_gone("orders", most=22)
    time.sleep(0.5)
    assert bench.all_gone("orders", "orders.retry")
    assert bench.told() == [("cycle-without-rejection", "error", "orders")]

    bench.clear()
    bench.dead_to("orders", "orders.retry", "quorum", **AT_LEAST_ONCE, **bench.unlimited())
    bench.dead_to("orders.retry", "orders", "quorum", message_ttl=100, **AT_LEAST_ONCE, **bench.unlimited())
    bench.publish("orders")
    for _ in range(25):
        assert bench.reject("orders", requeue=True)
    for _ in range(2):
        assert bench.reject("orders")
    bench.arrives("orders")
    assert bench.told() == []


# -- the cures ----------------------------------------------------------------------------------------------


def carry_out(bench: Bench, fix: str) -> None:
    """Do what the commands of a cure say, through the API: a command the broker refuses is an error here."""
    for command in fix.split(" && "):
        words = shlex.split(command)
        if words[:2] == ["rabbitmqctl", "set_policy"]:
            _, _, _, vhost, _, kinds, _, priority, name, pattern, definition = words
            assert vhost == bench.vhost.name
            bench.vhost.put(
                "policies",
                name,
                pattern=pattern,
                definition=json.loads(definition),
                priority=int(priority),
                **{"apply-to": kinds},
            )
            continue
        assert words[0] == "rabbitmqadmin", command
        at = words.index("declare")
        assert words[at - 1].removeprefix("--vhost=") == bench.vhost.name
        what, rest = words[at + 1], words[at + 2 :]
        if "=" in rest[0]:
            said = dict(word.split("=", 1) for word in rest)
        else:
            said = {rest[n].removeprefix("--").replace("-", "_"): rest[n + 1] for n in range(0, len(rest), 2)}
        declare(bench, what, said)


def declare(bench: Bench, what: str, said: dict[str, str]) -> None:
    arguments = json.loads(said.get("arguments", "{}"))
    match what:
        case "queue":
            if "type" in said:
                arguments["x-queue-type"] = said["type"]
            bench.vhost.put("queues", said["name"], durable=True, arguments=arguments)
        case "exchange":
            bench.vhost.put("exchanges", said["name"], durable=True, type=said["type"])
        case "binding":
            where = ("bindings", bench.vhost.name, "e", said["source"], "q", said["destination"])
            call(bench.vhost.broker, "POST", *where, content={"routing_key": said["routing_key"]})
        case _:
            raise AssertionError(what)


def broken(bench: Bench) -> list[str]:
    """One shape with many faults that commands can cure; the rules that find them."""
    bench.exchange("shop", "topic")
    bench.exchange("dlx", "topic")
    bench.queue("no-exchange", dead_letter_exchange="gone")
    bench.queue("no-binding", dead_letter_exchange="dlx", dead_letter_routing_key="x")
    bench.queue("no-name", dead_letter_exchange="")
    bench.bind("shop", "no-name", "b.*")
    bench.queue("some-keys", dead_letter_exchange="dlx")
    bench.bind("shop", "some-keys", "a.*")
    bench.queue("all.dlq")
    bench.bind("dlx", "all.dlq", "a.b")
    bench.queue("short", message_ttl=60_000)
    bench.queue("asks.dlq")
    bench.dead_to("asks", "asks.dlq", "quorum", **bench.unlimited())
    rules = [
        "missing-dlx",
        "dead-letter-key-unbound",
        "dead-letter-key-unbound",
        "dead-letter-key-unbound",
        "limit-without-dlx",
        "at-most-once-from-quorum",
    ]
    if not bench.vhost.broker.version.startswith("3."):
        bench.queue("crashing", "quorum")
        bench.queue("crashed.dlq", "quorum")
        rules += ["delivery-limit-into-nothing"] * 2
        bench.vhost.put("policies", "long", pattern="^crash", definition={"expires": 90_000_000}, priority=3)
    return rules


def test_the_cures_cure(bench: Bench) -> None:
    rules = broken(bench)
    found = [each for each in bench.findings() if each.rule != "expiring-queue"]
    assert sorted(each.rule for each in found) == sorted(rules)
    for each in found:
        if "no policy overrides" not in each.fix:
            carry_out(bench, each.fix)
    left = {(each.rule, each.subject) for each in bench.findings() if each.rule != "expiring-queue"}
    # What a cure newly makes a quorum queue do, it does at most once until that is cured as well.
    assert left <= {("at-most-once-from-quorum", "crashing")}
