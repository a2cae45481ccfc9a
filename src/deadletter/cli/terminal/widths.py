"""How wide text stands on a terminal, and text cut to a width. In a pipe nothing is cut."""

from __future__ import annotations

import shutil
import sys
from unicodedata import category, east_asian_width

from deadletter.core.text.safe_text import line


def terminal_width() -> int | None:
    """Columns of the terminal that the result goes to; None where it goes to none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def writes(characters: str) -> bool:
    """Whether the result may hold these characters: not every terminal has more than ASCII."""
    try:
        characters.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def cells(text: str) -> int:
    return len(text) if text.isascii() else sum(map(_cells, text))


def fit(text: str, width: int | None) -> str:
    """In one line, made safe, and cut to so many columns."""
    shown = line(text)
    if width is None or cells(shown) <= width:
        return shown
    kept, room = 0, max(width - 1, 0)
    for kept, char in enumerate(shown):  # noqa: B007 -- where it stopped
        room -= _cells(char)
        if room < 0:
            break
    return shown[:kept] + ("…" if width > 0 else "")


def padded(text: str, width: int, *, right: bool = False) -> str:
    blank = " " * (width - cells(text))
    return blank + text if right else text + blank


def _cells(char: str) -> int:
    if category(char) in ("Mn", "Me"):
        return 0
    return 2 if east_asian_width(char) in "WF" else 1
