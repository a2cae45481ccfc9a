"""A letter changed by a person or a jq program: exactly what was changed, and everything else byte for byte.

A program gets `{"body": …, "headers": {…}, "properties": {…}}`, as `--where` shows a letter, and gives the
same shape back. What comes back is compared with what went out by what it means. A body that only looks
otherwise is kept as it was; of a body that changed, the parts that did not are written as they stood; headers
keep their types. Where that cannot be done faithfully the edit is refused, with the reason: a letter is never
changed by more than was meant.
"""

from __future__ import annotations

import gzip
import json
import zlib
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from struct import Struct
from typing import Final

from deadletter.core.grouping.stored_letter import unwrapped
from deadletter.core.letter import field_table, message, names
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.message import HEADERS, RawMessage, flags_of, spans
from deadletter.core.letter.plain_values import plain_properties, plain_table
from deadletter.core.replaying import exact_json, inexact_numbers, spliced_json, typed_values
from deadletter.core.replaying.exact_json import JsonKind, Node, NotJson
from deadletter.errors import EditRefused, MessageError

OPENED_BYTES: Final = 1024 * 1024
"""So large a body may be when it is unpacked."""
BY_CHARS: Final = 200
SHAPE: Final = frozenset({"body", "headers", "properties"})
PROPERTIES: Final = {
    "content_type": message.CONTENT_TYPE,
    "priority": message.PRIORITY,
    "correlation_id": message.CORRELATION_ID,
    "reply_to": message.REPLY_TO,
    "message_id": message.MESSAGE_ID,
    "timestamp": message.TIMESTAMP,
    "type": message.TYPE,
    "app_id": message.APP_ID,
}
"""What may be changed. The others are the broker's, or say how the body is packed or how long it may live."""
_COPYING: Final = frozenset({"CC", "BCC"})
_BROKERS: Final = frozenset({names.X_DEATH, *names.DEATH_SUMMARY, *names.DELIVERY_COUNTS})
_EDITED: Final = names.EDITED.encode()
_NULL: Final = exact_json.read("null")
_pack_u16: Final = Struct(">H").pack
_pack_u32: Final = Struct(">I").pack


class BodyForm(Enum):
    """How a body is shown."""

    JSON = "json"
    TEXT = "text"
    CLOSED = "closed"
    """Not at all: `null` stands for it, and it cannot be changed."""


@dataclass(slots=True, kw_only=True)
class Editable:
    """A letter and what is shown of it. `letter`: the one inside, where it was wrapped."""

    letter: Letter
    form: BodyForm
    text: str
    """The body unpacked; empty where it is closed."""
    closed: str
    """Why it is closed."""
    packed: bool
    """The body is gzip on the wire."""
    body: Node
    """As it is shown, in a text of its own;"""
    rest: Node
    """headers and properties, in another."""
    _document: Node | None = None

    @property
    def shown(self) -> str:
        """What a program gets, as JSON."""
        return f'{{"body":{self.body.written},{self.rest.written[1:]}'

    @property
    def document(self) -> Node:
        """The same, read."""
        if self._document is None:
            self._document = exact_json.read(self.shown)
        return self._document

    @property
    def inexact(self) -> dict[Decimal, Decimal]:
        """Its numbers that jq cannot count with: `inexact_numbers`."""
        return {**inexact_numbers.neighbours(self.body), **inexact_numbers.neighbours(self.rest)}

    @property
    def probe(self) -> str | None:
        """A document to be asked about as well: `inexact_numbers`. None: there is no need."""
        others = self.inexact
        return inexact_numbers.replaced(self.document, others) if others else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Edited:
    """What became of it. Unchanged: the very same message."""

    message: RawMessage
    changed: bool


def is_locked(header: str) -> str | None:
    """Why a header cannot be changed; None: it can."""
    if header.startswith("deadletter-"):
        return "it is Deadletter's own"
    if header in _BROKERS:
        return "the broker writes it"
    if header in _COPYING:
        return "the broker makes a copy for each name in it"
    return None


# -- showing ---------------------------------------------------------------------------------------------
def editable(letter: Letter) -> Editable:
    """EditRefused: nothing of it can be read."""
    try:
        inner = unwrapped(letter)
        view = inner.view
        rest = {"headers": plain_table(inner.headers), "properties": plain_properties(view)}
    except MessageError as error:
        raise EditRefused(f"its properties cannot be read: {error}") from error
    try:
        return _opened(inner, view.content_encoding, exact_json.read(json.dumps(rest)))
    except NotJson as error:
        raise EditRefused(f"its headers cannot be shown: {error}") from error


def _opened(letter: Letter, encoding: str | None, rest: Node) -> Editable:
    packed = (encoding or "").strip().lower() in ("gzip", "x-gzip")

    def closed(why: str) -> Editable:
        return Editable(
            letter=letter, form=BodyForm.CLOSED, text="", closed=why, packed=packed, body=_NULL, rest=rest
        )

    body = letter.body
    if packed:
        try:
            body = _unpacked(body)
        except EditRefused as error:
            return closed(str(error))
    elif encoding and encoding.strip().lower() not in ("identity", "utf-8", "utf8", "ascii", "us-ascii"):
        return closed(f"its content-encoding {encoding!r} is none that can be unpacked")
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return closed("it is binary, neither JSON nor text")
    form = BodyForm.JSON
    try:
        node = exact_json.read(text)
    except NotJson as error:
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            form, node = BodyForm.TEXT, exact_json.read(json.dumps(text))
        else:
            return closed(f"it is JSON that is none by the standard: {error}")
    return Editable(letter=letter, form=form, text=text, closed="", packed=packed, body=node, rest=rest)


def _unpacked(body: bytes) -> bytes:
    reader = zlib.decompressobj(wbits=31)
    try:
        opened = reader.decompress(body, OPENED_BYTES + 1)
    except zlib.error as error:
        raise EditRefused(f"it says gzip and is none: {error}") from error
    if len(opened) > OPENED_BYTES:
        raise EditRefused(f"unpacked it is larger than {OPENED_BYTES:,} bytes")
    if not reader.eof or reader.unused_data:
        raise EditRefused("its gzip is cut off, or followed by something else")
    return opened


# -- changing --------------------------------------------------------------------------------------------
def edited(before: Editable, answer: str, *, by: str, probed: str | None = None) -> Edited:
    """The letter as the answer has it. `probed`: the answer about `before.probe`.

    `by`: who changed it, or which recipe. EditRefused: this letter cannot be changed so.
    """
    after = _read(answer)
    others = before.inexact
    if others and not exact_json.same(before.document, after):
        if probed is None:
            raise EditRefused(
                "its numbers are too large for jq, and whether it computes with them is unknown"
            )
        inexact_numbers.check_carried(after, _read(probed), others)
    return _changed(before, after, _body(before, after), by)


def edited_by_hand(before: Editable, rest: str, body: str, *, by: str) -> Edited:
    """As a person wrote it: headers and properties as one JSON object, and the body as a text of its own."""
    try:
        whole = exact_json.read(rest)
    except NotJson as error:
        raise EditRefused(f"headers and properties: {error}") from error
    if whole.kind is not JsonKind.OBJECT or whole.members.keys() != SHAPE - {"body"}:
        raise EditRefused('expected {"headers": {…}, "properties": {…}} and nothing else above the body')
    after = _read(f'{{"body":null,{whole.written.strip()[1:]}')
    return _changed(before, after, _body_by_hand(before, body), by)


def _read(answer: str) -> Node:
    try:
        after = exact_json.read(answer)
    except NotJson as error:
        raise EditRefused(f"the result is no JSON: {error}") from error
    if after.kind is not JsonKind.OBJECT or after.meaning.keys() != SHAPE:
        got = sorted(after.members) if after.kind is JsonKind.OBJECT else after.written[:60]
        raise EditRefused(f"expected an object with body, headers and properties, got {got}")
    for name in ("headers", "properties"):
        if not isinstance(after.meaning[name], dict):
            raise EditRefused(f".{name}: expected an object, got {after.members[name].node.written[:60]}")
    if (twice := exact_json.doubled(after)) is not None:
        raise EditRefused(f"{twice} is there twice")
    return after


def _changed(before: Editable, after: Node, body: bytes | None, by: str) -> Edited:
    raw = before.letter.message
    table = _headers(before, after)
    properties = _properties(before, after)
    if body is None and table is None and not properties:
        return Edited(message=raw, changed=False)
    if table is None:
        table = message.header_table(raw.properties)
    mark = field_table.entry(names.EDITED, by[:BY_CHARS])
    table = field_table.splice(table, remove=frozenset({_EDITED}), add=mark)
    told = _assembled(raw.properties, {**properties, HEADERS: _pack_u32(len(table)) + table})
    return Edited(message=RawMessage(told, raw.body if body is None else body), changed=True)


def _body(before: Editable, after: Node) -> bytes | None:
    """The new body; None: it is the old one."""
    if before.body.meaning == after.meaning["body"]:
        return None
    was, now = before.body, after.member("body")
    match before.form:
        case BodyForm.CLOSED:
            raise EditRefused(f"the body cannot be changed: {before.closed}")
        case BodyForm.TEXT:
            if now.kind is not JsonKind.STRING:
                raise EditRefused(f".body: it is no JSON, so a text is expected, got {now.written[:60]}")
            return _packed(before, str(now.value))
        case BodyForm.JSON:
            if (twice := exact_json.doubled(was, ".body")) is not None:
                raise EditRefused(
                    f"{twice} is there twice, and jq sees the last one only: edit this letter by hand"
                )
            return _packed(before, spliced_json.whole(was, now))


def _body_by_hand(before: Editable, body: str) -> bytes | None:
    if before.form is BodyForm.CLOSED:
        if body.strip():
            raise EditRefused(f"the body cannot be changed: {before.closed}")
        return None
    if body == before.text:
        return None
    if before.form is BodyForm.TEXT:
        return _packed(before, body)
    try:
        now = exact_json.read(body)
    except NotJson as error:
        raise EditRefused(f"the body was JSON and is none any more: {error}") from error
    was = before.body
    if exact_json.doubled(was) is None and exact_json.doubled(now) is None:
        return None if exact_json.same(was, now) else _packed(before, spliced_json.whole(was, now))
    return _packed(before, body)  # names twice: as it is written


def _packed(before: Editable, text: str) -> bytes:
    try:
        body = text.encode()
    except UnicodeEncodeError:
        raise EditRefused("the body: half a character (a lone surrogate) is no text") from None
    return gzip.compress(body, mtime=0) if before.packed else body


def _headers(before: Editable, after: Node) -> bytes | None:
    """The new header table; None: it is the old one."""
    if before.rest.meaning["headers"] == after.meaning["headers"]:
        return None
    was, now = before.rest.member("headers"), after.member("headers")
    for name in {**was.members, **now.members}:
        then, there = was.members.get(name), now.members.get(name)
        same = then is not None and there is not None and exact_json.same(then.node, there.node)
        if not same and (why := is_locked(name)) is not None:
            raise EditRefused(f"the header {name} cannot be changed: {why}")
    return typed_values.table(message.header_table(before.letter.message.properties), was, now, ".headers")


def _properties(before: Editable, after: Node) -> dict[int, bytes | None]:
    """The changed ones by their flag, encoded; None: it is gone."""
    if before.rest.meaning["properties"] == after.meaning["properties"]:
        return {}
    was, now = before.rest.member("properties"), after.member("properties")
    changed: dict[int, bytes | None] = {}
    for name in {**was.members, **now.members}:
        then, there = was.members.get(name), now.members.get(name)
        if then is not None and there is not None and exact_json.same(then.node, there.node):
            continue
        flag = PROPERTIES.get(name)
        if flag is None:
            raise EditRefused(f"the property {name} cannot be changed; these can: {', '.join(PROPERTIES)}")
        gone = there is None or (there.node.kind is JsonKind.WORD and there.node.value is None)
        changed[flag] = None if gone or there is None else _property(name, there.node)
    return changed


def _property(name: str, node: Node) -> bytes:
    path = f".properties.{name}"
    try:
        match name:
            case "priority":
                if not exact_json.is_integer(node) or not 0 <= int(node.written) <= 255:
                    raise EditRefused(f"{path}: expected 0 to 255, got {node.written[:60]}")
                return bytes((int(node.written),))
            case "timestamp":
                if exact_json.is_integer(node):
                    return field_table.encode_seconds(int(node.written))
                return field_table.encode_seconds(typed_values.iso_seconds(_text(node, path), path))
            case _:
                raw = _text(node, path).encode()
    except (MessageError, UnicodeEncodeError) as error:
        raise EditRefused(f"{path}: {error}") from error
    if len(raw) > 255:
        raise EditRefused(f"{path}: expected at most 255 bytes, got {len(raw)}")
    return bytes((len(raw),)) + raw


def _text(node: Node, path: str) -> str:
    if node.kind is not JsonKind.STRING:
        raise EditRefused(f"{path}: expected a text, got {node.written[:60]}")
    return str(node.value)


def _assembled(raw: bytes, changed: dict[int, bytes | None]) -> bytes:
    """The properties with these values; the values stand in the order of their flags."""
    where = spans(raw)
    flags = flags_of(raw)
    pieces: list[bytes] = []
    for flag in sorted({*where, *changed}, reverse=True):
        value = changed[flag] if flag in changed else raw[where[flag].start : where[flag].end]
        flags = flags & ~flag if value is None else flags | flag
        pieces.append(value or b"")
    return _pack_u16(flags) + b"".join(pieces)
