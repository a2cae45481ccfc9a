"""What the pictures are drawn with: SVG written by hand, black on white, in one font."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Final

FONTS: Final = "system-ui, -apple-system, Segoe UI, Roboto, Helvetica, Arial, sans-serif"
INK: Final = "#0f172a"
FAINT: Final = "#64748b"


def document(width: float, height: float, parts: Sequence[str]) -> str:
    """The whole picture."""
    size = f'width="{width:.0f}" height="{height:.0f}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" role="img" font-family="{FONTS}" {size}',
            f' viewBox="0 0 {width:.0f} {height:.0f}">',
            f'<rect {size} fill="#ffffff"/>',
            *parts,
            "</svg>\n",
        ]
    )


def line(x1: float, y1: float, x2: float, y2: float, *, width: float, colour: str = INK) -> str:
    where = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {where} stroke="{colour}" stroke-width="{width}"/>'


def text(
    x: float,
    y: float,
    words: str,
    *,
    size: float,
    colour: str = INK,
    anchor: str = "start",
    weight: int = 400,
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{colour}" text-anchor="{anchor}" '
        f'font-weight="{weight}">{escape(words)}</text>'
    )
