"""Masked fields: what is replaced, what stays as it stands, and what is hidden whole.

About `core.replaying.masked_letter`, `core.access.field_masks`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deadletter.core.access.field_masks import NO_MASKS, field_masks
from deadletter.core.grouping.stored_letter import Inside
from deadletter.core.letter.message import View
from deadletter.core.replaying.masked_letter import MASKED_BYTES, MOST_SECRETS, hidden, masked


def inside(body: bytes, **headers: object) -> Inside:
    return Inside(headers, View(), headers, body)  # type: ignore[arg-type]  # headers of any kind


def shown(body: bytes, *masks: str) -> bytes:
    return masked(inside(body), field_masks(masks)).inside.body


@pytest.mark.parametrize(
    ("body", "mask", "after"),
    [
        (b'{"card":{"number": 41, "x":1.10}}', "body.card.number", b'{"card":{"number": "***", "x":1.10}}'),
        (b'{"card": {"number": 41}}', "body.card", b'{"card": "***"}'),
        (b'[{"a": "x"}, {"a": [1, {"b": 2}]}, 3]', "body.a", b'[{"a": "***"}, {"a": "***"}, 3]'),
        (b'{"a": [[{"b": 12345678901234567890}]]}', "body.a.b", b'{"a": [[{"b": "***"}]]}'),
        (b'{"CARD": {"No": 1}}', "body.card.no", b'{"CARD": {"No": "***"}}'),
        (b'{"c\\u0061rd": 1}', "body.card", b'{"c\\u0061rd": "***"}'),
        (b'{"c_no": 1, "c_x": 2, "x": 3}', "body.c_*", b'{"c_no": "***", "c_x": "***", "x": 3}'),
        (b'{"a": {"x": {"pin": 1}}}', "body.*.*.pin", b'{"a": {"x": {"pin": "***"}}}'),
        (b' {"other": 1e400} ', "body.card", b' {"other": 1e400} '),
        (b'{"a": 1, "b": 2}', "header.a", b'{"a": 1, "b": 2}'),
        (b"", "body.card", b""),
    ],
)  # fmt: skip
def test_the_rest_stays_byte_for_byte(body: bytes, mask: str, after: bytes) -> None:
    assert shown(body, mask) == after


@pytest.mark.parametrize(
    "body",
    [
        b"card 4111",
        b'{"card": 1',
        b"\xff\xfe",
        b"\x1f\x8b\x08 packed",
        b'"{\\"card\\": 1}"',
        b'{"card": 1, "card": 2}',
        b'{"x": {"y": 1, "y": {"card": 1}}}',
        b'{"a":' * 1_000 + b"1" + b"}" * 1_000,
        b'{"card": NaN}',
        b'{"a": "' + b"x" * MASKED_BYTES + b'"}',
    ],
)
def test_what_cannot_be_taken_apart_for_sure_is_hidden_whole(body: bytes) -> None:
    letter = inside(
        body,
        tenant="acme",
        **{
            "deadletter-error-type": "E",
            "deadletter-error-message": "4111",
            "x-exception-stacktrace": "4111",
        },
        **{"deadletter-why": "no 4111", "Error_Details": {"why": b"4111"}, "MT-Fault-ExceptionType": "T"},
    )
    found = masked(letter, field_masks(["body.card"]))
    assert found.unknown
    assert found.inside.body == b"***"
    assert (
        found.inside.outer
        == found.inside.headers
        == {
            "tenant": "acme",
            "deadletter-error-type": "E",
            "deadletter-error-message": "***",
            "x-exception-stacktrace": "***",
            "deadletter-why": "***",
            "Error_Details": "***",
            "MT-Fault-ExceptionType": "T",
        }
    )


def test_a_whole_body_can_be_masked() -> None:
    found = masked(
        inside(b'{"a": 41112222, "b": ["xy\\u007az", {"c": true}]}', quotes="41112222, xyzz, c"),
        field_masks(["body"]),
    )
    assert found.inside.body == b"***"
    assert found.inside.headers == {"quotes": "***, ***, c"}
    assert not found.unknown
    assert masked(inside(b"41112222"), field_masks(["body"])).inside.body == b"***"
    assert masked(inside(b"no JSON"), field_masks(["body"])).unknown


def test_headers_are_masked_by_name_in_any_case() -> None:
    letter = inside(b"", Authorization="Bearer abcdef", tenant="acme", nested={"token": "zyxwvu"})
    found = masked(letter, field_masks(["header.authorization", "header.nest*"]))
    assert found.inside.headers == {"Authorization": "***", "tenant": "acme", "nested": "***"}
    assert found.inside.outer == found.inside.headers
    assert "Bearer abcdef" in found.secrets
    assert "zyxwvu" in found.secrets


def test_without_masks_it_is_the_very_same() -> None:
    letter = inside(b'{"a": 1}', a="b")
    assert masked(letter, NO_MASKS).inside is letter


@dataclass(frozen=True)
class Told:
    text: str
    more: tuple[str, ...]
    table: dict[str, object]
    number: int = 4111


def test_what_masked_fields_held_is_hidden_where_it_is_quoted() -> None:
    found = masked(inside(b'{"card": "4111 2222", "pin": 12}'), field_masks(["body.card", "body.pin"]))
    told = Told("no 4111 2222!", ("4111 2222", "pin 12"), {"4111 2222": ["a 4111 2222"]})
    assert hidden(told, found.secrets) == Told("no ***!", ("***", "pin 12"), {"***": ["a ***"]})


def test_headers_and_properties_that_quote_them_say_it_nowhere() -> None:
    told = inside(
        b'{"card": "4111 2222"}',
        quoted="card 4111 2222 declined",
        bytes=b"\xff 4111 2222",
        nested={"list": ["a 4111 2222", {"deeper": b"4111 2222\xff"}], "4111 2222": 1},
        number=7,
    )._replace(properties=View(app_id="of 4111 2222", priority=3))
    found = masked(told, field_masks(["body.card"])).inside
    assert found.headers == {
        "quoted": "card *** declined",
        "bytes": b"\xff ***",
        "nested": {"list": ["a ***", {"deeper": b"***\xff"}], "***": 1},
        "number": 7,
    }
    assert found.outer == found.headers
    assert (found.properties.app_id, found.properties.priority) == ("of ***", 3)


def test_of_more_than_can_be_looked_for_no_error_is_told() -> None:
    many = json.dumps({"card": [f"{number:08}" for number in range(20_000)]}).encode()
    found = masked(inside(many, **{"deadletter-error-message": "00019999"}), field_masks(["body.card"]))
    assert found.unknown
    assert len(found.secrets) <= MOST_SECRETS
    assert found.inside.body == b'{"card": "***"}'
    assert found.inside.headers == {"deadletter-error-message": "***"}


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=3) | st.just("card"), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(_JSON)
def test_whatever_the_json_the_field_is_masked_and_its_shape_stays(value: object) -> None:
    after = shown(json.dumps(value).encode(), "body.card")

    def expected(one: object) -> object:
        if isinstance(one, list):
            return [expected(inner) for inner in one]
        if isinstance(one, dict):
            return {name: "***" if name.lower() == "card" else inner for name, inner in one.items()}
        return one

    if isinstance(value, str):
        assert after == b"***"
    else:
        assert json.loads(after) == expected(value)
