"""The few headers that decide about letters, cut out of their properties as bytes.

Whoever decides about ten thousand letters a second looks at the same headers of each. Where letters are built
alike (`property_build`) those stand at the same places: they are cut out there, without walking the table. A
letter that is built in another way is walked; what comes out is the same. Letters that died together mostly
have the same entries, too, and nothing apart: then what was cut out of the last one is told again, as it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from deadletter.core.letter import field_table
from deadletter.core.letter.envelope_parts import take_apart
from deadletter.core.letter.field_table import Entry
from deadletter.core.letter.message import HEADERS
from deadletter.core.letter.property_build import BuildsDue, Cut, PropertyBuild, build_of, cutter
from deadletter.core.letter.property_tail import check


class CutHeaders(NamedTuple):
    """What was cut out of one letter."""

    together: bytes
    """Whole entries, names and all, in the order in which they stand."""
    apart: tuple[bytes, ...]
    """The values of the names in `apart`, typed, in that order; of several the last; empty where none is."""
    names: frozenset[bytes]
    """Of the entries in `together`."""
    build: PropertyBuild | None = None
    """How the properties are built; None where they were walked."""


_NOTHING_CUT: Final = CutHeaders(b"", (), frozenset())


@dataclass(slots=True, kw_only=True, eq=False)
class _Place:
    build: PropertyBuild
    together: Cut
    apart: Cut
    names: frozenset[bytes]
    same_mask: int
    """Ones over the build and over the entries in `together`: letters alike there have the same cut out."""
    unlike: bool
    """Something in `apart` is there, which is another in each letter."""
    told: int = -1
    """What stood under the mask in the last one that was cut; -1, which nothing is, before that."""
    cut: CutHeaders = _NOTHING_CUT
    """What was cut out of it."""


class ChosenHeaders:
    """Cuts entries with these names out of letters; of those in `apart` the value alone."""

    __slots__ = ("_apart", "_due", "_known", "_names")

    def __init__(self, names: frozenset[bytes], *, apart: Sequence[bytes] = ()) -> None:
        self._apart = tuple(apart)
        self._names = names.union(apart)
        self._known: dict[int, _Place] = {}
        """Where they stand in letters of one build, by the length of their properties."""
        self._due = BuildsDue()

    def of(self, properties: bytes) -> CutHeaders:
        """Raises MessageError when the properties are not what AMQP says they are."""
        size = len(properties)
        known = self._known.get(size)
        if known is not None:
            number = int.from_bytes(properties)
            told = number & known.same_mask
            if told == known.told:
                return known.cut
            if number & known.build.mask == known.build.told:
                entries = b"".join(known.together(properties))
                chosen = CutHeaders(entries, known.apart(properties), known.names, known.build)
                if not known.unlike:
                    known.told, known.cut = told, chosen
                return chosen
        flags, before, headers, _, rest = take_apart(properties)
        check(flags, rest)
        found = field_table.find(headers, self._names)
        if self._due.is_due(size):
            table = 2 + len(before) + (4 if flags & HEADERS else 0)
            self._known[size] = self._learned(properties, found, table)
        together = [entry for entry in found if entry[0] not in self._apart]
        values = {name: headers[value:end] for name, _, value, end in found}
        return CutHeaders(
            b"".join([headers[start:end] for _, start, _, end in together]),
            tuple([values.get(name, b"") for name in self._apart]),
            frozenset([entry[0] for entry in together]),
        )

    def _learned(self, properties: bytes, found: Sequence[Entry], table: int) -> _Place:
        runs: list[slice] = []
        for name, start, _, end in found:
            if name in self._apart:
                continue
            if runs and runs[-1].stop == table + start:
                runs[-1] = slice(runs[-1].start, table + end)
            else:
                runs.append(slice(table + start, table + end))
        values = {name: slice(table + value, table + end) for name, _, value, end in found}
        build = build_of(properties)
        return _Place(
            build=build,
            together=cutter(runs),
            apart=_exactly([values.get(name, slice(0, 0)) for name in self._apart]),
            names=frozenset(entry[0] for entry in found if entry[0] not in self._apart),
            same_mask=build.mask | _over(runs, len(properties)),
            unlike=any(name in self._apart for name in values),
        )


def _over(parts: Sequence[slice], size: int) -> int:
    """Ones over these parts of so many bytes."""
    mask = bytearray(size)
    for part in parts:
        mask[part] = b"\xff" * (part.stop - part.start)
    return int.from_bytes(mask)


def _exactly(parts: Sequence[slice]) -> Cut:
    """As many as these parts, also where they are fewer than two."""
    cut, count = cutter(parts), len(parts)
    return cut if count > 1 else lambda properties: cut(properties)[:count]
