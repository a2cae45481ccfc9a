"""How the properties of a letter are built, told apart from what they hold.

Most letters of a queue are built alike: the same flags, the same headers in the same order, each of the same
type and as long as its like. Whoever has walked one knows where everything stands in the next, as long as
every byte that says how it is built (flags, names, types, lengths) is the same; and that is one comparison of
two numbers. To find it out takes as long as ten walks, so it is done when several of one length have come
(`BuildsDue`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Final, NamedTuple, TypeAlias

from deadletter.core.letter import field_table
from deadletter.core.letter.envelope_parts import take_apart
from deadletter.core.letter.message import CONTENT_ENCODING, CONTENT_TYPE, HEADERS
from deadletter.core.letter.property_tail import tail_shape

LEARN_AFTER: Final = 8
"""So many letters of one length go before their build is learned: to learn it takes as long as ten walks."""
LEARN_AGAIN: Final = 1_024
"""After so many more that are built in another way, that one is learned instead."""
LENGTHS_MAX: Final = 128
"""So many lengths are counted, and of each at most one build is known."""

_SIZED: Final = frozenset(b"SxFA")
_NOTHING: Final = slice(0, 0)

Cut: TypeAlias = Callable[[bytes], tuple[bytes, ...]]
"""Several parts of the properties at once."""


class PropertyBuild(NamedTuple):
    """How the properties of one length are built; as numbers, because those are compared at once."""

    mask: int
    """Ones where a byte says how they are built."""
    told: int
    """What those bytes are."""

    def fits(self, properties: bytes) -> bool:
        """Whether these, as long as those that were learned from, are built like them."""
        return int.from_bytes(properties) & self.mask == self.told


class BuildsDue:
    """Counts letters by the length of their properties, and says when to learn from one."""

    __slots__ = ("_lengths",)

    def __init__(self) -> None:
        self._lengths: dict[int, int] = {}

    def is_due(self, size: int) -> bool:
        """One of this length came whose build is not known."""
        seen = self._lengths.get(size, 0) + 1
        if seen > 1 or len(self._lengths) < LENGTHS_MAX:
            self._lengths[size] = seen
        return seen % LEARN_AGAIN == LEARN_AFTER


def build_of(properties: bytes) -> PropertyBuild:
    """The build of these properties, which are whole."""
    flags, before, headers, mode, _ = take_apart(properties)
    mask = bytearray(len(properties))

    def tells(start: int, size: int) -> None:
        mask[start : start + size] = b"\xff" * size

    tells(0, 2)
    position = 2
    for flag in (CONTENT_TYPE, CONTENT_ENCODING):
        if flags & flag:
            tells(position, 1)
            position += 1 + properties[position]
    table = 2 + len(before)
    if flags & HEADERS:
        tells(table, 4)
        table += 4
    for _, start, value, _ in field_table.walk(headers):
        tells(table + start, value - start + (5 if headers[value] in _SIZED else 1))
    position = table + len(headers) + len(mode)
    for fixed in tail_shape(flags):
        if not fixed:
            tells(position, 1)
        position += fixed or 1 + properties[position]
    number = int.from_bytes(mask)
    return PropertyBuild(mask=number, told=int.from_bytes(properties) & number)


def cutter(parts: Sequence[slice]) -> Cut:
    """Cuts these parts out of properties."""
    # with two or more it gives a tuple, whatever they are
    return itemgetter(*parts, *(_NOTHING,) * max(0, 2 - len(parts)))
