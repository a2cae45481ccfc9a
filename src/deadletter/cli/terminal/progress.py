"""A count that grows, on stderr, while a person waits; nothing where no terminal is."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import Any, Self

from deadletter.core.text.safe_text import line


class GrowingCount:
    """`count(n)`: so many are done. rich is loaded on a terminal alone, it takes its time."""

    def __init__(self, description: str, total: int | None = None, *, quiet: bool = False) -> None:
        self._description = line(description)
        self._total = total
        self._shown = not quiet and sys.stderr.isatty()
        self._bar: Any = None
        self._task: Any = None
        self._open = ExitStack()

    def __enter__(self) -> Self:
        if self._shown:
            from rich.console import Console
            from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

            self._bar = self._open.enter_context(
                Progress(
                    TextColumn("{task.description}", markup=False),
                    BarColumn(bar_width=None),
                    MofNCompleteColumn(),
                    console=Console(stderr=True, highlight=False),
                    transient=True,
                )
            )
            self._task = self._bar.add_task(self._description, total=self._total)
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def count(self, done: int) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=done)
