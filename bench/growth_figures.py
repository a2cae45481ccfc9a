"""What was measured at each size, as figures, a table and bars. Nothing here measures; see `growth`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich.table import Table

from bench.figures import Bar

PARTS: Final = {
    "letters": "a move, by letters",
    "queues": "dlq serve, by watched queues",
    "vhosts": "dlq serve, by vhosts",
    "doctor": "dlq doctor, by queues",
}
BAR_QUEUES: Final = 2_000
READY_BAR_S: Final = 4.0
IDLE_BAR_PERCENT: Final = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One part at one size."""

    part: str
    size: int
    figures: Mapping[str, float]
    """By name, which ends with the unit."""
    noise: tuple[str, ...] = ()
    """What was not quiet meanwhile."""

    def __str__(self) -> str:
        noise = f"   not quiet: {'; '.join(self.noise)}" if self.noise else ""
        return f"{PARTS[self.part]}: {self.size:,}   {self.said}{noise}"

    @property
    def said(self) -> str:
        return ", ".join(f"{name} {figure(value)}" for name, value in self.figures.items())


def figure(value: float) -> str:
    """Three digits that matter."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def bars(points: Sequence[Point], *, busy: str = "") -> list[Bar]:
    """What is promised of many watched queues, of the most that were measured."""
    watched = [point for point in points if point.part == "queues"]
    if not watched:
        return []
    most = max(watched, key=lambda point: point.size)
    quotable = not busy and not most.noise and most.size >= BAR_QUEUES
    ready_s, idle = most.figures["ready s"], most.figures["idle % of a core"]
    where = f"{most.size:,} watched queues"
    if most.size < BAR_QUEUES:
        where += f" (the bar is for {BAR_QUEUES:,})"
    return [
        Bar(
            what=f"{where}: ready after {ready_s:.1f} s, allowed {READY_BAR_S:g}",
            passed=ready_s <= READY_BAR_S,
            quotable=quotable,
        ),
        Bar(
            what=f"{where}, idle: {idle:.2f} % of a core, allowed {IDLE_BAR_PERCENT:g}",
            passed=idle < IDLE_BAR_PERCENT,
            quotable=quotable,
        ),
    ]


def table(points: Sequence[Point], *, busy: str = "") -> Table:
    shown = Table(title="What grows with what", title_justify="left")
    shown.add_column("what")
    shown.add_column("size", justify="right")
    shown.add_column("figures")
    shown.add_column("")
    for point in points:
        note = "not quotable" if busy or point.noise else ""
        shown.add_row(PARTS[point.part], f"{point.size:,}", point.said, note)
    return shown
