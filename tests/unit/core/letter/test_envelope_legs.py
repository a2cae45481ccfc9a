"""The legs of a trip: what a wait sets aside, what comes back on the way home, and what a new letter drops.

Letters are written by the oracle, so that "byte for byte" is said by somebody other than the code that
promises it.

About `core.letter.envelope`, `core.letter.move_kind`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pytest
from tests import amqp_oracle as oracle
from tests.amqp_oracle import Field

from deadletter.core.letter import envelope, field_table, message, names
from deadletter.core.letter.envelope import Deaths, EnvelopeRoute, ExchangeKey, Leg
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.message import RawMessage
from deadletter.errors import UsageError

CAME_BY: Final = ExchangeKey(b"shop", b"order.created")
LEVEL: Final = ExchangeKey(b"", b"deadletter.delay.1000")
EXCHANGE: Final = ExchangeKey(b"deadletter.return.orders", b"order.created")
BY_NAME: Final = ExchangeKey(b"", b"orders")
AN_ID: Final = b"0123456789abcdef0123456789abcdef"
NOTHING: Final[Mapping[str, Value]] = {}
CC: Final = oracle.array([oracle.text(b"audit"), oracle.text(b"billing")])
COPIED: Final = (
    (b"deadletter-id", oracle.text(AN_ID)),
    (b"deadletter-deaths", oracle.array([oracle.text(b"an older death")])),
    (b"deadletter-source-exchange", oracle.text(b"elsewhere")),
    (b"deadletter-source-routing-key", oracle.text(b"another.key")),
    (b"deadletter-priority", oracle.uint8(9)),
    (b"deadletter-expiration", oracle.text(b"1000")),
    (b"deadletter-user-id", oracle.text(b"somebody")),
    (b"deadletter-cc", CC),
    (b"deadletter-bcc", CC),
)
"""What an application copies from a letter that is not this one."""


def sent(
    properties: bytes,
    target: ExchangeKey = LEVEL,
    *,
    leg: Leg = Leg.WAIT,
    deaths: Deaths = Deaths.SET_ASIDE,
    anew: bool = False,
    add: Mapping[str, Value] = NOTHING,
    more: bytes = b"",
    came_by: ExchangeKey = CAME_BY,
) -> bytes:
    route = EnvelopeRoute(
        run="run", source="dlq", user="guest", target=target, deaths=deaths, leg=leg, anew=anew, add=add
    )
    return route.properties(RawMessage(properties, b"body"), came_by=came_by, number=7, more=more)


def home(properties: bytes, target: ExchangeKey = EXCHANGE) -> bytes:
    return sent(properties, target, leg=Leg.HOME, deaths=Deaths.FORGET, came_by=ExchangeKey(b"", b"due"))


def entries(properties: bytes) -> list[tuple[bytes, bytes]]:
    """Name and typed value of each header, in order."""
    raw = message.header_table(properties)
    return [(name, raw[value:end]) for name, _, value, end in field_table.walk(raw)]


def headers(properties: bytes) -> dict[str, Value]:
    return field_table.decode(message.header_table(properties))


def with_headers(*found: tuple[bytes, Field], priority: int | None = None) -> bytes:
    return oracle.properties(headers=oracle.table_bytes(found), priority=priority)


def died_in_our_level(properties: bytes) -> bytes:
    """The letter as it comes out of a delay: the broker put its own headers in front."""
    death = oracle.array([oracle.table([(b"queue", oracle.text(b"deadletter.delay.1000"))])])
    grown = oracle.table_bytes(
        [(b"x-death", death), (b"x-first-death-queue", oracle.text(b"deadletter.delay.1000"))]
    )
    where = message.spans(properties)[message.HEADERS]
    whole = grown + message.header_table(properties)
    return properties[: where.start] + oracle.long(whole) + properties[where.end :]


# -- priority ------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("priority", [0, 1, 9, 255])
def test_a_wait_sets_the_priority_aside_and_the_way_home_puts_it_back(priority: int) -> None:
    before = oracle.properties(
        content_type=b"application/json", delivery_mode=1, priority=priority, correlation_id=b"c", app_id=b"a"
    )
    waiting = sent(before)
    assert message.view(waiting).priority is None
    assert dict(entries(waiting))[b"deadletter-priority"] == oracle.uint8(priority).wire
    back = home(died_in_our_level(waiting))
    assert "deadletter-priority" not in headers(back)
    assert back == oracle.properties(
        content_type=b"application/json",
        headers=message.header_table(back),
        delivery_mode=2,
        priority=priority,
        correlation_id=b"c",
        app_id=b"a",
    )


def test_a_letter_without_a_priority_gets_none() -> None:
    back = home(sent(oracle.properties(correlation_id=b"c")))
    assert back == oracle.properties(headers=message.header_table(back), delivery_mode=2, correlation_id=b"c")


def test_held_on_the_way_home_it_still_has_its_priority_in_the_end() -> None:
    waiting = sent(oracle.properties(priority=4))
    held = sent(died_in_our_level(waiting), ExchangeKey(b"", b"deadletter.held.orders"), deaths=Deaths.FORGET)
    assert message.view(held).priority is None
    assert message.view(home(held)).priority == 4


def test_a_plain_move_leaves_the_priority_where_it_is() -> None:
    out = sent(oracle.properties(priority=4), leg=Leg.PLAIN)
    assert message.view(out).priority == 4
    assert "deadletter-priority" not in headers(out)


def test_a_priority_it_got_meanwhile_is_not_overwritten() -> None:
    out = home(with_headers((b"deadletter-priority", oracle.uint8(4)), priority=7))
    assert message.view(out).priority == 7


@pytest.mark.parametrize("odd", [oracle.text(b"high"), oracle.int64(4), oracle.void()])
def test_a_priority_header_that_is_none_of_ours_makes_no_priority(odd: Field) -> None:
    out = home(with_headers((b"deadletter-priority", odd)))
    assert message.view(out).priority is None
    message.spans(out)


# -- CC ------------------------------------------------------------------------------------------------------
def test_cc_is_set_aside_for_the_wait_and_back_through_an_exchange_of_ours() -> None:
    waiting = sent(with_headers((b"CC", CC), (b"a", oracle.int8(1))))
    assert dict(entries(waiting))[b"deadletter-cc"] == CC.wire
    assert b"CC" not in dict(entries(waiting))
    back = dict(entries(home(waiting)))
    assert back[b"CC"] == CC.wire
    assert b"deadletter-cc" not in back
    assert back[b"a"] == oracle.int8(1).wire


def test_cc_does_not_come_back_through_the_default_exchange() -> None:
    back = dict(entries(home(sent(with_headers((b"CC", CC))), BY_NAME)))
    assert b"CC" not in back
    assert back[b"deadletter-cc"] == CC.wire


@pytest.mark.parametrize("target", [EXCHANGE, BY_NAME])
def test_bcc_stays_aside_on_every_way(target: ExchangeKey) -> None:
    back = dict(entries(home(sent(with_headers((b"BCC", CC))), target)))
    assert b"BCC" not in back
    assert back[b"deadletter-bcc"] == CC.wire


def test_expiration_and_a_foreign_user_stay_aside_at_home() -> None:
    back = home(sent(oracle.properties(expiration=b"60000", user_id=b"somebody")))
    view = message.view(back)
    assert (view.expiration, view.user_id) == (None, None)
    assert headers(back)["deadletter-expiration"] == "60000"
    assert headers(back)["deadletter-user-id"] == "somebody"


# -- deaths --------------------------------------------------------------------------------------------------
def test_forget_drops_the_death_in_our_own_delay_and_keeps_those_that_were_set_aside() -> None:
    deaths = oracle.array([oracle.table([(b"queue", oracle.text(b"orders"))])])
    waiting = sent(with_headers((b"x-death", deaths)))
    assert dict(entries(waiting))[b"deadletter-deaths"] == deaths.wire
    back = dict(entries(home(died_in_our_level(waiting))))
    assert back[b"deadletter-deaths"] == deaths.wire
    assert not {b"x-death", b"x-first-death-queue"} & back.keys()


# -- a new letter --------------------------------------------------------------------------------------------
@pytest.mark.parametrize("deaths", Deaths)
def test_a_new_letter_has_an_id_of_its_own_and_nothing_that_was_the_others(deaths: Deaths) -> None:
    copied = with_headers(*COPIED, (b"a", oracle.int8(1)))
    out = headers(sent(copied, anew=True, deaths=deaths))
    identity = out["deadletter-id"]
    assert identity != AN_ID.decode()
    assert isinstance(identity, str)
    assert len(identity) == 32
    assert "deadletter-deaths" not in out
    assert (out["deadletter-source-exchange"], out["deadletter-source-routing-key"]) == (
        "shop",
        "order.created",
    )
    assert not out.keys() & {
        f"deadletter-{what}" for what in ("priority", "expiration", "user-id", "cc", "bcc")
    }
    assert out["a"] == 1


def test_a_new_letter_keeps_what_is_set_aside_of_its_own() -> None:
    own = oracle.properties(headers=oracle.table_bytes([*COPIED, (b"CC", CC)]), priority=3, expiration=b"7")
    out = headers(sent(own, anew=True))
    assert (out["deadletter-priority"], out["deadletter-expiration"]) == (3, "7")
    assert out["deadletter-cc"] == CC.seen


def test_the_id_of_a_new_letter_is_the_same_each_time_it_is_taken() -> None:
    copied = with_headers(*COPIED)
    counted = with_headers(*COPIED, (b"x-delivery-count", oracle.int64(3)))
    ids = {headers(sent(one, anew=True))["deadletter-id"] for one in (copied, copied, counted)}
    assert len(ids) == 1
    assert ids != {envelope.letter_id(RawMessage(copied, b"body"), source="dlq")}


# -- headers of one letter alone -----------------------------------------------------------------------------
def test_more_entries_are_added_as_they_are() -> None:
    more = oracle.table_bytes([(b"deadletter-due-at", oracle.int64(1_700_000_000_000))])
    assert headers(sent(with_headers((b"a", oracle.int8(1))), more=more))["deadletter-due-at"] == (
        1_700_000_000_000
    )


@pytest.mark.parametrize("name", [names.DUE_AT, names.CAUSE, names.WHY, names.PARKED_AT])
@pytest.mark.parametrize("leg", Leg)
@pytest.mark.parametrize("deaths", Deaths)
def test_what_tells_of_a_place_does_not_leave_it(name: str, leg: Leg, deaths: Deaths) -> None:
    stale = with_headers((name.encode(), oracle.text(b"of the place before")), (b"a", oracle.int8(1)))
    out = headers(sent(stale, leg=leg, deaths=deaths))
    assert name not in out
    assert out["a"] == 1
    fresh = field_table.entry(name, "of this place")
    assert [value for found, value in entries(sent(stale, leg=leg, deaths=deaths, more=fresh))
            if found == name.encode()] == [oracle.text(b"of this place").wire]  # fmt: skip


def test_a_caller_may_write_the_reason_but_not_what_a_move_writes_itself() -> None:
    out = headers(sent(with_headers((names.WHY.encode(), oracle.text(b"old"))), add={names.WHY: "new"}))
    assert out[names.WHY] == "new"
    with pytest.raises(UsageError, match=names.PRIORITY):
        sent(oracle.properties(), add={names.PRIORITY: 1})
