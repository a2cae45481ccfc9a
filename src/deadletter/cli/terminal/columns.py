"""Columns of text for a result: no frames, nothing cut off, the same on a terminal and in a pipe."""

from __future__ import annotations

from collections.abc import Sequence

from deadletter.core.text.safe_text import line


def columns(rows: Sequence[Sequence[str]], *, indent: int = 0) -> str:
    """Each column as wide as its widest cell; the last one as long as it likes, but in one line."""
    rows = [[line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*(row[:-1] for row in rows), strict=True)]
    return "\n".join(
        " " * indent
        + "  ".join(
            [*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]
        ).rstrip()
        for row in rows
    )
