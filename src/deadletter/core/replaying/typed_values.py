"""A changed header as AMQP has it: its type stays the one it had, wherever the new value fits into it.

JSON knows one kind of number and no times or bytes; a consumer may look at the type. So a value that changed
is written with the type that stood there, an integer in its width; where it does not fit, in the type that a
new header would get; and what is in a table or an array and did not change stays byte for byte.
"""

from __future__ import annotations

import base64
import binascii
import math
from datetime import UTC, datetime
from decimal import Decimal
from struct import Struct
from struct import error as StructError  # noqa: N812 -- a class under a module's lower-case name
from typing import Final

from deadletter.core.letter import field_table
from deadletter.core.letter.field_table import Entry
from deadletter.core.replaying.exact_json import JsonKind, Node, is_integer, same
from deadletter.core.replaying.spliced_json import aligned
from deadletter.errors import EditRefused, MessageError

_INTEGERS: Final = {kind: Struct(">" + code) for kind, code in zip("bBsUuIilL", "bBhhHiIqq", strict=True)}
_SINGLE: Final = Struct(">f")
_pack_u32: Final = Struct(">I").pack
_BYTES: Final = "base64"


def retyped(raw: bytes | None, before: Node | None, after: Node, path: str) -> bytes:
    """The typed value of `after`. `raw`, `before`: what stood there, as bytes and as JSON told it.

    EditRefused: AMQP has no such value, or it is none of the kind that stood there.
    """
    if raw is not None and before is not None and same(before, after):
        return raw
    kind = "" if raw is None else chr(raw[0])
    try:
        match after.kind:
            case JsonKind.NUMBER:
                return _number(kind, after, path)
            case JsonKind.WORD:
                assert after.value is None or isinstance(after.value, bool)
                return field_table.encode_value(after.value)
            case JsonKind.STRING:
                return _text(kind, str(after.value), path)
            case JsonKind.ARRAY:
                return _array(raw if kind == "A" else None, before, after, path)
            case JsonKind.OBJECT:
                if kind != "F" and after.members.keys() == {_BYTES}:
                    return _sized("S" if kind == "S" else "x", _unbased(after.members[_BYTES].node, path))
                return _sized("F", table(raw[5:] if raw and kind == "F" else b"", before, after, path))
    except MessageError as error:
        raise EditRefused(f"{path}: {error}") from error


def table(raw: bytes, before: Node | None, after: Node, path: str) -> bytes:
    """The entries of a table after a change: what stayed where it was, what is new at the end."""
    was = before.members if before is not None else {}
    found = field_table.walk(raw)
    named = [(_name(entry), entry) for entry in found]
    names = [name for name, _ in named]
    pieces: list[bytes] = []
    for name, entry in named:
        raw_name, start, value, end = entry
        then, now = was.get(name), after.members.get(name)
        unchanged = then is not None and now is not None and same(then.node, now.node)
        if unchanged:
            pieces.append(raw[start:end])
            continue
        if names.count(name) > 1:
            raise EditRefused(
                f"{path}.{name}: the letter has several headers of this name; none can be changed"
            )
        if now is not None:
            old = None if then is None else then.node
            pieces.append(
                field_table.raw_entry(raw_name, retyped(raw[value:end], old, now.node, f"{path}.{name}"))
            )
    for name, member in after.members.items():
        if name not in names:
            value_bytes = retyped(None, None, member.node, f"{path}.{name}")
            try:
                pieces.append(field_table.raw_entry(name.encode(), value_bytes))
            except (MessageError, UnicodeEncodeError) as error:
                raise EditRefused(f"{path}: {error}") from error
    return b"".join(pieces)


def iso_seconds(text: str, path: str) -> int:
    """A time as AMQP has it: seconds since 1970."""
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise EditRefused(
            f"{path}: expected a time such as 2025-06-01T12:00:00+00:00, got {text[:60]!r}"
        ) from None
    at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
    if at.microsecond:
        raise EditRefused(f"{path}: AMQP has times in whole seconds, got {text[:60]!r}")
    return int(at.timestamp())


def _name(entry: Entry) -> str:
    return entry[0].decode("utf-8", "backslashreplace")


def _number(kind: str, node: Node, path: str) -> bytes:
    assert isinstance(node.value, Decimal)
    if kind == "T" and is_integer(node):
        return b"T" + field_table.encode_seconds(int(node.written))
    if kind == "D":
        return field_table.encode_value(node.value)
    if is_integer(node) and kind not in ("f", "d"):
        if (width := _INTEGERS.get(kind)) is not None:
            try:
                return kind.encode() + width.pack(int(node.written))
            except StructError:
                pass  # wider than what stood there
        return field_table.encode_value(int(node.written))
    near = float(node.value)
    if not math.isfinite(near) or Decimal(repr(near)) != node.value:
        raise EditRefused(f"{path}: no AMQP number holds {node.written[:60]} exactly")
    if kind == "f":
        try:
            packed = _SINGLE.pack(near)
        except OverflowError:
            packed = b""
        if packed and _SINGLE.unpack(packed)[0] == near:
            return b"f" + packed
    return field_table.encode_value(near)


def _text(kind: str, text: str, path: str) -> bytes:
    if kind == "T":
        return b"T" + field_table.encode_seconds(iso_seconds(text, path))
    if kind == "D":
        try:
            return field_table.encode_value(Decimal(text))
        except ArithmeticError:
            raise EditRefused(f"{path}: expected a decimal number, got {text[:60]!r}") from None
    if kind in ("f", "d") and text in ("nan", "inf", "-inf"):
        return field_table.encode_value(float(text))
    try:
        return _sized("S", text.encode())
    except UnicodeEncodeError:
        raise EditRefused(f"{path}: half a character (a lone surrogate) is no text") from None


def _array(raw: bytes | None, before: Node | None, after: Node, path: str) -> bytes:
    old = field_table.elements(raw[5:]) if raw is not None else []
    places: list[int | None] = [None] * len(after.elements)
    if raw is not None and before is not None:
        places = aligned(before, after)
    made = [
        retyped(
            None if place is None else old[place],
            None if place is None or before is None else before.elements[place],
            element,
            f"{path}[{number}]",
        )
        for number, (element, place) in enumerate(zip(after.elements, places, strict=True))
    ]
    return _sized("A", b"".join(made))


def _unbased(node: Node, path: str) -> bytes:
    try:
        return (
            base64.b64decode(str(node.value), validate=True)
            if node.kind is JsonKind.STRING
            else _no_base64(path)
        )
    except (binascii.Error, ValueError):
        return _no_base64(path)


def _no_base64(path: str) -> bytes:
    raise EditRefused(f"{path}: expected bytes as base64")


def _sized(kind: str, content: bytes) -> bytes:
    return kind.encode() + _pack_u32(len(content)) + content
