"""About `core.replaying.letter_edit`, `core.replaying.typed_values`, `core.replaying.inexact_numbers`,
`core.replaying.exact_json`, `core.replaying.spliced_json`, `core.replaying.letter_diff`, `jq.edits`,
`jq.worker_process`: edits by real jq.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from tests import amqp_oracle as oracle
from tests.letters import letter as raw_letter

from deadletter.core.letter import field_table, message, names
from deadletter.core.letter.envelope import ExchangeKey
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.message import RawMessage
from deadletter.core.replaying.exact_json import NotJson, read
from deadletter.core.replaying.letter_diff import difference_json, difference_lines, differences
from deadletter.core.replaying.letter_edit import Edited, editable, edited, edited_by_hand
from deadletter.core.replaying.spliced_json import whole
from deadletter.errors import EditRefused
from deadletter.jq.edits import JqEdits, NotMade


def a_letter(body: bytes, **properties: object) -> Letter:
    return of(raw_letter(body, **properties))


def of(raw: RawMessage) -> Letter:
    return Letter(source="q", message=raw, came_by=ExchangeKey(b"", b"q"), redelivered=False)


@pytest.fixture
async def jq() -> AsyncIterator[JqEdits]:
    async with JqEdits() as running:
        yield running


async def run(jq: JqEdits, program: str, letter: Letter) -> Edited:
    before = editable(letter)
    documents = [before.document.text, *([before.probe] if before.probe else [])]
    made = await jq.run(program, [one.encode() for one in documents])
    for one in made:
        if isinstance(one, NotMade):
            raise EditRefused(one.why)
    texts = [one.text for one in made]  # type: ignore[union-attr] # the loop above is the check
    return edited(before, texts[0], by="anna", probed=texts[1] if len(texts) > 1 else None)


BODIES = (
    b'{"a": 1.10, "b" : [1e2,  2.0], "n": -0, "big": 12345678901234567890123, "e": 1E400}',
    b'{"a":1,"a":2}',
    b" [ ] \n",
    b'{"snow": 9007199254740993, "t": "\\u00e9\\/"}',
    b"plain text\n",
    b"",
    b"\xff\x00binary",
    b'{"x": NaN}',
    gzip.compress(b'{"a": 1}', mtime=7),
)


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("program", [".", "to_entries|reverse|from_entries", ".body=.body"])
async def test_who_changes_nothing_changes_no_byte(jq: JqEdits, body: bytes, program: str) -> None:
    encoding = {"content_encoding": "gzip"} if body.startswith(b"\x1f\x8b") else {}
    letter = a_letter(body, headers={"n": 1, "t": datetime(2025, 1, 1, tzinfo=UTC)}, **encoding)
    assert await run(jq, program, letter) == Edited(message=letter.message, changed=False)


@pytest.mark.parametrize(
    ("body", "program", "after"),
    [
        (b'{"a": 1.10, "b" : [1e2,  2.0]}', ".body.c = 3", b'{"a": 1.10, "b" : [1e2,  2.0], "c": 3}'),
        (b'{"id":9007199254740993,"q":1}', ".body.q = 2", b'{"id":9007199254740993,"q":2}'),
        (b'{"id":9007199254740993}', ".body |= {new: .id}", b'{"new":9007199254740993}'),
        (b'{"id":9007199254740993}', ".body.id |= tostring", b'{"id":"9007199254740993"}'),
        (b'{"id":"9007199254740993"}', ".body.id |= tonumber", b'{"id":9007199254740993}'),
        (b'{\n  "a": 1,\n  "b": 2\n}\n', "del(.body.a)", b'{\n  "b": 2\n}\n'),
        (b'{\n  "a": 1\n}\n', ".body.b = 2", b'{\n  "a": 1,\n  "b": 2\n}\n'),
        (b"[1, 2, 3]", "del(.body[1])", b"[1, 3]"),
        (b"[1,2]", ".body += [3]", b"[1,2,3]"),
        (b'{"a": {}}', ".body.a.x = 1", b'{"a": {"x": 1}}'),
        (b"hello world", '.body |= sub("world"; "you")', b"hello you"),
        (b"{broken", '.body += "}"', b"{broken}"),
    ],
)
async def test_only_what_was_changed_changes(jq: JqEdits, body: bytes, program: str, after: bytes) -> None:
    made = await run(jq, program, a_letter(body))
    assert made.message.body == after
    assert of(made.message).headers == {names.EDITED: "anna"}


@pytest.mark.parametrize(
    ("body", "program", "why"),
    [
        (b'{"id":9007199254740993}', ".body.id += 1", "rounded"),
        (b'{"id":9007199254740993}', ".body.n = .body.id * 2", "rounded"),
        (b'{"id":9007199254740993,"x":1}', ".body.x = (.body.id == 9007199254740993)", "rounded"),
        (b'{"a":1,"a":2}', ".body.b = 1", "twice"),
        (b"\xff\x00", '.body = "x"', "binary"),
        (b'{"x": NaN}', ".body.x = 1", "none by the standard|Cannot index"),
        (b"text", ".body = 3", "a text is expected"),
        (b"1", ".body", "body, headers and properties"),
        (b"1", "del(.headers)", "body, headers and properties"),
        (b"1", ".headers = 3", "expected an object"),
        (b"1", '.headers["deadletter-id"] = "x"', "Deadletter's own"),
        (b"1", '.headers["x-death"] = []', "broker"),
        (b"1", '.headers.CC = ["q"]', "copy"),
        (b"1", '.properties.user_id = "root"', "cannot be changed"),
        (b"1", ".properties.expiration = \"1\"", "cannot be changed"),
        (b"1", ".properties.priority = 300", "0 to 255"),
        (b"1", '.properties.type = ("x" * 300)', "255 bytes"),
        (b"1", ".headers.n = 0.12345678901234567890123", "no AMQP number"),
        (b"1", ".headers.n = 18446744073709551616", "64 bits"),
        (b"1", '.headers[("n" * 300)] = 1', "255 bytes"),
        (b"1", "., .", "more than one"),
        (b"1", "empty", "nothing"),
        (b"1", '.headers.when = "tomorrow"', "a time such as"),
        (b"1", "def f: f; f", "250 ms|MB"),
    ],
)  # fmt: skip
async def test_what_cannot_be_done_faithfully_is_refused(
    jq: JqEdits, body: bytes, program: str, why: str
) -> None:
    letter = a_letter(body, headers={"when": datetime(2025, 1, 1, tzinfo=UTC)})
    with pytest.raises(EditRefused, match=why):
        await run(jq, program, letter)


async def test_headers_keep_their_types(jq: JqEdits) -> None:
    entries = [
        (b"small", oracle.int8(5)),
        (b"word", oracle.uint16(5)),
        (b"long", oracle.int64(5)),
        (b"single", oracle.float32(0.5)),
        (b"when", oracle.timestamp(1_700_000_000)),
        (b"money", oracle.decimal(2, 1999)),
        (b"raw", oracle.binary(b"\xff")),
        (b"odd", oracle.text(b"\xff")),
        (b"deep", oracle.table([(b"a", oracle.int16(1)), (b"b", oracle.uint8(2))])),
        (b"list", oracle.array([oracle.uint8(1), oracle.int32(2)])),
        (b"same", oracle.float32(0.1)),
    ]
    table = b"".join(bytes((len(name),)) + name + value.wire for name, value in entries)
    raw = RawMessage(b"\x20\x00" + len(table).to_bytes(4, "big") + table, b"1")
    program = (
        '.headers |= (.small = 6 | .word = 70000 | .long = 6 | .single = 0.25 | .money = "20.00"'
        '| .when = "2025-01-01T00:00:00+00:00" | .raw = {base64: "AAE="} | .odd = {base64: "AAE="}'
        "| .deep.b = 3 | .list[1] = 7 | .fresh = 1)"
    )
    made = await run(jq, program, of(raw))
    headers = message.header_table(made.message.properties)
    found = {name: headers[value:end] for name, _, value, end in field_table.walk(headers)}
    assert found == {
        b"small": oracle.int8(6).wire,
        b"word": oracle.int64(70000).wire,
        b"long": oracle.int64(6).wire,
        b"single": oracle.float32(0.25).wire,
        b"when": oracle.timestamp(1_735_689_600).wire,
        b"money": oracle.decimal(2, 2000).wire,
        b"raw": oracle.binary(b"\0\1").wire,
        b"odd": oracle.text(b"\0\1").wire,
        b"deep": oracle.table([(b"a", oracle.int16(1)), (b"b", oracle.uint8(3))]).wire,
        b"list": oracle.array([oracle.uint8(1), oracle.int32(7)]).wire,
        b"same": oracle.float32(0.1).wire,
        b"fresh": oracle.int64(1).wire,
        b"deadletter-edited": oracle.text(b"anna").wire,
    }


async def test_one_of_two_headers_of_a_name_cannot_be_changed(jq: JqEdits) -> None:
    table = b"\x01aS\x00\x00\x00\x011\x01aS\x00\x00\x00\x012\x01bt\x01"
    raw = RawMessage(b"\x20\x00" + len(table).to_bytes(4, "big") + table, b"1")
    made = await run(jq, "del(.headers.b)", of(raw))
    assert message.header_table(made.message.properties).startswith(table[:-4])
    with pytest.raises(EditRefused, match="several headers"):
        await run(jq, '.headers.a = "3"', of(raw))


async def test_properties_change_in_their_places(jq: JqEdits) -> None:
    letter = a_letter(b"1", content_type="text/plain", message_id="m", user_id="u", expiration="5")
    made = await run(
        jq, '.properties |= (.type = "order" | .priority = 3 | del(.message_id) | .timestamp = 12)', letter
    )
    view = message.view(made.message.properties)
    assert (view.type, view.priority, view.message_id) == ("order", 3, None)
    assert (view.content_type, view.user_id, view.expiration) == ("text/plain", "u", "5")
    assert view.timestamp == datetime.fromtimestamp(12, UTC)


async def test_a_packed_body_is_unpacked_edited_and_packed(jq: JqEdits) -> None:
    letter = a_letter(gzip.compress(b'{"a": 1}'), content_encoding="gzip")
    made = await run(jq, ".body.a = 2", letter)
    assert gzip.decompress(made.message.body) == b'{"a": 2}'
    for damaged in (letter.body[:-3], letter.body + b"x", b"none", gzip.compress(b"0" * 2_000_000)):
        with pytest.raises(EditRefused, match="the body cannot be changed"):
            await run(jq, ".body = 1", a_letter(damaged, content_encoding="gzip"))
    with pytest.raises(EditRefused, match="content-encoding"):
        await run(jq, ".body = 1", a_letter(b"1", content_encoding="br"))


def test_by_hand_a_name_twice_can_be_repaired() -> None:
    before = editable(a_letter(b'{"a":1,"a":2}'))
    rest = '{"headers": {}, "properties": {"delivery_mode": 2}}'
    assert not edited_by_hand(before, rest, before.text, by="anna").changed
    assert edited_by_hand(before, rest, '{"a":3}', by="anna").message.body == b'{"a":3}'
    with pytest.raises(EditRefused, match="none any more"):
        edited_by_hand(before, rest, '{"a":', by="anna")
    with pytest.raises(EditRefused, match="above the body"):
        edited_by_hand(before, "{}", before.text, by="anna")


async def test_the_difference_is_told_by_path_line_and_name(jq: JqEdits) -> None:
    letter = a_letter(b'{"a": "1", "gone": 9007199254740993, "l": [1, 2, 3]}', headers={"h": 1})
    made = await run(
        jq,
        ".body.a |= tonumber | del(.body.gone) | del(.body.l[1]) | .headers.h = 2 | .headers.n = true",
        letter,
    )
    found = differences(letter, of(made.message))
    assert difference_lines(found) == [
        '- .body.a: "1"', "+ .body.a: 1", "- .body.gone: 9007199254740993", "- .body.l[1]: 2",
        "- .headers.h: 1", "+ .headers.h: 2", "+ .headers.n: true",
    ]  # fmt: skip
    assert difference_json(found)[1] == {
        "path": ".body.gone", "change": "removed", "before": "9007199254740993", "after": None,
    }  # fmt: skip
    text = a_letter(b"one\ntwo\nthree\n")
    made = await run(jq, '.body |= sub("two"; "2")', text)
    assert difference_lines(differences(text, of(made.message))) == [
        "  .body", "  @@ -1,3 +1,3 @@", " one", "-two", "+2", " three",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text", ["", "{", "[1,]", '{"a" 1}', "01", "1 2", "NaN", '"\n"', "[" * 300 + "]" * 300]
)
def test_what_is_no_json(text: str) -> None:
    with pytest.raises(NotJson):
        read(text)


def test_numbers_are_compared_exactly() -> None:
    assert read("1.0e2").value == Decimal(100)
    assert whole(read(' {"a": 1.0} '), read('{"a":1}')) == ' {"a": 1.0} '
    assert json.loads(whole(read('{"a": 1.0}'), read('{"a":1.01}'))) == {"a": 1.01}
