"""Where results go, and how a command ends.

Apart from the screen, whose library takes longer to load than many results to make. Here, and in the screen,
is the last place before a terminal: whatever a text still holds of a letter's or a broker's own cannot act on
it (`core.text.safe_text`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum

from deadletter.cli.terminal.units import count
from deadletter.core.letter import names
from deadletter.core.text import safe_text
from deadletter.errors import (
    CannotConnect,
    ConnectionLost,
    DeadletterError,
    ManagementRefused,
    StoreError,
    UsageError,
)


class Exit(IntEnum):
    """How a command ends."""

    DONE = 0
    LEFT = 1
    """Something was left or refused."""
    USAGE = 2
    UNREACHABLE = 3


def exit_for(error: DeadletterError) -> Exit:
    """The exit code an error ends a command with."""
    if isinstance(error, UsageError):
        return Exit.USAGE
    away = isinstance(error, CannotConnect | ConnectionLost | ManagementRefused | StoreError)
    return Exit.UNREACHABLE if away else Exit.LEFT


def result(text: str) -> None:
    """The result of a command: the one thing that goes to stdout."""
    sys.stdout.write(safe_text.block(text.rstrip("\n")) + "\n")
    sys.stdout.flush()


def data(value: object, *, default: Callable[[object], object] | None = None) -> None:
    """The result as JSON."""
    result(safe_text.exact_json(value, default))


def complain(error: object) -> None:
    """An error, for people."""
    sys.stderr.write(f"dlq: {safe_text.block(str(error))}\n")


def columns(rows: Sequence[Sequence[str]], *, indent: int = 0) -> str:
    """Columns of text for a result: no frames, nothing cut off, the same on a terminal and in a pipe.

    Each column is as wide as its widest cell; the last one as long as it likes, but in one line.
    """
    rows = [[safe_text.line(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*(row[:-1] for row in rows), strict=True)]
    return "\n".join(
        " " * indent
        + "  ".join(
            [*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]
        ).rstrip()
        for row in rows
    )


def parked_lines(queue: str, parked: Mapping[str, int], endangered: Mapping[str, int]) -> list[str]:
    """What commands that take letters say of those that could not simply be given back."""
    lines = [
        f"{count(number)} could neither be given back to {queue} (that might have destroyed them) nor be "
        f"published there anew ({why}); they are in {names.PARKED} now, whole: "
        f"dlq move {names.PARKED} {queue}"
        for why, number in parked.items()
    ]
    lines += [
        f"IN DANGER: {count(number)} went back to {queue} although that may have destroyed them: neither "
        f"{queue} nor {names.PARKED} took them ({why})"
        for why, number in endangered.items()
    ]
    return lines
