"""Which letters of an archive are meant, by their numbers in it: `3,7,100-200,1000-`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from deadletter.errors import UsageError

_EVER: Final = 2**63


class Numbers:
    """Ranges of numbers. `Numbers.parse("1-")` has all of them."""

    def __init__(self, ranges: Iterable[tuple[int, int]]) -> None:
        self._ranges = sorted(ranges)

    @classmethod
    def parse(cls, text: str) -> Numbers:
        """Raises UsageError."""
        ranges: list[tuple[int, int]] = []
        for part in text.split(","):
            first, dash, last = part.strip().partition("-")
            low = int(first) if first.isascii() and first.isdigit() else 0
            high = int(last) if last.isascii() and last.isdigit() else (low if not dash else _EVER)
            if low < 1 or high < low or (dash and last and not last.isdigit()):
                raise UsageError(f"expected numbers of letters such as 3,7,100-200,1000-, got {text!r}")
            ranges.append((low, high))
        return cls(ranges)

    @classmethod
    def after(cls, number: int) -> Numbers:
        return cls([(number + 1, _EVER)])

    def __contains__(self, number: int) -> bool:
        return any(low <= number <= high for low, high in self._ranges)


def left_text(missing: Iterable[int], after: int | None) -> str:
    """The numbers of what is left, as `Numbers` reads them. `after`: all that come after this one as well."""
    ranges: list[list[int]] = []
    for number in sorted(missing):
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    if after is not None:
        first = ranges.pop()[0] if ranges and ranges[-1][1] == after else after + 1
        return ",".join([*map(_range, ranges), f"{first}-"])
    return ",".join(map(_range, ranges))


def _range(one: list[int]) -> str:
    return str(one[0]) if one[0] == one[1] else f"{one[0]}-{one[1]}"
