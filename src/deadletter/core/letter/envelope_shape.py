"""Letters of one build: what a move does to the properties of one, it does to all of them in few steps.

Most letters of a queue differ in what their properties hold, not in how they are built: the same flags, the
same headers in the same order, each of the same type and as long as its like. Where the parts of such a
letter stand is found out once, by walking one (`envelope`). Another one of that length is built alike when
every byte that says how it is built (flags, names, types, lengths) is the same; that is one comparison of
two numbers, and then its parts are cut out where they are known to be. A letter that is built in another way
is walked as ever: what comes out is the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from deadletter.core.letter import field_table
from deadletter.core.letter.deaths_aside import MAX_DEATHS_BYTES
from deadletter.core.letter.field_table import Entry
from deadletter.core.letter.message import CONTENT_ENCODING, CONTENT_TYPE, DELIVERY_MODE, HEADERS
from deadletter.core.letter.property_tail import tail_shape

LEARN_AFTER: Final = 8
"""So many letters of one length go before their build is learned: to learn it takes as long as ten walks."""
LEARN_AGAIN: Final = 1_024
"""After so many more that are built in another way, that one is learned instead."""
LENGTHS_MAX: Final = 128
"""So many lengths are counted, and of each at most one build is known."""

_SIZED: Final = frozenset(b"SxFA")
_ARRAY: Final = ord("A")
_NOTHING: Final = slice(0, 0)
_pack_u16: Final = Struct(">H").pack
_pack_u32: Final = Struct(">I").pack

Cut: TypeAlias = Callable[[bytes], tuple[bytes, ...]]
"""Several parts of the properties at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvelopeShape:
    """How the letters of one build are taken apart; positions are those in their properties."""

    mask: int
    """Ones where a byte says how a letter is built, as the number that its properties are."""
    build: int
    """What those bytes are."""
    flags: bytes
    """With which it goes on."""
    before_end: int
    """What stands between the flags and the header table ends here."""
    rest_start: int
    """What follows the delivery mode begins here."""
    kept: Cut
    """Headers that go on as they are."""
    size: int
    """How long the new table is without what differs from letter to letter."""
    id_at: int
    """Where its id stands; 0: it has none."""
    came_by: Cut | None
    """How it first came, told by headers of ours; None: they are not there."""
    aside: bytes
    """What deaths that go on begin with; empty: there are none."""
    deaths: Cut
    steady_start: bytes
    """What its content is told apart by begins with this, then these parts."""
    steady: Cut

    def fits(self, properties: bytes) -> bool:
        """Whether this letter, as long as the one that was learned from, is built like it."""
        return int.from_bytes(properties) & self.mask == self.build


class LearnedFrom(NamedTuple):
    """What walking a letter told: entries are those of its header table, in order."""

    flags: int
    before: bytes
    headers: bytes
    touched: Sequence[Entry]
    """Entries that do not go on as they are."""
    volatile: Sequence[Entry]
    """Those of them that change with each delivery."""
    identity: Entry | None
    came_by: Sequence[Entry]
    deaths: Sequence[Entry]
    """Deaths that go on under a name of ours, the newest first."""


def learn(
    properties: bytes, told: LearnedFrom, *, new_flags: int, aside_prefix: bytes, added_bytes: int
) -> EnvelopeShape | None:
    """The build of this letter; None where its parts cannot be told by it alone. `added_bytes`: how long the
    headers are that each letter gets, as far as they are always as long."""
    entries = field_table.walk(told.headers)
    if len({entry[0] for entry in entries}) != len(entries):
        return (
            None  # which of two of one name stands first in what tells letters apart is told by their values
        )
    before_end = 2 + len(told.before)
    table = before_end + (4 if told.flags & HEADERS else 0)
    mode = table + len(told.headers)
    rest = mode + (1 if told.flags & DELIVERY_MODE else 0)
    kept = _without(told.touched, len(told.headers), table)
    deaths = [_contents(told.headers, entry, table) for entry in told.deaths]
    deaths_bytes = _size(deaths)
    if deaths_bytes > MAX_DEATHS_BYTES:
        return None  # how many of them go on is told by each one's length
    aside = aside_prefix + _pack_u32(deaths_bytes) if deaths_bytes else b""
    volatile = {entry[1] for entry in told.volatile}
    steady = sorted(
        (entry for entry in entries if entry[1] not in volatile),
        key=lambda entry: told.headers[entry[1] : entry[3]],
    )
    steady_bytes = sum(end - start for _, start, _, end in steady)
    mask = _mask(properties, told, entries, table=table, rest=rest)
    return EnvelopeShape(
        mask=mask,
        build=int.from_bytes(properties) & mask,
        flags=_pack_u16(new_flags),
        before_end=before_end,
        rest_start=rest,
        kept=_cutter(kept),
        size=_size(kept) + len(aside) + deaths_bytes + added_bytes,
        id_at=0 if told.identity is None else table + told.identity[2] + 5,
        came_by=_cutter([slice(table + entry[1], table + entry[3]) for entry in told.came_by])
        if told.came_by
        else None,
        aside=aside,
        deaths=_cutter(deaths),
        steady_start=_pack_u16(told.flags & ~HEADERS) + _pack_u32(steady_bytes),
        steady=_cutter(
            [
                slice(2, before_end),
                *(slice(table + entry[1], table + entry[3]) for entry in steady),
                slice(mode, None),
            ]
        ),
    )


def _size(parts: Sequence[slice]) -> int:
    return sum(part.stop - part.start for part in parts)


def _cutter(parts: Sequence[slice]) -> Cut:
    # with two or more it gives a tuple, whatever they are
    return itemgetter(*parts, *(_NOTHING,) * max(0, 2 - len(parts)))


def _without(touched: Sequence[Entry], size: int, table: int) -> list[slice]:
    """What is left of the table, in runs."""
    runs: list[slice] = []
    position = 0
    for _, start, _, end in touched:
        if start > position:
            runs.append(slice(table + position, table + start))
        position = end
    if size > position:
        runs.append(slice(table + position, table + size))
    return runs


def _contents(headers: bytes, entry: Entry, table: int) -> slice:
    """The elements of an array; what is none is an element itself (`deaths_aside`)."""
    _, _, value, end = entry
    return slice(table + value + (5 if headers[value] == _ARRAY else 0), table + end)


def _mask(properties: bytes, told: LearnedFrom, entries: Sequence[Entry], *, table: int, rest: int) -> int:
    """Ones over every byte that says how these properties are built."""
    mask = bytearray(len(properties))

    def tells(start: int, size: int) -> None:
        mask[start : start + size] = b"\xff" * size

    tells(0, 2)
    position = 2
    for flag in (CONTENT_TYPE, CONTENT_ENCODING):
        if told.flags & flag:
            tells(position, 1)
            position += 1 + properties[position]
    if told.flags & HEADERS:
        tells(position, 4)
    for _, start, value, _ in entries:
        tells(table + start, value - start + (5 if told.headers[value] in _SIZED else 1))
    position = rest
    for fixed in tail_shape(told.flags):
        if not fixed:
            tells(position, 1)
        position += fixed or 1 + properties[position]
    return int.from_bytes(mask)
