"""From runs to figures: medians, ratios, and whether the bars are met. Nothing here measures or prints.

A ratio to the shovel is taken within one round, between neighbours of a minute, and then the median of
the rounds: what made both slow at the time cancels out. Two medians may come from different rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from bench.race import Run

CPU_BAR_US: Final = 50.0
RATIO_BARS: Final = {"3.10": 1.0, "4.3": 1.2}
OURS: Final = "courier"
YARDSTICK: Final = "shovel"


def ratio_bar(version: str) -> float | None:
    """How many times the shovel's pace is promised on that broker; None where nothing is."""
    promised = [bar for release, bar in RATIO_BARS.items() if version.startswith(f"{release}.")]
    return promised[0] if promised else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One mover on one broker and queue type, over all rounds."""

    broker: str
    queue_type: str
    mover: str
    count: int
    per_s: float
    per_s_range: tuple[float, float]
    ratio: float | None
    """To the shovel of the same round; None without one."""
    ratio_range: tuple[float, float] | None
    cpu_us: float | None
    complaints: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """Something that must hold, and whether it does."""

    what: str
    passed: bool


def rows(runs: Sequence[Run]) -> list[Row]:
    """One row for each mover on each broker and queue type, in the order in which they first ran."""
    groups: dict[tuple[str, str, str], list[Run]] = {}
    for run in runs:
        groups.setdefault((run.broker, run.queue_type, run.mover), []).append(run)
    yardsticks: dict[tuple[str, str, int], float] = {
        (run.broker, run.queue_type, run.round): run.per_s for run in runs if run.mover == YARDSTICK
    }
    return [_row(group, yardsticks) for group in groups.values()]


def _row(group: Sequence[Run], yardsticks: dict[tuple[str, str, int], float]) -> Row:
    first = group[0]
    paces = [run.per_s for run in group]
    ratios = [
        run.per_s / yardsticks[where]
        for run in group
        if (where := (run.broker, run.queue_type, run.round)) in yardsticks
    ]
    cpu = [run.cpu_us for run in group if run.cpu_us is not None]
    return Row(
        broker=first.broker,
        queue_type=first.queue_type,
        mover=first.mover,
        count=first.count,
        per_s=median(paces),
        per_s_range=(min(paces), max(paces)),
        ratio=median(ratios) if ratios else None,
        ratio_range=(min(ratios), max(ratios)) if ratios else None,
        cpu_us=median(cpu) if cpu else None,
        complaints=tuple(f"round {run.round}: {run.complaint}" for run in group if run.complaint),
    )


def bars(table: Sequence[Row]) -> list[Bar]:
    """What was promised, for every row it was promised for, and that no letter was lost or doubled."""
    found: list[Bar] = []
    for row in table:
        where = f"{row.mover}, RabbitMQ {row.broker}, {row.queue_type}"
        if row.mover == OURS:
            needed = ratio_bar(row.broker)
            if row.ratio is not None and needed is not None:
                what = f"{where}: {row.ratio:.3f} × shovel, needed at least {needed:.1f} ×"
                found.append(Bar(what=what, passed=row.ratio >= needed))
            if row.cpu_us is not None:
                what = f"{where}: {row.cpu_us:.0f} µs CPU per letter, allowed {CPU_BAR_US:.0f}"
                found.append(Bar(what=what, passed=row.cpu_us <= CPU_BAR_US))
        found.extend(Bar(what=f"{where}: {complaint}", passed=False) for complaint in row.complaints)
    return found


def fewer(table: Sequence[Row]) -> str:
    """The movers that moved fewer letters than the others, and how many; empty when none did."""
    counts = {row.mover: row.count for row in table}
    most = max(counts.values(), default=0)
    return ", ".join(f"{mover} {count:,}" for mover, count in counts.items() if count < most)


def grouped(table: Sequence[Row], key: Callable[[Row], str]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in table:
        groups.setdefault(key(row), []).append(row)
    return groups
