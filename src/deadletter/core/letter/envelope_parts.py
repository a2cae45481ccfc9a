"""The properties of a letter taken apart for a move: the header table, what stands in the headers that a move
touches, and the id of a letter that carries none. Everything is cut as bytes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b
from struct import Struct
from struct import error as StructError  # noqa: N812 -- a class under a module's lower-case name
from typing import Final, NamedTuple, TypeAlias

from deadletter.core.letter import field_table, names, property_tail
from deadletter.core.letter.deaths_aside import entries_of, newest
from deadletter.core.letter.message import (
    CONTENT_ENCODING,
    CONTENT_TYPE,
    DELIVERY_MODE,
    EXPIRATION,
    HEADERS,
    USER_ID,
    RawMessage,
    flags_of,
)
from deadletter.core.letter.message import spans as spans_of

_pack_u16: Final = Struct(">H").pack
_pack_u32: Final = Struct(">I").pack
_unpack_u32: Final = Struct(">I").unpack_from

ID: Final = names.ID.encode()
MOVE: Final = names.MOVE.encode()
SOURCE: Final = names.SOURCE.encode()
EXCHANGE: Final = names.SOURCE_EXCHANGE.encode()
ROUTING_KEY: Final = names.SOURCE_ROUTING_KEY.encode()
DEATHS: Final = names.DEATHS.encode()
X_DEATH: Final = names.X_DEATH.encode()
VOLATILE: Final = frozenset(name.encode() for name in names.DELIVERY_COUNTS)
SUMMARY: Final = frozenset(name.encode() for name in names.DEATH_SUMMARY)
COPIES: Final = {b"CC": names.CC.encode(), b"BCC": names.BCC.encode()}

PRIORITY_HEADER: Final = names.PRIORITY.encode()
CC: Final = names.CC.encode()
ONCE: Final = frozenset(
    {property_tail.EXPIRATION_HEADER, property_tail.USER_ID_HEADER, PRIORITY_HEADER, *COPIES.values()}
)
TRANSIENT: Final = frozenset(
    name.encode() for name in (names.DUE_AT, names.RELEASED_AT, names.CAUSE, names.WHY, names.PARKED_AT)
)
"""They tell of the place a letter is in; it leaves them there."""
ALWAYS: Final = VOLATILE | ONCE | TRANSIENT | {ID, MOVE, SOURCE, EXCHANGE, ROUTING_KEY}
_CIRCLING: Final = VOLATILE | SUMMARY | {X_DEATH, b"CC"}
"""What changes on a letter that the broker itself sends round; 3.x takes the `CC` off."""

DROPPED: Final = SUMMARY | TRANSIENT | {MOVE, SOURCE}
"""Told again, by the entries of `x-death` or by this move."""
CAME_BY: Final = frozenset({EXCHANGE, ROUTING_KEY})
_IS_ID: Final = re.compile(rb"S\x00\x00\x00\x20[0-9a-f]{32}").fullmatch
SET_ASIDE_FLAGS: Final = EXPIRATION | USER_ID


def entry_prefix(name: bytes, kind: bytes) -> bytes:
    return bytes((len(name),)) + name + kind


DEATHS_PREFIX: Final = entry_prefix(DEATHS, b"A")

PropertyParts: TypeAlias = tuple[int, bytes, bytes, bytes, bytes]
"""Flags, what stands before the header table, the table, the delivery mode, and what follows it."""


def take_apart(raw: bytes) -> PropertyParts:
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


def checked_headers(properties: bytes) -> bytes:
    """The header table of properties that are whole: `message.header_table`, quicker."""
    flags, _, headers, _, rest = take_apart(properties)
    property_tail.check(flags, rest)
    return headers


def headers_of(properties: bytes) -> bytes:
    """The header table. Quick, and what follows it is not looked at: `message.header_table` does."""
    return take_apart(properties)[2]


def source_hasher(source: str) -> blake2b:
    return blake2b(source.encode() + b"\0", digest_size=16)


class TouchedHeaders(NamedTuple):
    """What stood in the entries that a move touches."""

    id: bytes
    came_by: bytes
    came_by_whole: bool
    aside: bytes
    """Deaths that go on under a name of ours, their values as they came."""
    kept: Mapping[bytes, bytes]
    """Whole entries of what is set aside once: a later one replaces an earlier one."""
    volatile: list[field_table.Entry]


UNTOUCHED: Final = TouchedHeaders(b"", b"", False, b"", {}, [])


def sort_touched(
    headers: bytes,
    touched: list[field_table.Entry],
    copies: Mapping[bytes, bytes],
    dropped: frozenset[bytes] = DROPPED,
) -> TouchedHeaders:
    identity = newer = older = aside = b""
    came_by: dict[bytes, bytes] = {}
    kept: dict[bytes, bytes] = {}
    fresh: dict[bytes, bytes] = {}
    volatile: list[field_table.Entry] = []
    for entry in touched:
        name, at, start, end = entry
        if name in dropped:
            continue
        if name == X_DEATH:
            newer += entries_of(headers, start, end)
        elif name == DEATHS:
            older += entries_of(headers, start, end)
        elif name in VOLATILE:
            volatile.append(entry)
        elif name in CAME_BY:
            came_by[name] = headers[at:end]  # what an earlier move wrote is kept, it knew better
        elif name in copies:
            fresh[copies[name]] = field_table.raw_entry(copies[name], headers[start:end])
        elif name in ONCE:
            kept[name] = headers[at:end]
        elif name == ID and _IS_ID(headers, start, end):
            # An id is 32 hexadecimal digits; whatever else stands there is not one of ours.
            identity = headers[start + 5 : end]
    if newer or older:
        deaths = newest(newer + older)
        aside = DEATHS_PREFIX + _pack_u32(len(deaths)) + deaths
    if fresh:
        kept |= fresh
    return TouchedHeaders(identity, b"".join(came_by.values()), len(came_by) == 2, aside, kept, volatile)


def derived_id(
    message: RawMessage,
    parts: PropertyParts,
    volatile: list[field_table.Entry],
    hasher: blake2b,
    circling: bool,
) -> bytes:
    """The id of a letter that carries none, from what is the same at each delivery.

    Delivery counts change, a table that holds nothing but them is not there the first time, and a quorum
    queue of 3.10 sorts the headers when it adds one; none of it may give the two copies of a crash different
    ids. The deaths do count: they tell one letter from another of the same content. Where a letter dies and
    comes back without us (`circling`) they may not, nor what the broker takes off when it dies.
    """
    flags, before, headers, mode, rest = parts
    if circling:
        volatile = field_table.find(headers, _CIRCLING)
        if flags & SET_ASIDE_FLAGS:
            flags, rest = property_tail.set_aside(flags, rest, b"", {})
    steady = b"".join(sorted(field_table.pieces(field_table.cut(headers, volatile))))
    digest = hasher.copy()
    # With the flags and the table's length every part says itself where it ends.
    start = _pack_u16(flags & ~HEADERS) + _pack_u32(len(steady))
    digest.update(b"".join((start, before, steady, mode, rest)))
    digest.update(message.body)
    return digest.hexdigest().encode()
