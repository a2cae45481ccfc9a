"""Header tables: each AMQP type as its bytes, and damage as a MessageError.

About `core.letter.field_table`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pytest
from tests import amqp_oracle as oracle
from tests.amqp_oracle import Field

from deadletter.core.letter import field_table
from deadletter.core.letter.field_table import Value
from deadletter.errors import MessageError

EVERY_TYPE = [
    pytest.param(oracle.boolean(True), id="t-true"),
    pytest.param(oracle.boolean(False), id="t-false"),
    pytest.param(oracle.int8(-128), id="b"),
    pytest.param(oracle.uint8(255), id="B"),
    pytest.param(oracle.int16(-32768), id="s"),
    pytest.param(oracle.uint16(65535), id="u"),
    pytest.param(oracle.int16_of_the_specification(-2), id="U"),
    pytest.param(oracle.int32(-(2**31)), id="I"),
    pytest.param(oracle.uint32(2**32 - 1), id="i"),
    pytest.param(oracle.int64(-(2**63)), id="l"),
    pytest.param(oracle.int64_of_the_specification(-5), id="L"),
    pytest.param(oracle.float32(1.5), id="f"),
    pytest.param(oracle.float64(-0.1), id="d"),
    pytest.param(oracle.decimal(2, 31415), id="D"),
    pytest.param(oracle.decimal(255, 2**32 - 1), id="D-largest"),
    pytest.param(oracle.decimal(0, 0), id="D-zero"),
    pytest.param(oracle.text("größe".encode()), id="S"),
    pytest.param(oracle.text(b""), id="S-empty"),
    pytest.param(oracle.text(b"\xff\xfe latin \xe4"), id="S-no-text"),
    pytest.param(oracle.binary(b"\x00\xff"), id="x"),
    pytest.param(oracle.array([oracle.int8(1), oracle.void(), oracle.text(b"a")]), id="A"),
    pytest.param(oracle.array([]), id="A-empty"),
    pytest.param(oracle.table([(b"a", oracle.table([(b"b", oracle.int8(1))]))]), id="F"),
    pytest.param(oracle.table([]), id="F-empty"),
    pytest.param(oracle.timestamp(1_700_000_000), id="T"),
    pytest.param(oracle.timestamp(1_700_000_000_000), id="T-in-milliseconds"),
    pytest.param(oracle.timestamp(2**64 - 1), id="T-largest"),
    pytest.param(oracle.void(), id="V"),
]


@pytest.mark.parametrize("field", EVERY_TYPE)
def test_each_type_is_shown_as_what_it_is(field: Field) -> None:
    assert repr(field_table.decode_value(field.wire)) == repr(field.seen)
    assert repr(field_table.decode(oracle.entry(b"n", field))) == repr({"n": field.seen})


@pytest.mark.parametrize("field", EVERY_TYPE)
def test_each_type_is_passed_over_exactly(field: Field) -> None:
    raw = oracle.table_bytes([(b"before", oracle.int8(1)), (b"it", field), (b"after", oracle.void())])
    [it] = field_table.find(raw, frozenset({b"it"}))
    assert raw[it[2] : it[3]] == field.wire
    assert field_table.skip(field.wire, 0) == len(field.wire)
    assert [name for name, *_ in field_table.walk(raw)] == [b"before", b"it", b"after"]


@pytest.mark.parametrize("field", [case for case in EVERY_TYPE if case.id != "V"])
def test_each_type_cut_short_is_damage(field: Field) -> None:
    for length in range(len(field.wire)):
        raw = b"\x01n" + field.wire[:length]
        for look in (field_table.walk, field_table.decode, lambda raw: field_table.find(raw, frozenset())):
            with pytest.raises(MessageError):
                look(raw)
        with pytest.raises(MessageError):
            field_table.decode_value(field.wire[:length])


@pytest.mark.parametrize(
    ("value", "wire"),
    [
        ("größe", b"S\x00\x00\x00\x07gr\xc3\xb6\xc3\x9fe"),
        ("", b"S\x00\x00\x00\x00"),
        (b"\xff", b"x\x00\x00\x00\x01\xff"),
        (True, b"t\x01"),
        (False, b"t\x00"),
        (1, b"l\x00\x00\x00\x00\x00\x00\x00\x01"),
        (-(2**63), b"l\x80\x00\x00\x00\x00\x00\x00\x00"),
        (2**63 - 1, b"l\x7f\xff\xff\xff\xff\xff\xff\xff"),
        (1.5, b"d\x3f\xf8\x00\x00\x00\x00\x00\x00"),
        (Decimal("3.14"), b"D\x02\x00\x00\x01\x3a"),
        (datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC), b"T\x00\x00\x00\x00\x65\x53\xf1\x00"),
        (None, b"V"),
        ({"a": None}, b"F\x00\x00\x00\x03\x01aV"),
        ({}, b"F\x00\x00\x00\x00"),
        ([None, True], b"A\x00\x00\x00\x03Vt\x01"),
        ((), b"A\x00\x00\x00\x00"),
    ],
)
def test_python_values_are_written_as_their_type(value: Value, wire: bytes) -> None:
    assert field_table.encode_value(value) == wire
    assert field_table.entry("n", value) == b"\x01n" + wire
    seen = field_table.decode_value(wire)
    assert seen == (list(value) if isinstance(value, tuple) else value)


@pytest.mark.parametrize(
    "value",
    [
        2**63,
        -(2**63) - 1,
        Decimal(-1),
        Decimal("NaN"),
        Decimal("1E+1"),
        Decimal(2**32),
        Decimal((0, (1,), -256)),
        {"n" * 256: 1},
    ],
)
def test_a_value_amqp_cannot_say_is_refused(value: Value) -> None:
    with pytest.raises(MessageError):
        field_table.encode_value(value)


def test_a_date_before_1970_is_refused_like_any_value_amqp_cannot_say() -> None:
    with pytest.raises(MessageError):
        field_table.encode_value(datetime(1969, 12, 31, tzinfo=UTC))


def test_an_empty_table_has_nothing_in_it() -> None:
    assert field_table.walk(b"") == []
    assert field_table.find(b"", frozenset({b"a"})) == []
    assert field_table.decode(b"") == {}
    assert field_table.encode({}) == b""
    assert field_table.splice(b"", remove=frozenset({b"a"}), add=b"\x01bV") == b"\x01bV"


def test_names_that_are_not_text_are_shown_escaped_and_found_by_their_bytes() -> None:
    raw = oracle.table_bytes([(b"\xff\x00", oracle.int8(1)), (b"", oracle.int8(2))])
    assert field_table.decode(raw) == {"\\xff\x00": 1, "": 2}
    assert field_table.splice(raw, remove=frozenset({b"\xff\x00"})) == oracle.table_bytes(
        [(b"", oracle.int8(2))]
    )


def test_a_name_may_have_255_bytes_and_no_more() -> None:
    assert field_table.decode(field_table.entry("n" * 255, 1)) == {"n" * 255: 1}
    with pytest.raises(MessageError, match="256"):
        field_table.entry("ü" * 128, 1)


def test_of_two_entries_with_one_name_the_last_is_shown_and_both_are_cut() -> None:
    raw = oracle.table_bytes([(b"a", oracle.int8(1)), (b"b", oracle.void()), (b"a", oracle.int8(2))])
    assert field_table.decode(raw) == {"a": 2, "b": None}
    assert field_table.splice(raw, remove=frozenset({b"a"})) == b"\x01bV"


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"\x01", "ends where a value should begin"),
        (b"\x05ab", "ends where a value should begin"),
        (b"\x01a", "ends where a value should begin"),
        (b"\x01aZ", "unknown header value type b'Z'"),
        (b"\x01aS\x00\x00", "length is cut off"),
        (b"\x01aS\x00\x00\x00\x05ab", "past its table"),
        (b"\x01al\x00", "past its table"),
        (b"\x01aF\xff\xff\xff\xff", "past its table"),
    ],
)
def test_damage_says_what_is_wrong(raw: bytes, why: str) -> None:
    with pytest.raises(MessageError, match=why):
        field_table.walk(raw)
    with pytest.raises(MessageError):
        field_table.find(raw, frozenset({b"a"}))
    with pytest.raises(MessageError):
        field_table.decode(raw)


def test_damage_inside_a_nested_value_stops_the_reader_and_not_the_mover() -> None:
    raw = b"\x01aF\x00\x00\x00\x02\x05x" + b"\x01bV"
    assert [name for name, *_ in field_table.walk(raw)] == [b"a", b"b"]
    assert field_table.splice(raw, remove=frozenset({b"b"})) == raw[:-3]
    with pytest.raises(MessageError):
        field_table.decode(raw)


@pytest.mark.parametrize("kind", [b"F", b"A"])
def test_nesting_is_read_to_a_depth_and_moved_at_any(kind: bytes) -> None:
    def nested(levels: int) -> bytes:
        value = b"V"
        for _ in range(levels):
            inner = b"\x01n" + value if kind == b"F" else value
            value = kind + oracle.long(inner)
        return b"\x01n" + value

    field_table.decode(nested(field_table.MAX_DEPTH - 1))
    with pytest.raises(MessageError, match="nested deeper"):
        field_table.decode(nested(field_table.MAX_DEPTH))
    deep = nested(5_000)
    with pytest.raises(MessageError, match="nested deeper"):
        field_table.decode(deep)
    assert field_table.splice(deep, remove=frozenset(), add=b"\x01bV") == deep + b"\x01bV"


def test_the_elements_of_an_array_stay_encoded() -> None:
    fields = [oracle.int8(1), oracle.text(b"a"), oracle.array([oracle.void()])]
    raw = b"".join(field.wire for field in fields)
    assert field_table.elements(raw) == [field.wire for field in fields]
    assert field_table.elements(b"") == []
    with pytest.raises(MessageError):
        field_table.elements(raw[:-1])
