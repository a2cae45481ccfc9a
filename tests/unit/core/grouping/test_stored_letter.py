"""A letter as the store keeps it.

About `core.grouping.stored_letter`, `core.grouping.letter_query`, `core.letter.same_letter`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from deadletter.core.deciding.failure import Framework
from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.core.grouping.stored_letter import StoredLetter, searched_text, stored_letter
from deadletter.core.letter import message, names, wrapping
from deadletter.core.letter.envelope import ExchangeKey
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.message import RawMessage, View
from deadletter.core.letter.parking import Cause, parked_headers

NONE: Mapping[str, Value] = {}
DIED: dict[str, Value] = {
    "count": 1,
    "reason": "rejected",
    "queue": "orders",
    "time": datetime(2026, 11, 16, 7, tzinfo=UTC),
    "exchange": "shop",
    "routing-keys": ["order.created"],
}


def letter(
    body: bytes = b'{"order": 17}',
    told: Mapping[str, Value] = NONE,
    *,
    redelivered: bool = False,
    **headers: Value,
) -> Letter:
    told = {
        names.X_DEATH: [DIED],
        **told,
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    properties = message.encode(View(content_type="application/json", message_id="m-1", headers=told))
    came_by = ExchangeKey(b"", b"deadletter.parked")
    return Letter(
        source="deadletter.parked",
        message=RawMessage(properties, body),
        came_by=came_by,
        redelivered=redelivered,
    )


def stored(one: Letter) -> StoredLetter:
    return stored_letter(one, now_ms=1)


def test_what_it_says_of_itself() -> None:
    told = stored(letter(told=parked_headers(Cause.RETRIES_EXHAUSTED, "too often", 1_763_270_000_000)))
    assert (told.origin, told.reason, told.cause) == ("orders", "rejected", "retries-exhausted")
    assert told.died_at_ms == 1_763_270_000_000
    assert told.message_id == "m-1"
    assert told.routing_key == "deadletter.parked"


def test_a_further_delivery_is_the_same_message_and_a_second_publish_a_copy() -> None:
    one = stored(letter(deadletter_id="0" * 32, deadletter_move="run-1"))
    again = stored(
        letter(redelivered=True, deadletter_id="0" * 32, deadletter_move="run-1", x_delivery_count=3)
    )
    copy = stored(letter(deadletter_id="0" * 32, deadletter_move="other-7"))
    assert (one.same, one.message) == (again.same, again.message)
    assert one.same == copy.same
    assert one.message != copy.message


def test_another_body_another_death_another_attempt_is_another_letter() -> None:
    first = stored(letter(deadletter_id="0" * 32))
    others = [
        stored(letter(b'{"order": 18}', deadletter_id="0" * 32)),
        stored(letter(deadletter_id="0" * 32, deadletter_attempt=2)),
        stored(letter(deadletter_id="0" * 32, x_death=[{**DIED, "count": 2}])),
    ]
    assert len({first.same, *(one.same for one in others)}) == 4


def test_without_a_header_of_ours_nothing_tells_it_from_an_equal_one() -> None:
    assert stored(letter()).message is None


def test_the_application_s_own_words_are_searched_and_ours_are_not() -> None:
    told = stored(letter(tenant="seven", deadletter_why="nonsense")).text
    assert "tenant seven" in told
    assert '{"order": 17}' in told
    assert "nonsense" not in told
    assert searched_text(letter(tenant="seven", deadletter_why="nonsense")) == told


def test_a_wrapped_letter_is_read_as_the_one_inside() -> None:
    inside = letter(told={names.ERROR_TYPE: "ValueError"})
    outside = wrapping.wrap(
        inside.message,
        source="orders.dlq",
        came_by=ExchangeKey(b"shop", b"key"),
        move="run-1",
        cause=Cause.UNREADABLE,
        why="too large",
        at_ms=5,
    )
    told = stored(
        Letter(source="deadletter.parked", message=outside, came_by=ExchangeKey(b"", b"x"), redelivered=False)
    )
    assert (told.origin, told.cause, told.died_at_ms) == ("orders", "unreadable", 5)
    assert told.letter.message == outside
    assert told.fingerprint.error_type == "ValueError"


def test_bytes_that_are_no_message_are_kept_all_the_same() -> None:
    broken = RawMessage(b"\xff\xff\xff", b"body")
    told = stored(Letter(source="q", message=broken, came_by=ExchangeKey(b"", b"q"), redelivered=False))
    assert told.letter.message == broken
    assert told.origin == "(unknown)"


def test_a_body_that_is_not_what_it_says() -> None:
    assert stored(letter(b"{nope")).fingerprint.title == "body is not application/json"


def test_dramatiq_s_error_is_in_its_body() -> None:
    body = (
        b'{"queue_name": "orders", "actor_name": "charge", "args": [], "options": {"traceback": '
        b'"Traceback (most recent call last):\\n  File \\"/srv/app/x.py\\", line 1, in f\\nValueError: no"}}'
    )
    told = stored(letter(body))
    assert told.fingerprint.error_type == "ValueError"
    assert Framework.DRAMATIQ.value == "dramatiq"


def test_only_what_is_inside_needs_a_look_inside() -> None:
    assert not LetterQuery(origin="orders", error="x").looks_inside
    assert LetterQuery(text="x").looks_inside
    assert LetterQuery(where=".body").looks_inside
