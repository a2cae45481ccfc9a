"""What a move changes on a letter, and that it changes nothing else.

Letters are written by the oracle, so that "byte for byte" is said by somebody other than the code that
promises it.

About `core.letter.envelope`, `core.letter.letter`, `core.letter.property_tail`, `core.letter.deaths_aside`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import pytest
from tests import amqp_oracle as oracle
from tests.amqp_oracle import Field

from deadletter.core.letter import envelope, field_table, message
from deadletter.core.letter.envelope import MAX_DEATHS_BYTES, Deaths, EnvelopeRoute, ExchangeKey
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.message import RawMessage
from deadletter.errors import MessageError, UsageError

CAME_BY: Final = ExchangeKey(b"orders", b"order.created")
QUEUE: Final = ExchangeKey(b"", b"target")
EXCHANGE: Final = ExchangeKey(b"deadletter.return.orders", b"key")
NO_HEADERS: Final[Mapping[str, Value]] = {}
AN_ID: Final = b"0123456789abcdef0123456789abcdef"


def route(
    target: ExchangeKey = QUEUE,
    deaths: Deaths = Deaths.SET_ASIDE,
    add: Mapping[str, Value] = NO_HEADERS,
    *,
    source: str = "dlq",
    user: str = "guest",
) -> EnvelopeRoute:
    return EnvelopeRoute(run="run", source=source, user=user, target=target, deaths=deaths, add=add)


def moved(
    properties: bytes,
    by: EnvelopeRoute | None = None,
    *,
    body: bytes = b"body",
    came_by: ExchangeKey = CAME_BY,
    number: int = 7,
) -> bytes:
    return (by or route()).properties(RawMessage(properties, body), came_by=came_by, number=number)


def entries(properties: bytes) -> list[tuple[bytes, bytes]]:
    """Name and typed value of each header, in order."""
    raw = message.header_table(properties)
    return [(name, raw[value:end]) for name, _, value, end in field_table.walk(raw)]


def headers(properties: bytes) -> dict[str, Value]:
    return field_table.decode(message.header_table(properties))


def names(properties: bytes) -> list[bytes]:
    return [name for name, _ in entries(properties)]


def with_headers(*found: tuple[bytes, Field]) -> bytes:
    return oracle.properties(headers=oracle.table_bytes(found))


def death(queue: bytes, *, padding: int = 0) -> Field:
    known = [
        (b"queue", oracle.text(queue)),
        (b"reason", oracle.text(b"rejected")),
        (b"count", oracle.int64(1)),
    ]
    return oracle.table([*known, (b"padding", oracle.text(b"." * padding))])


OURS: Final = {
    b"deadletter-source",
    b"deadletter-source-exchange",
    b"deadletter-source-routing-key",
    b"deadletter-move",
    b"deadletter-id",
}


# -- what is added ------------------------------------------------------------------------------------------
def test_a_bare_letter_gets_our_headers_and_is_persistent_and_nothing_else() -> None:
    out = moved(oracle.properties())
    found = headers(out)
    assert found.pop("deadletter-id") == envelope.letter_id(
        RawMessage(oracle.properties(), b"body"), source="dlq"
    )
    assert found == {
        "deadletter-source": "dlq",
        "deadletter-source-exchange": "orders",
        "deadletter-source-routing-key": "order.created",
        "deadletter-move": "run-7",
    }
    assert out == oracle.properties(headers=message.header_table(out), delivery_mode=2)


@pytest.mark.parametrize("mode", [None, 0, 1, 2])
@pytest.mark.parametrize("deaths", Deaths)
def test_delivery_mode_is_persistent_whatever_it_was(mode: int | None, deaths: Deaths) -> None:
    out = moved(oracle.properties(delivery_mode=mode), route(deaths=deaths))
    assert message.view(out).delivery_mode == 2


@pytest.mark.parametrize("target", [QUEUE, EXCHANGE])
@pytest.mark.parametrize("deaths", Deaths)
def test_every_other_property_stays_as_it_came(target: ExchangeKey, deaths: Deaths) -> None:
    odd = b"\xff\xfe odd"
    kept = oracle.table_bytes(
        [(b"a", oracle.float32(0.1)), (odd, oracle.text(odd)), (b"\0", oracle.uint16(9))]
    )

    def properties(table_bytes: bytes, mode: int) -> bytes:
        return oracle.properties(
            content_type=odd,
            content_encoding=b"",
            headers=table_bytes,
            delivery_mode=mode,
            priority=200,
            correlation_id=odd,
            reply_to=b"amq.rabbitmq.reply-to.x",
            message_id=odd,
            timestamp_s=1_700_000_000_000,
            kind=odd,
            user_id=b"guest",
            app_id=b"",
            cluster_id=odd,
        )

    out = moved(properties(kept, 1), route(target, deaths))
    now = message.header_table(out)
    assert now.startswith(kept)
    assert out == properties(now, 2)
    assert set(names(out)[3:]) == OURS


def test_untouched_headers_keep_their_order_their_types_and_their_bytes() -> None:
    before = [
        (b"z", oracle.int16(-1)),
        (b"x-delivery-count", oracle.int64(3)),
        (b"a", oracle.int64_of_the_specification(2)),
        (b"x-acquired-count", oracle.int64(4)),
        (b"m", oracle.table([(b"z", oracle.void()), (b"a", oracle.decimal(3, 7))])),
        (b"a", oracle.text(b"the second of its name")),
    ]
    out = entries(moved(with_headers(*before)))
    assert out[:4] == [(name, field.wire) for name, field in before if not name.startswith(b"x-")]
    assert {name for name, _ in out[4:]} == OURS


def test_the_source_may_have_any_name() -> None:
    out = moved(oracle.properties(), route(source="größe|retry"))
    assert headers(out)["deadletter-source"] == "größe|retry"


def test_how_it_came_is_kept_as_bytes_even_when_it_is_no_text() -> None:
    out = dict(entries(moved(oracle.properties(), came_by=ExchangeKey(b"\xff", b"\xfe" * 255))))
    assert out[b"deadletter-source-exchange"] == b"S\0\0\0\x01\xff"
    assert out[b"deadletter-source-routing-key"] == b"S\0\0\0\xff" + b"\xfe" * 255


def test_how_it_first_came_is_what_the_first_move_wrote() -> None:
    first = moved(oracle.properties())
    second = moved(first, route(source="parked"), came_by=ExchangeKey(b"", b"parked"), number=8)
    found = headers(second)
    assert found["deadletter-source-exchange"] == "orders"
    assert found["deadletter-source-routing-key"] == "order.created"
    assert found["deadletter-source"] == "parked"
    assert found["deadletter-move"] == "run-8"


@pytest.mark.parametrize(
    ("forged", "lost"),
    [
        (b"deadletter-source-exchange", "deadletter-source-routing-key"),
        (b"deadletter-source-routing-key", "deadletter-source-exchange"),
    ],
)
def test_half_of_how_it_came_does_not_hide_the_other_half(forged: bytes, lost: str) -> None:
    assert lost in headers(moved(with_headers((forged, oracle.text(b"written by an application")))))


def test_many_moves_do_not_make_a_letter_grow() -> None:
    there, back = route(source="a"), route(EXCHANGE, Deaths.KEEP, source="b")
    out = moved(moved(with_headers((b"mine", oracle.int8(1))), there), back)
    for _ in range(5):
        again = moved(moved(out, there), back)
        assert sorted(entries(again)) == sorted(entries(out))
        out = again


# -- the caller's headers -----------------------------------------------------------------------------------
def test_the_caller_s_headers_replace_all_of_the_same_name() -> None:
    before = with_headers((b"why", oracle.int8(1)), (b"keep", oracle.int8(2)), (b"why", oracle.text(b"old")))
    out = moved(before, route(add={"why": "new", "more": [1, None]}))
    assert names(out).count(b"why") == 1
    assert headers(out)["why"] == "new"
    assert headers(out)["more"] == [1, None]
    assert entries(out)[0] == (b"keep", oracle.int8(2).wire)


def test_the_caller_s_header_replaces_one_whose_name_is_not_ascii() -> None:
    before = with_headers(("größe".encode(), oracle.int8(1)))
    out = moved(before, route(add={"größe": "neu"}))
    assert headers(out)["größe"] == "neu"
    assert names(out).count("größe".encode()) == 1


@pytest.mark.parametrize("name", sorted(OURS))
def test_a_caller_s_header_with_a_name_of_ours_does_not_stand_there_twice(name: bytes) -> None:
    try:
        by = route(add={name.decode(): "the caller's"})
    except UsageError:
        return  # to refuse it is an answer too
    assert names(moved(oracle.properties(), by)).count(name) == 1


def test_a_caller_s_cc_replaces_the_old_one_which_is_not_set_aside_outside_the_default_exchange() -> None:
    before = with_headers((b"CC", oracle.array([oracle.text(b"old")])))
    out = headers(moved(before, route(EXCHANGE, add={"CC": ["new"]})))
    assert out["CC"] == ["new"]
    assert "deadletter-cc" not in out


def test_the_order_of_headers_is_not_part_of_the_id() -> None:
    """A quorum queue of 3.10 sorts the headers of a letter that it delivers again."""
    one, other = (b"n", oracle.text(b"1")), (b"CC", oracle.array([oracle.text(b"old")]))
    assert identity(with_headers(one, other)) == identity(with_headers(other, one))
    assert identity(with_headers(one)) != identity(with_headers(other))


# -- the id -------------------------------------------------------------------------------------------------
def identity(properties: bytes, *, body: bytes = b"body", source: str = "dlq") -> str:
    found = envelope.letter_id(RawMessage(properties, body), source=source)
    sent = headers(moved(properties, route(source=source), body=body))["deadletter-id"]
    parked = headers(moved(properties, route(EXCHANGE, Deaths.KEEP, source=source), body=body, number=99))
    assert found == sent == parked["deadletter-id"], "every way to ask must give the same id"
    assert len(found) == 32
    assert set(found) <= set("0123456789abcdef")
    return found


def counted(*others: tuple[bytes, Field], count: int) -> bytes:
    counts = (b"x-delivery-count", oracle.int64(count)), (b"x-acquired-count", oracle.int64(count + 1))
    return with_headers(counts[0], *others, counts[1])


def test_the_id_of_one_that_circles_is_the_same_after_its_deaths() -> None:
    """The broker writes down each death and takes an expiration off; RabbitMQ 3 takes a CC off too."""
    tenant = (b"tenant", oracle.text(b"acme"))
    first = oracle.properties(
        headers=oracle.table_bytes([(b"CC", oracle.array([oracle.text(b"q")])), tenant]),
        expiration=b"5000",
        user_id=b"shop",
    )
    dead = oracle.properties(
        headers=oracle.table_bytes(
            [
                (b"x-first-death-queue", oracle.text(b"orders")),
                tenant,
                (b"x-death", oracle.array([death(b"orders")])),
                (b"x-last-death-reason", oracle.text(b"rejected")),
                (b"x-delivery-count", oracle.int64(3)),
            ]
        ),
        user_id=b"shop",
    )

    def circling(properties: bytes, body: bytes = b"body") -> str:
        by = EnvelopeRoute(
            run="run", source="orders", user="guest", target=EXCHANGE, deaths=Deaths.KEEP, circling=True
        )
        sent = headers(moved(properties, by, body=body))["deadletter-id"]
        found = Letter(
            source="orders",
            message=RawMessage(properties, body),
            came_by=CAME_BY,
            redelivered=False,
            circling=True,
        ).id
        assert found == sent
        return found

    assert circling(first) == circling(dead)
    assert circling(first) != circling(first, b"another")
    assert circling(first) != circling(with_headers((b"tenant", oracle.text(b"other"))))
    assert circling(with_headers((b"deadletter-id", oracle.text(AN_ID)))) == AN_ID.decode()
    assert identity(first) != identity(dead)  # elsewhere the deaths tell letters of the same content apart


def test_the_id_does_not_change_with_the_delivery_count() -> None:
    plain = with_headers((b"a", oracle.int8(1)), (b"b", oracle.void()))
    ids = {identity(plain)}
    ids |= {identity(counted((b"a", oracle.int8(1)), (b"b", oracle.void()), count=n)) for n in (1, 2, 300)}
    assert len(ids) == 1


def test_the_id_is_the_same_when_the_count_is_the_only_header_there_is() -> None:
    assert identity(oracle.properties(message_id=b"m")) == identity(
        oracle.properties(
            headers=oracle.table_bytes([(b"x-delivery-count", oracle.int64(1))]), message_id=b"m"
        )
    )


def test_the_id_is_the_same_when_the_table_was_empty_before_the_count_came() -> None:
    # Many clients write an empty table where there are no headers. The broker's count makes it one entry.
    assert identity(oracle.properties(headers=b"", delivery_mode=2)) == identity(
        oracle.properties(
            headers=oracle.table_bytes([(b"x-delivery-count", oracle.int64(1))]), delivery_mode=2
        )
    )


def test_equal_letters_have_equal_ids_and_any_difference_shows() -> None:
    base = with_headers((b"a", oracle.int8(1)))
    assert identity(base) == identity(bytes(bytearray(base)))
    others = [
        identity(with_headers((b"a", oracle.int8(2)))),
        identity(with_headers((b"a", oracle.uint8(1)))),
        identity(with_headers((b"b", oracle.int8(1)))),
        identity(base, body=b"other"),
        identity(base, body=b""),
        identity(base, source="another"),
        identity(oracle.properties(headers=oracle.table_bytes([(b"a", oracle.int8(1))]), message_id=b"m")),
        identity(oracle.properties()),
    ]
    assert len({identity(base), *others}) == len(others) + 1


def test_headers_properties_and_body_do_not_run_into_each_other() -> None:
    one = oracle.properties(headers=oracle.table_bytes([(b"a", oracle.void())]), message_id=b"x")
    assert identity(one, body=b"") != identity(oracle.properties(message_id=b"a"), body=b"V\x01x")


def test_the_source_s_name_does_not_run_into_the_letter() -> None:
    assert identity(oracle.properties(), source="ab", body=b"c") != identity(
        oracle.properties(), source="a", body=b"c"
    )


def test_an_id_it_carries_is_kept() -> None:
    before = with_headers((b"deadletter-id", oracle.text(AN_ID)), (b"a", oracle.int8(1)))
    assert identity(before) == AN_ID.decode()
    assert identity(before, source="elsewhere", body=b"edited") == AN_ID.decode()
    assert names(moved(before)).count(b"deadletter-id") == 1


def test_the_id_given_by_the_first_move_stays_over_many() -> None:
    first = moved(with_headers((b"a", oracle.int8(1))))
    found = headers(first)["deadletter-id"]
    assert identity(first, source="parked") == found
    assert identity(moved(first, route(source="parked")), source="third") == found


@pytest.mark.parametrize(
    "forged",
    [
        pytest.param(oracle.text(b"1234"), id="short"),
        pytest.param(oracle.text(AN_ID + b"0"), id="long"),
        pytest.param(oracle.text(AN_ID.upper()), id="upper case"),
        pytest.param(oracle.text(b"'; DROP TABLE letters; --      '"), id="32 bytes of something else"),
        pytest.param(oracle.text(AN_ID[:-1] + b"\n"), id="newline"),
        pytest.param(oracle.binary(AN_ID), id="binary"),
        pytest.param(oracle.int64(5), id="number"),
        pytest.param(oracle.array([oracle.text(AN_ID)]), id="array"),
        pytest.param(oracle.void(), id="void"),
    ],
)
def test_what_is_not_an_id_of_ours_is_not_taken_for_one(forged: Field) -> None:
    before = with_headers((b"deadletter-id", forged), (b"a", oracle.int8(1)))
    found = identity(before)
    assert found.encode() not in forged.wire
    out = moved(before)
    assert names(out).count(b"deadletter-id") == 1
    assert entries(out)[0] == (b"a", oracle.int8(1).wire)


def test_of_two_ids_only_one_goes_on() -> None:
    other = AN_ID[::-1]
    before = with_headers((b"deadletter-id", oracle.text(AN_ID)), (b"deadletter-id", oracle.text(other)))
    assert names(moved(before)).count(b"deadletter-id") == 1
    assert identity(before).encode() in (AN_ID, other)


# -- deaths -------------------------------------------------------------------------------------------------
SUMMARY: Final = tuple(
    (f"x-{which}-death-{what}".encode(), oracle.text(b"v"))
    for which in ("first", "last")
    for what in ("queue", "reason", "exchange")
)


def died(*deaths: Field) -> bytes:
    return with_headers((b"x-death", oracle.array(deaths)), *SUMMARY, (b"mine", oracle.int8(1)))


@pytest.mark.parametrize("target", [QUEUE, EXCHANGE])
def test_deaths_stay_on_towards_a_parking_place(target: ExchangeKey) -> None:
    before = died(death(b"orders"))
    out = moved(before, route(target, Deaths.KEEP))
    assert entries(out)[:8] == entries(before)
    assert "deadletter-deaths" not in headers(out)


@pytest.mark.parametrize("target", [QUEUE, EXCHANGE])
def test_deaths_are_set_aside_towards_a_queue_that_may_let_it_die_again(target: ExchangeKey) -> None:
    deaths = [death(b"orders"), death(b"earlier")]
    out = moved(died(*deaths), route(target, Deaths.SET_ASIDE))
    assert dict(entries(out))[b"deadletter-deaths"] == oracle.array(deaths).wire
    assert set(names(out)) == OURS | {b"deadletter-deaths", b"mine"}


def test_deaths_of_several_trips_are_kept_newest_first() -> None:
    letter = moved(died(death(b"third"), death(b"second")))
    again = with_raw_headers(letter, oracle.entry(b"x-death", oracle.array([death(b"fourth")])))
    out = moved(again)
    found = dict(entries(out))[b"deadletter-deaths"]
    assert found == oracle.array([death(b"fourth"), death(b"third"), death(b"second")]).wire
    assert names(out).count(b"deadletter-deaths") == 1


def test_the_order_in_which_old_and_new_deaths_stand_does_not_matter() -> None:
    old, new = oracle.array([death(b"old")]), oracle.array([death(b"new")])
    expected = oracle.array([death(b"new"), death(b"old")]).wire
    for before in (
        with_headers((b"deadletter-deaths", old), (b"x-death", new)),
        with_headers((b"x-death", new), (b"deadletter-deaths", old)),
    ):
        assert dict(entries(moved(before)))[b"deadletter-deaths"] == expected


def test_set_aside_deaths_stay_on_towards_a_parking_place() -> None:
    before = moved(died(death(b"orders")))
    out = moved(before, route(deaths=Deaths.KEEP))
    assert dict(entries(out))[b"deadletter-deaths"] == oracle.array([death(b"orders")]).wire


def test_deaths_over_many_trips_are_bounded_and_the_oldest_go() -> None:
    letter = oracle.properties()
    for trip in range(60):
        newest = death(b"trip-%d" % trip, padding=900)
        letter = moved(with_raw_headers(letter, oracle.entry(b"x-death", oracle.array([newest]))))
    raw = dict(entries(letter))[b"deadletter-deaths"]
    assert len(raw) <= MAX_DEATHS_BYTES + 5
    kept = field_table.decode_value(raw)
    assert isinstance(kept, list)
    queues = [found["queue"] for found in kept if isinstance(found, dict)]
    assert queues == [f"trip-{trip}" for trip in range(59, 59 - len(queues), -1)]
    assert len(queues) >= 15


def test_the_newest_death_is_kept_however_large() -> None:
    huge = death(b"huge", padding=2 * MAX_DEATHS_BYTES)
    out = moved(died(huge, death(b"older")))
    assert dict(entries(out))[b"deadletter-deaths"] == oracle.array([huge]).wire


@pytest.mark.parametrize("odd", [oracle.text(b"no array"), oracle.int64(5), oracle.table([]), oracle.void()])
def test_an_x_death_that_is_no_array_is_kept_as_an_element_of_one(odd: Field) -> None:
    before = with_headers((b"x-death", odd), (b"deadletter-deaths", oracle.array([death(b"old")])))
    out = moved(before)
    assert dict(entries(out))[b"deadletter-deaths"] == oracle.array([odd, death(b"old")]).wire
    assert b"x-death" not in names(out)


def test_an_x_death_that_is_empty_leaves_nothing() -> None:
    assert set(names(moved(with_headers((b"x-death", oracle.array([])))))) == OURS


def test_two_headers_named_x_death_are_both_kept() -> None:
    before = with_headers(
        (b"x-death", oracle.array([death(b"one")])), (b"x-death", oracle.array([death(b"two")]))
    )
    found = dict(entries(moved(before)))[b"deadletter-deaths"]
    assert found == oracle.array([death(b"one"), death(b"two")]).wire


def with_raw_headers(properties: bytes, more: bytes) -> bytes:
    """The same properties with more headers in front, as a broker puts `x-death`."""
    where = message.spans(properties).get(message.HEADERS)
    if where is None:
        assert properties == oracle.properties()
        return oracle.properties(headers=more)
    now = oracle.long(more + message.header_table(properties))
    return properties[: where.start] + now + properties[where.end :]


# -- delivery counts ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("target", [QUEUE, EXCHANGE])
@pytest.mark.parametrize("deaths", Deaths)
def test_delivery_counts_come_off_every_publish(target: ExchangeKey, deaths: Deaths) -> None:
    before = counted((b"mine", oracle.int8(1)), count=19)
    assert set(names(moved(before, route(target, deaths)))) == OURS | {b"mine"}


def test_the_delivery_count_is_read_where_there_is_one() -> None:
    assert envelope.delivery_count(counted(count=19)) == 19
    assert envelope.delivery_count(oracle.properties()) == 0
    assert envelope.delivery_count(with_headers((b"a", oracle.int8(1)))) == 0
    assert envelope.delivery_count(with_headers((b"x-delivery-count", oracle.text(b"many")))) == 0


# -- CC and BCC ---------------------------------------------------------------------------------------------
COPIES: Final = oracle.array([oracle.text(b"a.queue"), oracle.text(b"\xff")])
COPIED: Final = with_headers((b"CC", COPIES), (b"mine", oracle.int8(1)), (b"BCC", COPIES))


@pytest.mark.parametrize("deaths", Deaths)
def test_copies_are_set_aside_through_the_default_exchange(deaths: Deaths) -> None:
    out = dict(entries(moved(COPIED, route(QUEUE, deaths))))
    assert out[b"deadletter-cc"] == out[b"deadletter-bcc"] == COPIES.wire
    assert set(out) == OURS | {b"mine", b"deadletter-cc", b"deadletter-bcc"}


@pytest.mark.parametrize("deaths", Deaths)
def test_copies_stay_on_through_an_exchange_of_ours(deaths: Deaths) -> None:
    out = entries(moved(COPIED, route(EXCHANGE, deaths)))
    assert out[:3] == entries(COPIED)
    assert {name for name, _ in out[3:]} == OURS


def test_names_are_told_apart_by_case_as_the_broker_does() -> None:
    before = with_headers((b"cc", COPIES), (b"X-Death", COPIES), (b"X-DELIVERY-COUNT", oracle.int8(1)))
    assert entries(moved(before))[:3] == entries(before)


# -- expiration and user id ---------------------------------------------------------------------------------
@pytest.mark.parametrize("target", [QUEUE, EXCHANGE])
@pytest.mark.parametrize("deaths", Deaths)
@pytest.mark.parametrize("value", [b"60000", b"", b"\xff no number", b"9" * 255])
def test_expiration_is_always_set_aside(target: ExchangeKey, deaths: Deaths, value: bytes) -> None:
    before = oracle.properties(priority=3, reply_to=b"r", expiration=value, message_id=b"m")
    out = moved(before, route(target, deaths))
    assert dict(entries(out))[b"deadletter-expiration"] == oracle.text(value).wire
    assert out == oracle.properties(
        headers=message.header_table(out), delivery_mode=2, priority=3, reply_to=b"r", message_id=b"m"
    )


def test_a_foreign_user_id_is_set_aside() -> None:
    before = oracle.properties(kind=b"t", user_id=b"somebody", app_id=b"a")
    out = moved(before)
    assert dict(entries(out))[b"deadletter-user-id"] == oracle.text(b"somebody").wire
    table_now = message.header_table(out)
    assert out == oracle.properties(headers=table_now, delivery_mode=2, kind=b"t", app_id=b"a")


def test_our_own_user_id_stays() -> None:
    before = oracle.properties(kind=b"t", user_id="größe".encode(), app_id=b"a")
    out = moved(before, route(user="größe"))
    assert set(names(out)) == OURS
    now = oracle.properties(
        headers=message.header_table(out), delivery_mode=2, kind=b"t", user_id="größe".encode(), app_id=b"a"
    )
    assert out == now


def test_expiration_and_user_id_together() -> None:
    before = oracle.properties(
        content_type=b"c",
        headers=oracle.table_bytes([(b"a", oracle.int8(1))]),
        priority=1,
        expiration=b"5",
        message_id=b"m",
        timestamp_s=5,
        user_id=b"somebody",
        cluster_id=b"k",
    )
    out = moved(before)
    assert headers(out)["deadletter-expiration"] == "5"
    assert headers(out)["deadletter-user-id"] == "somebody"
    assert out == oracle.properties(
        content_type=b"c",
        headers=message.header_table(out),
        delivery_mode=2,
        priority=1,
        message_id=b"m",
        timestamp_s=5,
        cluster_id=b"k",
    )


@pytest.mark.parametrize(
    ("header", "before"),
    [
        (b"deadletter-expiration", oracle.properties(expiration=b"5")),
        (b"deadletter-user-id", oracle.properties(user_id=b"somebody")),
        (b"deadletter-cc", with_headers((b"CC", COPIES))),
    ],
    ids=["expiration", "user_id", "CC"],
)
def test_what_is_set_aside_on_every_trip_is_there_once(header: bytes, before: bytes) -> None:
    # An application that publishes its message again with the headers it got and a new expiration.
    first = moved(before)
    again = oracle.properties(
        headers=message.header_table(first) + message.header_table(before),
        expiration=b"5" if header == b"deadletter-expiration" else None,
        user_id=b"somebody" if header == b"deadletter-user-id" else None,
    )
    assert names(moved(again)).count(header) == 1


# -- damage -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"\x80",
        b"\x00\x01\x00\x00",
        b"\x80\x00\x05ab",
        b"\x20\x00\x00\x00",
        b"\x20\x00\x00\x00\x00\x09\x01",
        oracle.properties(headers=b"\x01aZ"),
        oracle.properties(headers=b"\x05a"),
        oracle.properties(headers=b"\x01aS\x00\x00\x00\x09"),
        oracle.properties(expiration=b"5")[:-1],
        oracle.properties(delivery_mode=2)[:-1],
    ],
)
def test_damage_is_a_message_error(damaged: bytes) -> None:
    with pytest.raises(MessageError):
        moved(damaged)


@pytest.mark.parametrize(
    "damaged",
    [oracle.properties(message_id=b"m-1")[:-1], oracle.properties(priority=1) + b"!", b"\x08\x00"],
    ids=["cut off", "too long", "missing"],
)
def test_damage_behind_the_delivery_mode_is_a_message_error_too(damaged: bytes) -> None:
    with pytest.raises(MessageError):
        message.view(damaged)
    with pytest.raises(MessageError):
        moved(damaged)


# -- returns ------------------------------------------------------------------------------------------------
def test_a_return_is_matched_by_run_and_number() -> None:
    out = moved(oracle.properties(), number=123)
    assert envelope.move_number(out, "run") == 123
    assert envelope.move_number(out, "ru") is None
    assert envelope.move_number(out, "run-1") is None
    assert envelope.move_number(out, "other") is None
    assert envelope.move_number(oracle.properties(), "run") is None


@pytest.mark.parametrize(
    "odd",
    [
        oracle.text(b"run-"),
        oracle.text(b"run-x"),
        oracle.text(b"run--1"),
        oracle.text(b"run-\xff"),
        oracle.int64(5),
        oracle.text(b"run-" + b"9" * 5000),
    ],
    ids=["nothing", "letters", "negative", "no text", "no string", "five thousand digits"],
)
def test_a_move_header_that_is_not_ours_is_none_of_this_run(odd: Field) -> None:
    assert envelope.move_number(with_headers((b"deadletter-move", odd)), "run") is None


def test_a_move_header_of_another_run_is_replaced() -> None:
    before = with_headers((b"deadletter-move", oracle.text(b"older-9")))
    assert envelope.move_number(moved(before, number=3), "run") == 3
    assert names(moved(before)).count(b"deadletter-move") == 1


# -- the letter ---------------------------------------------------------------------------------------------
def test_a_letter_shows_what_is_asked_for() -> None:
    letter = Letter(
        source="dlq",
        message=RawMessage(counted((b"a", oracle.int8(1)), count=2), b"\x00body"),
        came_by=ExchangeKey(b"\xff", "größe".encode()),
        redelivered=True,
    )
    assert letter.id == identity(letter.message.properties, body=b"\x00body")
    assert letter.headers["a"] == 1
    assert letter.delivery_count == 2
    assert (letter.exchange, letter.routing_key) == ("\udcff", "größe")
    assert letter.body == b"\x00body"
    assert letter.view is letter.view
    assert "5 bytes" in repr(letter)


def test_a_letter_without_headers_has_none() -> None:
    letter = Letter(
        source="dlq", message=RawMessage(oracle.properties(), b""), came_by=CAME_BY, redelivered=False
    )
    assert letter.headers == {}


def test_a_damaged_letter_can_be_held_and_raises_only_when_asked() -> None:
    letter = Letter(source="dlq", message=RawMessage(b"", b""), came_by=CAME_BY, redelivered=False)
    assert letter.routing_key == "order.created"
    with pytest.raises(MessageError):
        _ = letter.headers
    with pytest.raises(MessageError):
        _ = letter.id
