"""An application that publishes: what arrives, what is told where it does not, and what a retry repeats.

About `consumer.publishing.publisher`, `consumer.publishing.publications`, `consumer.publishing.mailing`,
`consumer.publishing.bodies`, `consumer.message`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import datetime as dt
import enum
import uuid
from decimal import Decimal
from typing import Any

import msgspec
import pydantic
import pytest
from tests.contract.ground import Ground

from deadletter import Consumer, Message, RetryLater, fixed
from deadletter.core.letter.message import view
from deadletter.errors import MaybePublished, PublishRefused, Unroutable, UsageError


@dataclasses.dataclass
class Parcel:
    number: int
    sent: dt.date


class Order(pydantic.BaseModel):
    number: int
    price: Decimal


class Paid(msgspec.Struct):
    number: int


class Colour(enum.Enum):
    RED = "red"


UUID = uuid.UUID("6f0bb3a2-9d9e-4c0f-8a55-3c8d3a5f3a11")
BODIES: list[tuple[Any, bytes, str]] = [
    (b"\0\xff", b"\0\xff", "application/octet-stream"),
    (bytearray(b"ab"), b"ab", "application/octet-stream"),
    (memoryview(b"ab"), b"ab", "application/octet-stream"),
    (b"", b"", "application/octet-stream"),
    ("grüße", "grüße".encode(), "text/plain"),
    ({"a": [1, None, "ü"]}, '{"a":[1,null,"ü"]}'.encode(), "application/json"),
    ([], b"[]", "application/json"),
    (7, b"7", "application/json"),
    (None, b"null", "application/json"),
    (True, b"true", "application/json"),
    (Parcel(1, dt.date(2026, 2, 3)), b'{"number":1,"sent":"2026-02-03"}', "application/json"),
    (Order(number=1, price=Decimal("1.10")), b'{"number":1,"price":"1.10"}', "application/json"),
    (Paid(7), b'{"number":7}', "application/json"),
    ({"who": UUID, "c": Colour.RED}, b'{"who":"%s","c":"red"}' % str(UUID).encode(), "application/json"),
    ([Paid(7), Parcel(1, dt.date(2026, 2, 3))], b'[{"number":7},{"number":1,"sent":"2026-02-03"}]',
     "application/json"),
]  # fmt: skip


async def test_every_kind_of_body_arrives_as_what_it_is(ground: Ground) -> None:
    await ground.declare("q", "quorum")
    app = ground.application(service="shop")
    async with app.publishing(ground.site.memory):
        for body, _, _ in BODIES:
            await app.publish(body, key="q")
    found = await ground.drain("q")
    assert [one.message.body for one in found] == [raw for _, raw, _ in BODIES]
    views = [view(one.message.properties) for one in found]
    assert [one.content_type for one in views] == [kind for _, _, kind in BODIES]
    assert {one.delivery_mode for one in views} == {2}
    assert {one.app_id for one in views} == {"shop"}
    assert len({one.message_id for one in views}) == len(BODIES)
    now = dt.datetime.now(dt.UTC)
    times = [one.timestamp for one in views if isinstance(one.timestamp, dt.datetime)]
    assert len(times) == len(BODIES)
    assert all(abs(now - at) < dt.timedelta(minutes=5) for at in times)


@pytest.mark.parametrize(
    "odd", [object(), (n for n in "ab"), {"a": object()}, lambda: 1, "\ud800", {b"\xff": 1}]
)
async def test_what_cannot_be_a_body_is_refused_before_anything_leaves(ground: Ground, odd: object) -> None:
    await ground.declare("q")
    app = ground.application()
    async with app.publishing(ground.site.memory):
        with pytest.raises(UsageError, match="publish: expected"):
            await app.publish(odd, key="q")
        for wrong in (
            {"key": ""},
            {"key": "k" * 256},
            {"key": "q", "priority": 256},
            {"key": "q", "expiration": -1},
            {"key": "q", "expiration": float("nan")},
            {"key": "q", "headers": {"a": object()}},
            {"key": "q", "headers": {"a": "x" * 200_000}},
            {"key": "q", "correlation_id": "x" * 256},
        ):
            with pytest.raises(UsageError, match="publish: "):
                await app.publish(b"1", **wrong)
        await app.publish(b"good", key="q")
    assert [one.message.body for one in await ground.drain("q")] == [b"good"]


async def test_properties_go_out_and_a_handler_sees_them(ground: Ground) -> None:
    app, seen = ground.application(service="shop"), list[Any]()

    @app.queue("orders")
    async def handle(body: bytes, message: Message) -> None:
        seen.append(
            (
                message.message_id,
                message.correlation_id,
                message.reply_to,
                message.type,
                message.priority,
                message.content_type,
                message.app_id,
                message.expiration,
                message.timestamp,
                message.headers["tenant"],
            )
        )

    at = dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC)
    async with ground.serving(app):
        told = await app.publish(
            b"1", key="orders", message_id="m-1", correlation_id="c-1", reply_to="answers", type="order.made",
            priority=3, content_type="text/x-own", app_id="till", expiration=3600, timestamp=at,
            headers={"tenant": "acme"}, persistent=False,
        )  # fmt: skip
        assert told == "m-1"
        await app.publish(b"2", key="orders", headers={"tenant": ""})
        await ground.until(lambda: len(seen) == 2)
    seen.sort(key=lambda one: one[0] != "m-1")  # a broker may let the one with a priority pass
    hour = dt.timedelta(hours=1)
    assert seen[0] == ("m-1", "c-1", "answers", "order.made", 3, "text/x-own", "till", hour, at, "acme")
    assert seen[1][1:5] == (None, None, None, None)
    assert seen[1][6:8] == ("shop", None)


async def test_what_no_queue_takes_is_told_to_whom_it_belongs(ground: Ground) -> None:
    await ground.declare("q")
    app = ground.application()
    async with app.publishing(ground.site.memory):
        # One id for all of them: what came back is told apart by more than that.
        outcomes = await asyncio.gather(
            *(
                app.publish(b"%d" % n, key="q" if n % 3 else "none", message_id="same", mandatory=n % 2 == 0)
                for n in range(120)
            ),
            return_exceptions=True,
        )
    for n, outcome in enumerate(outcomes):
        if n % 3 or n % 2:
            assert outcome == "same"
        else:
            assert isinstance(outcome, Unroutable)
            assert (outcome.exchange, outcome.routing_key, outcome.message_id) == ("", "none", "same")
            assert "key 'none'" in str(outcome)
    bodies = {int(one.message.body) for one in await ground.drain("q")}
    assert bodies == {n for n in range(120) if n % 3}


async def test_a_missing_exchange_disturbs_nobody_else(ground: Ground) -> None:
    app, done = ground.application(), list[bytes]()

    @app.queue("orders")
    async def handle(body: bytes, message: Message) -> None:
        if body == b"wrong":
            with pytest.raises(PublishRefused, match="no such exchange"):
                await message.publish(b"x", exchange="nowhere", key="a")
        done.append(body)

    async with ground.serving(app):
        outcomes = await asyncio.gather(
            *(app.publish(b"%d" % n, exchange="" if n % 2 else "missing", key="orders") for n in range(100)),
            return_exceptions=True,
        )
        assert all(isinstance(one, str if n % 2 else PublishRefused) for n, one in enumerate(outcomes))
        await app.publish(b"wrong", key="orders")
        await app.publish(b"last", key="orders")
        await ground.until(lambda: len(done) == 52)
    assert sorted(done) == sorted([b"%d" % n for n in range(1, 100, 2)] + [b"wrong", b"last"])


async def test_a_full_queue_refuses(ground: Ground) -> None:
    await ground.declare("q", "classic", {"x-max-length": 1, "x-overflow": "reject-publish"})
    app = ground.application()
    async with app.publishing(ground.site.memory):
        await app.publish(b"1", key="q")
        with pytest.raises(PublishRefused, match="full"):
            await app.publish(b"2", key="q", message_id="m-2")
    assert [one.message.body for one in await ground.drain("q")] == [b"1"]


async def test_a_large_body_arrives_whole(ground: Ground) -> None:
    await ground.declare("q", "quorum")
    app, body = ground.application(), bytes(range(256)) * 20_000
    async with app.publishing(ground.site.memory):
        await app.publish(body, key="q")
    assert [one.message.body for one in await ground.drain("q")] == [body]


async def test_a_hundred_tasks_at_once_and_none_is_lost(ground: Ground) -> None:
    await ground.declare("q", "quorum")
    app = ground.application()

    async def work(number: int) -> None:
        for n in range(10):
            await app.publish({"task": number, "n": n}, key="q")

    async with app.publishing(ground.site.memory):
        await asyncio.gather(*(work(number) for number in range(100)))
    assert len(await ground.drain("q")) == 1000


async def test_a_broker_that_restarts_meanwhile_is_waited_for(ground: Ground) -> None:
    await ground.declare("q", "quorum")
    app, confirmed, doubtful = ground.application(), list[str](), list[str]()

    async def work(number: int) -> None:
        for n in range(40):
            body = f"{number}.{n}"
            try:
                await app.publish(body, key="q", message_id=body)
                confirmed.append(body)
            except MaybePublished as error:
                doubtful.append(body)
                await app.publish(body, key="q", message_id=error.message_id)
                confirmed.append(body)
            await asyncio.sleep(0.02)

    async with app.publishing(ground.site.memory):
        working = asyncio.gather(*(work(number) for number in range(10)))
        await asyncio.sleep(0.2)
        await ground.site.restart()
        await working
    there = [one.message.body.decode() for one in await ground.drain("q")]
    assert set(there) == set(confirmed)
    assert len(confirmed) == 400
    assert {body for body in there if there.count(body) > 1} <= set(doubtful)


async def test_outside_of_a_serving_consumer_it_is_refused(ground: Ground) -> None:
    await ground.declare("q")
    app = ground.application()
    with pytest.raises(UsageError, match=r"app\.publishing"):
        await app.publish(b"1", key="q")

    @app.queue("q")
    async def handle(body: bytes) -> None: ...

    async with ground.serving(app):
        await app.publish(b"1", key="q")
    with pytest.raises(UsageError, match=r"app\.publishing"):
        await app.publish(b"2", key="q")


async def test_a_handler_that_publishes_and_fails_repeats_its_ids(ground: Ground) -> None:
    """Whoever takes them can tell copies by their message ids."""
    await ground.declare("out", "quorum")
    app, tries = ground.application(), list[str]()

    @app.queue("orders", retries=2, backoff=fixed(0.1))
    async def handle(body: str, message: Message) -> None:
        tries.append(body)
        await message.publish("first", key="out")
        await message.publish("second", key="out")
        if tries.count(body) < 3:
            raise ConnectionError(body)

    async with ground.serving(app):
        await app.publish("a", key="orders", message_id="m-1", correlation_id="c-1")
        await app.publish("b", key="orders", message_id="m-2")
        await ground.until(lambda: len(tries) == 6)
    found = [(view(one.message.properties), one.message.body) for one in await ground.drain("out")]
    assert len(found) == 12
    ids = {(told.message_id, body) for told, body in found}
    assert len(ids) == 4
    assert {told.correlation_id for told, _ in found} == {"c-1", None}


async def test_without_an_id_nothing_is_taken_for_a_copy(ground: Ground) -> None:
    await ground.declare("out")
    await ground.declare("orders", "quorum")
    app = ground.application()

    @app.queue("orders")
    async def handle(body: bytes, message: Message) -> None:
        await message.publish(b"x", key="out")

    async with ground.serving(app):
        await ground.put("orders", b"same", b"same")
        await ground.depth_becomes("out", 2)
    ids = {view(one.message.properties).message_id for one in await ground.drain("out")}
    assert len(ids) == 2


async def test_request_and_reply(ground: Ground) -> None:
    app, answered = ground.application(), list[bool]()

    @app.queue("sums")
    async def add(numbers: list[int], message: Message) -> None:
        answered.append(await message.reply(sum(numbers)))

    @app.queue("orders", retries=0)
    async def wants_none(body: bytes, message: Message) -> None:
        with pytest.raises(UsageError, match="reply_to"):
            await message.reply(b"x")
        answered.append(True)

    await ground.declare("answers")
    async with ground.serving(app):
        await app.publish([1, 2], key="sums", reply_to="answers", correlation_id="c-1")
        await app.publish([3, 4], key="sums", reply_to="answers", message_id="m-2")
        await ground.depth_becomes("answers", 2)
        await app.publish([1], key="sums", reply_to="gone")
        await app.publish(b"", key="orders")
        await ground.until(lambda: len(answered) == 4)
    found = {
        view(one.message.properties).correlation_id: one.message.body for one in await ground.drain("answers")
    }
    assert found == {"c-1": b"3", "m-2": b"7"}
    assert answered.count(False) == 1


async def test_a_handler_that_asks_for_a_retry_has_published_already(ground: Ground) -> None:
    await ground.declare("out")
    app = ground.application()

    @app.queue("orders", retries=1, backoff=fixed(0.1))
    async def handle(body: bytes, message: Message) -> None:
        if not message.attempt:
            await message.publish(b"x", key="out")
            raise RetryLater(after=0.1)

    async with ground.serving(app):
        await app.publish(b"1", key="orders")
        await ground.depth_becomes("out", 1)


async def test_a_cancelled_publish_leaves_the_others_alone(ground: Ground) -> None:
    await ground.declare("q")
    app: Consumer = ground.application()
    async with app.publishing(ground.site.memory):
        await app.publish(b"0", key="q")
        tasks = [asyncio.create_task(app.publish(b"%d" % n, key="q")) for n in range(1, 50)]
        await asyncio.sleep(0)
        for task in tasks[::2]:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert all(not task.cancelled() for task in tasks[1::2])
        await app.publish(b"50", key="q")
    bodies = {int(one.message.body) for one in await ground.drain("q")}
    assert {0, 50, *range(2, 50, 2)} <= bodies
