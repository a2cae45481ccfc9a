"""The safe move on a real broker: what goes, what stays, and what a letter looks like afterwards.

About `move.courier`, `move.passage`, `move.intake`, `move.intake_series`, `move.outlet`, `move.rescue`,
`move.verdict`, `broker.queue_counts`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable

import pika
import pytest
from tests import postbox
from tests.brokers import Vhost, call

from deadletter.amqp.address import parse_addresses
from deadletter.amqp.channel import Channel
from deadletter.core.letter import field_table, message, names
from deadletter.core.letter.message import RawMessage, View
from deadletter.errors import ConsumerCancelled, MoveFailed, QueueMissing, WireError
from deadletter.move import intake
from deadletter.move.courier import (
    Bounds,
    Courier,
    Deaths,
    Ended,
    Leave,
    Letter,
    MoveEvent,
    MoveTally,
    Progress,
    Send,
    Terms,
    Verdict,
    move,
)

NO_BOUNDS, USUAL = Bounds(), Terms()
KINDS = pytest.mark.parametrize("kind", ["classic", "quorum"])
OURS = {
    name.encode()
    for name in (names.ID, names.SOURCE, names.MOVE, names.SOURCE_EXCHANGE, names.SOURCE_ROUTING_KEY)
}


def go(
    vhost: Vhost,
    decide: Callable[[Letter], Verdict] | Verdict,
    *,
    source: str = "source",
    bounds: Bounds = NO_BOUNDS,
    terms: Terms = USUAL,
    on_event: Callable[[MoveEvent], None] = lambda _event: None,
) -> MoveTally:
    function = decide if callable(decide) else lambda _letter: decide
    return postbox.run(
        move(
            parse_addresses(vhost.url),
            source=source,
            decide=function,
            bounds=bounds,
            terms=terms,
            on_event=on_event,
        )
    )


TO_TARGET = Send(routing_key="target")


@KINDS
def test_every_letter_arrives_once_with_its_body(vhost: Vhost, kind: str) -> None:
    postbox.declare(vhost.url, "source", "target", kind=kind)
    bodies = [b"%d" % n for n in range(5000)]
    postbox.fill(vhost.url, "source", bodies)
    seen: list[MoveEvent] = []
    tally = go(vhost, TO_TARGET, on_event=seen.append)
    assert (tally.moved, tally.left, tally.failed, tally.ended) == (5000, 0, 0, Ended.COMPLETE)
    assert postbox.depth(vhost.url, "source") == 0
    arrived = postbox.drain(vhost.url, "target", expect=5000)
    assert Counter(post.body for post in arrived) == Counter(bodies)
    assert [e for e in seen if isinstance(e, Progress)][-1].moved == 5000
    ids = [post.headers[names.ID] for post in arrived]
    assert len(set(ids)) == 5000


def test_an_empty_source_is_a_success(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "source", "target")
    tally = go(vhost, TO_TARGET)
    assert (tally.moved, tally.failed, tally.ended) == (0, 0, Ended.COMPLETE)


def test_a_missing_source_says_so(vhost: Vhost) -> None:
    with pytest.raises(QueueMissing, match="no queue 'source' in vhost"):
        go(vhost, TO_TARGET)


# -- what stays --------------------------------------------------------------------------------------------
@KINDS
def test_unroutable_among_many_with_equal_message_ids(vhost: Vhost, kind: str) -> None:
    """A return names no publish. All message ids are equal, acks come out of order: exactly those stay."""
    postbox.declare(vhost.url, "source", "target", kind=kind)
    bodies = [b"%d" % n for n in range(3000)]
    postbox.fill(vhost.url, "source", bodies, message_id="the same")
    nowhere = Send(routing_key="no such queue")

    def decide(letter: Letter) -> Verdict:
        return nowhere if int(letter.body) % 7 == 0 else TO_TARGET

    tally = go(vhost, decide)
    stay = {body for body in bodies if int(body) % 7 == 0}
    assert tally.moved == 3000 - len(stay)
    assert tally.reasons == {"no queue takes it there (unroutable)": len(stay)}
    left = postbox.drain(vhost.url, "source", expect=len(stay))
    assert Counter(p.body for p in left) == Counter(stay)
    arrived = postbox.drain(vhost.url, "target")
    assert Counter(p.body for p in arrived) == Counter(set(bodies) - stay)


@KINDS
def test_letters_equal_in_every_byte_keep_their_number(vhost: Vhost, kind: str) -> None:
    postbox.declare(vhost.url, "source", "target", kind=kind)
    postbox.fill(vhost.url, "source", [b"same"] * 1000, dead=False)
    turn = 0

    def decide(_letter: Letter) -> Verdict:
        nonlocal turn
        turn += 1
        return Send(routing_key="nowhere") if turn % 2 else TO_TARGET

    tally = go(vhost, decide)
    assert (tally.moved, tally.failed) == (500, 500)
    assert len(postbox.drain(vhost.url, "source", expect=500)) == 500
    assert len(postbox.drain(vhost.url, "target")) == 500


@KINDS
def test_a_target_that_refuses_gets_no_more_and_nothing_is_lost(vhost: Vhost, kind: str) -> None:
    postbox.declare(vhost.url, "source", kind=kind)
    postbox.declare(vhost.url, "target", kind=kind, x_max_length=10, x_overflow="reject-publish")
    bodies = [b"%d" % n for n in range(500)]
    postbox.fill(vhost.url, "source", bodies)
    tally = go(vhost, TO_TARGET)
    assert tally.moved >= 10
    assert tally.moved + tally.failed == 500
    assert list(tally.reasons) == ["the broker refused it (is the target full?)"]
    left = postbox.drain(vhost.url, "source", expect=tally.failed)
    arrived = postbox.drain(vhost.url, "target")
    assert len(arrived) == tally.moved
    assert Counter(p.body for p in left + arrived) == Counter(bodies)


@KINDS
def test_what_is_left_is_seen_once_and_goes_back_in_order(vhost: Vhost, kind: str) -> None:
    postbox.declare(vhost.url, "source", "target", kind=kind)
    bodies = [b"%d" % n for n in range(6000)]
    postbox.fill(vhost.url, "source", bodies, dead=False)
    seen: Counter[bytes] = Counter()

    def decide(letter: Letter) -> Verdict:
        seen[letter.body] += 1
        return TO_TARGET if int(letter.body) % 3 == 0 else Leave()

    tally = go(vhost, decide)
    assert (tally.moved, tally.left, tally.ended) == (2000, 4000, Ended.COMPLETE)
    assert set(seen.values()) == {1}
    left = [p.body for p in postbox.drain(vhost.url, "source", expect=4000)]
    stay = [body for body in bodies if int(body) % 3]
    # A quorum queue puts what is given back in front, but not always in the order it had.
    assert (left if kind == "classic" else sorted(left, key=int)) == stay
    assert len(postbox.drain(vhost.url, "target")) == 2000


def test_a_decision_that_raises_costs_its_own_letter_only(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "source", "target")
    postbox.fill(vhost.url, "source", [b"%d" % n for n in range(100)])

    def decide(letter: Letter) -> Verdict:
        if letter.body == b"50":
            raise ValueError("cannot decide")
        return TO_TARGET

    tally = go(vhost, decide)
    assert (tally.moved, tally.failed) == (99, 1)
    assert list(tally.reasons) == ["the decision failed: ValueError: cannot decide"]
    assert [p.body for p in postbox.drain(vhost.url, "source", expect=1)] == [b"50"]


@KINDS
def test_an_exchange_that_is_missing_takes_no_neighbours(vhost: Vhost, kind: str) -> None:
    """Publishing to it makes the broker close the channel, with all that is under way on it."""
    postbox.declare(vhost.url, "source", "target", kind=kind)
    bodies = [b"%d" % n for n in range(1000)]
    postbox.fill(vhost.url, "source", bodies)
    missing = Send(exchange="no such exchange", routing_key="x")

    def decide(letter: Letter) -> Verdict:
        return missing if letter.body in (b"300", b"700") else TO_TARGET

    tally = go(vhost, decide)
    assert tally.failed == 2
    assert all("404" in why for why in tally.reasons)
    left = postbox.drain(vhost.url, "source", expect=2)
    assert {p.body for p in left} == {b"300", b"700"}
    arrived = postbox.drain(vhost.url, "target")
    assert {p.body for p in arrived} == set(bodies) - {b"300", b"700"}
    copies = Counter(p.body for p in arrived)
    same_id = {(p.body, p.headers[names.ID]) for p in arrived}
    assert len(same_id) == len(copies), "copies of a letter carry the same id"
    assert copies.total() - len(copies) <= tally.maybe_twice


def test_when_the_broker_refuses_one_after_the_other_the_move_ends(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "source", "target")
    postbox.fill(vhost.url, "source", [b"%d" % n for n in range(50)])
    with pytest.raises(MoveFailed, match="nothing was lost"):
        go(vhost, Send(exchange="no such exchange", routing_key="x"))
    assert len(postbox.drain(vhost.url, "source", expect=50)) == 50


def test_a_source_deleted_under_us_ends_the_move(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "source", "target")
    postbox.fill(vhost.url, "source", [b"%d" % n for n in range(2000)])
    deleted = False

    def decide(_letter: Letter) -> Verdict:
        nonlocal deleted
        if not deleted:
            deleted = True
            vhost.delete("queues", "source")
        return TO_TARGET

    with pytest.raises((ConsumerCancelled, QueueMissing, WireError), match="source"):
        go(vhost, decide)


# -- bounds ------------------------------------------------------------------------------------------------
@KINDS
def test_a_limit_takes_that_many_and_does_not_touch_the_rest(vhost: Vhost, kind: str) -> None:
    postbox.declare(vhost.url, "source", "target", kind=kind)
    postbox.fill(vhost.url, "source", [b"%d" % n for n in range(4000)], dead=False)
    tally = go(vhost, TO_TARGET, bounds=Bounds(count=2500))
    assert (tally.moved, tally.ended) == (2500, Ended.COMPLETE)
    left = postbox.drain(vhost.url, "source", expect=1500)
    assert [p.body for p in left] == [b"%d" % n for n in range(2500, 4000)]
    assert not any(p.redelivered for p in left), "a letter beyond the limit was taken and put back"


@KINDS
@pytest.mark.parametrize("limit", [700, 2500])
def test_a_limit_holds_while_one_intake_follows_the_other(vhost: Vhost, kind: str, limit: int) -> None:
    """Letters that are left make intakes retire early, and the next begins before the last has ended."""
    postbox.declare(vhost.url, "source", "target", kind=kind)
    postbox.fill(vhost.url, "source", [b"%d" % n for n in range(4000)], dead=False)
    seen: Counter[bytes] = Counter()

    def decide(letter: Letter) -> Verdict:
        seen[letter.body] += 1
        return TO_TARGET if int(letter.body) % 2 else Leave()

    tally = go(vhost, decide, bounds=Bounds(count=limit))
    assert (tally.moved, tally.left, tally.ended) == (limit // 2, limit // 2, Ended.COMPLETE)
    assert (len(seen), set(seen.values())) == (limit, {1})
    left = postbox.drain(vhost.url, "source", expect=4000 - limit // 2)
    beyond = [p for p in left if int(p.body) >= limit]
    assert len(beyond) == 4000 - limit
    assert not any(p.redelivered for p in beyond), "a letter beyond the limit was taken and put back"


@pytest.mark.parametrize("quiet_s", [0.001, None], ids=["impatient", "without waiting"])
def test_letters_a_queue_sends_late_are_not_lost_sight_of(
    vhost: Vhost, monkeypatch: pytest.MonkeyPatch, quiet_s: float | None
) -> None:
    """A quorum queue sends what an ack made room for after the cancel, or not before the channel closes.

    Waiting for it keeps the order; without waiting the order is lost, but never a letter's ack.
    """
    postbox.declare(vhost.url, "source", "target", kind="quorum")
    bodies = [b"%d" % n for n in range(4000)]
    postbox.fill(vhost.url, "source", bodies, dead=False)
    if quiet_s is not None:
        monkeypatch.setattr(intake, "QUIET_S", quiet_s)
    else:
        monkeypatch.setattr(intake.Intake, "_full_or_quiet", _at_once)
    tally = go(vhost, lambda x: TO_TARGET if int(x.body) % 2 else Leave(), bounds=Bounds(count=2500))
    assert (tally.moved + tally.left, tally.ended) == (2500, Ended.COMPLETE)
    gone = postbox.drain(vhost.url, "target", expect=tally.moved)
    left = postbox.drain(vhost.url, "source", expect=4000 - tally.moved)
    assert Counter(p.body for p in gone + left) == Counter(bodies)
    if quiet_s is not None:
        assert all(int(p.body) < 2500 for p in gone)


async def _at_once(_self: intake.Intake) -> None:
    return


def test_letters_that_come_later_are_not_chased(vhost: Vhost) -> None:
    """From a queue to itself by another name: without the depth at the start it would never end."""
    postbox.declare(vhost.url, "source", kind="classic")
    postbox.fill(vhost.url, "source", [b"%d" % n for n in range(300)], dead=False)
    tally = go(vhost, Send(routing_key="source"))
    assert (tally.moved, tally.ended) == (300, Ended.COMPLETE)
    assert len(postbox.drain(vhost.url, "source", expect=300)) == 300


def test_time_is_a_bound(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "source", "target")
    postbox.fill(vhost.url, "source", [b"%d" % n for n in range(500)])
    tally = go(vhost, TO_TARGET, bounds=Bounds(seconds=1.0), terms=Terms(rate_per_s=100))
    assert tally.ended is Ended.TIME
    assert 0 < tally.moved < 500
    assert len(postbox.drain(vhost.url, "source", expect=500 - tally.moved)) == 500 - tally.moved


def test_a_rate_is_kept_and_few_letters_are_held(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "source", "target")
    postbox.fill(vhost.url, "source", [b"%d" % n for n in range(120)])
    tally = go(vhost, TO_TARGET, terms=Terms(rate_per_s=60))
    assert tally.moved == 120
    assert tally.seconds >= 1.5, "120 letters at 60/s, a tenth of a second's worth may go at once"


def test_stop_ends_in_good_order(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "source", "target")
    bodies = [b"%d" % n for n in range(5000)]
    postbox.fill(vhost.url, "source", bodies)
    couriers: list[Courier] = []

    def decide(letter: Letter) -> Verdict:
        if letter.body == b"1500":
            couriers[0].stop()
        return TO_TARGET

    async def stopped() -> MoveTally:
        couriers.append(Courier(parse_addresses(vhost.url), source="source", decide=decide))
        return await couriers[0].run()

    tally = postbox.run(stopped())
    assert tally.ended is Ended.STOPPED
    assert tally.maybe_twice == 0
    left = postbox.drain(vhost.url, "source", expect=5000 - tally.moved)
    arrived = postbox.drain(vhost.url, "target")
    assert Counter(p.body for p in left + arrived) == Counter(bodies)


# -- what a letter looks like afterwards -------------------------------------------------------------------
def _entries(raw: bytes) -> set[tuple[bytes, bytes]]:
    headers = message.header_table(raw)
    return {(name, headers[value:end]) for name, _, value, end in field_table.walk(headers)}


STRANGE = {
    b"not utf-8": b"S\x00\x00\x00\x03\xff\xfe\x00",
    b"bool": b"t\x01", b"int8": b"b\xff", b"uint8": b"B\xff", b"int16": b"s\xff\xfe", b"uint16": b"u\xff\xfe",
    b"int32": b"I\xff\xff\xff\xfe", b"uint32": b"i\xff\xff\xff\xfe", b"int64": b"l" + b"\xff" * 8,
    b"float": b"f\x3f\x80\x00\x00", b"double": b"d" + b"\x3f\xf0" + b"\0" * 6,
    b"decimal": b"D\x02\x00\x00\x30\x39", b"time": b"T" + (1_700_000_000).to_bytes(8, "big"),
    b"void": b"V", b"bytes": b"x\x00\x00\x00\x02\x00\xff",
    b"table": b"F\x00\x00\x00\x04\x01at\x01", b"array": b"A\x00\x00\x00\x04t\x01t\x00",
}  # fmt: skip


@KINDS
@pytest.mark.parametrize("deaths", list(Deaths))
def test_what_is_not_ours_is_forwarded_untouched(vhost: Vhost, kind: str, deaths: Deaths) -> None:
    postbox.declare(vhost.url, "source", "target", kind=kind)
    headers = b"".join(field_table.raw_entry(name, value) for name, value in STRANGE.items())
    present = (
        message.CONTENT_TYPE | message.HEADERS | message.REPLY_TO | message.MESSAGE_ID | message.TIMESTAMP
        | message.TYPE | message.APP_ID
    )  # fmt: skip
    properties = present.to_bytes(2, "big")
    properties += b"\x04a/\xc3\xbc" + len(headers).to_bytes(4, "big") + headers
    properties += b"\x02re" + b"\x02id" + (1_700_000_001).to_bytes(8, "big") + b"\x04type" + b"\x03app"
    body = bytes(range(256))
    postbox.publish_raw(vhost.url, "source", RawMessage(properties, body), RawMessage(b"\0\0", b""))
    before = postbox.take_raw(vhost.url, "source", requeue=True)
    tally = go(vhost, Send(routing_key="target", deaths=deaths))
    assert tally.moved == 2
    after = postbox.take_raw(vhost.url, "target")
    for old, new in zip(before, after, strict=True):
        assert new.body == old.body
        # A quorum queue shows the count of its own; that none is carried over is tested elsewhere.
        counts = {name.encode() for name in names.DELIVERY_COUNTS}
        theirs = {entry for entry in _entries(new.properties) if entry[0] not in OURS | counts}
        assert theirs == {entry for entry in _entries(old.properties) if entry[0] not in counts}
        assert {entry[0] for entry in _entries(new.properties)} >= OURS
        old_spans, new_spans = message.spans(old.properties), message.spans(new.properties)
        for flag, span in old_spans.items():
            if flag not in (message.HEADERS, message.DELIVERY_MODE):
                where = new_spans[flag]
                assert new.properties[where.start : where.end] == old.properties[span.start : span.end]
        assert set(new_spans) - set(old_spans) <= {message.HEADERS, message.DELIVERY_MODE}
        assert message.view(new.properties).delivery_mode == 2


@pytest.mark.parametrize("size", [0, 1, 131_063, 131_064, 131_065, 400_000, 10_000_000])
def test_bodies_of_any_size(vhost: Vhost, size: int) -> None:
    postbox.declare(vhost.url, "source", "target")
    body = bytes(size % 251 for _ in range(1)) * size
    postbox.publish_raw(vhost.url, "source", RawMessage(b"\0\0", body), RawMessage(b"\0\0", b"next"))
    assert go(vhost, TO_TARGET).moved == 2
    assert [m.body for m in postbox.take_raw(vhost.url, "target")] == [body, b"next"]


def test_headers_near_and_beyond_the_frame(vhost: Vhost) -> None:
    """64 kB go through; what does not fit with our headers stays, said, and takes nobody with it."""
    postbox.declare(vhost.url, "source", "target")

    def letter(size: int, body: bytes) -> RawMessage:
        return RawMessage(message.encode(View(headers={"big": "x" * size})), body)

    sizes = {b"64k": 64_000, b"fits": 130_500, b"too big": 131_000, b"small": 10}
    postbox.publish_raw(vhost.url, "source", *(letter(size, body) for body, size in sizes.items()))
    tally = go(vhost, TO_TARGET)
    assert (tally.moved, tally.failed) == (3, 1)
    assert "do not fit into a frame" in next(iter(tally.reasons))
    assert [m.body for m in postbox.take_raw(vhost.url, "target")] == [b"64k", b"fits", b"small"]
    assert [m.body for m in postbox.take_raw(vhost.url, "source")] == [b"too big"]


@KINDS
def test_a_poison_letter_above_the_frame_comes_in_and_stays(vhost: Vhost, kind: str) -> None:
    """A table that just fitted has grown by its death: the broker delivers it and would not take it back."""
    postbox.declare(vhost.url, "source", "target", kind=kind)
    arguments: dict[str, field_table.Value] = {
        "x-message-ttl": 0, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "source",
    }  # fmt: skip

    async def work(channel: Channel) -> None:
        await channel.declare_queue("entry", arguments=arguments)

    postbox.run(postbox.with_channel(vhost.url, work))
    big = RawMessage(message.encode(View(headers={"big": "x" * 131_000}, delivery_mode=2)), b"poison")
    postbox.publish_raw(vhost.url, "entry", big)
    postbox.wait_for(lambda: postbox.depth(vhost.url, "source") == 1, "the poison letter")
    postbox.fill(vhost.url, "source", [b"innocent %d" % n for n in range(500)])
    tally = go(vhost, TO_TARGET)
    assert (tally.moved, tally.failed) == (500, 1)
    assert len(postbox.drain(vhost.url, "target")) == 500
    assert [m.body for m in postbox.take_raw(vhost.url, "source")] == [b"poison"]


def test_expiration_and_a_foreign_user_id_are_set_aside(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "source", "target")
    call(vhost.broker, "PUT", "users", "shop", content={"password": "s", "tags": ""})
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    call(vhost.broker, "PUT", "permissions", vhost.name, "shop", content=everything)
    theirs = vhost.url.replace("guest:guest", "shop:s")
    postbox.fill(theirs, "source", [b"theirs"], dead=False, user_id="shop", expiration="600000")
    postbox.fill(vhost.url, "source", [b"ours"], dead=False, user_id="guest")
    assert go(vhost, TO_TARGET).moved == 2
    first, second = postbox.drain(vhost.url, "target", expect=2)
    assert (first.properties.user_id, first.properties.expiration) == (None, None)
    assert (first.headers[names.USER_ID], first.headers[names.EXPIRATION]) == ("shop", "600000")
    assert second.properties.user_id == "guest"
    assert names.USER_ID not in second.headers
    call(vhost.broker, "DELETE", "users", "shop")


def test_cc_makes_no_copies(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "source", "target", "other")
    postbox.fill(vhost.url, "source", [b"one"], dead=False, headers={"CC": ["other"], "BCC": ["other"]})
    assert len(postbox.drain(vhost.url, "other", expect=1)) >= 1
    assert go(vhost, TO_TARGET).moved == 1
    (post,) = postbox.drain(vhost.url, "target")
    assert post.headers[names.CC] == ["other"]
    assert "CC" not in post.headers
    assert postbox.drain(vhost.url, "other") == []


@KINDS
def test_deaths_are_set_aside_or_kept(vhost: Vhost, kind: str) -> None:
    postbox.declare(vhost.url, "source", "target", "parked", kind=kind)
    postbox.fill(vhost.url, "source", [b"a"])
    assert go(vhost, Send(routing_key="parked", deaths=Deaths.KEEP)).moved == 1
    assert go(vhost, TO_TARGET, source="parked").moved == 1
    (post,) = postbox.drain(vhost.url, "target")
    assert not [name for name in post.headers if name.startswith("x-") and "death" in name]
    assert [(d["queue"], d["reason"]) for d in post.headers[names.DEATHS]] == [("source.entry", "expired")]
    assert post.headers[names.SOURCE] == "parked"
    assert post.headers[names.SOURCE_ROUTING_KEY] == "source", "how it first came is not overwritten"


def test_delivery_counts_come_off(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "source", "target", kind="quorum")
    postbox.fill(vhost.url, "source", [b"a"])
    for _ in range(3):  # a crash each
        connection = pika.BlockingConnection(pika.URLParameters(vhost.url))
        method, _, _ = connection.channel().basic_get("source")
        assert method is not None
        connection.close()
    seen: list[tuple[int, str]] = []

    def decide(letter: Letter) -> Verdict:
        seen.append((letter.delivery_count, letter.id))
        return TO_TARGET

    assert go(vhost, decide).moved == 1
    (post,) = postbox.drain(vhost.url, "target")
    assert seen == [(3, post.headers[names.ID])]
    assert not set(post.headers) & names.DELIVERY_COUNTS or post.headers.get(names.X_DELIVERY_COUNT) == 0


def test_headers_of_the_callers_are_added(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "source", "target")
    postbox.fill(vhost.url, "source", [b"a"], headers={"why": "old", "keep": 1})
    go(vhost, Send(routing_key="target", headers={"why": "new", "n": 7}))
    (post,) = postbox.drain(vhost.url, "target")
    assert (post.headers["why"], post.headers["n"], post.headers["keep"]) == ("new", 7, 1)
    json.dumps(post.headers[names.MOVE])
