"""The adapters, each in its own framework on a real broker: the examples are run, and the broker is asked.

About `adapters.aio_pika`, `adapters.faststream`, `adapters.pika`, `adapters.framework_letters`,
`adapters.packing`, `adapters.rulings`, `adapters.terms`, `adapters.outbox`, `adapters.telling`.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from decimal import Decimal
from typing import Any

import aio_pika
import pika
import pytest
from aio_pika.abc import AbstractIncomingMessage
from faststream import AckPolicy
from faststream.rabbit import RabbitBroker, RabbitQueue
from tests.brokers import Vhost
from tests.paths import ROOT
from tests.postbox import depth, drain, fill

import deadletter.adapters.aio_pika as with_aio_pika
import deadletter.adapters.pika as with_pika
from deadletter.adapters.faststream import with_retries
from deadletter.adapters.framework_letters import letter_of
from deadletter.adapters.packing import Packed, pack
from deadletter.adapters.rulings import AdapterJudge, Parcel
from deadletter.adapters.terms import agree
from deadletter.consumer.backoffs import fixed
from deadletter.consumer.events import Event, Fate, Handled
from deadletter.consumer.outcomes import RetryLater, retry
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.message import View, view
from deadletter.core.letter.wrapping import unwrap
from deadletter.core.topology.layout_names import AdapterLayoutName
from deadletter.errors import UsageError

EXAMPLES = ROOT / "examples"
QUEUE = "shop.orders"
DLQ = f"{QUEUE}__dlq"
RECIPES = [("with_celery.py", "celery", "celery.dlq"), ("with_dramatiq.py", "orders", "orders.XQ")]


def run_example(name: str, vhost: Vhost, *more: str) -> Any:
    """The last line of what it printed, as JSON."""
    ended = subprocess.run(
        [sys.executable, str(EXAMPLES / name), "--url", vhost.url, "--api", vhost.api, *more],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    return json.loads(ended.stdout.splitlines()[-1])


@pytest.mark.parametrize("name", ["with_aio_pika.py", "with_pika.py"])
def test_the_example_retries_parks_and_loses_nothing(name: str, vhost: Vhost) -> None:
    told = run_example(name, vhost)
    assert told["tries"] == {"good": 1, "flaky": 3, "refused": 1, "hopeless": 4}
    check_the_broker(vhost, {"refused", "hopeless"})


def check_the_broker(vhost: Vhost, parked: set[str]) -> None:
    letters = {json.loads(post.body).get("order", "not an order"): post for post in drain(vhost.url, DLQ)}
    assert set(letters) == parked
    refused, hopeless = letters["refused"].headers, letters["hopeless"].headers
    assert refused["deadletter-error-type"] == "__main__.PaymentRefused"
    assert refused["deadletter-error-message"] == "the card is not valid"
    assert "raise PaymentRefused" in refused["deadletter-error-stack"]
    assert refused["deadletter-cause"] == "permanent-error"
    assert refused["deadletter-attempt"] == 0
    assert hopeless["deadletter-cause"] == "retries-exhausted"
    assert hopeless["deadletter-attempt"] == 3
    assert hopeless["deadletter-origin-queue"] == QUEUE
    assert hopeless["deadletter-error-service"] == "shop"
    assert hopeless["deadletter-error-first-at"] < hopeless["deadletter-error-at"]
    assert hopeless["deadletter-id"] != refused["deadletter-id"]
    for post in (letters["refused"], letters["hopeless"]):  # its own properties came through all of it
        assert (post.properties.message_id, post.properties.priority, post.headers["tenant"]) == ("m-1", 3, 7)
    for queue in (QUEUE, *(f"{QUEUE}__retry.{rung}" for rung in (1, 2, 3))):
        assert depth(vhost.url, queue) == 0, queue


@pytest.mark.parametrize("policy", ["REJECT_ON_ERROR", "NACK_ON_ERROR"])
def test_faststream_retries_parks_and_loses_nothing(policy: str, vhost: Vhost) -> None:
    told = run_example("with_faststream.py", vhost, "--ack-policy", policy)
    assert told["tries"] == {"good": 1, "flaky": 3, "refused": 1, "hopeless": 4}
    assert told["ends"]["not an order"] == "permanent-error"
    check_the_broker(vhost, {"refused", "hopeless", "not an order"})


@pytest.mark.slow
@pytest.mark.kills
@pytest.mark.parametrize(("name", "queue", "dlq"), RECIPES)
def test_a_recipe_with_dlq_serve_retries_parks_and_loses_nothing(
    name: str, queue: str, dlq: str, vhost: Vhost
) -> None:
    told = run_example(name, vhost)
    assert told["tries"] == {"good": 1, "flaky": 3, "hopeless": 4}
    (letter,) = drain(vhost.url, "deadletter.parked")
    assert b"hopeless" in letter.body
    assert letter.headers["deadletter-origin-queue"] == queue
    assert letter.headers["deadletter-attempt"] == 3
    assert letter.headers["deadletter-cause"] == "retries-exhausted"
    for place in (queue, dlq, "deadletter.due", "deadletter.delay.200"):
        assert depth(vhost.url, place) == 0, place


# -- what goes wrong -----------------------------------------------------------------------------------------
async def test_aio_pika_gives_back_what_has_no_place(vhost: Vhost, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both carry one message id: aiormq would report the one that no queue took as delivered."""
    monkeypatch.setattr(with_aio_pika, "PAUSES_S", (0.0, 0.0))
    facts: list[Event] = []
    in_hand: list[bytes] = []

    @with_aio_pika.retrying(vhost.url, queue=QUEUE, retries=2, backoff=fixed(0.2), listener=facts.append)
    async def on_message(message: AbstractIncomingMessage) -> None:
        # Each is tried more often than a quorum queue of RabbitMQ 4 lets a letter be returned.
        if len(facts) >= 120:
            in_hand.append(message.body)  # and stays there: the line is cut between two tries, not in one
            await asyncio.Event().wait()
        raise TimeoutError("not now")

    await on_message.prepare(api=vhost.api)
    vhost.delete("queues", f"{QUEUE}__retry.1")
    await asyncio.to_thread(fill, vhost.url, QUEUE, [b"1", b"2"], dead=False, message_id="same")
    async with await aio_pika.connect(vhost.url) as connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=2)
        await (await channel.get_queue(QUEUE)).consume(on_message)
        await until(lambda: len(in_hand) == 2)
    await on_message.close()
    assert {fact.fate for fact in facts if isinstance(fact, Handled)} == {Fate.STUCK}
    assert any("unroutable" in fact.why for fact in facts if isinstance(fact, Handled))
    left = await asyncio.to_thread(drain, vhost.url, QUEUE, expect=2)
    assert sorted(post.body for post in left) == [b"1", b"2"]


def test_pika_gives_back_what_has_no_place(vhost: Vhost, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(with_pika, "PAUSES_S", (0.0, 0.0))
    facts: list[Event] = []

    @with_pika.retrying(queue=QUEUE, retries=2, backoff=fixed(0.2), deliveries=60_000, listener=facts.append)
    def on_message(channel: Any, _method: Any, _properties: Any, _body: bytes) -> None:
        # Each is tried more often than a quorum queue of RabbitMQ 4 lets a letter be returned.
        if len(facts) >= 120:
            channel.stop_consuming()
        raise TimeoutError("not now")

    on_message.prepare(vhost.url, api=vhost.api)
    vhost.delete("queues", f"{QUEUE}__retry.1")
    fill(vhost.url, QUEUE, [b"1", b"2"], dead=False, message_id="same")
    with closing(pika.BlockingConnection(pika.URLParameters(vhost.url))) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=2)
        channel.basic_consume(QUEUE, on_message)
        channel.start_consuming()
    assert {fact.fate for fact in facts if isinstance(fact, Handled)} == {Fate.STUCK}
    left = drain(vhost.url, QUEUE, expect=2)
    assert sorted(post.body for post in left) == [b"1", b"2"]


async def test_what_the_handler_settled_itself_is_left_alone(vhost: Vhost) -> None:
    raised = asyncio.Event()

    @with_aio_pika.retrying(vhost.url, queue=QUEUE, retries=1, backoff=fixed(0.2))
    async def on_message(message: AbstractIncomingMessage) -> None:
        await message.ack()
        raised.set()
        raise TimeoutError("too late to matter")

    await on_message.prepare(api=vhost.api)
    await asyncio.to_thread(fill, vhost.url, QUEUE, [b"1"], dead=False)
    async with await aio_pika.connect(vhost.url) as connection:
        channel = await connection.channel()
        message = await (await channel.get_queue(QUEUE)).get()
        assert message is not None
        with pytest.raises(TimeoutError):
            await on_message(message)
    await on_message.close()
    assert raised.is_set()
    assert [depth(vhost.url, queue) for queue in (QUEUE, f"{QUEUE}__retry.1", DLQ)] == [0, 0, 0]


def test_pika_leaves_alone_what_the_callback_settled(vhost: Vhost) -> None:
    @with_pika.retrying(queue=QUEUE, retries=1, backoff=fixed(0.2))
    def on_message(channel: Any, method: Any, _properties: Any, _body: bytes) -> None:
        channel.basic_ack(method.delivery_tag)
        raise TimeoutError("too late to matter")

    on_message.prepare(vhost.url, api=vhost.api)
    fill(vhost.url, QUEUE, [b"1"], dead=False)
    with closing(pika.BlockingConnection(pika.URLParameters(vhost.url))) as connection:
        channel = connection.channel()
        with pytest.raises(TimeoutError):
            on_message(channel, *channel.basic_get(QUEUE))
    assert [depth(vhost.url, queue) for queue in (QUEUE, f"{QUEUE}__retry.1", DLQ)] == [0, 0, 0]


# -- refusals, and what needs no broker ----------------------------------------------------------------------
@pytest.mark.parametrize("policy", [AckPolicy.ACK, AckPolicy.ACK_FIRST])
async def test_faststream_refuses_what_could_lose_a_message(policy: AckPolicy) -> None:
    retries = with_retries("amqp://localhost:1/")
    broker = RabbitBroker("amqp://localhost:1/", middlewares=[retries])

    @broker.subscriber(RabbitQueue(QUEUE, declare=False), ack_policy=policy)
    async def handle(_body: str) -> None: ...

    with pytest.raises(UsageError, match=f"expected AckPolicy .* got {policy.name}"):
        await retries.prepare(broker)


def test_the_layout_must_be_named() -> None:
    with pytest.raises(UsageError, match="there is no auto"):
        agree(queue=QUEUE, layout="auto")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("layout", "why"),
    [
        ("ladder", "as many rungs as the queue has retries"),
        ("native", "the broker itself ends the retries of a queue"),
    ],
)
def test_more_retries_for_an_error_than_a_layout_has_are_refused(layout: AdapterLayoutName, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        agree(QUEUE, layout=layout, retries=1, on={ValueError: retry(fixed(1), retries=2)})


@pytest.mark.parametrize(
    ("layout", "delay_ms"), [("ladder", 1000), ("loop", 1000), ("native", 1000), ("external", None)]
)
def test_a_retry_is_told_with_the_delay_it_has(layout: AdapterLayoutName, delay_ms: int | None) -> None:
    """In `external` nobody here knows how long it waits."""
    judge = AdapterJudge(agree(QUEUE, layout=layout, backoff=fixed(1)))
    assert judge.after(redelivered(), ValueError("again"), 0).fact.delay_ms == delay_ms


def redelivered(**headers: Value) -> Letter:
    return letter_of(
        QUEUE,
        View(headers=headers),
        b"body",
        exchange="",
        routing_key=QUEUE,
        redelivered=True,
        circling=False,
    )


def test_what_kills_its_consumer_is_put_aside() -> None:
    judge = AdapterJudge(agree(queue=QUEUE, deliveries=3))
    assert judge.before(redelivered(**{"x-delivery-count": 2}), 0) is None
    ruling = judge.before(redelivered(**{"x-delivery-count": 3}), 0)
    assert ruling is not None
    assert (ruling.fact.fate, ruling.fact.cause) == (Fate.PARKED, "killed-its-consumer")


def test_a_queue_that_does_not_count_accuses_nobody() -> None:
    assert AdapterJudge(agree(queue=QUEUE, deliveries=1)).before(redelivered(), 0) is None


def test_on_a_ladder_an_error_rule_takes_the_rung_of_its_attempt() -> None:
    """A delay of its own would be a queue that nobody declared."""
    judge = AdapterJudge(agree(queue=QUEUE, retries=2, backoff=fixed(1, 5), on={ValueError: fixed(77)}))
    headers: dict[str, Value] = {"deadletter-origin-queue": QUEUE, "deadletter-attempt": 1}
    ruling = judge.after(redelivered(**headers), ValueError("again"), 0)
    assert isinstance(ruling.step, Parcel)
    assert ruling.step.send.routing_key == f"{QUEUE}__retry.2"
    assert ruling.fact.delay_ms == 5000


@pytest.mark.parametrize(("asked", "given"), [(0.5, 1000), (4, 5000), (100, 5000)])
def test_a_delay_nobody_declared_becomes_one_that_is_there(asked: float, given: int) -> None:
    judge = AdapterJudge(agree(queue=QUEUE, layout="return", backoff=fixed(1, 5)))
    ruling = judge.after(redelivered(), RetryLater(asked), 0)
    assert isinstance(ruling.step, Parcel)
    assert ruling.step.send.routing_key == f"deadletter.delay.{given}"


def test_large_headers_cost_the_stack_first_and_then_travel_wrapped() -> None:
    judge = AdapterJudge(agree(queue=QUEUE))
    step = judge.after(redelivered(), ValueError("x" * 1500), 0).step
    assert isinstance(step, Parcel)

    def packed(frame_max_bytes: int) -> Packed:
        return pack(step, run="r", number=1, user="", frame_max_bytes=frame_max_bytes, now_ms=0)

    whole, slim, wrapped = packed(131_072), packed(1_500), packed(300)
    assert "deadletter-error-stack" in (view(whole.message.properties).headers or {})
    assert "deadletter-error-stack" not in (view(slim.message.properties).headers or {})
    assert slim.routing_key == f"{QUEUE}__retry.1"
    assert wrapped.routing_key == DLQ
    assert unwrap(wrapped.message) == step.letter.message


def test_a_header_our_codec_cannot_write_is_kept_as_text() -> None:
    odd: Any = {"odd": Decimal("-1.5"), "good": 1}
    letter = letter_of(
        QUEUE, View(headers=odd), b"", exchange="", routing_key="", redelivered=False, circling=False
    )
    assert letter.headers == {"odd": "Decimal('-1.5')", "good": 1}


@pytest.mark.parametrize(("circling", "ids"), [(True, 1), (False, 3)])
def test_where_the_broker_sends_it_round_its_id_stays(circling: bool, ids: int) -> None:
    def came(trip: int) -> str:
        deaths: Any = {"x-death": [{"queue": QUEUE, "reason": "rejected", "count": trip}]} if trip else {}
        return letter_of(
            QUEUE,
            View(headers={"tenant": "t", **deaths}),
            b"body",
            exchange="",
            routing_key=QUEUE,
            redelivered=False,
            circling=circling,
        ).id

    assert len({came(trip) for trip in range(3)}) == ids


async def until(holds: Callable[[], bool], seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not await asyncio.to_thread(holds):  # noqa: ASYNC110 -- the broker tells nobody
            await asyncio.sleep(0.05)
