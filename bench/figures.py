"""From runs to figures: medians, ratios, what may be quoted, and whether the bars are met. Nothing here
measures.

A ratio is taken within one round, between neighbours of a minute, and then the median of the rounds: what
made both slow at the time cancels out. Two medians may come from different rounds. Who ran twice in a round,
there and back, has the pace of both together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from bench.agreement import Ratio, apart, counted, ratio_of
from bench.race import Run

CPU_BAR_US: Final = 18.0
RATIO_BARS: Final = {
    ("3.10", "classic"): 1.05,
    ("3.10", "quorum"): 1.15,
    ("4.3", "classic"): 1.25,
    ("4.3", "quorum"): 1.25,
}
"""Times the shovel's pace."""
COMMAND_BAR: Final = 1.1
"""Times the shovel's pace, the start of the command included."""
LIMIT_BAR: Final = 0.85
"""Of what can be done at all."""
BAR_COUNT: Final = 50_000
"""So many letters the bars are about: with few it is the start that is measured."""
OURS: Final = "courier"
WHOLE: Final = "dlq move"
YARDSTICK: Final = "shovel"
LIMIT: Final = "spliced"
JUDGED: Final = (WHOLE, YARDSTICK, OURS, LIMIT)
"""Those that a bar needs; the others are company."""


def ratio_bar(version: str, queue_type: str) -> float | None:
    """How many times the shovel's pace is promised there; None where nothing is."""
    for (release, kind), bar in RATIO_BARS.items():
        if version.startswith(f"{release}.") and kind == queue_type:
            return bar
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One mover on one broker and queue type, over the rounds that count."""

    broker: str
    queue_type: str
    mover: str
    count: int
    rounds: int
    per_s: float
    per_s_range: tuple[float, float]
    to_shovel: Ratio | None
    """None without one."""
    to_limit: Ratio | None
    cpu_us: float | None
    complaints: tuple[str, ...]
    doubts: tuple[str, ...] = ()
    """Why it is not quotable, if it is not."""

    @property
    def quotable(self) -> bool:
        return not self.doubts


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """Something that must hold, and whether it does."""

    what: str
    passed: bool
    quotable: bool = True
    """Whether the figure behind it may be relied on."""


def rows(runs: Sequence[Run], *, busy: str = "") -> list[Row]:
    """One row for each mover on each broker and queue type, in the order in which they first ran. `busy`:
    what was wrong with the machine from the start."""
    found: list[Row] = []
    for place in dict.fromkeys((run.broker, run.queue_type) for run in runs):
        there = [run for run in runs if (run.broker, run.queue_type) == place]
        noise: dict[int, tuple[str, ...]] = {}
        for run in there:
            noise[run.round] = run.noise or noise.get(run.round, ())
        rounds, doubts = counted(noise)
        if busy:
            doubts = (busy, *doubts)
        movers = list(dict.fromkeys(run.mover for run in there))
        found += [_row(mover, there, rounds, doubts) for mover in movers]
    return found


def settled(runs: Sequence[Run]) -> bool:
    """Whether no more rounds are needed: enough of them were quiet, and what the bars hang on is near
    together."""
    return all(row.quotable for row in rows(runs) if row.mover in (OURS, WHOLE))


def _row(mover: str, there: Sequence[Run], rounds: frozenset[int], doubts: tuple[str, ...]) -> Row:
    mine = [run for run in there if run.mover == mover]
    # A mover that ran only in rounds that do not count is shown with what it has.
    used = [run for run in mine if run.round in rounds] or mine
    paces = _paces(used, mover)
    cpu = [run.cpu_us for run in used if run.cpu_us is not None]
    to_shovel = _ratio(paces, _paces(there, YARDSTICK))
    to_limit = _ratio(paces, _paces(there, LIMIT))
    found = list(doubts)
    if to_shovel is not None:
        found += apart(to_shovel, "the shovel")
    if mover == OURS and to_limit is not None:
        found += apart(to_limit, "the limit")
    if mover in JUDGED and mine[0].count < BAR_COUNT:
        found.append(f"{mine[0].count:,} letters, needed {BAR_COUNT:,}")
    return Row(
        broker=mine[0].broker,
        queue_type=mine[0].queue_type,
        mover=mover,
        count=mine[0].count,
        rounds=len(paces),
        per_s=median(paces.values()),
        per_s_range=(min(paces.values()), max(paces.values())),
        to_shovel=to_shovel,
        to_limit=to_limit,
        cpu_us=median(cpu) if cpu else None,
        complaints=tuple(f"round {run.round}: {run.complaint}" for run in mine if run.complaint),
        doubts=tuple(found),
    )


def _paces(there: Sequence[Run], mover: str) -> dict[int, float]:
    """Letters a second by round."""
    mine = [run for run in there if run.mover == mover]
    found: dict[int, float] = {}
    for number in dict.fromkeys(run.round for run in mine):
        runs = [run for run in mine if run.round == number]
        found[number] = sum(run.count for run in runs) / sum(run.seconds for run in runs)
    return found


def _ratio(paces: Mapping[int, float], others: Mapping[int, float]) -> Ratio | None:
    return ratio_of([pace / others[number] for number, pace in paces.items() if number in others])


def bars(table: Sequence[Row]) -> list[Bar]:
    """What was promised, for every row it was promised for, and that no letter was lost or doubled."""
    return [bar for row in table for bar in bars_of(row)]


def bars_of(row: Row) -> list[Bar]:
    where = f"{row.mover}, RabbitMQ {row.broker}, {row.queue_type}"
    found: list[Bar] = []

    def needed(said: str, passed: bool) -> None:
        found.append(Bar(what=f"{where}: {said}", passed=passed, quotable=row.quotable))

    bar = ratio_bar(row.broker, row.queue_type)
    if row.mover == OURS:
        if row.to_shovel is not None and bar is not None:
            ratio = row.to_shovel.median
            needed(f"{ratio:.3f} × shovel, needed at least {bar:g} ×", ratio >= bar)
        if row.to_limit is not None:
            ratio = row.to_limit.median
            needed(f"{ratio:.3f} × the limit, needed at least {LIMIT_BAR:g} ×", ratio >= LIMIT_BAR)
        if row.cpu_us is not None:
            said = f"{row.cpu_us:.1f} µs CPU per letter, allowed {CPU_BAR_US:.0f}"
            needed(said, row.cpu_us <= CPU_BAR_US)
    if row.mover == WHOLE and row.to_shovel is not None and bar is not None:
        ratio = row.to_shovel.median
        needed(f"{ratio:.3f} × shovel, needed at least {COMMAND_BAR:g} ×", ratio >= COMMAND_BAR)
    found.extend(Bar(what=f"{where}: {complaint}", passed=False) for complaint in row.complaints)
    return found


def verdict(row: Row) -> str:
    """A row in a word or two: PASS or RED where something was promised, and whether it may be quoted."""
    judged = bars_of(row)
    said = [("PASS" if all(bar.passed for bar in judged) else "RED")] if judged else []
    return ", ".join(said + ([] if row.quotable else ["not quotable"]))


def exit_code(found: Sequence[Bar]) -> int:
    """0 when every bar is met, 1 when one is red, 3 when none is red and one rests on what is not
    quotable."""
    if not all(bar.passed for bar in found):
        return 1
    return 0 if all(bar.quotable for bar in found) else 3


def doubted(table: Sequence[Row]) -> list[str]:
    """Why rows are not quotable: each reason of a place once, with the movers it is said of if not of all."""
    found: list[str] = []
    for place, there in grouped(table, lambda row: f"RabbitMQ {row.broker}, {row.queue_type}").items():
        for doubt in dict.fromkeys(doubt for row in there for doubt in row.doubts):
            movers = [row.mover for row in there if doubt in row.doubts]
            who = "" if len(movers) == len(there) else f", {', '.join(movers)}"
            found.append(f"{place}{who}: {doubt}")
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
