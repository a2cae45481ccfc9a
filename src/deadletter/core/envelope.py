"""What a move changes on a letter, and nothing else.

A moved letter keeps its body and its properties byte for byte, except:

- headers of ours are added: its id, where it was taken from, which publish moved it, how it first came;
- the broker's delivery counts come off (a later queue would take them for its own);
- on the way back to an origin the `x-death` family comes off too and its entries are kept under a name of
  ours (RabbitMQ 3.x reads them as a cycle and drops the letter); towards a parking place they stay;
- `expiration` is set aside (a letter must not expire in its new home), and so is a `user_id` that is not
  the connection's (the broker would close the channel);
- through the default exchange `CC` and `BCC` are set aside (each name in them would get a copy);
- delivery mode is persistent.

Everything is cut and joined as bytes. The only thing computed from the content is the id.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from hashlib import blake2b
from struct import Struct
from struct import error as StructError  # noqa: N812 -- a class under a module's lower-case name
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

from deadletter.core import names, table
from deadletter.core.message import (
    CONTENT_ENCODING,
    CONTENT_TYPE,
    DELIVERY_MODE,
    EXPIRATION,
    HEADERS,
    USER_ID,
    Message,
    flags_of,
)
from deadletter.core.message import spans as spans_of
from deadletter.core.table import Value

_pack_u16: Final = Struct(">H").pack
_pack_u32: Final = Struct(">I").pack
_unpack_u32: Final = Struct(">I").unpack_from

MAX_DEATHS_BYTES: Final = 16 * 1024
"""What is kept of `x-death` entries over many trips; the oldest go first."""


class Deaths(Enum):
    """What happens to the broker's `x-death` family."""

    KEEP = "keep"
    """Towards a parking place: whoever looks there wants to see it."""
    SET_ASIDE = "set aside"
    """Towards a queue that may let the letter die again."""


class Address(NamedTuple):
    """Exchange and routing key, as bytes on the wire."""

    exchange: bytes
    routing_key: bytes


_ID: Final = names.ID.encode()
_MOVE: Final = names.MOVE.encode()
_SOURCE: Final = names.SOURCE.encode()
_EXCHANGE: Final = names.EXCHANGE.encode()
_ROUTING_KEY: Final = names.ROUTING_KEY.encode()
_DEATHS: Final = names.DEATHS.encode()
_X_DEATH: Final = names.X_DEATH.encode()
_VOLATILE: Final = frozenset(name.encode() for name in names.DELIVERY_COUNTS)
_SUMMARY: Final = frozenset(name.encode() for name in names.DEATH_SUMMARY)
_COPIES: Final = {b"CC": names.CC.encode(), b"BCC": names.BCC.encode()}

_ALWAYS: Final = _VOLATILE | {_ID, _MOVE, _SOURCE, _EXCHANGE, _ROUTING_KEY}
_TOUCHED: Final = {
    (deaths, default): _ALWAYS
    | (frozenset(_COPIES) if default else frozenset())
    | (_SUMMARY | {_X_DEATH, _DEATHS} if deaths is Deaths.SET_ASIDE else frozenset())
    for deaths in Deaths
    for default in (False, True)
}

_PERSISTENT: Final = b"\x02"
_ADDED_FLAGS: Final = HEADERS | DELIVERY_MODE
_SET_ASIDE_FLAGS: Final = EXPIRATION | USER_ID
_NOTHING: Final[Mapping[str, Value]] = MappingProxyType({})
_DROPPED: Final = _SUMMARY | {_MOVE, _SOURCE}
"""Told again, by the entries of `x-death` or by this move."""
_CAME_BY: Final = frozenset({_EXCHANGE, _ROUTING_KEY})
_ARRAY: Final = ord("A")


def _prefix(name: bytes, kind: bytes) -> bytes:
    return bytes((len(name),)) + name + kind


_ID_PREFIX: Final = _prefix(_ID, b"S") + _pack_u32(32)
_ID_FORM: Final = re.compile(rb"S\x00\x00\x00\x20[0-9a-f]{32}")
_IS_ID: Final = _ID_FORM.fullmatch
_MOVE_PREFIX: Final = _prefix(_MOVE, b"S")
_EXCHANGE_PREFIX: Final = _prefix(_EXCHANGE, b"S")
_KEY_PREFIX: Final = _prefix(_ROUTING_KEY, b"S")
_DEATHS_PREFIX: Final = _prefix(_DEATHS, b"A")


def letter_id(message: Message, *, source: str) -> str:
    """The id of a letter: the one it carries, else one derived from all that does not change on redelivery.

    The same letter taken twice from the same queue has the same id. Two letters equal in every byte do
    too; an id alone never merges letters.
    """
    parts = _take_apart(message.properties)
    found = _sort(parts[2], table.find(parts[2], _ALWAYS))
    return (found.id or _derive(message, parts, found.volatile, _hasher(source))).decode()


def delivery_count(properties: bytes) -> int:
    """How often the broker says it tried to deliver this letter before; 0 where it does not count."""
    headers = _headers_of(properties)
    for entry in table.find(headers, frozenset({names.X_DELIVERY_COUNT.encode()})):
        value = table.decode_value(headers[entry[2] : entry[3]])
        if isinstance(value, int):
            return value
    return 0


def move_number(properties: bytes, run: str) -> int | None:
    """Which publish of this run a returned message is; None when it is none of this run."""
    headers = _headers_of(properties)
    for entry in table.find(headers, frozenset({_MOVE})):
        value = table.decode_value(headers[entry[2] : entry[3]])
        if isinstance(value, str) and value.startswith(run + "-"):
            number = value[len(run) + 1 :]
            return int(number) if number.isdecimal() else None
    return None


class Route:
    """The way from one queue to one target: everything that is the same for each letter, computed once.

    `run` names the run, `source` the queue the letters come from, `user` the user of the connection that
    publishes; `add` are headers of the caller's, which replace those of the same name.
    """

    __slots__ = ("_constant", "_hasher", "_move", "_source", "_touched", "_user")

    def __init__(
        self,
        *,
        run: str,
        source: str,
        user: str,
        target: Address,
        deaths: Deaths,
        add: Mapping[str, Value] = _NOTHING,
    ) -> None:
        self._source = source
        self._user = user.encode()
        self._touched = _TOUCHED[deaths, not target.exchange] | {name.encode() for name in add}
        self._constant = table.entry(names.SOURCE, source) + table.encode(add)
        self._move = run.encode() + b"-%d"
        self._hasher = _hasher(source)

    def properties(self, message: Message, *, came_by: Address, number: int) -> bytes:
        """The properties with which this letter goes. This is the loop of the safe move.

        Raises MessageError when the properties are not what AMQP says they are.
        """
        parts = flags, before, headers, _, rest = _take_apart(message.properties)
        touched = table.find(headers, self._touched)
        found = _sort(headers, touched) if touched else _UNTOUCHED
        move = self._move % number
        pieces = [
            b"",  # becomes the flags and everything before the table, when its length is known
            table.cut(headers, touched),
            self._constant,
            found.came_by or _came_by(came_by),
            _MOVE_PREFIX,
            _pack_u32(len(move)),
            move,
            _ID_PREFIX,
            found.id or _derive(message, parts, found.volatile, self._hasher),
            found.aside,
        ]
        if flags & _SET_ASIDE_FLAGS:
            flags, rest = _set_aside_properties(flags, rest, self._user, pieces)
        length = sum(map(len, pieces))
        pieces[0] = _pack_u16(flags | _ADDED_FLAGS) + before + _pack_u32(length)
        pieces += (_PERSISTENT, rest)
        return b"".join(pieces)


_Parts: TypeAlias = tuple[int, bytes, bytes, bytes, bytes]
"""Flags, what stands before the header table, the table, the delivery mode, and what follows it."""


def _take_apart(raw: bytes) -> _Parts:
    flags = flags_of(raw)
    headers = mode = b""
    position = 2
    try:
        if flags & CONTENT_TYPE:
            position += 1 + raw[position]
        if flags & CONTENT_ENCODING:
            position += 1 + raw[position]
        before = raw[2:position]
        if flags & HEADERS:
            end = position + 4 + int(_unpack_u32(raw, position)[0])
            headers = raw[position + 4 : end]
            position = end
        if flags & DELIVERY_MODE:
            mode = raw[position : position + 1]
            position += 1
    except (IndexError, StructError):
        spans_of(raw)  # raises, and says what is wrong
        raise
    if position > len(raw):
        spans_of(raw)
    return flags, before, headers, mode, raw[position:]


def _headers_of(properties: bytes) -> bytes:
    return _take_apart(properties)[2]


def _hasher(source: str) -> blake2b:
    return blake2b(source.encode() + b"\0", digest_size=16)


class _Found(NamedTuple):
    """What stood in the entries that a move touches."""

    id: bytes
    came_by: bytes
    aside: bytes
    """Entries that go on under a name of ours, their values as they came."""
    volatile: list[table.Entry]


_UNTOUCHED: Final = _Found(b"", b"", b"", [])


def _sort(headers: bytes, touched: list[table.Entry]) -> _Found:
    identity = came_by = aside = newer = older = b""
    volatile: list[table.Entry] = []
    for entry in touched:
        name, at, start, end = entry
        if name in _DROPPED:
            continue
        if name == _X_DEATH:
            newer += _elements(headers, start, end)
        elif name == _DEATHS:
            older += _elements(headers, start, end)
        elif name in _VOLATILE:
            volatile.append(entry)
        elif name in _CAME_BY:
            came_by += headers[at:end]  # what an earlier move wrote is kept, it knew better
        elif name in _COPIES:
            aside += table.raw_entry(_COPIES[name], headers[start:end])
        elif name == _ID and _IS_ID(headers, start, end):
            # An id is 32 hexadecimal digits; whatever else stands there is not one of ours.
            identity = headers[start + 5 : end]
    if newer or older:
        deaths = newer + older
        if len(deaths) > MAX_DEATHS_BYTES:
            deaths = _newest(deaths)
        aside += _DEATHS_PREFIX + _pack_u32(len(deaths)) + deaths
    return _Found(identity, came_by, aside, volatile)


def _elements(headers: bytes, start: int, end: int) -> bytes:
    # What is not an array was not written by a broker; it is kept as an element of one.
    return headers[start + 5 : end] if headers[start] == _ARRAY else headers[start:end]


def _derive(message: Message, parts: _Parts, volatile: list[table.Entry], hasher: blake2b) -> bytes:
    digest = hasher.copy()
    if volatile:
        # The counts change with every delivery and would give the two copies of a crash different ids.
        digest.update(_with_headers(parts, table.cut(parts[2], volatile)))
    else:
        digest.update(message.properties)
    digest.update(message.body)
    return digest.hexdigest().encode()


def _with_headers(parts: _Parts, headers: bytes) -> bytes:
    """The properties with another header table; the same bytes as before when the table is the same."""
    flags, before, _, mode, rest = parts
    length = _pack_u32(len(headers)) if headers else b""
    # A table that holds nothing but the counts is not there at all on the first delivery.
    flags = flags if headers else flags & ~HEADERS
    return b"".join((_pack_u16(flags), before, length, headers, mode, rest))


def _came_by(address: Address) -> bytes:
    exchange, routing_key = address
    return b"".join(
        (
            _EXCHANGE_PREFIX,
            _pack_u32(len(exchange)),
            exchange,
            _KEY_PREFIX,
            _pack_u32(len(routing_key)),
            routing_key,
        )
    )


def _newest(deaths: bytes) -> bytes:
    kept: list[bytes] = []
    room = MAX_DEATHS_BYTES
    for element in table.elements(deaths):
        room -= len(element)
        if room < 0 and kept:
            break
        kept.append(element)
    return b"".join(kept)


def _set_aside_properties(flags: int, rest: bytes, user: bytes, pieces: list[bytes]) -> tuple[int, bytes]:
    """Cut `expiration` and a foreign `user_id` out of what follows the delivery mode."""
    tail = flags & ~(CONTENT_TYPE | CONTENT_ENCODING | HEADERS | DELIVERY_MODE)
    raw = _pack_u16(tail) + rest
    where = spans_of(raw)
    kept, position = [], 2
    if (span := where.get(EXPIRATION)) is not None:
        pieces.append(_text_entry(names.EXPIRATION, raw[span.start + 1 : span.end]))
        kept.append(raw[position : span.start])
        position = span.end
        flags &= ~EXPIRATION
    if (span := where.get(USER_ID)) is not None and (found := raw[span.start + 1 : span.end]) != user:
        pieces.append(_text_entry(names.USER_ID, found))
        kept.append(raw[position : span.start])
        position = span.end
        flags &= ~USER_ID
    kept.append(raw[position:])
    return flags, b"".join(kept)


def _text_entry(name: str, value: bytes) -> bytes:
    return table.raw_entry(name.encode(), b"S" + _pack_u32(len(value)) + value)
