"""The doctor's rules on refusals, neglect, versions, access and live brokers: found, and clean when mended.

Every broken shape has a twin that differs in what the fix changes; the twin is clean of all these rules, so a
rule that cries at a healthy shape fails here. What the shapes really do is in `tests/broker`.

About `doctor.rules.refusal`, `doctor.rules.neglect`, `doctor.rules.upgrades`, `doctor.rules.access`,
`doctor.rules.live`, `doctor.rules.effects`, `doctor.rules.alternates`, `doctor.rules.path_words`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from tests.effort import lines_run

from deadletter.core.letter.field_table import Value
from deadletter.core.topology.merging import BrokerPolicy
from deadletter.core.topology.vhost import (
    Binding,
    DestinationKind,
    Exchange,
    LiveConsumer,
    Permission,
    Queue,
    QueueState,
    Topology,
    topology,
)
from deadletter.doctor.finding import Finding, Severity
from deadletter.doctor.rules import access, alternates, effects, live, neglect, refusal, rules_in, upgrades
from deadletter.doctor.rules.case import Case, Rule

NOW_MS = 1_800_000_000_000
ALL: tuple[Rule, ...] = rules_in(refusal, alternates, neglect, effects, upgrades, access, live)
IDLE = QueueState()
WORKED = QueueState(consumers=(LiveConsumer(tag="worker", prefetch=10, user="app"),))


def queue(
    name: str,
    *,
    kind: str = "classic",
    dlx: str | None = None,
    key: str | None = None,
    ttl: int | None = None,
    state: QueueState | None = None,
    durable: bool = True,
    **arguments: Value,
) -> Queue:
    """A queue; `max_length=10` stands for `x-max-length`."""
    named = {"dead_letter_exchange": dlx, "dead_letter_routing_key": key, "message_ttl": ttl}
    given: dict[str, Value] = {
        **arguments,
        **{argument: value for argument, value in named.items() if value is not None},
    }
    return Queue(name=name, type=kind, arguments=spelled(given), state=state, durable=durable)


def spelled(arguments: Mapping[str, Value]) -> dict[str, Value]:
    return {f"x-{argument.replace('_', '-')}": value for argument, value in arguments.items()}


def level(name: str, *, dlx: str = "", key: str | None = "due", state: QueueState | None = None) -> Queue:
    """A quorum queue that dead-letters at least once."""
    return queue(
        name,
        kind="quorum",
        dlx=dlx,
        key=key,
        ttl=60_000,
        state=state,
        dead_letter_strategy="at-least-once",
        overflow="reject-publish",
    )


def alternate(name: str, to: str, kind: str = "direct") -> Exchange:
    return Exchange(name=name, type=kind, arguments={"alternate-exchange": to})


def policy(name: str, pattern: str, apply_to: str = "all", **definition: Value) -> BrokerPolicy:
    named = {key.replace("_", "-"): value for key, value in definition.items()}
    return BrokerPolicy(name=name, pattern=pattern, apply_to=apply_to, definition=named)


def findings(shape: Topology, watched: frozenset[str] | None = None) -> list[Finding]:
    case = Case(topology=shape, now_ms=NOW_MS, watched=watched)
    return [finding for rule in ALL for finding in rule.check(case)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A broken shape, what is to be found in it, and its twin."""

    rule: str
    severity: Severity
    subject: str
    path: tuple[str, ...]
    broken: Topology
    clean: Topology
    watched: frozenset[str] | None = None
    watched_when_clean: frozenset[str] | None = None


STOPS = "32 letters wait, the others behind them"
DEAD = Exchange(name="dlx", type="direct")
SHOP = Exchange(name="shop", type="topic")
TO_ORDERS = Binding(source="shop", destination="orders", routing_key="order.new")
TO_DLQ = Binding(source="dlx", destination="orders.dlq", routing_key="order.new")
INTO_DLQ = ("queue orders", "rejected", "(default exchange)", "key orders.dlq", "queue orders.dlq")


def orders(state: QueueState | None = None) -> Queue:
    return queue("orders", dlx="", key="orders.dlq", state=state)


def growing(per_s: float, consumers: tuple[LiveConsumer, ...] = ()) -> QueueState:
    return QueueState(ready=50, messages=50, growth_per_s=per_s, consumers=consumers)


def with_dlq(state: QueueState | None = None, working: QueueState | None = None, **limits: Value) -> Topology:
    """A queue and its dead-letter queue."""
    return topology(
        version="4.0.5",
        queues=[orders(working), Queue(name="orders.dlq", state=state, arguments=spelled(limits))],
        live=state is not None,
    )


def consumed_by(*consumers: LiveConsumer) -> QueueState:
    return QueueState(consumers=consumers)


def permitted(write: str, state: QueueState | None, configure: str = "^orders") -> Topology:
    return topology(
        version="4.0.5",
        queues=[orders(state), queue("orders.dlq", state=state)],
        permissions=[Permission(user="app", configure=configure, write=write, read="^orders")],
        live=state is not None,
    )


def served(write: str, configure: str = r"^deadletter\.") -> Topology:
    by_us = consumed_by(LiveConsumer(tag="t", prefetch=100, user="dlq"))
    return topology(
        version="4.0.5",
        queues=[queue("deadletter.due", kind="quorum", state=by_us)],
        permissions=[Permission(user="dlq", configure=configure, write=write, read=".*")],
        live=True,
    )


def overdue(age_ms: int, ready: int = 3) -> Topology:
    waiting = QueueState(ready=ready, messages=ready, oldest_at_ms=NOW_MS - age_ms)
    return topology(
        version="3.10.8",
        queues=[
            queue("wait", dlx="", key="orders", ttl=10_000, state=waiting),
            queue("orders", state=WORKED),
        ],
        live=True,
    )


SAMPLES = {
    "at-least-once into a full queue that refuses": Sample(
        rule="at-least-once-into-refusing",
        severity=Severity.WARNING,
        subject="level",
        path=(
            "queue level",
            "expired after 1 min",
            "(default exchange)",
            "key due",
            "queue due",
            "max-length 10, reject-publish",
            STOPS,
        ),
        broken=topology(queues=[level("level"), queue("due", max_length=10, overflow="reject-publish")]),
        clean=topology(queues=[level("level"), queue("due", overflow="reject-publish")]),
    ),
    "at-least-once to a queue that is missing": Sample(
        rule="at-least-once-into-refusing",
        severity=Severity.ERROR,
        subject="level",
        path=(
            "queue level",
            "expired after 1 min",
            "(default exchange)",
            "key due",
            "no such queue",
            STOPS,
        ),
        broken=topology(queues=[level("level")]),
        clean=topology(queues=[level("level"), queue("due")]),
    ),
    "at-least-once to an exchange that is missing": Sample(
        rule="at-least-once-into-refusing",
        severity=Severity.ERROR,
        subject="level",
        path=(
            "queue level",
            "expired after 1 min",
            "exchange dlx",
            "key level",
            "no such exchange",
            STOPS,
        ),
        broken=topology(queues=[level("level", dlx="dlx", key=None)]),
        clean=topology(
            queues=[level("level", dlx="dlx", key=None), queue("due")],
            exchanges=[DEAD],
            bindings=[Binding(source="dlx", destination="due", routing_key="level")],
        ),
    ),
    "at-least-once with some keys that no binding takes": Sample(
        rule="at-least-once-into-refusing",
        severity=Severity.WARNING,
        subject="level",
        path=(
            "queue level",
            "expired after 1 min",
            "exchange dlx",
            "key order.*",
            "no binding for some",
            STOPS,
        ),
        broken=topology(
            queues=[level("level", dlx="dlx", key=None), queue("due")],
            exchanges=[SHOP, Exchange(name="dlx", type="topic")],
            bindings=[
                Binding(source="shop", destination="level", routing_key="order.*"),
                Binding(source="dlx", destination="due", routing_key="order.new"),
            ],
        ),
        clean=topology(
            queues=[level("level", dlx="dlx", key=None), queue("due")],
            exchanges=[SHOP, Exchange(name="dlx", type="topic")],
            bindings=[
                Binding(source="shop", destination="level", routing_key="order.*"),
                Binding(source="dlx", destination="due", routing_key="order.#"),
            ],
        ),
    ),
    "a delay queue without a TTL": Sample(
        rule="mixed-ttl",
        severity=Severity.NOTE,
        subject="wait",
        path=(
            "queue wait",
            "expired by the letter's own expiration, at the head only",
            "(default exchange)",
            "key orders",
            "queue orders",
        ),
        broken=topology(
            exchanges=[SHOP],
            queues=[queue("wait", dlx="", key="orders"), queue("orders")],
            bindings=[TO_ORDERS],
        ),
        clean=topology(
            exchanges=[SHOP],
            queues=[queue("wait", dlx="", key="orders", ttl=30_000), queue("orders")],
            bindings=[TO_ORDERS],
        ),
    ),
    "a delay queue without a TTL, live": Sample(
        rule="mixed-ttl",
        severity=Severity.WARNING,
        subject="wait",
        path=(
            "queue wait",
            "expired by the letter's own expiration, at the head only",
            "(default exchange)",
            "key orders",
            "queue orders",
        ),
        broken=topology(
            queues=[
                queue("wait", dlx="", key="orders", state=QueueState(ready=2, messages=2)),
                orders(WORKED),
                queue("orders.dlq", state=IDLE),
            ],
            live=True,
        ),
        clean=topology(
            queues=[
                queue("wait", dlx="", key="orders", state=WORKED),
                orders(WORKED),
                queue("orders.dlq", state=IDLE),
            ],
            live=True,
        ),
    ),
    "a policy with a key that the queue does not take": Sample(
        rule="policy-without-effect",
        severity=Severity.ERROR,
        subject="orders.retry",
        path=(
            "queue orders.retry",
            "policy retry",
            "a classic queue takes no delivery-limit",
            "none of the policy holds",
        ),
        broken=topology(
            version="4.0.5",
            queues=[queue("orders.retry"), queue("orders.retry.2")],
            policies=[policy("retry", r"\.retry", message_ttl=10_000, delivery_limit=-1)],
        ),
        clean=topology(
            version="4.0.5",
            queues=[queue("orders.retry"), queue("orders.retry.2")],
            policies=[
                policy("retry", r"\.retry", dead_letter_exchange="", dead_letter_routing_key="orders.retry"),
            ],
        ),
    ),
    "another policy applies instead": Sample(
        rule="policy-without-effect",
        severity=Severity.WARNING,
        subject="orders",
        path=(
            "queue orders",
            "policy all",
            "a quorum queue takes no max-age",
            "policy low applies instead",
        ),
        broken=topology(
            version="3.10.8",
            queues=[queue("orders", kind="quorum")],
            policies=[
                BrokerPolicy(
                    name="all", pattern="", priority=2, definition={"max-age": "1D", "max-length": 9}
                ),
                BrokerPolicy(name="low", pattern="", definition={"overflow": "reject-publish"}),
            ],
        ),
        clean=topology(
            version="3.10.8",
            queues=[queue("orders", kind="quorum")],
            policies=[
                BrokerPolicy(name="all", pattern="", priority=2, definition={"max-age": "1D"}),
                BrokerPolicy(name="low", pattern="", definition={"overflow": "reject-publish"}),
            ],
        ),
    ),
    "a loop whose delay has no TTL": Sample(
        rule="delay-without-ttl",
        severity=Severity.ERROR,
        subject="orders.retry",
        path=("queue orders.retry", "no TTL", "never back in queue orders"),
        broken=topology(
            queues=[
                queue("orders", dlx="", key="orders.retry", state=WORKED),
                queue("orders.retry", dlx="", key="orders", state=QueueState(ready=2, messages=2)),
            ],
            live=True,
        ),
        clean=topology(
            queues=[
                queue("orders", dlx="", key="orders.retry", state=WORKED),
                queue("orders.retry", dlx="", key="orders", ttl=10_000, state=IDLE),
            ],
            live=True,
        ),
    ),
    "a declared TTL below the policy's": Sample(
        rule="argument-over-policy",
        severity=Severity.WARNING,
        subject="orders.retry",
        path=(
            "queue orders.retry",
            "declared with x-message-ttl 10000",
            "policy slower: message-ttl 20000",
            "the declaration wins",
        ),
        broken=topology(
            queues=[
                queue("orders", dlx="", key="orders.retry"),
                queue("orders.retry", dlx="", key="orders", ttl=10_000),
            ],
            policies=[policy("slower", r"\.retry$", message_ttl=20_000)],
        ),
        clean=topology(
            queues=[
                queue("orders", dlx="", key="orders.retry"),
                queue("orders.retry", dlx="", key="orders", ttl=20_000),
            ],
            policies=[policy("slower", r"\.retry$", message_ttl=20_000)],
        ),
    ),
    "an alternate exchange that does not exist": Sample(
        rule="alternate-exchange",
        severity=Severity.ERROR,
        subject="dlx",
        path=("exchange dlx", "no binding", "exchange lost", "no such exchange"),
        broken=topology(exchanges=[alternate("dlx", "lost")]),
        clean=topology(exchanges=[alternate("dlx", "lost"), Exchange(name="lost", type="fanout")]),
    ),
    "alternate exchanges in a circle": Sample(
        rule="alternate-exchange",
        severity=Severity.ERROR,
        subject="one",
        path=("exchange one", "no binding", "exchange two", "exchange one", "has been there: dropped"),
        broken=topology(exchanges=[alternate("one", "two"), alternate("two", "one")]),
        clean=topology(
            exchanges=[alternate("one", "two"), alternate("two", "one", "fanout")],
            queues=[queue("caught")],
            bindings=[Binding(source="two", destination="caught")],
        ),
    ),
    "an alternate exchange where letters return": Sample(
        rule="alternate-exchange",
        severity=Severity.ERROR,
        subject="deadletter.return.orders",
        path=("exchange deadletter.return.orders", "queue orders gone", "exchange catch", "confirmed"),
        broken=topology(
            exchanges=[
                Exchange(name="catch", type="fanout"),
                Exchange(name="deadletter.return.orders", type="fanout"),
            ],
            policies=[policy("catch-all", "^dead", "exchanges", alternate_exchange="catch")],
        ),
        clean=topology(
            exchanges=[
                Exchange(name="catch", type="fanout"),
                Exchange(name="deadletter.return.orders", type="fanout"),
            ],
            policies=[
                policy(
                    "catch-all",
                    r"^(?!deadletter\.return\.orders$)(?=.*?(?:^dead))",
                    "exchanges",
                    alternate_exchange="catch",
                )
            ],
        ),
    ),
    "an alternate exchange that leads back": Sample(
        rule="alternate-exchange",
        severity=Severity.ERROR,
        subject="orders",
        path=(
            "queue orders",
            "rejected",
            "exchange dlx",
            "key order.new",
            "no binding",
            "exchange shop",
            "queue orders",
        ),
        broken=topology(
            exchanges=[SHOP, alternate("dlx", "shop")],
            queues=[queue("orders", dlx="dlx")],
            bindings=[TO_ORDERS],
        ),
        clean=topology(
            exchanges=[SHOP, alternate("dlx", "shop")],
            queues=[queue("orders", dlx="dlx"), queue("orders.dlq")],
            bindings=[TO_ORDERS, TO_DLQ],
        ),
    ),
    "an alternate exchange into a queue nobody consumes": Sample(
        rule="alternate-exchange",
        severity=Severity.NOTE,
        subject="orders",
        path=(
            "queue orders",
            "rejected",
            "exchange dlx",
            "key order.new",
            "no binding",
            "exchange catch",
            "queue caught",
            "no consumer",
        ),
        broken=topology(
            exchanges=[SHOP, alternate("dlx", "catch"), Exchange(name="catch", type="fanout")],
            queues=[queue("orders", dlx="dlx", state=WORKED), queue("caught", state=IDLE)],
            bindings=[TO_ORDERS, Binding(source="catch", destination="caught")],
            live=True,
        ),
        clean=topology(
            exchanges=[SHOP, alternate("dlx", "catch"), Exchange(name="catch", type="fanout")],
            queues=[queue("orders", dlx="dlx", state=WORKED), queue("caught", state=WORKED)],
            bindings=[TO_ORDERS, Binding(source="catch", destination="caught")],
            live=True,
        ),
    ),
    "a TTL on a dead-letter queue": Sample(
        rule="dlq-limits",
        severity=Severity.ERROR,
        subject="orders.dlq",
        path=(*INTO_DLQ, "expired after 1 d", "gone"),
        broken=with_dlq(message_ttl=86_400_000),
        clean=with_dlq(),
    ),
    "a length limit on a dead-letter queue": Sample(
        rule="dlq-limits",
        severity=Severity.WARNING,
        subject="orders.dlq",
        path=(*INTO_DLQ, "max-length 100, drop-head", "gone"),
        broken=with_dlq(max_length=100),
        clean=with_dlq(),
    ),
    "a length limit on a dead-letter queue that is full": Sample(
        rule="dlq-limits",
        severity=Severity.ERROR,
        subject="orders.dlq",
        path=(*INTO_DLQ, "max-length 10, reject-publish", "gone"),
        broken=with_dlq(QueueState(ready=10, messages=10), WORKED, max_length=10, overflow="reject-publish"),
        clean=with_dlq(QueueState(ready=10, messages=10), WORKED),
    ),
    "an expiry of a dead-letter queue": Sample(
        rule="dlq-limits",
        severity=Severity.ERROR,
        subject="orders.dlq",
        path=(*INTO_DLQ, "queue unused for 30 min", "gone"),
        broken=with_dlq(IDLE, WORKED, expires=1_800_000),
        clean=with_dlq(IDLE, WORKED),
    ),
    "a policy for everything on our parked queue": Sample(
        rule="dlq-limits",
        severity=Severity.WARNING,
        subject="deadletter.parked",
        path=("queue deadletter.parked", "max-length 10, drop-head", "gone"),
        broken=topology(
            queues=[queue("deadletter.parked", kind="quorum")], policies=[policy("all", ".*", max_length=10)]
        ),
        clean=topology(
            queues=[queue("deadletter.parked", kind="quorum")],
            policies=[policy("all", r"^(?!deadletter\.)", max_length=10)],
        ),
    ),
    "a queue nobody consumes any more": Sample(
        rule="unused-queue",
        severity=Severity.WARNING,
        subject="orders",
        path=("exchange shop", "queue orders", "no consumer", "grows by 5/s"),
        broken=topology(
            exchanges=[SHOP], queues=[queue("orders", state=growing(5))], bindings=[TO_ORDERS], live=True
        ),
        clean=topology(
            exchanges=[SHOP],
            queues=[queue("orders", state=growing(5, WORKED.consumers))],
            bindings=[TO_ORDERS],
            live=True,
        ),
    ),
    "a queue nobody consumes that expires into the dead letters of others": Sample(
        rule="unused-queue",
        severity=Severity.WARNING,
        subject="old",
        path=("queue old", "expired after 1 min", "(default exchange)", "key orders.dlq", "queue orders.dlq"),
        broken=topology(
            queues=[
                orders(WORKED),
                queue("old", dlx="", key="orders.dlq", ttl=60_000, state=QueueState(ready=4, messages=4)),
                queue("orders.dlq", state=WORKED),
            ],
            live=True,
        ),
        clean=topology(
            queues=[
                orders(WORKED),
                queue("old", dlx="", key="orders.dlq", ttl=60_000, state=WORKED),
                queue("orders.dlq", state=WORKED),
            ],
            live=True,
        ),
    ),
    "a dead-letter queue without a watch": Sample(
        rule="unwatched-dlq",
        severity=Severity.WARNING,
        subject="orders.dlq",
        path=(*INTO_DLQ, "not watched"),
        broken=with_dlq(),
        watched=frozenset({"others.dlq"}),
        clean=with_dlq(),
        watched_when_clean=frozenset({"orders.dlq"}),
    ),
    "a dead-letter queue without a watch or a consumer": Sample(
        rule="unwatched-dlq",
        severity=Severity.WARNING,
        subject="orders.dlq",
        path=(*INTO_DLQ, "no consumer"),
        broken=with_dlq(IDLE, WORKED),
        watched=frozenset(),
        clean=with_dlq(WORKED, WORKED),
        watched_when_clean=frozenset(),
    ),
    "two users on one dead-letter queue": Sample(
        rule="mixed-services",
        severity=Severity.WARNING,
        subject="orders.dlq",
        path=(*INTO_DLQ, "consumer of user billing", "consumer of user orders"),
        broken=with_dlq(
            consumed_by(
                LiveConsumer(tag="a", prefetch=1, user="orders"),
                LiveConsumer(tag="b", prefetch=1, user="billing"),
            ),
            WORKED,
        ),
        clean=with_dlq(
            consumed_by(
                LiveConsumer(tag="a", prefetch=1, user="orders"),
                LiveConsumer(tag="b", prefetch=1, user="orders"),
            ),
            WORKED,
        ),
    ),
    "two services of one user on one dead-letter queue": Sample(
        rule="mixed-services",
        severity=Severity.NOTE,
        subject="orders.dlq",
        path=(*INTO_DLQ, "consumer of service billing", "consumer of service orders"),
        broken=with_dlq(
            consumed_by(
                LiveConsumer(tag="a", prefetch=1, connection="orders-7f9c4", user="app"),
                LiveConsumer(tag="b", prefetch=1, connection="billing@host-2", user="app"),
            ),
            WORKED,
        ),
        clean=with_dlq(
            consumed_by(
                LiveConsumer(tag="a", prefetch=1, connection="orders-1", user="app"),
                LiveConsumer(tag="b", prefetch=1, connection="orders-2", user="app"),
                LiveConsumer(tag="c", prefetch=1, connection="10.0.0.1:5000 -> 10.0.0.2:5672", user="app"),
                LiveConsumer(tag="d", prefetch=1, connection="10.0.0.3:5000 -> 10.0.0.2:5672", user="app"),
            ),
            WORKED,
        ),
    ),
    "a consumer without a prefetch": Sample(
        rule="no-prefetch",
        severity=Severity.WARNING,
        subject="orders",
        path=("queue orders", "consumer greedy", "acknowledges, prefetch 0", "2000 unacknowledged"),
        broken=topology(
            version="4.0.5",
            queues=[
                queue(
                    "orders",
                    kind="quorum",
                    state=QueueState(
                        unacked=2000, messages=2000, consumers=(LiveConsumer(tag="greedy", prefetch=0),)
                    ),
                )
            ],
            live=True,
        ),
        clean=topology(
            version="4.0.5",
            queues=[
                queue(
                    "orders",
                    kind="quorum",
                    state=consumed_by(
                        LiveConsumer(tag="modest", prefetch=100),
                        LiveConsumer(tag="careless", prefetch=0, ack_required=False),
                    ),
                )
            ],
            live=True,
        ),
    ),
    "delayed retries on a broker that has none": Sample(
        rule="native-delay-ignored",
        severity=Severity.ERROR,
        subject="orders",
        path=(
            "queue orders",
            "rejected with requeue",
            "x-delayed-retry-min, x-delayed-retry-type ignored",
            "queue orders at once",
        ),
        broken=topology(
            version="4.0.5",
            queues=[queue("orders", kind="quorum", delayed_retry_type="all", delayed_retry_min=1000)],
        ),
        clean=topology(
            version="4.3.6",
            queues=[queue("orders", kind="quorum", delayed_retry_type="all", delayed_retry_min=1000)],
        ),
    ),
    "delayed retries on a classic queue": Sample(
        rule="native-delay-ignored",
        severity=Severity.ERROR,
        subject="orders",
        path=("queue orders", "classic queue", "x-delayed-retry-type refused"),
        broken=topology(version="4.3.6", queues=[queue("orders", delayed_retry_type="all")]),
        clean=topology(version="4.3.6", queues=[queue("orders", kind="quorum", delayed_retry_type="all")]),
    ),
    "a policy for delayed retries on 4.3.0": Sample(
        rule="native-delay-ignored",
        severity=Severity.ERROR,
        subject="delay",
        path=("policy delay", "delayed-retry-type all", "refused"),
        broken=topology(version="4.3.0", policies=[policy("delay", "^orders$", delayed_retry_type="all")]),
        clean=topology(version="4.3.1", policies=[policy("delay", "^orders$", delayed_retry_type="all")]),
    ),
    "delayed retries where the version is not known": Sample(
        rule="native-delay-ignored",
        severity=Severity.WARNING,
        subject="delay",
        path=("policy delay", "delayed-retry-type all", "refused"),
        broken=topology(policies=[policy("delay", "^orders$", delayed_retry_type="all")]),
        clean=topology(policies=[policy("delay", "^orders$", max_length=9)]),
    ),
    "a mirrored policy before the upgrade": Sample(
        rule="refused-by-4",
        severity=Severity.WARNING,
        subject="ha",
        path=("policy ha", "ha-mode all", "refused"),
        broken=topology(
            version="3.10.8", policies=[policy("ha", ".*", ha_mode="all", ha_sync_mode="automatic")]
        ),
        clean=topology(version="3.10.8", policies=[policy("ha", ".*", max_length=9)]),
    ),
    "a mirrored policy after the upgrade": Sample(
        rule="refused-by-4",
        severity=Severity.ERROR,
        subject="ha",
        path=("policy ha", "ha-mode all", "refused"),
        broken=topology(version="4.0.5", policies=[policy("ha", ".*", ha_mode="all")]),
        clean=topology(version="4.0.5", policies=[policy("ha", ".*", max_length=9)]),
    ),
    "a queue that 4.3 does not let anybody declare": Sample(
        rule="refused-by-4",
        severity=Severity.WARNING,
        subject="orders",
        path=("queue orders", "x-queue-master-locator min-masters", "refused"),
        broken=topology(version="4.0.5", queues=[queue("orders", queue_master_locator="min-masters")]),
        clean=topology(version="4.0.5", queues=[queue("orders", queue_leader_locator="balanced")]),
    ),
    "the first queue version on 4.3": Sample(
        rule="refused-by-4",
        severity=Severity.ERROR,
        subject="orders",
        path=("queue orders", "x-queue-version 1", "refused"),
        broken=topology(version="4.3.6", queues=[queue("orders", queue_version=1)]),
        clean=topology(version="4.3.6", queues=[queue("orders", queue_version=2)]),
    ),
    "a lazy queue": Sample(
        rule="refused-by-4",
        severity=Severity.NOTE,
        subject="orders",
        path=("queue orders", "x-queue-mode lazy", "ignored"),
        broken=topology(version="4.3.6", queues=[queue("orders", queue_mode="lazy")]),
        clean=topology(version="4.3.6", queues=[queue("orders")]),
    ),
    "a transient queue": Sample(
        rule="refused-by-4",
        severity=Severity.NOTE,
        subject="orders",
        path=("queue orders", "not durable, not exclusive", "node restarts", "gone"),
        broken=topology(version="4.3.6", queues=[queue("orders", durable=False)]),
        clean=topology(
            version="4.3.6", queues=[queue("orders"), Queue(name="reply", durable=False, exclusive=True)]
        ),
    ),
    "a consumer that could not declare its queue anew": Sample(
        rule="retry-permissions",
        severity=Severity.WARNING,
        subject="orders",
        path=(
            "queue orders",
            "deleted, or on a new broker",
            "user app declares it",
            "(default exchange)",
            "no write permission: 403",
        ),
        broken=permitted("^orders", WORKED),
        clean=permitted(r"^(orders|amq\.default$)", WORKED),
    ),
    "a queue that nobody could declare anew": Sample(
        rule="retry-permissions",
        severity=Severity.WARNING,
        subject="orders",
        path=(
            "queue orders",
            "deleted, or on a new broker",
            "(default exchange)",
            "nobody may declare it: 403",
        ),
        broken=permitted("", None),
        clean=permitted(".*", None),
    ),
    "a service of ours that may not publish": Sample(
        rule="retry-permissions",
        severity=Severity.ERROR,
        subject="deadletter.due",
        path=("queue deadletter.due", "user dlq", "no write on amq.default: 403"),
        broken=served(r"^deadletter\."),
        clean=served(r"^deadletter\.|^amq\.default$"),
    ),
    "a service of ours that may not declare": Sample(
        rule="retry-permissions",
        severity=Severity.WARNING,
        subject="deadletter.due",
        path=("queue deadletter.due", "user dlq", "no configure on deadletter.: 403"),
        broken=served(".*", configure=""),
        clean=served(".*"),
    ),
    "a dead-letter queue that grows": Sample(
        rule="growing-dlq",
        severity=Severity.WARNING,
        subject="orders.dlq",
        path=(*INTO_DLQ, "grows by 2.5/s"),
        broken=with_dlq(growing(2.5), WORKED),
        clean=with_dlq(growing(-1.0), WORKED),
    ),
    "letters held without a target": Sample(
        rule="held-letters",
        severity=Severity.ERROR,
        subject="level",
        path=(
            "queue level",
            "expired after 1 min",
            "(default exchange)",
            "key due",
            "no such queue",
            "40 held",
        ),
        broken=topology(queues=[level("level", state=QueueState(ready=2, messages=42))], live=True),
        clean=topology(
            queues=[level("level", state=QueueState(ready=2, messages=42)), queue("due", state=WORKED)],
            live=True,
        ),
    ),
    "a delay queue with a letter that should have left": Sample(
        rule="overdue-level",
        severity=Severity.WARNING,
        subject="wait",
        path=("queue wait", "head published 1 h ago", "should have expired after 10 s", "3 ready"),
        broken=overdue(3_600_000),
        clean=overdue(65_000),
    ),
}


@pytest.mark.parametrize("name", SAMPLES)
def test_a_broken_shape_is_found(name: str) -> None:
    sample = SAMPLES[name]

    found = [each for each in findings(sample.broken, sample.watched) if each.rule == sample.rule]

    assert (sample.rule, sample.severity, sample.subject, sample.path) in {
        (each.rule, each.severity, each.subject, each.path) for each in found
    }, found
    assert all(each.why and each.fix for each in found)


@pytest.mark.parametrize("name", SAMPLES)
def test_its_twin_is_clean(name: str) -> None:
    sample = SAMPLES[name]

    assert findings(sample.clean, sample.watched_when_clean) == []


def test_every_rule_has_a_sample_and_says_what_it_is() -> None:
    assert {rule.id for rule in ALL} == {sample.rule for sample in SAMPLES.values()}
    assert len({rule.id for rule in ALL}) == len(ALL)
    for rule in ALL:
        assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)+", rule.id)
        assert not rule.summary.endswith(".")  # a line, not a sentence
        assert rule.why.endswith(".")


def test_rules_that_need_a_live_broker_find_nothing_in_a_file() -> None:
    needing = {rule.id for rule in ALL if rule.live}

    for sample in SAMPLES.values():
        if not sample.broken.live:
            assert sample.rule not in needing


def ours(state: QueueState | None) -> Topology:
    """What Deadletter declares for itself."""
    in_flight = None if state is None else QueueState(messages=20, oldest_at_ms=0, ready=1)
    return topology(
        version="4.0.5",
        exchanges=[Exchange(name="deadletter.return.orders", type="fanout")],
        queues=[
            orders(state),
            queue("orders.dlq", state=state),
            level("deadletter.delay.60000", key="deadletter.due", state=in_flight),
            queue("deadletter.due", kind="quorum", delivery_limit=-1, state=state and growing(9)),
            queue("deadletter.parked", kind="quorum", delivery_limit=-1, state=state and growing(9)),
        ],
        bindings=[Binding(source="deadletter.return.orders", destination="orders")],
        permissions=[Permission(user="app", configure=".*", write=".*", read=".*")],
        live=state is not None,
    )


@pytest.mark.parametrize("state", [None, WORKED], ids=["file", "live"])
def test_queues_of_ours_are_not_accused_of_what_they_are_for(state: QueueState | None) -> None:
    assert findings(ours(state), frozenset({"orders.dlq"})) == []


def test_a_dead_letter_queue_that_takes_what_a_delay_returns_is_not_a_delay() -> None:
    """Working queues die into it; the note about delays is for queues whose letters are worked on again."""
    shape = topology(
        exchanges=[SHOP, DEAD, Exchange(name="dlx2", type="fanout")],
        queues=[queue("orders", dlx="dlx"), queue("others", dlx="dlx2"), queue("orders.dlq")],
        bindings=[TO_ORDERS, TO_DLQ, Binding(source="dlx2", destination="orders.dlq")],
    )

    assert findings(shape) == []


def test_a_queue_whose_service_is_down_is_not_a_delay() -> None:
    """Nobody consumes it, and its dead letters end where somebody does: that alone says nothing."""
    assert findings(with_dlq(WORKED, QueueState(ready=5, messages=5))) == []


def test_at_least_once_that_is_not_in_force_holds_nothing() -> None:
    """Without reject-publish RabbitMQ falls back to at-most-once; another rule says so."""
    shape = topology(
        queues=[queue("level", kind="quorum", dlx="", key="due", dead_letter_strategy="at-least-once")]
    )

    assert findings(shape) == []


def test_a_delay_whose_service_is_down_is_not_unused() -> None:
    shape = topology(
        queues=[
            queue("wait", dlx="", key="orders", ttl=60_000, state=QueueState(ready=3, messages=3)),
            orders(IDLE),
            queue("orders.dlq", state=IDLE),
        ],
        live=True,
    )

    assert findings(shape) == []


def test_a_watched_queue_is_one_for_failures_even_if_nothing_dies_into_it() -> None:
    """Applications publish to their parking queues themselves; then only the configuration tells."""
    shape = topology(exchanges=[SHOP], queues=[queue("orders", message_ttl=1000)], bindings=[TO_ORDERS])

    assert findings(shape) == []
    assert [each.rule for each in findings(shape, frozenset({"orders"}))] == ["dlq-limits"]


def test_a_policy_for_mirrors_is_told_once() -> None:
    sample = SAMPLES["a mirrored policy before the upgrade"]

    assert len(findings(sample.broken)) == 1


def test_who_does_not_declare_needs_no_permission_for_it() -> None:
    assert findings(permitted("^orders", WORKED, configure="")) == []


def test_a_queue_of_one_connection_is_declared_by_whoever_has_it() -> None:
    reply = Queue(name="orders", exclusive=True, arguments={"x-dead-letter-exchange": "dlx"})
    shape = topology(exchanges=[DEAD], queues=[reply], permissions=[Permission(user="app")])

    assert findings(shape) == []


def test_an_old_stamp_without_a_letter_says_nothing() -> None:
    assert findings(overdue(3_600_000, ready=0)) == []


def test_a_full_target_is_an_error_on_a_live_broker() -> None:
    full = queue("due", max_length=3, overflow="reject-publish", state=QueueState(ready=3, messages=3))
    shape = topology(queues=[level("level", state=IDLE), full], live=True)

    [found] = [each for each in findings(shape) if each.rule == "at-least-once-into-refusing"]

    assert found.severity is Severity.ERROR


def test_a_shape_reached_through_other_exchanges_is_followed() -> None:
    shape = topology(
        exchanges=[DEAD, Exchange(name="inner", type="fanout")],
        queues=[queue("orders", dlx="dlx", key="k"), queue("orders.dlq", message_ttl=1000)],
        bindings=[
            Binding(source="dlx", destination="inner", to=DestinationKind.EXCHANGE, routing_key="k"),
            Binding(source="inner", destination="orders.dlq"),
        ],
    )

    [found] = findings(shape)

    assert (found.rule, found.subject) == ("dlq-limits", "orders.dlq")


def test_fixes_are_commands_with_the_names_filled_in() -> None:
    def fix(name: str) -> str:
        sample = SAMPLES[name]
        return next(f.fix for f in findings(sample.broken, sample.watched) if f.rule == sample.rule)

    returning = "an alternate exchange where letters return"
    assert fix(returning) == (
        "rabbitmqctl set_policy -p / --apply-to exchanges --priority 0 catch-all "
        r"'^(?!deadletter\.return\.orders$)(?=.*?(?:^dead))' "
        """'{"alternate-exchange": "catch"}'"""
    )
    assert fix("a consumer that could not declare its queue anew") == (
        r"rabbitmqctl set_permissions -p / app '^orders' '^orders|^amq\.default$' '^orders'"
    )
    assert fix("a mirrored policy before the upgrade").endswith("rabbitmqctl clear_policy -p / ha")
    assert "no policy takes it off" in fix("a TTL on a dead-letter queue")
    assert "out of policy all" in fix("a policy for everything on our parked queue")


def test_a_permission_python_does_not_understand_accuses_nobody() -> None:
    assert findings(permitted("(?|a|b)", WORKED)) == []


def many(count: int) -> Case:
    """So many queues with a dead-letter queue each, and twenty users."""
    shape = topology(
        version="4.0.5",
        exchanges=[SHOP, DEAD],
        queues=[
            queue
            for at in range(count)
            for queue in (
                Queue(
                    name=f"q{at}",
                    arguments={"x-dead-letter-exchange": "dlx", "x-dead-letter-routing-key": f"d{at}"},
                    state=WORKED,
                ),
                Queue(name=f"d{at}", arguments={"x-message-ttl": 1000}, state=growing(1)),
            )
        ],
        bindings=[
            binding
            for at in range(count)
            for binding in (
                *(
                    Binding(source="shop", destination=f"q{at}", routing_key=f"k{at}.{more}.*")
                    for more in range(5)
                ),
                Binding(source="dlx", destination=f"d{at}", routing_key=f"d{at}"),
            )
        ],
        permissions=[
            Permission(user=f"u{at}", configure="^q", write="^q|^dlx$", read=".*") for at in range(20)
        ],
        live=True,
    )
    return Case(topology=shape, now_ms=NOW_MS, watched=frozenset())


def test_twice_as_many_queues_are_twice_the_work() -> None:
    def all_of(count: int) -> list[Finding]:
        case = many(count)
        return [finding for rule in ALL for finding in rule.check(case)]

    assert len(all_of(100)) == 3 * 100, "a TTL, growth and nobody to watch, on every dead-letter queue"
    assert lines_run(lambda: all_of(200)) < 2.5 * lines_run(lambda: all_of(100))


# -- what the settings say ----------------------------------------------------------------------------------
def test_a_numbered_delay_that_is_not_what_the_settings_say() -> None:
    shape = topology(
        version="4.0.5",
        queues=[
            queue("queue.delay.1", dlx="back", key="retry.#.1", ttl=10_000),
            queue("queue.delay.2", dlx="back", key="retry.#.2"),
            queue("queue.delay.3", dlx="back", key="retry.#.3", ttl=20_000),
        ],
    )
    delays_ms = {"queue.delay.1": 20_000, "queue.delay.2": 15_000, "queue.delay.3": 20_000}
    case = Case(topology=shape, now_ms=NOW_MS, delays_ms=delays_ms)
    found = [finding for rule in rules_in(effects) for finding in rule.check(case)]
    assert [(one.rule, one.subject, one.severity) for one in found] == [
        ("delay-without-ttl", "queue.delay.2", Severity.ERROR),
        ("argument-over-policy", "queue.delay.1", Severity.WARNING),
    ]
    assert '"message-ttl": 15000' in found[0].fix
    assert "x-message-ttl=20000" in found[1].fix


def test_one_void_policy_over_many_queues_is_told_once() -> None:
    shape = topology(
        version="4.3.6",
        queues=[queue(f"q{n}") for n in range(9)],
        policies=[policy("limits", "", message_ttl=5, delivery_limit=20)],
    )
    (found,) = (f for f in findings(shape) if f.rule == "policy-without-effect")
    assert found.subject == "q0"
    assert "The same of q1" in found.why
