"""One letter told whole, whatever its bytes hold, and as JSON.

About `operations.records.letter_told`, `core.letter.plain_values`, `operations.records.records`.
"""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime
from decimal import Decimal

from tests.letters import letter
from tests.recorded import HOSTILE, parked

from deadletter.core.access.field_masks import NO_MASKS, FieldMasks, field_masks
from deadletter.core.grouping.category import By, Category
from deadletter.core.grouping.group_states import GroupState
from deadletter.core.grouping.letter_query import LetterState
from deadletter.core.letter import names, wrapping
from deadletter.core.letter.envelope import ExchangeKey
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.message import RawMessage
from deadletter.core.letter.parking import Cause
from deadletter.core.letter.plain_values import plain
from deadletter.operations.records.letter_told import BODY_BYTES, BodyKind, LetterTold, body_told, tell
from deadletter.operations.records.records import json_of
from deadletter.store.letters.letter_views import REFUSED, GroupView, LetterDetail, LetterRow, LetterStep

NOW = 1_750_000_000_000


def told(
    whole: Letter,
    *,
    steps: tuple[LetterStep, ...] = (),
    cause: str = "",
    masks: FieldMasks = NO_MASKS,
) -> LetterTold:
    row = LetterRow(
        id=7,
        letter_id="x",
        vhost="/",
        queue=whole.source,
        origin="orders",
        group=1,
        state=LetterState.OPEN,
        cause=cause,
        attempt=3,
        died_ms=NOW,
        stored_ms=NOW + 5_000,
        bytes=len(whole.body),
        message_id="",
        type="",
        routing_key="",
        error="",
        copies=2,
    )
    group = GroupView(
        id=1,
        key="k",
        origin="orders",
        title="t",
        culprit="",
        error_type="",
        category=Category.BUG,
        category_by=By.GUESS,
        category_why="its error is a PaymentTimeout",
        state=GroupState.OPEN,
        until_ms=None,
        first_ms=NOW,
        last_ms=NOW,
        total=1,
        open=1,
        reopened_ms=None,
        reopened_release="",
    )
    return tell(LetterDetail(row=row, letter=whole, steps=steps, earlier=()), group, masks=masks)


def arrived(message: RawMessage, queue: str = names.PARKED) -> Letter:
    return Letter(source=queue, message=message, came_by=ExchangeKey(b"", b"k\xff"), redelivered=False)


def test_what_different_hands_wrote_is_one_timeline() -> None:
    step = LetterStep(at_ms=NOW + 60_000, step="discarded", who="anna", why="sorted out")
    one = told(parked(b"{}", now_ms=NOW, number=1).letter, steps=(step,), cause="retries-exhausted")
    assert [(each.what, each.where, each.times) for each in one.timeline] == [
        ("died", "orders", 4),
        ("failed", "", 1),
        ("sent back", "orders", 3),
        ("parked", names.PARKED, 1),
        ("stored", "", 3),
        ("discarded", "", 1),
    ]
    assert one.timeline[-1].who == "anna"
    moments = [each.at_ms for each in one.timeline if each.at_ms is not None]
    assert moments == sorted(moments)
    assert one.why == "it was tried 3 times"


def test_why_an_edit_was_refused_is_not_told_where_fields_are_masked() -> None:
    """jq quotes a part of a value, which nobody finds again."""
    refused = LetterStep(at_ms=NOW + 60_000, step=REFUSED, who="anna", why='replay 1: string ("4111…) is no')
    discarded = LetterStep(at_ms=NOW + 70_000, step="discarded", who="anna", why="sorted out")
    whole = parked(b'{"card": "4111222233334444"}', now_ms=NOW, number=1).letter
    for masks, said in ((NO_MASKS, refused.why), (field_masks(["body.card"]), "***")):
        one = told(whole, steps=(refused, discarded), masks=masks)
        assert [each.why for each in one.timeline[-2:]] == [said, "sorted out"]


def test_the_applications_own_frame_is_known() -> None:
    error = told(parked(b"{}", now_ms=NOW, number=1).letter).error
    assert error is not None
    (raised,) = error.chain
    assert [(frame.name, frame.own) for frame in raised.frames] == [
        ("httpx/_client:send", False),
        ("orders/pay:charge", True),
    ]
    assert error.release == "1.4.2"


def test_every_header_value_is_json() -> None:
    odd = {
        "bytes": b"\xff",
        "time": datetime(2025, 6, 1, tzinfo=UTC),
        "decimal": Decimal("1.50"),
        "nan": float("nan"),
        "nested": {"list": [1, None, True, b"\x00"]},
        "big": 2**62,
        HOSTILE: HOSTILE,
    }
    one = told(arrived(letter(b"\xff\xfe", headers=odd)))
    said = json.loads(json.dumps(json_of(one)))["headers"]
    assert said == {
        "bytes": {"base64": "/w=="},
        "time": "2025-06-01T00:00:00+00:00",
        "decimal": "1.50",
        "nan": "nan",
        "nested": {"list": [1, None, True, {"base64": "AA=="}]},
        "big": 2**62,
        HOSTILE: HOSTILE,
    }
    assert one.routing_key == "k\\xff", "bytes that are no UTF-8 are shown as such"
    assert plain(float("-inf")) == "-inf"


def test_a_letter_whose_properties_are_no_amqp_is_told_all_the_same() -> None:
    one = told(arrived(RawMessage(b"\xff\xff\x00", b"body")))
    assert "unknown flags" in one.unreadable
    assert (one.headers, one.properties, one.body.text) == ({}, {}, "body")
    assert [each.what for each in one.timeline][-1] == "stored"


def test_a_wrapped_letter_is_told_as_the_one_inside() -> None:
    inside = letter(b"the body", headers={"tenant": "acme"}, message_id="m-1")
    outside = wrapping.wrap(
        inside,
        source="orders.dlq",
        came_by=ExchangeKey(b"", b"orders"),
        move="r-1",
        cause=Cause.UNREADABLE,
        why="too large",
        at_ms=NOW,
    )
    one = told(arrived(outside), cause="unreadable")
    assert (one.wrapped, one.why, one.headers, one.body.text) == (
        True,
        "too large",
        {"tenant": "acme"},
        "the body",
    )
    assert one.properties["message_id"] == "m-1"


def test_a_long_body_is_told_to_a_bound_and_never_through_a_character() -> None:
    text = "ä" * BODY_BYTES
    cut = body_told(b"x" + text.encode())
    assert (cut.kind, cut.whole, cut.bytes) == (BodyKind.TEXT, False, 1 + 2 * BODY_BYTES)
    assert ("x" + text).startswith(cut.text)
    raw = bytes(range(256)) * 1024
    cut = body_told(raw)
    assert (cut.kind, cut.whole) == (BodyKind.BYTES, False)
    assert raw.startswith(base64.b64decode(cut.base64))
    assert body_told(b"").whole
    assert body_told(b"caf\xc3").kind is BodyKind.BYTES, "a whole body that ends in half a character is none"
