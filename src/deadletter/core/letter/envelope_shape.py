"""Letters of one build: what a move does to the properties of one, it does to all of them in few steps.

Most letters of a queue differ in what their properties hold, not in how they are built (`property_build`).
Where the parts of such a letter stand is found out once, by walking one (`envelope`). Of another one of that
build they are cut out where they are known to be. A letter that is built in another way is walked as ever:
what comes out is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final, NamedTuple

from deadletter.core.letter import field_table
from deadletter.core.letter.deaths_aside import MAX_DEATHS_BYTES
from deadletter.core.letter.field_table import Entry
from deadletter.core.letter.message import DELIVERY_MODE, HEADERS
from deadletter.core.letter.property_build import Cut, PropertyBuild, build_of, cutter

_ARRAY: Final = ord("A")
_pack_u16: Final = Struct(">H").pack
_pack_u32: Final = Struct(">I").pack


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvelopeShape:
    """How the letters of one build are taken apart; positions are those in their properties."""

    build: PropertyBuild
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
    return EnvelopeShape(
        build=build_of(properties),
        flags=_pack_u16(new_flags),
        before_end=before_end,
        rest_start=rest,
        kept=cutter(kept),
        size=_size(kept) + len(aside) + deaths_bytes + added_bytes,
        id_at=0 if told.identity is None else table + told.identity[2] + 5,
        came_by=cutter([slice(table + entry[1], table + entry[3]) for entry in told.came_by])
        if told.came_by
        else None,
        aside=aside,
        deaths=cutter(deaths),
        steady_start=_pack_u16(told.flags & ~HEADERS) + _pack_u32(steady_bytes),
        steady=cutter(
            [
                slice(2, before_end),
                *(slice(table + entry[1], table + entry[3]) for entry in steady),
                slice(mode, None),
            ]
        ),
    )


def _size(parts: Sequence[slice]) -> int:
    return sum(part.stop - part.start for part in parts)


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
