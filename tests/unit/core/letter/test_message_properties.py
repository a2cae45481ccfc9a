"""Properties: where each stands, what each says, and what damage does.

About `core.letter.message`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from tests import amqp_oracle as oracle

from deadletter.core.letter import message
from deadletter.core.letter.message import View
from deadletter.errors import MessageError

HEADERS = oracle.table_bytes([(b"a", oracle.int8(1))])
FULL = oracle.properties(
    content_type=b"text/plain",
    content_encoding=b"gzip",
    headers=HEADERS,
    delivery_mode=2,
    priority=9,
    correlation_id=b"c-1",
    reply_to=b"answers",
    expiration=b"60000",
    message_id=b"m-1",
    timestamp_s=1_700_000_000,
    kind=b"order",
    user_id=b"guest",
    app_id=b"shop",
    cluster_id=b"k",
)
FULL_VIEW = View(
    content_type="text/plain",
    content_encoding="gzip",
    headers={"a": 1},
    delivery_mode=2,
    priority=9,
    correlation_id="c-1",
    reply_to="answers",
    expiration="60000",
    message_id="m-1",
    timestamp=datetime.fromtimestamp(1_700_000_000, UTC),
    type="order",
    user_id="guest",
    app_id="shop",
    cluster_id="k",
)
ONE_EACH: dict[str, tuple[bytes, Any]] = {
    "content_type": (oracle.properties(content_type=b"v"), "v"),
    "content_encoding": (oracle.properties(content_encoding=b"v"), "v"),
    "headers": (oracle.properties(headers=HEADERS), {"a": 1}),
    "delivery_mode": (oracle.properties(delivery_mode=1), 1),
    "priority": (oracle.properties(priority=255), 255),
    "correlation_id": (oracle.properties(correlation_id=b"v"), "v"),
    "reply_to": (oracle.properties(reply_to=b"v"), "v"),
    "expiration": (oracle.properties(expiration=b"v"), "v"),
    "message_id": (oracle.properties(message_id=b"v"), "v"),
    "timestamp": (oracle.properties(timestamp_s=0), datetime(1970, 1, 1, tzinfo=UTC)),
    "type": (oracle.properties(kind=b"v"), "v"),
    "user_id": (oracle.properties(user_id=b"v"), "v"),
    "app_id": (oracle.properties(app_id=b"v"), "v"),
    "cluster_id": (oracle.properties(cluster_id=b"v"), "v"),
}


def test_everything_set_is_everything_seen() -> None:
    assert message.view(FULL) == FULL_VIEW
    assert message.header_table(FULL) == HEADERS


def test_nothing_set_is_nothing_seen() -> None:
    assert message.view(oracle.properties()) == View()
    assert message.spans(oracle.properties()) == {}
    assert message.header_table(oracle.properties()) == b""


def test_an_empty_header_table_is_not_an_unset_one() -> None:
    assert message.view(oracle.properties(headers=b"")).headers == {}
    assert message.view(oracle.properties()).headers is None


@pytest.mark.parametrize("name", ONE_EACH)
def test_each_property_alone(name: str) -> None:
    raw, value = ONE_EACH[name]
    assert message.view(raw) == View(**{name: value})
    assert message.encode(View(**{name: value})) == raw or name == "headers"  # integers are written as `l`


def test_spans_touch_and_cover_everything() -> None:
    where = message.spans(FULL)
    assert list(where) == sorted(where, reverse=True)
    position = 2
    for start, end in where.values():
        assert start == position
        position = end
    assert position == len(FULL)


def test_encode_and_view_are_each_other_s_opposite() -> None:
    assert message.view(message.encode(FULL_VIEW)) == FULL_VIEW
    assert message.encode(View()) == b"\0\0"


def test_text_that_is_none_is_shown_with_its_odd_bytes_escaped() -> None:
    assert message.view(oracle.properties(message_id=b"\xe4\xff")).message_id == "\\xe4\\xff"


def test_a_timestamp_in_milliseconds_is_shown_as_the_number_it_is() -> None:
    assert message.view(oracle.properties(timestamp_s=1_700_000_000_000)).timestamp == 1_700_000_000_000


def test_every_cut_of_the_properties_is_damage() -> None:
    for length in range(len(FULL)):
        with pytest.raises(MessageError):
            message.spans(FULL[:length])
        with pytest.raises(MessageError):
            message.view(FULL[:length])


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "two bytes of flags; 0 came"),
        (b"\x80", "two bytes of flags; 1 came"),
        (b"\x00\x01\x00\x00", "unknown flags 0x0001"),
        (b"\x00\x02\x00", "unknown flags 0x0002"),
        (b"\x00\x00\x00", "1 bytes too many"),
        (b"\x80\x00", "cut off"),
        (b"\x80\x00\x05ab", "3 bytes past the end"),
        (b"\x20\x00\x00\x00", "length is cut off"),
        (b"\x20\x00\xff\xff\xff\xff", "past the end"),
    ],
)
def test_damage_says_what_is_wrong(raw: bytes, why: str) -> None:
    with pytest.raises(MessageError, match=why):
        message.spans(raw)
    with pytest.raises(MessageError):
        message.header_table(raw)


def test_a_damaged_table_in_sound_properties_is_damage_to_the_reader() -> None:
    raw = oracle.properties(headers=b"\x01aZ")
    assert message.header_table(raw) == b"\x01aZ"
    with pytest.raises(MessageError):
        message.view(raw)


def test_text_too_long_for_a_property_is_refused() -> None:
    assert len(message.encode(View(message_id="m" * 255))) == 2 + 1 + 255
    with pytest.raises(MessageError, match="256"):
        message.encode(View(message_id="m" * 256))


@pytest.mark.parametrize(
    "view",
    [View(timestamp=-1), View(timestamp=2**64), View(priority=256), View(delivery_mode=-1)],
    ids=["timestamp-early", "timestamp-late", "priority", "delivery-mode"],
)
def test_a_number_that_does_not_fit_is_refused(view: View) -> None:
    with pytest.raises(MessageError):
        message.encode(view)
