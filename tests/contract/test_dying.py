"""Dead-lettering: why, where to, and what is written on the letter.

About `testing.memory.contents.queues`, `testing.memory.contents.carriage`,
`testing.memory.contents.death_records`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest
from tests.contract.ground import Ground, counts, seen

from deadletter.amqp.channel import Channel, Delivery
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.message import view

KINDS = pytest.mark.parametrize("kind", ["classic", "quorum"])
TO_DLQ: Mapping[str, Value] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dlq"}


def deaths(delivery: Delivery) -> list[tuple[object, object, object]]:
    found = (view(delivery.message.properties).headers or {}).get("x-death", [])
    assert isinstance(found, list)
    return [(d["queue"], d["reason"], d["count"]) for d in found]


async def reject(ground: Ground, channel: Channel, queue: str, *, requeue: bool = False) -> None:
    channel.reject((await ground.take(channel, queue)).tag, requeue=requeue)


def family(ground: Ground, exchange: str, queue: str, reason: str) -> dict[str, object]:
    """The headers of a first death beside `x-death`."""
    ends = ("first", "last") if ground.traits.last_death else ("first",)
    return {
        f"x-{end}-death-{what}": value
        for end in ends
        for what, value in (("exchange", exchange), ("queue", queue), ("reason", reason))
    }


@KINDS
async def test_a_rejected_letter(ground: Ground, kind: str) -> None:
    await ground.declare("dlq")
    await ground.declare("q", kind, TO_DLQ)
    channel = await ground.channel()
    await channel.bind_queue("q", "amq.topic", "a.#")
    await ground.put("a.b", b"1", exchange="amq.topic", headers={"z": 1, "b": 2}, expiration="60000")
    await reject(ground, channel, "q")
    found = await ground.take(channel, "dlq")
    letter = seen(found)
    assert (letter.body, letter.exchange, letter.key, letter.expiration) == (b"1", "", "dlq", None)
    assert letter.headers == {
        "z": 1,
        "b": 2,
        "x-death": [
            {
                "count": 1,
                "reason": "rejected",
                "queue": "q",
                "exchange": "amq.topic",
                "routing-keys": ["a.b"],
                "original-expiration": "60000",
            }
        ],
        **family(ground, "amq.topic", "q", "rejected"),
    }
    assert list(letter.headers) == sorted(letter.headers)
    assert letter.redelivered is ground.traits.delivered_survives_death


async def test_the_time_of_a_death_is_now(ground: Ground) -> None:
    await ground.declare("dlq")
    await ground.declare("q", "classic", {**TO_DLQ, "x-message-ttl": 0})
    before = datetime.now(UTC)
    await ground.put("q", b"1")
    headers = view((await ground.take(await ground.channel(), "dlq")).message.properties).headers or {}
    entries = headers["x-death"]
    assert isinstance(entries, list)
    when = entries[0]["time"]
    assert isinstance(when, datetime)
    assert abs(when - before) < timedelta(seconds=10)


@KINDS
async def test_a_letter_keeps_its_own_keys_without_a_dead_letter_key(ground: Ground, kind: str) -> None:
    channel = await ground.channel()
    await channel.declare_exchange("dlx", "fanout")
    await ground.declare("dlq")
    await channel.bind_queue("dlq", "dlx")
    await ground.declare("q", kind, {"x-dead-letter-exchange": "dlx"})
    await ground.put("q", b"1", headers={"CC": ["other"], "BCC": ["third"]})
    await reject(ground, channel, "q")
    letter = seen(await ground.take(channel, "dlq"))
    assert (letter.exchange, letter.key, letter.headers["CC"]) == ("dlx", "q", ["other"])
    entries = letter.headers["x-death"]
    assert isinstance(entries, list)
    assert entries[0]["routing-keys"] == ["q", "other"]


async def test_cc_goes_with_a_dead_letter_key_on_old_brokers(ground: Ground) -> None:
    await ground.declare("dlq")
    await ground.declare("copy")
    await ground.declare("q", "classic", TO_DLQ)
    await ground.put("q", b"1", headers={"CC": ["copy"]})
    channel = await ground.channel()
    await ground.take(channel, "copy")
    await reject(ground, channel, "q")
    assert ("CC" in seen(await ground.take(channel, "dlq")).headers) is ground.traits.keeps_cc
    await ground.none_comes(channel, "copy")  # either way it goes by the dead-letter key alone


@KINDS
async def test_an_expired_letter(ground: Ground, kind: str) -> None:
    await ground.declare("dlq")
    await ground.declare("q", kind, {**TO_DLQ, "x-message-ttl": 300})
    await ground.put("q", b"1")
    channel = await ground.channel()
    await ground.none_comes(channel, "dlq", 0.1)
    found = await ground.take(channel, "dlq")
    assert deaths(found) == [("q", "expired", 1)]
    assert found.redelivered is False


@KINDS
async def test_the_shorter_of_two_ttls_counts(ground: Ground, kind: str) -> None:
    await ground.declare("dlq")
    await ground.declare("long", kind, {**TO_DLQ, "x-message-ttl": 60_000})
    await ground.declare("short", kind, {**TO_DLQ, "x-message-ttl": 100})
    await ground.put("long", b"1", expiration="100")
    await ground.put("short", b"2", expiration="60000")
    await ground.depth_becomes("dlq", 2)


@KINDS
async def test_only_the_head_expires(ground: Ground, kind: str) -> None:
    await ground.declare("dlq")
    await ground.declare("q", kind, TO_DLQ)
    await ground.put("q", b"long", expiration="1200")
    await ground.put("q", b"short", expiration="100")
    await asyncio.sleep(0.5)
    assert (await ground.depth("q"), await ground.depth("dlq")) == (2, 0)
    await ground.depth_becomes("dlq", 2)
    assert [d.message.body for d in await ground.drain("dlq")] == [b"long", b"short"]


@KINDS
async def test_what_is_with_a_consumer_does_not_expire_until_it_is_back(ground: Ground, kind: str) -> None:
    await ground.declare("dlq")
    await ground.declare("q", kind, {**TO_DLQ, "x-message-ttl": 100})
    await ground.put("q", b"1")
    channel = await ground.channel()
    held = await ground.take(channel, "q")
    await ground.none_comes(channel, "dlq", 0.4)
    channel.nack(held.tag, requeue=True)
    assert deaths(await ground.take(channel, "dlq")) == [("q", "expired", 1)]


@KINDS
async def test_a_ttl_of_nothing_means_now_or_never(ground: Ground, kind: str) -> None:
    await ground.declare("q", kind, {"x-message-ttl": 0})
    channel = await ground.channel()
    assert (await ground.put("q", b"never")).confirmed == 1
    await ground.none_comes(channel, "q")
    if kind == "classic":
        got: list[Delivery] = []
        await channel.consume("q", got.append, print)
        await ground.put("q", b"now")
        await ground.until(lambda: got)
        assert got[0].message.body == b"now"


@KINDS
async def test_a_letter_pushed_out_of_a_full_queue(ground: Ground, kind: str) -> None:
    await ground.declare("dlq")
    await ground.declare("q", kind, {**TO_DLQ, "x-max-length": 1})
    await ground.put("q", b"1")
    await ground.put("q", b"2")
    channel = await ground.channel()
    found = await ground.take(channel, "dlq")
    assert (found.message.body, deaths(found)) == (b"1", [("q", "maxlen", 1)])
    assert await ground.depth("q") == 1


@KINDS
@pytest.mark.parametrize("by", ["argument", "policy"])
async def test_reject_publish_dlx_refuses_and_dead_letters(ground: Ground, kind: str, by: str) -> None:
    """The newest, in a classic queue. A quorum queue takes the word and drops its head all the same."""
    await ground.declare("dlq")
    limits: dict[str, Value] = {"max-length": 1, "overflow": "reject-publish-dlx"}
    if by == "policy":
        ground.site.set_policy("p", "^q$", limits, 1)
        await ground.declare("q", kind, TO_DLQ)
        await ground.calm()
    else:
        await ground.declare("q", kind, {**TO_DLQ, **{f"x-{key}": value for key, value in limits.items()}})
    assert (await ground.put("q", b"1")).confirmed == 1
    assert (await ground.put("q", b"2")).confirmed == (1 if kind == "quorum" else 0)
    found = await ground.take(await ground.channel(), "dlq")
    dropped, kept = (b"1", b"2") if kind == "quorum" else (b"2", b"1")
    assert (found.message.body, deaths(found)) == (dropped, [("q", "maxlen", 1)])
    assert [d.message.body for d in await ground.drain("q")] == [kept]


@KINDS
async def test_without_a_dead_letter_exchange_they_are_gone(ground: Ground, kind: str) -> None:
    await ground.declare("none", kind)
    await ground.declare("missing", kind, {"x-dead-letter-exchange": "not there"})
    channel = await ground.channel()
    for queue in ("none", "missing"):
        await ground.put(queue, b"1")
        await reject(ground, channel, queue)
        await ground.none_comes(channel, queue)
    assert channel.error is None


@KINDS
async def test_a_dead_letter_exchange_by_policy_and_the_argument_wins(ground: Ground, kind: str) -> None:
    await ground.declare("dlq")
    await ground.declare("policy.dlq")
    by_policy = {"dead-letter-exchange": "", "dead-letter-routing-key": "policy.dlq"}
    ground.site.set_policy("low", "^(a|b)$", {"max-length": 7}, 1)
    ground.site.set_policy("high", "^(a|b)$", by_policy, 5)
    await ground.declare("a", kind)
    await ground.declare("b", kind, TO_DLQ)
    await ground.calm()
    channel = await ground.channel()
    for queue, target in (("a", "policy.dlq"), ("b", "dlq")):
        await ground.put(queue, b"1")
        await reject(ground, channel, queue)
        assert deaths(await ground.take(channel, target)) == [(queue, "rejected", 1)]


@KINDS
async def test_the_lower_number_of_argument_and_policy_counts(ground: Ground, kind: str) -> None:
    ground.site.set_policy("p", "^q", {"max-length": 2, "message-ttl": 60_000}, 1)
    await ground.declare("q.three", kind, {"x-max-length": 3})
    await ground.declare("q.one", kind, {"x-max-length": 1, "x-message-ttl": 100})
    await ground.calm()
    for queue, left in (("q.three", 2), ("q.one", 1)):
        await ground.put(queue, b"1", b"2", b"3", b"4")
        await ground.depth_becomes(queue, left)
    await ground.depth_becomes("q.one", 0)
    assert await ground.depth("q.three") == 2


@KINDS
async def test_deaths_are_counted_per_queue_and_reason(ground: Ground, kind: str) -> None:
    """The loop of a retry queue: main rejects, the retry queue expires back."""
    back: dict[str, Value] = {
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "main",
        "x-message-ttl": 100,
    }
    await ground.declare("retry", kind, back)
    await ground.declare("main", kind, {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "retry"})
    await ground.put("main", b"1")
    channel = await ground.channel()
    for trip in range(4):
        found = await ground.take(channel, "main")
        expected = [("retry", "expired", trip), ("main", "rejected", trip)] if trip else []
        assert deaths(found) == expected
        headers = seen(found).headers
        if trip:
            assert headers["x-first-death-queue"] == "main"
            assert headers.get("x-last-death-queue") == ("retry" if ground.traits.last_death else None)
        channel.reject(found.tag, requeue=False)


@KINDS
async def test_a_cycle_without_a_rejection_is_cut(ground: Ground, kind: str) -> None:
    for name, other in (("a", "b"), ("b", "a")):
        to_other: dict[str, Value] = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": other}
        await ground.declare(name, kind, {**to_other, "x-message-ttl": 100})
    await ground.put("a", b"1")
    await asyncio.sleep(1)
    assert (await ground.depth("a"), await ground.depth("b")) == (0, 0)
    for queue in ("a", "b"):
        await ground.total_becomes(queue, 0)


@KINDS
async def test_a_queue_may_reject_into_itself_but_not_expire(ground: Ground, kind: str) -> None:
    await ground.declare("q", kind, {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"})
    await ground.put("q", b"1")
    channel = await ground.channel()
    await reject(ground, channel, "q")
    found = await ground.take(channel, "q")
    assert deaths(found) == [("q", "rejected", 1)]
    channel.ack(found.tag)
    await ground.put("q", b"2", expiration="50")
    await ground.none_comes(channel, "q")


@KINDS
@pytest.mark.parametrize("reason", ["rejected", "expired"])
async def test_what_a_client_wrote_into_x_death(ground: Ground, kind: str, reason: str) -> None:
    await ground.declare("dlq")
    await ground.declare("q", kind, TO_DLQ)
    channel = await ground.channel()
    written: dict[str, Value] = {
        "x-death": [
            {"queue": "q", "reason": reason, "count": 7},
            {"queue": "other", "reason": "expired", "count": 3},
        ],
        "x-first-death-queue": "mine",
        "x-delivery-count": 5,
    }
    if reason == "rejected":
        await ground.put("q", b"1", headers=written)
        await reject(ground, channel, "q")
    else:
        await ground.put("q", b"1", headers=written, expiration="1")
    found = await ground.take(channel, "dlq")
    headers = seen(found).headers
    if ground.traits.believes_clients:
        assert deaths(found) == [("q", reason, 8), ("other", "expired", 3)]
        assert headers["x-first-death-queue"] == "mine"
        assert "x-first-death-reason" not in headers
    else:
        assert deaths(found) == [("q", reason, 1)]
        assert headers["x-first-death-queue"] == "q"
    assert headers["x-delivery-count"] == 5


@KINDS
async def test_a_client_may_write_a_cycle(ground: Ground, kind: str) -> None:
    """Republished with a death in the dead-letter queue itself, it expires: old brokers see a cycle."""
    await ground.declare("dlq")
    await ground.declare("q", kind, TO_DLQ)
    death: dict[str, Value] = {"queue": "dlq", "reason": "expired", "count": 1}
    await ground.put("q", b"1", headers={"x-death": [death]}, expiration="1")
    channel = await ground.channel()
    if ground.traits.believes_clients:
        await ground.none_comes(channel, "dlq", 0.6)
    else:
        assert deaths(await ground.take(channel, "dlq")) == [("q", "expired", 1)]


async def test_a_republished_letter_counts_again(ground: Ground) -> None:
    await ground.declare("dlq")
    await ground.declare("q", "classic", TO_DLQ)
    await ground.put("q", b"1")
    channel = await ground.channel()
    told: list[object] = []
    for _ in range(3):
        await reject(ground, channel, "q")
        letter = await ground.take(channel, "dlq")
        told.append(deaths(letter)[0][2])
        channel.publish(channel.publishing("", "q", mandatory=True), *letter.message)
        channel.ack(letter.tag)
    assert told == ([1, 2, 3] if ground.traits.believes_clients else [1, 1, 1])


ENDS = (
    "reject",
    "discard by nack",
    "nack, reject",
    "requeue, reject",
    "lose, reject",
    "expire",
    "nack, expire",
    "requeue, expire",
    "lose, expire",
    "maxlen",
)


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("target", ["classic", "quorum"])
@KINDS
async def test_which_counts_outlive_a_death(ground: Ground, kind: str, target: str, end: str) -> None:
    await ground.declare("dlq", target)
    more: dict[str, Value] = {"x-max-length": 1} if end == "maxlen" else {}
    await ground.declare("q", kind, {**TO_DLQ, **more})
    await ground.put("q", b"1", expiration="1500" if "expire" in end else None)
    channel = await ground.channel()
    if "," in end:
        first = await ground.take(channel, "q")
        if end.startswith("nack"):
            channel.nack(first.tag, requeue=True)
        elif end.startswith("requeue"):
            channel.reject(first.tag, requeue=True)
        else:
            await channel.close()
            channel = await ground.channel()
    if end == "maxlen":
        await ground.put("q", b"2")
    elif end == "discard by nack":
        channel.nack((await ground.take(channel, "q")).tag, requeue=False)
    elif "expire" not in end:
        await reject(ground, channel, "q")
    letter = await ground.take(channel, "dlq")
    first_told = counts(letter)
    channel.nack(letter.tag, requeue=True)
    then_told = counts(await ground.take(channel, "dlq"))
    traits = ground.traits
    carried = 0
    if traits.delivered_survives_death:
        # Rejects and lost consumers are failures there, a nack is not.
        carried = sum(end.count(failure) for failure in ("reject", "requeue", "lose"))
    elif traits.counts_survive_death and kind == "quorum":
        # What is only given back is no failure; what a lost consumer had is.
        carried = ("reject" in end or "discard" in end) + ("lose" in end)
    if target == "classic":
        assert first_told == (carried > 0 and traits.delivered_survives_death, None, None)
        assert then_told == (True, None, None)
    elif traits.acquired_count:
        assert first_told == (carried > 0, carried or None, carried or None)
        assert then_told == (True, carried or None, 1)
    else:
        shown = carried or (0 if traits.first_count_shown else None)
        assert first_told == (carried > 0, shown, None)
        assert then_told == (True, 1, None)
