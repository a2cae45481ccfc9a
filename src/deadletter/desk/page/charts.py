"""Small charts as SVG, drawn on the server: their numbers as the `d` of a path, without a style attribute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_GAP: Final = 0.25
"""Of a bar's place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """A chart of bars in a box of `width` by `height`. `path`: all bars that are not zero."""

    width: int
    height: int
    path: str
    most: float
    last: float
    total: float


def bars(counts: Sequence[float], *, width: int = 96, height: int = 22) -> Bars:
    """The highest is the tallest, and one letter is never nothing."""
    most = max(counts, default=0)
    place = width / max(len(counts), 1)
    made = []
    for number, one in enumerate(counts):
        if one <= 0:
            continue
        tall = max(one / most * height, 1.5)
        left, broad = number * place + place * _GAP / 2, place * (1 - _GAP)
        made.append(f"M{left:.1f} {height}v{-tall:.1f}h{broad:.1f}v{tall:.1f}z")
    return Bars(
        width=width,
        height=height,
        path="".join(made),
        most=most,
        last=counts[-1] if counts else 0,
        total=sum(counts),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A chart of a line, and of the area below it. Empty where there are fewer than two values."""

    width: int
    height: int
    line: str
    area: str
    most: float
    last: float


def line(values: Sequence[float], *, width: int = 120, height: int = 28) -> Line:
    most = max(values, default=0)
    last = values[-1] if values else 0
    if len(values) < 2:
        return Line(width=width, height=height, line="", area="", most=most, last=last)
    step = width / (len(values) - 1)
    points = [
        (number * step, height - 1 - (one / most * (height - 3) if most > 0 else 0))
        for number, one in enumerate(values)
    ]
    drawn = "M" + "L".join(f"{across:.1f} {down:.1f}" for across, down in points)
    return Line(
        width=width,
        height=height,
        line=drawn,
        area=f"{drawn}L{width} {height}L0 {height}z",
        most=most,
        last=last,
    )
