"""A letter inside another message: whatever it is made of comes out as it went in.

About `core.letter.wrapping`.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadletter.core.letter import message, names
from deadletter.core.letter.envelope import ExchangeKey
from deadletter.core.letter.message import RawMessage, View
from deadletter.core.letter.parking import Cause
from deadletter.core.letter.wrapping import CONTENT_TYPE, came_by, unwrap, wrap
from deadletter.errors import MessageError

CAME_BY = ExchangeKey(b"shop", b"k\xff\xe9")


def wrapped(letter: RawMessage, *, why: str = "it cannot be read", source: str = "orders.dlq") -> RawMessage:
    return wrap(
        letter,
        source=source,
        came_by=CAME_BY,
        move="run-7",
        cause=Cause.UNREADABLE,
        why=why,
        at_ms=1_700_000_000_123,
    )


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_what_was_wrapped_comes_out_as_it_was(properties: bytes, body: bytes) -> None:
    letter = RawMessage(properties, body)
    assert unwrap(wrapped(letter)) == letter


@given(st.binary(max_size=60), st.binary(max_size=20))
def test_a_letter_that_was_wrapped_twice_comes_out_as_it_was(properties: bytes, body: bytes) -> None:
    letter = RawMessage(properties, body)
    assert unwrap(wrapped(wrapped(letter))) == letter


def test_how_it_came_stands_outside_byte_for_byte() -> None:
    assert came_by(wrapped(RawMessage(b"\0\0", b"body"))) == CAME_BY
    assert came_by(RawMessage(b"\0\0", b"body")) is None


def test_it_says_what_is_in_it_and_why() -> None:
    outside = message.view(wrapped(RawMessage(b"\xff\xff", b"body")).properties)
    assert outside.content_type == CONTENT_TYPE
    assert outside.delivery_mode == 2
    assert outside.headers is not None
    found = dict(outside.headers)
    assert len(str(found.pop(names.ID))) == 32
    assert found == {
        names.SOURCE: "orders.dlq",
        names.SOURCE_EXCHANGE: "shop",
        names.SOURCE_ROUTING_KEY: b"k\xff\xe9",
        names.MOVE: "run-7",
        names.CAUSE: "unreadable",
        names.WHY: "it cannot be read",
        names.PARKED_AT: 1_700_000_000_123,
    }


def test_the_id_is_the_letters_own() -> None:
    def identity(properties: bytes, body: bytes, source: str = "orders.dlq") -> object:
        headers = message.view(wrapped(RawMessage(properties, body), source=source).properties).headers
        assert headers is not None
        return headers[names.ID]

    assert identity(b"\xff", b"a") == identity(b"\xff", b"a")
    assert len({identity(b"\xff", b"a"), identity(b"\xff", b"b"), identity(b"\xfe", b"a")}) == 3
    assert identity(b"\xff", b"a") != identity(b"\xff", b"a", source="invoices.dlq")


def test_a_long_reason_is_cut() -> None:
    headers = message.view(wrapped(RawMessage(b"", b""), why="x" * 10_000).properties).headers
    assert headers is not None
    assert headers[names.WHY] == "x" * 499 + "…"


@given(st.binary(max_size=60))
def test_any_other_message_is_no_wrapped_letter(body: bytes) -> None:
    plain = message.encode(View(content_type="text/plain"))
    assert unwrap(RawMessage(plain, b"DLW1" + body)) is None
    announced = message.encode(View(content_type=CONTENT_TYPE))
    assert unwrap(RawMessage(announced, b"DLW2" + body)) is None


@given(st.binary(min_size=1, max_size=60), st.binary(max_size=60), st.data())
def test_one_that_was_cut_says_so(properties: bytes, body: bytes, data: st.DataObject) -> None:
    whole = wrapped(RawMessage(properties, body))
    # cut where the body begins, nobody could tell: that is a letter with a shorter body
    end = data.draw(st.integers(4, len(whole.body) - len(body) - 1))
    with pytest.raises(MessageError, match="shorter than it says"):
        unwrap(RawMessage(whole.properties, whole.body[:end]))
