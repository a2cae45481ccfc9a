"""About `core.replaying.letter_edit`, `core.replaying.exact_json`: edits of any letter, and back again."""

from __future__ import annotations

import base64
import json
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st
from tests import amqp_oracle as oracle
from tests.amqp_strategies import FIELDS, TABLES

from deadletter.core.letter import names
from deadletter.core.letter.envelope import ExchangeKey
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.message import RawMessage
from deadletter.core.replaying.exact_json import Node, read, same
from deadletter.core.replaying.letter_edit import Edited, editable, edited, is_locked
from deadletter.core.replaying.spliced_json import whole
from deadletter.errors import EditRefused

NUMBERS = st.one_of(
    st.integers().map(str),
    st.decimals(allow_nan=False, allow_infinity=False).map(str).filter(lambda t: "E" not in t),
)
BLANKS = st.sampled_from(("", " ", "\n  ", "\t"))
FREE_NAMES = st.text(st.characters(max_codepoint=127), max_size=12).filter(lambda t: is_locked(t) is None)
FREE_TABLES = st.lists(
    st.tuples(st.one_of(st.sampled_from(("", "a", "b", "n" * 255)), FREE_NAMES).map(str.encode), FIELDS),
    max_size=10,
    unique_by=lambda entry: entry[0],
)
"""Headers that a person may change, each there once. Few names, so that two tables have some in common."""
STRINGS = st.text(st.characters(codec="utf-8"), max_size=8).map(json.dumps)


@st.composite
def json_texts(draw: st.DrawFn, depth: int = 3) -> str:
    """JSON as nobody's serializer writes it."""
    kind = draw(st.integers(0, 5 if depth else 3))
    if kind <= 1:
        return draw(NUMBERS)
    if kind == 2:
        return draw(STRINGS)
    if kind == 3:
        return draw(st.sampled_from(("true", "false", "null")))
    inner = draw(st.lists(json_texts(depth=depth - 1), max_size=4))
    blanks = draw(st.lists(BLANKS, min_size=2 * len(inner) + 1, max_size=2 * len(inner) + 1))
    if kind == 4:
        parts = [blanks[2 * n] + text + blanks[2 * n + 1] for n, text in enumerate(inner)]
        return "[" + ",".join(parts) + ("" if inner else blanks[0]) + "]"
    names = draw(st.lists(STRINGS, min_size=len(inner), max_size=len(inner), unique_by=json.loads))
    parts = [
        f"{blanks[2 * n]}{name}:{blanks[2 * n + 1]}{text}"
        for n, (name, text) in enumerate(zip(names, inner, strict=True))
    ]
    return "{" + ",".join(parts) + ("" if inner else blanks[0]) + "}"


def meant(value: Any) -> Any:
    """What a header says, in whichever type: it keeps the one that stood there. A number put where a decimal
    or a time stood is told as text from then on; so are bytes put where a text stood, if they are text."""
    match value:
        case {"base64": str(packed), **more} if not more:
            with suppress(ValueError):
                return meant(base64.b64decode(packed, validate=True).decode())
            return value
        case str():
            with suppress(ArithmeticError):
                number = Decimal(value)
                return (number,) if number.is_finite() else value
            with suppress(ValueError):
                at = datetime.fromisoformat(value)
                return (Decimal(int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp())),)
            return value
        case list():
            return [meant(one) for one in value]
        case dict():
            return {name: meant(one) for name, one in value.items()}
        case _:
            return value


def alike(one: Node, other: Node) -> bool:
    """Documents that mean the same: to the letter but for `meant`."""
    return {**one.meaning, "headers": meant(one.meaning["headers"])} == {
        **other.meaning,
        "headers": meant(other.meaning["headers"]),
    }


def letter(table: list[tuple[bytes, oracle.Field]], body: bytes) -> Letter:
    raw = RawMessage(oracle.properties(headers=oracle.table_bytes(table)), body)
    return Letter(source="q", message=raw, came_by=ExchangeKey(b"", b"q"), redelivered=False)


@given(TABLES, st.one_of(json_texts().map(str.encode), st.binary(max_size=20)))
def test_an_edit_that_changes_nothing_changes_no_byte(
    table: list[tuple[bytes, oracle.Field]], body: bytes
) -> None:
    one = letter(table, body)
    before = editable(one)
    made = edited(before, before.document.text, by="me")
    assert made == Edited(message=one.message, changed=False)


@given(json_texts(), json_texts())
def test_a_changed_text_means_the_other_one_and_there_and_back_is_the_same(first: str, second: str) -> None:
    there = whole(read(first), read(second))
    assert same(read(there), read(second))
    assert same(read(whole(read(there), read(first))), read(first))
    assert whole(read(first), read(first)) == first


@given(FREE_TABLES, FREE_TABLES, json_texts(), json_texts())
@example([(b"a", oracle.array([oracle.decimal(0, 0)]))], [(b"a", oracle.array([oracle.int8(0)]))], "0", "0")
@example([(b"a", oracle.timestamp(0))], [(b"a", oracle.int8(0))], "0", "0")
@example([(b"a", oracle.binary(b""))], [(b"a", oracle.text(b"b"))], "0", "0")
def test_edited_there_and_back_is_the_letter_as_it_was(
    table: list[tuple[bytes, oracle.Field]],
    other: list[tuple[bytes, oracle.Field]],
    body: str,
    further: str,
) -> None:
    mark = (names.EDITED.encode(), oracle.text(b"me"))
    one, wanted = letter([*table, mark], body.encode()), letter([*other, mark], further.encode())
    before, goal = editable(one).document, editable(wanted).document
    try:
        there = edited(editable(one), goal.text, by="me", probed=goal.text)
        changed = Letter(source="q", message=there.message, came_by=one.came_by, redelivered=False)
        assert alike(editable(changed).document, goal)
        back = edited(editable(changed), before.text, by="me", probed=before.text)
    except EditRefused:
        return  # AMQP or jq has no such value; the letter stays
    final = Letter(source="q", message=back.message, came_by=one.came_by, redelivered=False)
    assert alike(editable(final).document, before)
