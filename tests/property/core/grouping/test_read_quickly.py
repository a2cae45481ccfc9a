"""What is read quickly is what would be read slowly.

About `core.grouping.masks`, `core.grouping.letter_words`, `core.letter.message`.
"""

from __future__ import annotations

import re
from dataclasses import fields

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests.amqp_strategies import damaged

from deadletter.core.grouping import masks
from deadletter.core.grouping.letter_words import MAX_WORD_CHARS, divided, words_of
from deadletter.core.letter import message
from deadletter.core.letter.message import View
from deadletter.errors import MessageError

PIECES = st.sampled_from(
    (
        *("status", "Error", "code", "http", "key", "keyboard", "errors", "name", "column", "localhost"),
        *("the", "order", "A", "is undefined", "object has no attribute", "Timeout", "EUR", "abc"),
        *("404", "17", "1 000", "5 ms", "x1", "0x1f", "10.0.0.1", "2026-10-01", "12:30:11", "deadbeef01"),
        *("id-99", "/a/b/c", "http://x.y/z", "a@b.co", "db.com:80", "input_value=", ", input_type", "=x"),
        *("'", '"', "`", "[", "]", "{", "}", "(", ")", ":", "=", ": ", "-", "+", "_", "$", "%", "\n", "\t"),
        *("٣", "٤٥٦٧-٠١-٠٢", "é", "«x»", "\u00a0", " ", "  "),
    )
)
MESSAGES = st.lists(PIECES | st.just(" "), max_size=24).map("".join)
_WORD_BY_WORD = re.compile(masks._COMBINED.pattern.replace(masks._PLAIN, rf"(?<![\w=]){masks._WORD}"))


@given(MESSAGES)
@example("the status 404 of error 17")
@example("no key 'sku' and the column \"total\" is localhost")
def test_plain_words_are_passed_together_as_one_by_one(said: str) -> None:
    def replacement(found: re.Match[str]) -> str:
        name = (found.lastgroup or "").rstrip("_")
        return found[0] if name == "kept" else f"<{name}>"

    assert masks._COMBINED.sub(replacement, said) == _WORD_BY_WORD.sub(replacement, said)


@given(MESSAGES)
def test_a_mask_that_is_not_tried_would_not_have_fitted(said: str) -> None:
    beginnings = {"a": "[A-Za-z]", "1": "[0-9]", "-": r"[^A-Za-z0-9\s]"}
    for kind, never in masks._NEVER_BY.items():
        tried = "|".join(pattern for name, pattern in masks._MASKS if name in never)
        assert not tried or not re.search(f"(?={beginnings[kind]})(?:{tried})", said)


@given(st.text() | st.text("aB1 .-", max_size=600) | MESSAGES)
@example("a" * (2 * MAX_WORD_CHARS + 1) + ".b")
def test_words_are_the_runs_of_their_characters(text: str) -> None:
    runs = re.compile(rf"[0-9a-z\x80-\U0010ffff]{{1,{MAX_WORD_CHARS}}}")
    assert words_of(text) == runs.findall(divided(text))


VIEWS = st.builds(
    View,
    headers=st.none() | st.dictionaries(st.text(max_size=5), st.text(max_size=9) | st.integers(0, 9)),
    timestamp=st.none() | st.integers(0, 2**64 - 1),
    priority=st.none() | st.integers(0, 255),
    **{name: st.none() | st.text(max_size=9) for name in ("content_type", "type", "message_id", "app_id")},
).map(message.encode)


@given(VIEWS | damaged(VIEWS) | st.binary(max_size=40))
def test_a_view_is_made_of_the_spans(properties: bytes) -> None:
    try:
        spans = message.spans(properties)
    except MessageError as error:
        with pytest.raises(MessageError, match=re.escape(str(error))):
            message.view(properties)
        return
    try:
        view = message.view(properties)
    except MessageError:
        assert message.HEADERS in spans
        return
    told = {one.name for one in fields(view) if getattr(view, one.name) is not None}
    assert told == {message._NAMES[flag] for flag in spans}
    for flag, (start, end) in spans.items():
        value = getattr(view, message._NAMES[flag])
        if isinstance(value, str):
            assert value == properties[start + 1 : end].decode("utf-8", "backslashreplace")
