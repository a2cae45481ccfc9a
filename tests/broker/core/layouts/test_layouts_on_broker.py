"""Every layout on a real broker: one letter fails, is retried, and is parked, and nothing else moves.

The service here is written by hand, in each layout's own words: who takes a letter from where and publishes
it where. It publishes mandatory and confirmed and then acks, with pika, which does not share our mistakes.

About `core.layouts.ladder`, `core.layouts.levels`, `core.layouts.looping`, `core.layouts.native`,
`core.layouts.returning`, `core.layouts.sweeping`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pika
import pytest
from tests.brokers import Vhost
from tests.postbox import run, wait_for, with_channel

from deadletter.amqp.channel import Channel
from deadletter.core.deciding.backoff import Fixed, Linear, Schedule, compile_schedule
from deadletter.core.deciding.letter_view import view_letter
from deadletter.core.deciding.origin import Origin
from deadletter.core.layouts import ladder, levels, naming, plan
from deadletter.core.layouts.request import Plan
from deadletter.core.letter import names
from deadletter.core.topology.merging import BrokerPolicy
from deadletter.core.topology.vhost import DEFAULT_EXCHANGE, topology
from deadletter.errors import UsageError

BODY = bytes(range(256)) + "\N{SNOWMAN}".encode() + b"\r\n\x00"
KEY = "order.new.eu"
SHOP = "shop"
RETRIES = 3


# -- a small service ----------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Held:
    """A letter somebody took and has not acked."""

    tag: int
    exchange: str
    key: str
    properties: Any
    body: bytes

    @property
    def headers(self) -> dict[str, Any]:
        return dict(self.properties.headers or {})


class Office:
    """Takes, publishes and acks. Declares plans the plain way: policies, then what they are about."""

    def __init__(self, vhost: Vhost) -> None:
        self.vhost = vhost
        self.connection = pika.BlockingConnection(pika.URLParameters(vhost.url))
        self.version: str = self.connection._impl.server_properties["version"]
        self.channel = self.connection.channel()
        self.channel.confirm_delivery()

    def plan(self, layout: str, queue: str, schedule: Schedule, **more: Any) -> Plan:
        return plan(layout, queue, schedule=schedule, version=self.version, declare_queue=True, **more)

    def declare(self, planned: Plan) -> None:
        for policy in planned.topology.policies:
            self.vhost.put(
                "policies",
                policy.name,
                pattern=policy.pattern,
                definition=dict(policy.definition),
                priority=policy.priority,
                **{"apply-to": policy.apply_to},
            )

        async def work(channel: Channel) -> None:
            for exchange in planned.topology.exchanges.values():
                if exchange.name and not exchange.name.startswith("amq."):
                    await channel.declare_exchange(exchange.name, exchange.type)
            for queue in planned.topology.queues.values():
                typed = {"x-queue-type": queue.type, **queue.arguments}
                await channel.declare_queue(queue.name, arguments=typed)
            for binding in planned.topology.bindings:
                await channel.bind_queue(binding.destination, binding.source, binding.routing_key)

        run(with_channel(self.vhost.url, work))

    def open_shop(self, *queues: str) -> None:
        """An application's exchange with these queues, and another subscriber whom no retry may feed."""
        self.channel.exchange_declare(SHOP, "topic", durable=True)
        self.channel.queue_declare("audit", durable=True)
        for queue in (*queues, "audit"):
            self.channel.queue_bind(queue, SHOP, "order.#")

    def order(self, exchange: str = SHOP, key: str = KEY, body: bytes = BODY) -> None:
        properties = pika.BasicProperties(message_id="m-1", delivery_mode=2, headers={"tenant": "t1"})
        self.channel.basic_publish(exchange, key, body, properties, mandatory=True)

    def take(self, queue: str, seconds: float = 60.0) -> Held:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            method, properties, body = self.channel.basic_get(queue)
            if method is not None:
                return Held(method.delivery_tag, method.exchange, method.routing_key, properties, body)
            time.sleep(0.02)
        raise AssertionError(f"nothing came to {queue} in {seconds} s")

    def move(self, letter: Held, exchange: str, key: str, headers: dict[str, Any]) -> None:
        """Confirmed in the new home, then out of the old one; the broker's own headers stay behind."""
        gone = {names.X_DEATH, *names.DEATH_SUMMARY, *names.DELIVERY_COUNTS}
        kept = {name: value for name, value in letter.headers.items() if name not in gone}
        properties = pika.BasicProperties(message_id="m-1", delivery_mode=2, headers={**kept, **headers})
        self.channel.basic_publish(exchange, key, letter.body, properties, mandatory=True)
        self.channel.basic_ack(letter.tag)

    def reject(self, letter: Held, *, requeue: bool = False) -> None:
        self.channel.basic_reject(letter.tag, requeue=requeue)

    def origin_of(self, letter: Held) -> Origin:
        keeps = int(self.version.split(".")[0]) < 4
        origin = view_letter(letter.headers, broker_keeps_client_deaths=keeps).origin
        assert origin is not None
        return origin

    def settings(self, queue: str) -> dict[str, Any]:
        """What of policies holds for a queue; the management API knows a moment after the queue does."""
        key = "effective_policy_definition"
        wait_for(lambda: key in (self.vhost.get("queues", queue) or {}), f"settings of {queue}")
        return dict(self.vhost.get("queues", queue)[key] or {})

    def depths(self) -> dict[str, int]:
        return {q["name"]: q.get("messages", 0) for q in self.vhost.list("queues")}


@pytest.fixture
def office(vhost: Vhost) -> Iterator[Office]:
    office = Office(vhost)
    try:
        yield office
    finally:
        office.connection.close()


def address(origin: Origin, attempt: int) -> dict[str, Any]:
    """What the service writes down before a publish of its own overwrites it."""
    return {
        names.ORIGIN_QUEUE: origin.queue,
        names.ORIGIN_EXCHANGE: origin.exchange,
        names.ORIGIN_ROUTING_KEY: origin.routing_keys[0],
        names.ATTEMPT: attempt,
    }


def check(office: Office, letter: Held, stop: str) -> Origin:
    """Body, origin and key at one stop; a letter that was in the service's hands carries them in headers."""
    assert letter.body == BODY, stop
    assert letter.headers["tenant"] == "t1", stop
    assert letter.properties.message_id == "m-1", stop
    written = letter.headers.get(names.ORIGIN_ROUTING_KEY)
    origin = (
        office.origin_of(letter)
        if written is None
        else Origin(
            queue=letter.headers[names.ORIGIN_QUEUE],
            exchange=letter.headers[names.ORIGIN_EXCHANGE],
            routing_keys=(written,),
        )
    )
    assert origin == Origin(queue="orders", exchange=SHOP, routing_keys=(KEY,)), stop
    return origin


# -- the layouts in their own words -------------------------------------------------------------------------
class Story:
    """How a letter fails, waits and comes back, and how it is parked."""

    layout: str
    park: str
    keeps_key = True
    """Whether the letter comes back to its queue with the key it first came by."""
    schedule = compile_schedule(Fixed(delays_ms=(300, 600)), RETRIES)

    def retry(self, office: Office, letter: Held, attempt: int) -> None:
        raise NotImplementedError

    def give_up(self, office: Office, letter: Held) -> None:
        raise NotImplementedError

    def delay_ms(self, attempt: int) -> int:
        return self.schedule.choices_ms(attempt - 1)[0]


class Return(Story):
    layout, park = "return", "deadletter.parked"

    def retry(self, office: Office, letter: Held, attempt: int) -> None:
        office.reject(letter)
        dead = office.take("orders.dlq")
        origin = check(office, dead, "orders.dlq")
        level = naming.level_name(self.delay_ms(attempt))
        office.move(dead, DEFAULT_EXCHANGE, level, address(origin, attempt))
        due = office.take("deadletter.due")
        origin = check(office, due, "deadletter.due")
        back = naming.return_exchange_name(origin.queue)
        office.move(due, back, origin.routing_keys[0], address(origin, attempt))

    def give_up(self, office: Office, letter: Held) -> None:
        office.reject(letter)
        dead = office.take("orders.dlq")
        office.move(dead, DEFAULT_EXCHANGE, self.park, address(check(office, dead, "orders.dlq"), RETRIES))


class Levels(Story):
    layout, park = "levels", "dlq-queue"

    def retry(self, office: Office, letter: Held, attempt: int) -> None:
        office.reject(letter)
        dead = office.take("retry-queue")
        origin = check(office, dead, "retry-queue")
        level = levels.level_of(attempt, len(self.schedule.rungs))
        key = levels.delay_key(origin.routing_keys[0], level)
        assert key == f"binding.{KEY}.{level}"
        office.move(dead, "route-delay", key, address(origin, attempt))
        due = office.take(f"retry-queue-{level}")
        assert due.key == f"retry.#.{level}"
        origin = check(office, due, f"retry-queue-{level}")
        back = naming.return_exchange_name(origin.queue)
        office.move(due, back, origin.routing_keys[0], address(origin, attempt))

    def give_up(self, office: Office, letter: Held) -> None:
        office.reject(letter)
        dead = office.take("retry-queue")
        headers = address(check(office, dead, "retry-queue"), RETRIES)
        office.move(dead, "dlq-exchange", "dlq-routing-key", headers)


class Sweep(Story):
    layout, park = "sweep", "deadletter.parked"

    def retry(self, office: Office, letter: Held, attempt: int) -> None:
        office.reject(letter)
        dead = office.take("orders.dlq")
        origin = check(office, dead, "orders.dlq")
        back = naming.return_exchange_name(origin.queue)
        office.move(dead, back, origin.routing_keys[0], address(origin, attempt))

    def give_up(self, office: Office, letter: Held) -> None:
        office.reject(letter)
        dead = office.take("orders.dlq")
        office.move(dead, DEFAULT_EXCHANGE, self.park, address(check(office, dead, "orders.dlq"), RETRIES))

    def delay_ms(self, attempt: int) -> int:  # noqa: ARG002 -- there is none, whichever the attempt
        return 0


class Ladder(Story):
    layout, park, keeps_key = "ladder", "orders__dlq", False

    def retry(self, office: Office, letter: Held, attempt: int) -> None:
        first = Origin(queue="orders", exchange=letter.exchange, routing_keys=(letter.key,))
        origin = first if attempt == 1 else check(office, letter, "orders")
        exchange, rung = ladder.retry_exchange_name("orders"), ladder.rung_name("orders", attempt)
        office.move(letter, exchange, rung, address(origin, attempt))

    def give_up(self, office: Office, letter: Held) -> None:
        office.reject(letter)


class Loop(Story):
    layout, park, keeps_key = "loop", "orders.dlq", False
    schedule = compile_schedule(Fixed(delays_ms=(300,)), RETRIES)

    def retry(self, office: Office, letter: Held, attempt: int) -> None:
        if attempt > 1:
            deaths = letter.headers[names.X_DEATH]
            assert sum(death["count"] for death in deaths if death["reason"] == "rejected") == attempt - 1
        office.reject(letter)

    def give_up(self, office: Office, letter: Held) -> None:
        origin = check(office, letter, "orders")
        office.move(letter, "orders.dlq", origin.routing_keys[0], address(origin, RETRIES))


class Native(Story):
    layout, park = "native", "orders.dlq"
    schedule = compile_schedule(Linear(step_ms=300), RETRIES)

    def retry(self, office: Office, letter: Held, attempt: int) -> None:
        assert letter.headers.get(names.X_DELIVERY_COUNT, 0) == attempt - 1
        office.reject(letter, requeue=True)

    def give_up(self, office: Office, letter: Held) -> None:
        office.reject(letter, requeue=True)


STORIES = (Return(), Levels(), Sweep(), Ladder(), Loop(), Native())


@pytest.fixture(params=STORIES, ids=lambda story: story.layout)
def story(request: pytest.FixtureRequest, office: Office) -> Story:
    found = request.param
    assert isinstance(found, Story)
    if isinstance(found, Native) and not _has_native(office):
        pytest.skip("this broker has no native retries; that the layout is refused there has its own test")
    return found


def _has_native(office: Office) -> bool:
    """Asked of the broker itself, not of a version: does it take the policy?"""
    definition = {"delayed-retry-type": "failed", "delayed-retry-min": 1}
    try:
        office.vhost.put("policies", "probe", pattern="^$", definition=definition)
    except AssertionError:
        return False
    office.vhost.delete("policies", "probe")
    return True


def test_native_is_refused_exactly_where_the_broker_has_none(office: Office) -> None:
    if _has_native(office):
        assert office.plan("native", "orders", Native.schedule).layout == "native"
    else:
        with pytest.raises(UsageError, match=r"expected RabbitMQ 4\.3\.1 or later"):
            office.plan("native", "orders", Native.schedule)


# -- what must hold -----------------------------------------------------------------------------------------
def test_a_letter_fails_is_retried_and_is_parked(office: Office, story: Story) -> None:
    office.declare(office.plan(story.layout, "orders", story.schedule))
    office.open_shop("orders")
    office.order()
    letter = office.take("orders")
    for attempt in range(1, RETRIES + 1):
        begun = time.monotonic()
        story.retry(office, letter, attempt)
        letter = office.take("orders")
        waited_ms = (time.monotonic() - begun) * 1000
        assert waited_ms >= story.delay_ms(attempt) * 0.9, "not before its time"
        assert letter.body == BODY
        if story.keeps_key:
            assert letter.key == KEY
        if letter.headers.get(names.X_DEATH) or names.ORIGIN_QUEUE in letter.headers:
            check(office, letter, f"orders, attempt {attempt}")
    story.give_up(office, letter)
    parked = office.take(story.park)
    check(office, parked, story.park)
    office.channel.basic_nack(parked.tag, requeue=True)
    left = {story.park: 1, "audit": 1}
    wait_for(
        lambda: office.depths() == {name: left.get(name, 0) for name in office.depths()},
        f"one parked letter and nothing elsewhere, last seen {office.depths()}",
    )


def test_applying_twice_changes_nothing(office: Office, story: Story) -> None:
    def shape() -> list[object]:
        # Not the policy of each queue, which is a figure, and some seconds old; the policies are below.
        queues = sorted((q["name"], sorted(q["arguments"].items())) for q in office.vhost.list("queues"))
        exchanges = sorted(e["name"] for e in office.vhost.list("exchanges"))
        bindings = sorted(
            (b["source"], b["destination"], b["routing_key"]) for b in office.vhost.list("bindings")
        )
        return [queues, exchanges, bindings, sorted(map(repr, office.vhost.list("policies")))]

    planned = office.plan(story.layout, "orders", story.schedule)
    office.declare(planned)
    before = shape()
    office.declare(planned)
    assert shape() == before
    named = {name for name, _ in before[0]}  # type: ignore[attr-defined]  # a list of rows
    assert named == set(planned.topology.queues)


def test_the_broker_computes_what_the_plan_says(office: Office, story: Story) -> None:
    planned = office.plan(story.layout, "orders", story.schedule)
    office.declare(planned)
    for queue in planned.topology.queues.values():
        settings, said = office.settings(queue.name), office.vhost.get("queues", queue.name)
        arguments = {key.removeprefix("x-"): value for key, value in said["arguments"].items()}
        arguments.pop("queue-type")
        assert said["type"] == queue.type
        assert said["policy"] == queue.policy
        assert {**settings, **arguments} == queue.effective, queue.name


def _level_sender(story: Story) -> Callable[[Office, Held, int], None]:
    def send(office: Office, letter: Held, attempt: int) -> None:
        headers = address(Origin(queue="orders", exchange=SHOP, routing_keys=(KEY,)), attempt)
        match story.layout:
            case "return":
                level = naming.level_name(story.delay_ms(attempt))
                office.move(letter, DEFAULT_EXCHANGE, level, headers)
            case "levels":
                office.move(letter, "route-delay", levels.delay_key(KEY, attempt), headers)
            case _:
                rung = ladder.rung_name("orders", attempt)
                office.move(letter, ladder.retry_exchange_name("orders"), rung, headers)

    return send


@pytest.mark.parametrize(
    ("teller", "arrives_at"),
    [(Return(), "deadletter.due"), (Levels(), "retry-queue-2"), (Ladder(), "orders")],
    ids=lambda value: getattr(value, "layout", ""),
)
def test_a_second_overtakes_a_minute(office: Office, teller: Story, arrives_at: str) -> None:
    teller.schedule = compile_schedule(Fixed(delays_ms=(60_000, 1_000)), 2)
    office.declare(office.plan(teller.layout, "orders", teller.schedule))
    office.open_shop("orders")
    send = _level_sender(teller)
    for attempt, body in ((1, b"a minute"), (2, b"a second")):
        office.order(body=body)
        send(office, office.take("orders"), attempt)
    first = office.take(arrives_at, seconds=15)
    assert first.body == b"a second"


def test_two_loops_do_not_wait_for_each_other(office: Office) -> None:
    for queue, delay_ms in (("orders", 60_000), ("bills", 1_000)):
        office.declare(office.plan("loop", queue, compile_schedule(Fixed(delays_ms=(delay_ms,)), 2)))
        office.order("", queue)
        office.reject(office.take(queue))
    assert office.take("bills", seconds=15).body == BODY
    assert office.channel.basic_get("orders")[0] is None


def test_native_holds_each_letter_for_itself(office: Office) -> None:
    if not _has_native(office):
        pytest.skip("this broker has no native retries")
    office.declare(office.plan("native", "orders", compile_schedule(Linear(step_ms=1_000), 9)))
    office.order("", "orders", b"third failure")
    for _ in range(3):
        office.reject(office.take("orders"), requeue=True)
    office.order("", "orders", b"first failure")
    office.reject(office.take("orders"), requeue=True)
    assert office.take("orders").body == b"first failure"


# -- the corrections ----------------------------------------------------------------------------------------
def test_crashes_neither_destroy_a_letter_of_the_loop_nor_send_it_round(office: Office) -> None:
    office.declare(office.plan("loop", "orders", Loop.schedule))
    office.order("", "orders")
    for _ in range(25):
        office.take("orders")
        office.channel.close()
        office.channel = office.connection.channel()
        office.channel.confirm_delivery()
    letter = office.take("orders")
    assert letter.body == BODY
    assert names.X_DEATH not in letter.headers


@pytest.mark.parametrize("queue", ["deadletter.due", "deadletter.parked", "orders.dlq"])
def test_crashes_of_the_service_destroy_nothing(office: Office, queue: str) -> None:
    office.declare(office.plan("return", "orders", Return.schedule))
    office.order("", queue)
    for _ in range(25):
        office.take(queue)
        office.channel.close()
        office.channel = office.connection.channel()
        office.channel.confirm_delivery()
    assert office.take(queue).body == BODY


@pytest.mark.parametrize("layout", ["levels", "ladder", "loop"])
def test_a_changed_delay_is_declared_and_holds(office: Office, layout: str) -> None:
    queue = {"levels": "queue.delay.1", "ladder": "orders__retry.1", "loop": "orders.retry"}[layout]
    for delay_ms in (300_000, 400):
        schedule = compile_schedule(Fixed(delays_ms=(delay_ms,)), 1)
        office.declare(office.plan(layout, "orders", schedule))
    wait_for(lambda: office.settings(queue)["message-ttl"] == 400, "the new delay")
    office.order("", queue)
    office.take("retry-queue-1" if layout == "levels" else "orders")


def test_dead_letters_of_two_queues_stay_apart(office: Office) -> None:
    for queue in ("orders", "bills"):
        office.declare(office.plan("sweep", queue, Sweep.schedule))
    office.open_shop("orders", "bills")
    office.order()
    office.reject(office.take("orders"))
    office.take("bills")
    check(office, office.take("orders.dlq"), "orders.dlq")
    assert office.channel.basic_get("bills.dlq")[0] is None


def test_a_policy_for_every_queue_takes_no_letters_from_ours(office: Office) -> None:
    short = BrokerPolicy(name="short", pattern=".*", definition={"max-length": 10, "message-ttl": 60_000})
    there = topology(version=office.version, policies=[short])
    office.vhost.put("policies", "short", pattern=".*", definition=dict(short.definition))
    office.declare(office.plan("return", "orders", Return.schedule, there=there))
    for queue in ("deadletter.parked", "deadletter.due", "orders.dlq", "deadletter.delay.600"):
        settings = office.settings(queue)
        assert "max-length" not in settings
        assert "message-ttl" not in settings
    for _ in range(50):
        office.order("", "deadletter.parked")
    assert len([office.take("deadletter.parked") for _ in range(50)]) == 50
    assert office.settings("orders")["max-length"] == 10


@pytest.mark.parametrize("queue", ["a.b+c (x) [y]*", "q" * 255, "\N{GREEK SMALL LETTER OMEGA}" * 127])
def test_odd_and_long_names(office: Office, queue: str) -> None:
    planned = office.plan("return", queue, Return.schedule)
    office.declare(planned)
    office.channel.queue_declare("aXb+c (x) [y]", durable=True)
    assert office.vhost.get("queues", "aXb+c (x) [y]").get("policy") is None
    office.order("", queue)
    office.reject(office.take(queue))
    dead = office.take(naming.dlq_name(queue))
    office.move(dead, naming.return_exchange_name(queue), KEY, {})
    assert office.take(queue).key == KEY
