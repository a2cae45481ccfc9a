"""The progress bar of a move, on a terminal. rich is in here, and takes its time to load."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


class MoveBar:
    """Drawn on stderr from the moment it is made, gone when it is closed. Its texts are safe already."""

    def __init__(self, description: str) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("{task.fields[rate]}", markup=False),
            TimeRemainingColumn(),
            console=self._console,
            disable=not self._console.is_terminal,
            transient=True,
        )
        self._task = self._bar.add_task(description, total=None, rate="")
        self._bar.start()

    def say(self, text: str) -> None:
        """A line above the bar."""
        self._console.print(text, markup=False)

    def describe(self, description: str) -> None:
        self._bar.update(self._task, description=description)

    def count(self, done: int, total: int | None) -> None:
        speed = self._bar.tasks[0].speed
        rate = f"{speed:,.0f}/s" if speed else ""
        self._bar.update(self._task, completed=done, total=total, rate=rate)

    def refresh(self) -> None:
        self._bar.refresh()

    def close(self) -> None:
        self._bar.stop()
