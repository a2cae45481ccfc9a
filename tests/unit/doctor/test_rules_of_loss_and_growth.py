"""Rules about loss, growth and cycles: a broken shape that is found, and its corrected twin that is clean.

That the broken ones really lose or multiply letters, and the twins do not, is shown on real brokers in
`tests/broker/doctor/test_loss_and_growth_on_broker.py`.

About `doctor.rules.loss`, `doctor.rules.multiplying`, `doctor.rules.cycles`, `doctor.rules.limits`,
`doctor.rules.strategy`, `doctor.rules.routes`, `doctor.rules.cures`, `doctor.rules.path_words`,
`doctor.rules.case`, `doctor.finding`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import replace
from typing import TypeAlias

import pytest
from tests.effort import lines_run

from deadletter.core.letter.field_table import Value
from deadletter.core.topology.merging import BrokerPolicy
from deadletter.core.topology.vhost import (
    Binding,
    DestinationKind,
    Exchange,
    LiveConsumer,
    Queue,
    QueueState,
    Topology,
    topology,
)
from deadletter.doctor.finding import Finding, Severity
from deadletter.doctor.rules import RULES, cycles, examine, limits, loss, multiplying, rules_in, strategy
from deadletter.doctor.rules.case import Case
from deadletter.errors import UsageError

MINE = rules_in(loss, limits, strategy, multiplying, cycles)
Part: TypeAlias = Exchange | Queue | Binding | BrokerPolicy


def findings(shape: Topology) -> list[Finding]:
    case = Case(topology=shape, now_ms=0)
    mine = {rule.id for rule in MINE}
    return [found for found in examine(case) if found.rule in mine]


def told(shape: Topology) -> list[tuple[str, str, str]]:
    return [(found.rule, found.severity.value, found.subject) for found in findings(shape)]


def only(shape: Topology) -> Finding:
    found = findings(shape)
    assert len(found) == 1, found
    return found[0]


def queue(name: str, kind: str = "classic", /, **arguments: Value) -> Queue:
    return Queue(
        name=name, type=kind, arguments={f"x-{key.replace('_', '-')}": v for key, v in arguments.items()}
    )


def dead_to(name: str, target: str, kind: str = "classic", /, **arguments: Value) -> Queue:
    """A queue whose letters die straight into another."""
    return queue(name, kind, dead_letter_exchange="", dead_letter_routing_key=target, **arguments)


def bind(
    source: str, destination: str, key: str = "", to: DestinationKind = DestinationKind.QUEUE
) -> Binding:
    return Binding(source=source, destination=destination, routing_key=key, to=to)


def shape(
    *parts: Part,
    version: str = "4.0.5",
    live: bool = False,
    vhost: str = "/",
) -> Topology:
    return topology(
        vhost=vhost,
        version=version,
        exchanges=[part for part in parts if isinstance(part, Exchange)],
        queues=[part for part in parts if isinstance(part, Queue)],
        bindings=[part for part in parts if isinstance(part, Binding)],
        policies=[part for part in parts if isinstance(part, BrokerPolicy)],
        live=live,
    )


def fanout(name: str) -> Exchange:
    return Exchange(name=name, type="fanout")


def topic(name: str, alternate: str | None = None) -> Exchange:
    return Exchange(
        name=name, type="topic", arguments={} if alternate is None else {"alternate-exchange": alternate}
    )


# -- a dead-letter exchange that is not there ---------------------------------------------------------------


def test_a_missing_dead_letter_exchange() -> None:
    found = only(shape(queue("orders", dead_letter_exchange="dlx")))
    assert (found.rule, found.severity, found.subject) == ("missing-dlx", Severity.ERROR, "orders")
    assert found.path == ("queue orders", "rejected", "exchange dlx", "no such exchange")
    assert found.fix == (
        "rabbitmqadmin --vhost=/ declare exchange name=dlx type=direct durable=true && "
        "rabbitmqadmin --vhost=/ declare queue name=orders.dlq durable=true && "
        "rabbitmqadmin --vhost=/ declare binding source=dlx destination_type=queue destination=orders.dlq "
        "routing_key=orders.dlq && "
        "rabbitmqctl set_policy -p / --apply-to queues --priority 0 dlq-orders '^orders$' "
        """'{"dead-letter-routing-key": "orders.dlq"}'"""
    )


def test_two_queues_with_one_missing_exchange_are_not_told_to_share_a_fanout() -> None:
    found = findings(shape(queue("a", dead_letter_exchange="dlx"), queue("b", dead_letter_exchange="dlx")))
    assert [finding.rule for finding in found] == ["missing-dlx", "missing-dlx"]
    assert all("fanout" not in finding.fix for finding in found)
    assert ["routing_key=a.dlq" in found[0].fix, "routing_key=b.dlq" in found[1].fix] == [True, True]


def test_a_dead_letter_exchange_that_is_there() -> None:
    assert not told(
        shape(
            queue("orders", dead_letter_exchange="dlx"),
            fanout("dlx"),
            queue("orders.dlq"),
            bind("dlx", "orders.dlq"),
        )
    )


def test_a_stream_has_no_dead_letters() -> None:
    assert not told(shape(queue("log", "stream", dead_letter_exchange="dlx", max_length_bytes=10)))


# -- a key that nothing takes -------------------------------------------------------------------------------


def test_a_dead_letter_key_that_is_not_bound() -> None:
    found = only(
        shape(
            queue("orders", dead_letter_exchange="dlx", dead_letter_routing_key="orders"),
            Exchange(name="dlx"),
            queue("orders.dlq"),
            bind("dlx", "orders.dlq", "order"),
        )
    )
    assert (found.rule, found.severity, found.subject) == (
        "dead-letter-key-unbound",
        Severity.ERROR,
        "orders",
    )
    assert found.path == ("queue orders", "rejected", "exchange dlx", "key orders", "no binding")
    assert "destination=orders.dlq routing_key=orders" in found.fix


def test_the_key_a_letter_arrives_with_counts_where_there_is_no_other() -> None:
    parts = (queue("orders", dead_letter_exchange="dlx"), topic("dlx"), queue("orders.dlq"))
    arriving = (topic("shop"), bind("shop", "orders", "order.#"))
    found = only(shape(*parts, *arriving, bind("dlx", "orders.dlq", "orders")))
    assert found.path == ("queue orders", "rejected", "exchange dlx", "key order.#", "no binding")
    assert not told(shape(*parts, *arriving, bind("dlx", "orders.dlq", "order.#")))


def test_a_part_of_the_keys_is_a_warning() -> None:
    found = only(
        shape(
            queue("orders", dead_letter_exchange="dlx"),
            topic("shop"),
            bind("shop", "orders", "order.*"),
            topic("dlx"),
            queue("orders.dlq"),
            bind("dlx", "orders.dlq", "order.new"),
        )
    )
    assert (found.rule, found.severity) == ("dead-letter-key-unbound", Severity.WARNING)
    assert found.path[-2:] == ("key order.*", "not every such key is bound")
    assert "may" in found.why


def test_a_letter_that_comes_back_by_its_queues_name_has_another_key() -> None:
    parts = (
        queue("orders", dead_letter_exchange="retry"),
        topic("shop"),
        bind("shop", "orders", "order.#"),
        topic("retry"),
        dead_to("orders.retry", "orders", message_ttl=100),
        bind("retry", "orders.retry", "order.#"),
    )
    found = only(shape(*parts))
    assert (found.rule, found.severity) == ("dead-letter-key-unbound", Severity.ERROR)
    assert found.path == ("queue orders", "rejected", "exchange retry", "key orders", "no binding")
    assert not told(shape(*parts, bind("retry", "orders.retry", "orders")))


def test_the_default_exchange_knows_queues_by_name() -> None:
    found = only(shape(dead_to("orders", "orders.dlq")))
    assert found.path == (
        "queue orders",
        "rejected",
        "(default exchange)",
        "key orders.dlq",
        "no queue of that name",
    )
    assert not told(shape(dead_to("orders", "orders.dlq"), queue("orders.dlq")))


def test_an_alternate_exchange_catches_what_has_no_binding() -> None:
    parts = (queue("orders", dead_letter_exchange="dlx"), topic("dlx", alternate="rest"), queue("orders.dlq"))
    found = only(shape(*parts))
    assert found.path[-1] == "alternate exchange rest does not exist"
    assert not told(shape(*parts, fanout("rest"), bind("rest", "orders.dlq")))


def test_through_two_exchanges() -> None:
    parts = (
        queue("orders", dead_letter_exchange="dlx", dead_letter_routing_key="a"),
        Exchange(name="dlx"),
        topic("inner"),
        bind("dlx", "inner", "a", DestinationKind.EXCHANGE),
        queue("orders.dlq"),
    )
    assert told(shape(*parts)) == [("dead-letter-key-unbound", "error", "orders")]
    assert not told(shape(*parts, bind("inner", "orders.dlq", "#")))


def test_of_headers_and_plugins_nothing_is_claimed() -> None:
    parts = (queue("orders", dead_letter_exchange="dlx"), queue("orders.dlq"))
    headers = Exchange(name="dlx", type="headers")
    plugin = Exchange(name="dlx", type="x-random")
    bound = bind("dlx", "orders.dlq")
    assert told(shape(*parts, headers)) == [("dead-letter-key-unbound", "error", "orders")]
    noted = only(shape(*parts, headers, bound))
    assert (noted.severity, noted.path[-1]) == (Severity.NOTE, "depends on headers")
    doubted = only(shape(*parts, plugin))
    assert doubted.severity is Severity.WARNING
    assert "may drop" in doubted.why
    assert not told(shape(*parts, plugin, bound))


def test_an_exchange_that_takes_no_key_but_its_own_name() -> None:
    parts = (topic("failures"), queue("failed-orders"))
    found = only(shape(*parts, bind("failures", "failed-orders", "failures")))
    assert (found.rule, found.severity, found.subject) == (
        "key-named-like-exchange",
        Severity.NOTE,
        "failures",
    )
    assert found.path == (
        "exchange failures",
        "key failures",
        "queue failed-orders",
        "any other key: no binding",
    )
    assert not told(shape(*parts, bind("failures", "failed-orders", "order")))


def test_exchange_queue_and_key_of_one_name_are_no_mix_up() -> None:
    assert not told(shape(topic("orders"), queue("orders"), bind("orders", "orders", "orders")))


def test_a_mix_up_that_loses_dead_letters_is_told_as_a_loss() -> None:
    lost = queue("orders", dead_letter_exchange="failures", dead_letter_routing_key="order")
    parts = (topic("failures"), queue("failed-orders"), bind("failures", "failed-orders", "failures"))
    assert told(shape(lost, *parts)) == [("dead-letter-key-unbound", "error", "orders")]


# -- limits with nothing behind them ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        ({"message_ttl": 100}, "expired"),
        ({"max_length": 10}, "maxlen"),
        ({"max_length_bytes": 10}, "maxlen"),
        ({"message_ttl": 100, "max_length": 10, "max_length_bytes": 10}, "expired or maxlen"),
    ],
)
def test_a_limit_without_a_dead_letter_exchange(limit: dict[str, Value], reason: str) -> None:
    found = only(shape(queue("orders", **limit)))
    assert (found.rule, found.severity, found.subject) == ("limit-without-dlx", Severity.WARNING, "orders")
    assert found.path == ("queue orders", reason, "no dead-letter exchange")
    assert not told(shape(dead_to("orders", "orders.dlq", **limit), queue("orders.dlq")))


@pytest.mark.parametrize("overflow", ["reject-publish", "reject-publish-dlx"])
def test_a_queue_that_refuses_loses_nothing(overflow: str) -> None:
    assert not told(shape(queue("orders", max_length=10, overflow=overflow)))


def test_a_quorum_queue_does_not_know_every_overflow() -> None:
    parts = queue("orders", "quorum", max_length=10, overflow="reject-publish-dlx", delivery_limit=-1)
    assert told(shape(parts)) == [("limit-without-dlx", "warning", "orders")]


def test_what_consumers_say_of_replays_may_be_forgotten() -> None:
    assert not told(shape(queue("deadletter.outcomes", "quorum", max_length=10, delivery_limit=-1)))


def test_a_limit_on_a_queue_of_failures_is_an_error() -> None:
    short = BrokerPolicy(name="all", pattern=".*", definition={"max-length": 10})
    found = only(shape(queue("failed.orders"), short))
    assert (found.rule, found.severity) == ("limit-without-dlx", Severity.ERROR)
    assert found.fix == "take max-length out of policy all, or let its pattern not match failed.orders"


@pytest.mark.parametrize("limit", [{"message_ttl": 100}, {"max_length": 10}, {"expires": 1000}], ids=str)
def test_where_dead_letters_end_a_limit_is_told_once(limit: dict[str, Value]) -> None:
    case = Case(topology=shape(dead_to("orders", "graveyard"), queue("graveyard", **limit)), now_ms=0)
    assert [(each.rule, each.subject) for each in examine(case)] == [("dlq-limits", "graveyard")]
    assert not told(case.topology)


def test_our_parked_letters_are_the_last_copies() -> None:
    short = BrokerPolicy(name="short", pattern=".*", definition={"max-length": 10})
    parked = shape(queue("deadletter.parked", "quorum", delivery_limit=-1), short)
    assert [(each.rule, each.subject) for each in examine(Case(topology=parked, now_ms=0))] == [
        ("dlq-limits", "deadletter.parked")
    ]


def test_temporary_queues_keep_nothing_anyway() -> None:
    assert not told(shape(replace(queue("amq.gen-1", message_ttl=100, expires=100), exclusive=True)))
    assert not told(shape(replace(queue("reply", max_length=1), auto_delete=True)))


def test_a_queue_that_goes_before_its_letters_are_due() -> None:
    due = queue("due")
    found = only(shape(dead_to("delay", "due", message_ttl=1000, expires=1000), due))
    assert (found.rule, found.severity, found.subject) == ("expiring-queue", Severity.ERROR, "delay")
    assert found.path == (
        "queue delay",
        "unused for 1000 ms",
        "queue deleted",
        "its letters are not dead-lettered",
    )
    assert found.fix.startswith("x-expires was given when delay was declared")
    assert not told(shape(dead_to("delay", "due", message_ttl=1000), due))


def test_how_bad_an_expiring_queue_is() -> None:
    due = queue("due")
    assert told(shape(dead_to("orders", "due", expires=1000), due)) == [
        ("expiring-queue", "warning", "orders")
    ]
    assert told(shape(topic("shop"), bind("shop", "due"), queue("due", expires=9), dead_to("a", "due"))) == [
        ("expiring-queue", "error", "due")
    ]
    assert told(shape(dead_to("delay", "due", message_ttl=1000, expires=5000), due)) == [
        ("expiring-queue", "note", "delay")
    ]
    assert told(shape(queue("orders.dlq", expires=1000))) == [("expiring-queue", "warning", "orders.dlq")]
    assert not told(shape(queue("subscriber", expires=1000)))


# -- the delivery limit -------------------------------------------------------------------------------------


def test_a_delivery_limit_that_destroys() -> None:
    found = only(shape(queue("orders", "quorum")))
    assert (found.rule, found.severity, found.subject) == (
        "delivery-limit-into-nothing",
        Severity.WARNING,
        "orders",
    )
    assert found.path == ("queue orders", "delivery_limit", "no dead-letter exchange")
    assert "20 times (the broker's default)" in found.why
    assert not told(shape(queue("orders", "quorum"), version="3.10.8"))
    assert not told(shape(queue("orders", "quorum", delivery_limit=-1)))
    assert told(shape(queue("orders", "quorum", delivery_limit=5), version="3.10.8")) == [
        ("delivery-limit-into-nothing", "warning", "orders")
    ]


def test_a_delivery_limit_on_a_queue_of_dead_letters_is_an_error() -> None:
    parts = (dead_to("orders", "orders.dlq"), queue("orders.dlq", "quorum"))
    found = only(shape(*parts, vhost="a b"))
    assert (found.severity, found.subject) == (Severity.ERROR, "orders.dlq")
    assert found.fix == (
        "rabbitmqctl set_policy -p 'a b' --apply-to queues --priority 0 dlq-orders.dlq '^orders\\.dlq$' "
        """'{"delivery-limit": -1}'"""
    )
    unlimited = BrokerPolicy(name="p", pattern="dlq$", definition={"delivery-limit": -1})
    assert not told(shape(*parts, unlimited))


@pytest.mark.parametrize("name", ["orders.dlq", "dead.orders", "v1_failed_orders", "deadletter.parked"])
def test_a_queue_the_application_fills_with_failures_is_known_by_its_name(name: str) -> None:
    assert told(shape(queue(name, "quorum"))) == [("delivery-limit-into-nothing", "error", name)]


def test_a_delivery_limit_into_an_exchange_that_leads_nowhere() -> None:
    gone = queue("orders", "quorum", dead_letter_exchange="dlx")
    assert told(shape(gone)) == [
        ("missing-dlx", "error", "orders"),
        ("delivery-limit-into-nothing", "warning", "orders"),
    ]
    found = findings(shape(gone, Exchange(name="dlx")))
    assert [each.rule for each in found] == [
        "dead-letter-key-unbound",
        "at-most-once-from-quorum",
        "delivery-limit-into-nothing",
    ]
    assert found[2].path == ("queue orders", "delivery_limit", "exchange dlx", "key orders", "no binding")


def test_what_is_kept_until_there_is_a_way_is_not_called_lost() -> None:
    asked = {"dead_letter_strategy": "at-least-once", "overflow": "reject-publish"}
    keeping = queue("orders", "quorum", dead_letter_exchange="dlx", **asked)
    for parts in ((keeping,), (keeping, Exchange(name="dlx"))):
        case = Case(topology=shape(*parts), now_ms=0)
        assert [each.rule for each in examine(case)] == ["at-least-once-into-refusing"]


def test_a_limit_that_is_frozen_or_imposed_is_not_for_a_policy_to_lift() -> None:
    frozen = only(shape(queue("orders.dlq", "quorum", delivery_limit=5)))
    assert "declare it again without" in frozen.fix
    imposed = BrokerPolicy(name="ops", pattern=".*", definition={"delivery-limit": 5}, operator=True)
    assert only(shape(queue("orders.dlq", "quorum"), imposed)).fix.startswith(
        "take delivery-limit out of operator policy ops"
    )


# -- at most once, at least once ----------------------------------------------------------------------------


def test_a_quorum_queue_that_dead_letters_at_most_once() -> None:
    parts = (queue("orders.dlq"), dead_to("orders", "orders.dlq", "quorum"))
    found = only(shape(*parts))
    assert (found.rule, found.severity, found.subject) == (
        "at-most-once-from-quorum",
        Severity.WARNING,
        "orders",
    )
    assert found.path == (
        "queue orders",
        "rejected",
        "(default exchange)",
        "published once, not confirmed",
    )
    policy = BrokerPolicy(
        name="p",
        pattern="^orders$",
        definition={"dead-letter-strategy": "at-least-once", "overflow": "reject-publish"},
    )
    assert not told(shape(*parts, policy))
    assert not told(shape(*parts, version="3.9.1"))


def test_at_least_once_that_is_not_applied() -> None:
    dlq = queue("orders.dlq")
    asks = dead_to("orders", "orders.dlq", "quorum", dead_letter_strategy="at-least-once")
    found = only(shape(dlq, asks))
    assert (found.rule, found.severity, found.subject) == (
        "at-least-once-downgraded",
        Severity.WARNING,
        "orders",
    )
    assert found.path == (
        "queue orders",
        "overflow drop-head",
        "at-least-once is not applied",
        "(default exchange)",
    )
    gets = replace(asks, arguments={**asks.arguments, "x-overflow": "reject-publish"})
    assert not told(shape(dlq, gets))


def test_at_least_once_on_a_classic_queue() -> None:
    asked = BrokerPolicy(name="p", pattern="^orders$", definition={"dead-letter-strategy": "at-least-once"})
    found = only(shape(queue("orders.dlq"), dead_to("orders", "orders.dlq"), asked))
    assert (found.rule, found.path[1]) == ("at-least-once-downgraded", "a classic queue")
    assert "x-queue-type=quorum" in found.fix


def test_an_argument_in_the_way_of_the_cure_is_named() -> None:
    frozen = dead_to("orders", "orders.dlq", "quorum", overflow="drop-head", delivery_limit=-1)
    assert only(shape(frozen, queue("orders.dlq"))).fix == (
        "x-overflow was given when orders was declared, and no policy overrides an argument: empty the "
        "queue, delete it, and declare it again with x-dead-letter-strategy=at-least-once, "
        "x-overflow=reject-publish"
    )


def test_a_cure_keeps_what_the_present_policy_sets() -> None:
    policy = BrokerPolicy(
        name="ttl", pattern="^ord", definition={"message-ttl": 9, "max-length": 5}, priority=7
    )
    fix = only(shape(dead_to("orders", "graves", "quorum"), queue("graves"), policy)).fix
    warned, _, command = fix.partition(": ")
    assert warned == "mind that a full orders refuses publishers then"
    words = shlex.split(command)
    assert words[:8] == [
        "rabbitmqctl", "set_policy", "-p", "/", "--apply-to", "queues", "--priority", "8",
    ]  # fmt: skip
    assert words[8:11] == [
        "dlq-orders",
        "^orders$",
        (
            '{"message-ttl": 9, "max-length": 5, "dead-letter-strategy": "at-least-once", '
            '"overflow": "reject-publish"}'
        ),
    ]


# -- one letter becomes many --------------------------------------------------------------------------------


def two_owners(*exchanges: Exchange, keys: Iterable[str] = ("", "")) -> list[Part]:
    first, second = keys
    return [
        *exchanges,
        queue("orders", dead_letter_exchange="dlx"),
        queue("invoices", dead_letter_exchange="dlx"),
        queue("orders.dlq"),
        queue("invoices.dlq"),
        bind("dlx", "orders.dlq", first),
        bind("dlx", "invoices.dlq", second),
    ]


def test_a_fanout_shared_by_two_owners() -> None:
    found = only(shape(*two_owners(fanout("dlx"))))
    assert (found.rule, found.severity, found.subject) == ("shared-dlx-fanout", Severity.ERROR, "dlx")
    assert found.path == (
        "queue invoices",
        "rejected",
        "exchange dlx",
        "key invoices",
        "queue invoices.dlq",
        "queue orders.dlq",
    )
    assert "2, then 4, then 8" in found.why
    assert (
        'declare it again with x-dead-letter-exchange="", x-dead-letter-routing-key=invoices.dlq' in found.fix
    )
    assert not told(shape(*two_owners(Exchange(name="dlx"), keys=("orders", "invoices"))))


def test_an_archive_beside_the_dead_letter_queue_is_a_warning() -> None:
    parts: list[Part] = [
        topic("dlx"),
        queue("orders", dead_letter_exchange="dlx"),
        queue("invoices", dead_letter_exchange="dlx"),
        queue("orders.dlq"),
        queue("invoices.dlq"),
        queue("archive"),
        bind("dlx", "orders.dlq", "orders"),
        bind("dlx", "invoices.dlq", "invoices"),
        bind("dlx", "archive", "#"),
    ]
    found = only(shape(*parts))
    assert (found.severity, found.subject) == (Severity.WARNING, "dlx")
    assert found.path[-2:] == ("queue archive", "queue invoices.dlq")


def test_a_copy_named_after_the_dead_letter_queue_has_no_other_owner() -> None:
    parts: list[Part] = [
        fanout("dlx"),
        queue("orders", dead_letter_exchange="dlx"),
        queue("orders.dlq"),
        queue("orders.dlq.archive"),
        bind("dlx", "orders.dlq"),
        bind("dlx", "orders.dlq.archive"),
    ]
    assert told(shape(*parts)) == [("shared-dlx-fanout", "warning", "dlx")]


def test_two_delays_that_bring_the_same_letter_back() -> None:
    parts: list[Part] = [
        fanout("dlx"),
        queue("work", dead_letter_exchange="dlx"),
        dead_to("short", "work", message_ttl=100),
        dead_to("long", "work", message_ttl=200),
        bind("dlx", "short"),
    ]
    assert told(shape(*parts, bind("dlx", "long"))) == [("shared-dlx-fanout", "error", "dlx")]
    assert not told(shape(*parts))


def test_a_pattern_is_not_one_letter() -> None:
    """A queue whose letters have many keys reaches many queues, each letter only one."""
    parts: list[Part] = [
        topic("shop"),
        queue("orders", dead_letter_exchange="dlx"),
        bind("shop", "orders", "order.*"),
        topic("dlx"),
        queue("a.dlq"),
        queue("b.dlq"),
        bind("dlx", "a.dlq", "order.a"),
        bind("dlx", "b.dlq", "order.b"),
    ]
    assert "shared-dlx-fanout" not in {rule for rule, _, _ in told(shape(*parts))}
    for further in ("order.a", "*.a", "order.*", "#"):
        found = findings(shape(*parts, bind("dlx", "b.dlq", further)))
        assert [each.path[-2:] for each in found if each.rule == "shared-dlx-fanout"] == [
            ("queue a.dlq", "queue b.dlq")
        ]


def test_of_headers_no_copies_are_claimed() -> None:
    parts = two_owners(Exchange(name="dlx", type="headers"))
    assert not [each for each in findings(shape(*parts)) if each.rule == "shared-dlx-fanout"]


def consumed(*tags: str) -> QueueState:
    return QueueState(consumers=tuple(LiveConsumer(tag=tag, prefetch=1) for tag in tags))


def republishing(unused: Queue, worker: Queue) -> list[Part]:
    return [
        topic("shop"),
        replace(worker, state=consumed("worker")),
        replace(unused, state=consumed()),
        bind("shop", "orders", "order.*"),
        bind("shop", "reports", "order.new"),
        queue("all.dlq"),
        queue("reports.dlq"),
    ]


def test_a_retry_through_the_exchange_feeds_a_queue_that_expires_beside() -> None:
    broken = republishing(dead_to("reports", "all.dlq", message_ttl=100), dead_to("orders", "all.dlq"))
    found = only(shape(*broken, live=True))
    assert (found.rule, found.severity, found.subject) == ("republish-loop", Severity.WARNING, "shop")
    assert found.path == (
        "exchange shop",
        "key order.new",
        "queue reports beside queue orders",
        "expired",
        "(default exchange)",
        "queue all.dlq",
    )
    assert "rabbitmqadmin --vhost=/ delete queue name=reports" in found.fix
    corrected = republishing(dead_to("reports", "reports.dlq", message_ttl=100), dead_to("orders", "all.dlq"))
    assert not told(shape(*corrected, live=True))


def test_what_does_not_expire_feeds_no_loop() -> None:
    parts = republishing(dead_to("reports", "all.dlq"), dead_to("orders", "all.dlq"))
    assert not told(shape(*parts, live=True))


def test_a_file_does_not_tell_who_consumes() -> None:
    broken = republishing(dead_to("reports", "all.dlq", message_ttl=100), dead_to("orders", "all.dlq"))
    unknown: list[Part] = [replace(part, state=None) if isinstance(part, Queue) else part for part in broken]
    assert told(shape(*unknown)) == [("republish-loop", "note", "shop")]
    busy: list[Part] = [
        replace(part, state=consumed("somebody")) if isinstance(part, Queue) else part for part in broken
    ]
    assert not told(shape(*busy, live=True))


# -- cycles -------------------------------------------------------------------------------------------------


def test_a_cycle_without_a_rejection() -> None:
    retry = dead_to("orders.retry", "orders", message_ttl=200)
    found = only(shape(dead_to("orders", "orders.retry", message_ttl=100), retry))
    assert (found.rule, found.severity, found.subject) == (
        "cycle-without-rejection",
        Severity.ERROR,
        "orders",
    )
    assert found.path == (
        "queue orders",
        "expired",
        "(default exchange)",
        "key orders.retry",
        "queue orders.retry",
        "expired",
        "(default exchange)",
        "key orders",
        "queue orders",
        "dropped: a cycle without a rejection",
    )
    assert not told(shape(dead_to("orders", "orders.retry"), retry))


def test_a_queue_that_dies_into_itself() -> None:
    assert told(shape(dead_to("orders", "orders", message_ttl=100))) == [
        ("cycle-without-rejection", "error", "orders")
    ]
    assert not told(shape(dead_to("orders", "orders")))


def test_through_headers_a_cycle_is_only_possible() -> None:
    found = [
        each
        for each in findings(
            shape(
                Exchange(name="there", type="headers"),
                bind("there", "b"),
                queue("a", dead_letter_exchange="there", message_ttl=1),
                dead_to("b", "a", message_ttl=1),
            )
        )
        if each.rule == "cycle-without-rejection"
    ]
    assert [each.severity for each in found] == [Severity.WARNING]


def test_a_full_queue_that_refuses_breaks_no_loop() -> None:
    retry = dead_to("orders.retry", "orders", message_ttl=200)
    full = dead_to("orders", "orders.retry", max_length=5)
    assert told(shape(full, retry)) == [("cycle-without-rejection", "error", "orders")]
    refusing = replace(full, arguments={**full.arguments, "x-overflow": "reject-publish"})
    assert not told(shape(refusing, retry))


def test_the_shortest_way_round_a_knot_is_shown_once() -> None:
    found = only(
        shape(
            dead_to("a", "b", message_ttl=1),
            dead_to("b", "c", message_ttl=1),
            dead_to("c", "a", message_ttl=1),
            dead_to("before", "a", message_ttl=1),
        )
    )
    assert [step for step in found.path if step.startswith("queue")] == [
        "queue a",
        "queue b",
        "queue c",
        "queue a",
    ]


def test_a_way_that_no_letter_is_known_to_go_may_be_one() -> None:
    """Letters of a reach b, letters of b reach a, but they are not the same letters."""
    found = [
        each
        for each in findings(
            shape(
                topic("shop"),
                topic("there"),
                topic("back"),
                queue("a", dead_letter_exchange="there", message_ttl=1),
                queue("b", dead_letter_exchange="back", message_ttl=1),
                bind("shop", "a", "x"),
                bind("there", "b", "x"),
                bind("shop", "b", "y"),
                bind("back", "a", "y"),
            )
        )
        if each.rule == "cycle-without-rejection"
    ]
    assert [(each.severity, "may go" in each.why) for each in found] == [(Severity.WARNING, True)]


# -- whole systems, with the mistakes their documents have --------------------------------------------------


def the_processor_with_levels(*, retry_keys: bool, dlq_key: str) -> Topology:
    """Delay levels with a retry exchange each, and one dead-letter queue that the service publishes to."""
    retried = {"dead_letter_exchange": "retry-exchange", "dead_letter_routing_key": "retry-routing-key"}
    parts: list[Part] = [
        topic("retry-exchange"),
        topic("route-delay"),
        topic("dlq-exchange"),
        topic("test-retry-exchange"),
        queue("retry-queue"),
        queue("dlq-queue"),
        bind("retry-exchange", "retry-queue", "retry-routing-key"),
        bind("dlq-exchange", "dlq-queue", dlq_key),
    ]
    for n, ttl in ((1, 10_000), (2, 15_000), (3, 20_000)):
        key = f"retry.#.{n}"
        parts += [
            topic(f"retry-exchange-{n}"),
            queue(f"retry-queue-{n}"),
            bind(f"retry-exchange-{n}", f"retry-queue-{n}", key if retry_keys else ""),
            queue(
                f"queue.delay.{n}",
                dead_letter_exchange=f"retry-exchange-{n}",
                dead_letter_routing_key=key,
                message_ttl=ttl,
            ),
            bind("route-delay", f"queue.delay.{n}", f"binding.#.{n}"),
        ]
    for name in ("pass", "fail", "fail-pass"):
        parts += [
            queue(f"test-{name}-queue", **retried),
            bind("test-retry-exchange", f"test-{name}-queue", f"rk.test.{name.replace('-', '.')}"),
        ]
    return shape(*parts)


def test_the_processor_with_levels_as_its_tables_say() -> None:
    literal = the_processor_with_levels(retry_keys=False, dlq_key="dlq-exchange")
    assert told(literal) == [
        ("dead-letter-key-unbound", "error", "queue.delay.1"),
        ("dead-letter-key-unbound", "error", "queue.delay.2"),
        ("dead-letter-key-unbound", "error", "queue.delay.3"),
        ("key-named-like-exchange", "note", "dlq-exchange"),
    ]
    assert findings(literal)[0].path == (
        "queue queue.delay.1",
        "expired",
        "exchange retry-exchange-1",
        "key retry.#.1",
        "no binding",
    )


def test_the_processor_with_levels_where_only_one_key_is_mixed_up() -> None:
    assert told(the_processor_with_levels(retry_keys=True, dlq_key="dlq-exchange")) == [
        ("key-named-like-exchange", "note", "dlq-exchange")
    ]


def test_the_processor_with_levels_put_right() -> None:
    assert not told(the_processor_with_levels(retry_keys=True, dlq_key="dlq-routing-key"))


GAMES = {
    "bot_events": ("game.*", "guild.*", "channel.*"),
    "notification_queue": ("notification.send_dm",),
    "scheduler_events": ("game.created", "game.updated", "game.cancelled"),
    "api_events": ("game.*",),
}
CONSUMED = ("bot_events", "notification_queue")


def the_retry_service(*names: str, own_ways: bool = False, live: bool = False) -> Topology:
    """Every queue with a TTL of an hour one dead-letter exchange for all, a dead-letter queue for each."""
    dlx = "game_scheduler.dlx"
    parts: list[Part] = [
        topic("game_scheduler"),
        Exchange(name=dlx, type="direct" if own_ways else "fanout"),
    ]
    for name in names:
        own: dict[str, Value] = {"dead_letter_routing_key": name} if own_ways else {}
        worker = consumed(*(["bot"] if name in CONSUMED else [])) if live else None
        parts += [
            replace(queue(name, dead_letter_exchange=dlx, message_ttl=3_600_000, **own), state=worker),
            queue(f"{name}.dlq"),
            bind(dlx, f"{name}.dlq", name if own_ways else ""),
            *(bind("game_scheduler", name, key) for key in GAMES[name]),
        ]
    return shape(*parts, live=live)


def test_the_retry_service_before_its_cleanup() -> None:
    found = findings(the_retry_service(*GAMES, live=True))
    assert [(each.rule, each.severity.value, each.subject) for each in found] == [
        ("shared-dlx-fanout", "error", "game_scheduler.dlx"),
        ("republish-loop", "warning", "game_scheduler"),
    ]
    assert found[0].path[-4:] == tuple(f"queue {name}.dlq" for name in sorted(GAMES))
    assert found[1].path == (
        "exchange game_scheduler",
        "key game.*",
        "queue api_events beside queue bot_events",
        "expired",
        "exchange game_scheduler.dlx",
        "queue api_events.dlq",
    )


def test_the_retry_service_after_its_cleanup_still_shares_the_fanout() -> None:
    """The document's own target topology: the unused queues are gone, the growth is not."""
    assert told(the_retry_service(*CONSUMED, live=True)) == [
        ("shared-dlx-fanout", "error", "game_scheduler.dlx")
    ]


@pytest.mark.parametrize("live", [True, False])
def test_the_retry_service_put_right(*, live: bool) -> None:
    assert not told(the_retry_service(*CONSUMED, own_ways=True, live=live))


@pytest.mark.parametrize("ttl", [True, False], ids=["a TTL per level", "a TTL per message"])
def test_the_ladder(*, ttl: bool) -> None:
    """What it loses, it loses in its consumer: a retry beyond the last level. Its shape is sound."""
    parts: list[Part] = [
        topic("orders__retry_exchange"),
        fanout("orders__retry_dlx"),
        queue("orders"),
        bind("orders__retry_dlx", "orders"),
    ]
    for n in (1, 2, 3):
        name = f"orders__retry.{n}"
        waiting: dict[str, Value] = {"message_ttl": 1000 * n} if ttl else {}
        parts += [
            queue(name, dead_letter_exchange="orders__retry_dlx", **waiting),
            bind("orders__retry_exchange", name, name),
        ]
    assert not told(shape(*parts))


def the_loop(version: str, asked: dict[str, Value] | None = None, **limit: Value) -> Topology:
    """Quorum queues: the main queue dies into a delay that dies back; failures are published elsewhere."""
    name = "my-service.events"
    asked = asked or {}
    return shape(
        topic("events"),
        bind("events", name, "event.#"),
        dead_to(name, f"{name}.retry", "quorum", **asked, **limit),
        dead_to(f"{name}.retry", name, "quorum", message_ttl=5000, **asked, **limit),
        fanout(f"{name}.dlq"),
        queue(f"{name}.dlq", "quorum", **limit),
        bind(f"{name}.dlq", f"{name}.dlq"),
        version=version,
    )


AT_MOST_ONCE = [
    ("at-most-once-from-quorum", "warning", "my-service.events"),
    ("at-most-once-from-quorum", "warning", "my-service.events.retry"),
]


def test_the_loop_where_quorum_queues_have_a_limit() -> None:
    found = findings(the_loop("4.3.6"))
    assert [(each.rule, each.severity.value, each.subject) for each in found] == [
        ("cycle-without-rejection", "error", "my-service.events"),
        ("delivery-limit-into-nothing", "error", "my-service.events.dlq"),
        *AT_MOST_ONCE,
    ]
    assert found[0].path == (
        "queue my-service.events",
        "delivery_limit",
        "(default exchange)",
        "key my-service.events.retry",
        "queue my-service.events.retry",
        "delivery_limit or expired",
        "(default exchange)",
        "key my-service.events",
        "queue my-service.events",
        "dropped: a cycle without a rejection",
    )
    assert (
        "rabbitmqctl set_policy -p / --apply-to queues --priority 0 dlq-my-service.events "
        """'^my-service\\.events$' '{"delivery-limit": -1}'"""
    ) in found[0].fix


def test_the_loop_where_they_have_none() -> None:
    assert told(the_loop("3.10.8")) == AT_MOST_ONCE


def test_the_loop_put_right() -> None:
    asked: dict[str, Value] = {"dead_letter_strategy": "at-least-once", "overflow": "reject-publish"}
    assert not told(the_loop("4.3.6", asked, delivery_limit=-1))
    assert not told(the_loop("3.10.8", asked))


@pytest.mark.parametrize("version", ["3.10.8", "4.0.5", "4.3.6"])
def test_our_own_queues_are_in_order(version: str) -> None:
    unlimited: dict[str, Value] = {} if version.startswith("3") else {"delivery_limit": -1}
    level = dead_to(
        "deadletter.delay.30000",
        "deadletter.due",
        "quorum",
        message_ttl=30_000,
        dead_letter_strategy="at-least-once",
        overflow="reject-publish",
        **unlimited,
    )
    due = queue("deadletter.due", "quorum", **unlimited)
    parked = queue("deadletter.parked", "quorum", **unlimited)
    assert not told(shape(level, due, parked, version=version))
    # By design is not above suspicion: without its target the level is as broken as anybody's.
    broken = Case(topology=shape(level, parked, version=version), now_ms=0)
    assert [(each.rule, each.subject) for each in examine(broken)] == [
        ("at-least-once-into-refusing", "deadletter.delay.30000")
    ]


# -- all rules together -------------------------------------------------------------------------------------


def test_the_worst_comes_first_then_by_place_and_rule() -> None:
    parts = (queue("b", "quorum"), queue("a", "quorum"), queue("z", dead_letter_exchange="dlx"))
    assert told(shape(*parts)) == [
        ("missing-dlx", "error", "z"),
        ("delivery-limit-into-nothing", "warning", "a"),
        ("delivery-limit-into-nothing", "warning", "b"),
    ]


def test_rules_can_be_ignored_by_name() -> None:
    case = Case(topology=shape(queue("orders", dead_letter_exchange="dlx")), now_ms=0)
    assert "missing-dlx" in {found.rule for found in examine(case)}
    assert "missing-dlx" not in {found.rule for found in examine(case, frozenset({"missing-dlx"}))}


def test_a_rule_that_does_not_exist_is_not_ignored() -> None:
    with pytest.raises(UsageError, match=r"no rule 'mising-dlx' to ignore; there are: .*missing-dlx"):
        examine(Case(topology=shape(), now_ms=0), frozenset({"mising-dlx"}))


def test_ids_are_unique_and_every_rule_explains_itself() -> None:
    assert len({rule.id for rule in RULES}) == len(RULES)
    assert all(rule.summary and rule.why and rule.id == rule.id.lower() for rule in RULES)


def large(dlxes: int, queues: int) -> Topology:
    """So many pairs of queues, with six bindings each; the first of each dies into the second."""
    parts: list[Part] = [topic("shop"), *(topic(f"dlx{n}") for n in range(dlxes))]
    for n in range(queues):
        dlx = f"dlx{n % dlxes}"
        parts += [
            queue(f"orders.{n}", "quorum", dead_letter_exchange=dlx, message_ttl=1000),
            queue(f"orders.{n}.dlq"),
            bind("shop", f"orders.{n}", f"order.{n}.*"),
            bind("shop", f"orders.{n}", f"invoice.{n}.#"),
            bind("shop", f"orders.{n}", f"*.{n}.new"),
            bind(dlx, f"orders.{n}.dlq", f"order.{n}.*"),
            bind(dlx, f"orders.{n}.dlq", f"invoice.{n}.#"),
            bind(dlx, f"orders.{n}.dlq", f"*.{n}.new"),
        ]
    return shape(*parts)


@pytest.mark.parametrize("dlxes", [1, 100])
def test_twice_as_many_queues_are_twice_the_work(dlxes: int) -> None:
    def effort(queues: int) -> int:
        whole = large(dlxes, queues)
        return lines_run(lambda: examine(Case(topology=whole, now_ms=0)))

    assert effort(200) < 2.5 * effort(100)
    found = examine(Case(topology=large(dlxes, 200), now_ms=0))
    assert {each.rule for each in found} >= {"at-most-once-from-quorum"}
