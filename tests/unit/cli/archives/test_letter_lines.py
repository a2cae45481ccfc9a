"""A letter as one line of JSON: whatever it holds, one line, and JSON that others read.

About `cli.archives.letter_lines`.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import amqp_oracle as oracle
from tests.amqp_strategies import TABLES

from deadletter.cli.archives.letter_lines import letter_line
from deadletter.core.letter.archive_format import StoreKeys
from deadletter.core.letter.envelope import ExchangeKey
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.message import RawMessage, View, encode
from deadletter.core.letter.parking import Cause
from deadletter.core.letter.wrapping import wrap


def strict(text: str) -> dict[str, Any]:
    def refuse(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    found = json.loads(text, parse_constant=refuse)
    assert isinstance(found, dict)
    return found


def line(message: RawMessage, stored: StoreKeys | None = None) -> dict[str, Any]:
    letter = Letter(source="dead", message=message, came_by=ExchangeKey(b"shop", b"k\xff"), redelivered=False)
    text = letter_line(letter, stored, now_ms=0)
    assert "\n" not in text
    assert "\x1b" not in text
    return strict(text)


@given(TABLES.map(oracle.table_bytes), st.binary(max_size=60))
def test_any_letter_is_a_line(headers: bytes, body: bytes) -> None:
    told = line(RawMessage(oracle.properties(headers=headers, delivery_mode=2), body))
    assert told["body_bytes"] == len(body)
    assert len({"body", "body_text", "body_base64"} & told.keys()) == 1


@given(st.binary(max_size=40))
def test_what_is_no_message_is_a_line_too(properties: bytes) -> None:
    assert line(RawMessage(properties, b"x"))["queue"] == "dead"


@pytest.mark.parametrize(
    ("content_type", "body", "told"),
    [
        ("application/json", b'{"a": [1, "\xc3\xa4"]}', ("body", {"a": [1, "ä"]})),
        (None, b"[1]", ("body", [1])),
        ("application/json", b"NaN", ("body_text", "NaN")),
        ("application/json", b"{", ("body_text", "{")),
        ("text/plain", b"12", ("body_text", "12")),
        (None, b"\xff\x00", ("body_base64", "/wA=")),
    ],
)
def test_bodies(content_type: str | None, body: bytes, told: tuple[str, object]) -> None:
    assert line(RawMessage(encode(View(content_type=content_type)), body))[told[0]] == told[1]


def test_what_a_store_knew() -> None:
    keys = StoreKeys(letter_id="ab" * 16, same=b"", message=b"", died_ms=1_794_700_000_000, stored_ms=1)
    told = line(RawMessage(encode(View(message_id="m")), b""), keys)
    assert told["id"] == "ab" * 16
    assert told["died_at"] == "2026-11-14T23:46:40.000+00:00"
    assert told["properties"] == {"message_id": "m"}
    assert told["routing_key"] == "k\\xff"


def test_a_wrapped_letter_is_told_as_the_one_inside() -> None:
    inside = RawMessage(encode(View(message_id="m", headers={"tenant": "acme"})), b'{"a": 1}')
    told = line(wrapped(inside))
    assert (told["properties"], told["headers"], told["body"]) == (
        {"message_id": "m"}, {"tenant": "acme"}, {"a": 1},
    )  # fmt: skip
    told = line(wrapped(RawMessage(b"\xff\xff\xff", b"words")))
    assert (told["cause"], told["body_text"], told["died_at"]) == (
        "unreadable", "words", "2026-11-14T23:46:40.000+00:00",
    )  # fmt: skip
    assert told["unreadable"]


def wrapped(inside: RawMessage) -> RawMessage:
    return wrap(
        inside,
        source="orders.dlq",
        came_by=ExchangeKey(b"", b"orders"),
        move="m",
        cause=Cause.UNREADABLE,
        why="",
        at_ms=1_794_700_000_000,
    )
