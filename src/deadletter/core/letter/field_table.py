"""AMQP field tables as bytes: walk them, cut entries out, add entries, and only when asked, decode.

A letter's header table is its history, written by programs we do not know in types we may not have. What
is not ours is therefore never decoded and encoded again: `walk` finds where each entry begins and ends by
its length alone (nested tables and arrays are skipped, not entered), and `cut` joins what remains. The
cost grows with the number of entries, not with what is in them.

Tables here are the bytes *after* the four-byte length. Types are those RabbitMQ reads, which differ from
the published grammar in places: `s` is a 16-bit integer, not a short string.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from struct import Struct
from struct import error as StructError  # noqa: N812 -- a class under a module's lower-case name
from typing import Final, TypeAlias

from deadletter.core.letter.key_bytes import as_bytes
from deadletter.errors import MessageError

Value: TypeAlias = (
    "str | bytes | bool | int | float | Decimal | datetime | Sequence[Value] | Mapping[str, Value] | None"
)

_U32: Final = Struct(">I")
_unpack_u32: Final = _U32.unpack_from
_type_and_length: Final = Struct(">BI").unpack_from
_DECIMAL: Final = Struct(">BI")

_FIXED_BYTES: Final[dict[int, int]] = {
    ord(kind): size
    for kinds, size in (("V", 0), ("tbB", 1), ("suU", 2), ("Iif", 4), ("D", 5), ("lLdT", 8))
    for kind in kinds
}
_SIZED: Final = frozenset(b"SxFA")
_TEXT: Final = ord("S")
_NUMBERS: Final[dict[int, Struct]] = {
    ord(kind): Struct(">" + code) for kind, code in zip("bBsUuIilLfd", "bBhhHiIqqfd", strict=True)
}

_FIXED_NUMBERS: Final = {kind: (number.unpack_from, 1 + number.size) for kind, number in _NUMBERS.items()}

MAX_DEPTH: Final = 32
"""Tables in tables deeper than this are refused when decoding; walking does not mind them."""
MAX_TABLE_BYTES: Final = 2**32 - 1


Entry: TypeAlias = tuple[bytes, int, int, int]
"""Where one entry of a table stands: its name, the byte it begins at, the byte of its value's type, and the
byte after it. A plain tuple: the safe move makes ten of them per letter."""


def walk(table: bytes) -> list[Entry]:
    """Every entry of a table, in order, without decoding one value."""
    found: list[Entry] = []
    position, size = 0, len(table)
    while position < size:
        value = position + 1 + table[position]
        end = skip(table, value)
        found.append((table[position + 1 : value], position, value, end))
        position = end
    return found


def find(table: bytes, names: frozenset[bytes]) -> list[Entry]:
    """The entries with one of these names, in order. The safe move's loop: `walk` and `skip` in one."""
    found: list[Entry] = []
    position, value, size = 0, 0, len(table)
    try:
        while position < size:
            value = position + 1 + table[position]
            kind = table[value]
            if kind in _SIZED:
                end = value + 5 + _unpack_u32(table, value + 1)[0]
            else:
                end = value + 1 + _FIXED_BYTES[kind]
            if (name := table[position + 1 : value]) in names:
                found.append((name, position, value, end))
            position = end
    except (IndexError, KeyError, StructError):
        skip(table, value)  # raises, and says what is wrong
        raise
    if position > size:
        raise MessageError(f"the last header value reaches {position - size} bytes past its table")
    return found


def pieces(table: bytes) -> list[bytes]:
    """The entries of a table, each still encoded. Like `find`, on the safe move's way."""
    found: list[bytes] = []
    position, value, size = 0, 0, len(table)
    try:
        while position < size:
            value = position + 1 + table[position]
            kind = table[value]
            if kind in _SIZED:
                end = value + 5 + _unpack_u32(table, value + 1)[0]
            else:
                end = value + 1 + _FIXED_BYTES[kind]
            found.append(table[position:end])
            position = end
    except (IndexError, KeyError, StructError):
        skip(table, value)  # raises, and says what is wrong
        raise
    return found


def skip(raw: bytes, position: int) -> int:
    """The position after the typed value that stands at `position`."""
    if position >= len(raw):
        raise MessageError(f"a header table ends where a value should begin (byte {position})")
    kind = raw[position]
    if kind in _SIZED:
        if position + 5 > len(raw):
            raise MessageError(f"a header value's length is cut off (byte {position})")
        end = position + 5 + int(_unpack_u32(raw, position + 1)[0])
    elif (fixed := _FIXED_BYTES.get(kind)) is not None:
        end = position + 1 + fixed
    else:
        raise MessageError(f"unknown header value type {bytes([kind])!r} (byte {position})")
    if end > len(raw):
        raise MessageError(f"a header value reaches {end - len(raw)} bytes past its table (byte {position})")
    return end


def cut(table: bytes, entries: Sequence[Entry]) -> bytes:
    """The table without these entries (given in the order in which they stand), all others untouched."""
    if not entries:
        return table
    pieces: list[bytes] = []
    position = 0
    for _, start, _, end in entries:
        if start > position:
            pieces.append(table[position:start])
        position = end
    pieces.append(table[position:])
    return b"".join(pieces)


def splice(table: bytes, *, remove: frozenset[bytes], add: bytes = b"") -> bytes:
    """The table without the entries named in `remove`, and with the encoded entries of `add` at its end."""
    return cut(table, [entry for entry in walk(table) if entry[0] in remove]) + add


def elements(array: bytes) -> list[bytes]:
    """The typed values of an array (its bytes after the length), each still encoded."""
    found: list[bytes] = []
    position = 0
    while position < len(array):
        end = skip(array, position)
        found.append(array[position:end])
        position = end
    return found


def raw_entry(name: bytes, value: bytes) -> bytes:
    """An entry from its name and a typed value that is already encoded."""
    if len(name) > 255:
        raise MessageError(f"a header name has at most 255 bytes; this one has {len(name)}: {name[:40]!r}…")
    return bytes((len(name),)) + name + value


def entry(name: str, value: Value) -> bytes:
    """An entry from its name and a Python value."""
    return raw_entry(name.encode(), encode_value(value))


def encode(table: Mapping[str, Value]) -> bytes:
    """A whole table from Python values."""
    return b"".join(entry(name, value) for name, value in table.items())


def encode_value(value: Value) -> bytes:
    """One typed value from a Python value: text as `S`, integers as `l`, the rest by their own type."""
    match value:
        case str():
            return _sized(b"S", as_bytes(value))
        case bool():
            return b"t\x01" if value else b"t\x00"
        case int():
            if not -(2**63) <= value < 2**63:
                raise MessageError(f"a header integer has at most 64 bits; this one is {value}")
            return b"l" + value.to_bytes(8, "big", signed=True)
        case bytes():
            return _sized(b"x", value)
        case float():
            return b"d" + _NUMBERS[ord("d")].pack(value)
        case Decimal():
            return _encode_decimal(value)
        case datetime():
            return b"T" + encode_seconds(int(value.timestamp()))
        case None:
            return b"V"
        case Mapping():
            return _sized(b"F", encode(value))
        case _:
            return _sized(b"A", b"".join(encode_value(element) for element in value))


def encode_seconds(seconds: int) -> bytes:
    """A timestamp: seconds since 1970, no sign, 64 bits."""
    if not 0 <= seconds < 2**64:
        raise MessageError(f"AMQP has no time before 1970 or after 2^64 seconds; this one is {seconds} s")
    return seconds.to_bytes(8, "big")


def _sized(kind: bytes, content: bytes) -> bytes:
    return kind + _U32.pack(len(content)) + content


def _encode_decimal(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int) or exponent > 0 or exponent < -255 or sign:
        raise MessageError(f"AMQP has decimals of at most 255 places and no sign; this one is {value}")
    unscaled = int("".join(map(str, digits)))
    if unscaled > MAX_TABLE_BYTES:
        raise MessageError(f"an AMQP decimal has at most 32 bits; this one is {value}")
    return b"D" + _DECIMAL.pack(-exponent, unscaled)


def decode(table: bytes) -> dict[str, Value]:
    """Everything in a table as Python values. For people and for rules, never on the way to a broker.

    Text that is not UTF-8 comes as `bytes`; a name that is not comes with its odd bytes escaped.
    """
    return _decode_table(table, MAX_DEPTH)


def decode_value(raw: bytes) -> Value:
    """One typed value as a Python value."""
    return _decode_value(raw, 0, skip(raw, 0), MAX_DEPTH)


def _decode_table(table: bytes, depth: int) -> dict[str, Value]:
    if depth == 0:
        raise MessageError(f"a header table is nested deeper than {MAX_DEPTH} levels")
    found: dict[str, Value] = {}
    position, size = 0, len(table)
    while position < size:
        start = position + 1 + table[position]
        raw = table[position + 1 : start]
        name = _known_names.get(raw)
        if name is None:
            name = raw.decode("utf-8", "backslashreplace")
            if len(_known_names) < _KNOWN_NAMES:
                _known_names[raw] = name
        # Nearly all are text or a number, and whole: those in one go.
        if start + 5 <= size:
            kind, length = _type_and_length(table, start)
            if kind == _TEXT:
                if (end := start + 5 + length) <= size:
                    try:
                        found[name] = table[start + 5 : end].decode()
                    except UnicodeDecodeError:
                        found[name] = table[start + 5 : end]
                    position = end
                    continue
            elif (number := _FIXED_NUMBERS.get(kind)) is not None and (end := start + number[1]) <= size:
                found[name] = number[0](table, start + 1)[0]
                position = end
                continue
        end = skip(table, start)
        found[name] = _decode_value(table, start, end, depth)
        position = end
    return found


_KNOWN_NAMES: Final = 1_000
_known_names: Final[dict[bytes, str]] = {}
"""The first names that came, by their bytes: letters name the same things again and again."""


def _decode_value(raw: bytes, start: int, end: int, depth: int) -> Value:
    kind = raw[start]
    if kind == _TEXT:  # nearly all of them
        content = raw[start + 5 : end]
        try:
            return content.decode()
        except UnicodeDecodeError:
            return content
    if (number := _NUMBERS.get(kind)) is not None:
        value: int | float = number.unpack_from(raw, start + 1)[0]
        return value
    match chr(kind):
        case "t":
            return raw[start + 1] != 0
        case "V":
            return None
        case "x":
            return raw[start + 5 : end]
        case "T":
            return _decode_timestamp(raw[start + 1 : end])
        case "D":
            places, unscaled = _DECIMAL.unpack_from(raw, start + 1)
            return Decimal(unscaled).scaleb(-places)
        case "F":
            return _decode_table(raw[start + 5 : end], depth - 1)
        case _:
            return _decode_elements(raw[start + 5 : end], depth - 1)


def _decode_elements(array: bytes, depth: int) -> list[Value]:
    if depth == 0:
        raise MessageError(f"a header array is nested deeper than {MAX_DEPTH} levels")
    found: list[Value] = []
    position, size = 0, len(array)
    while position < size:
        end = skip(array, position)
        found.append(_decode_value(array, position, end, depth))
        position = end
    return found


def _decode_timestamp(raw: bytes) -> Value:
    seconds = int.from_bytes(raw, "big")
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        # Some clients write milliseconds; such a number is beyond the year 9999. Shown as it is.
        return seconds
