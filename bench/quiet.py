"""Whether a machine was quiet while something was measured on it. Nothing here measures: see `listening`.

A figure from a machine on which others work is a figure about them. So every run is told with what else went
on: time the hypervisor took away, time other processes took, how idle the machine was just before, and how
far apart the same small loop is, timed several times in a row. What is above its allowance is noise, in
words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Final

STEAL_MOST: Final = 0.01
"""Of all cores' time, during the run."""
OTHERS_MOST: Final = 0.1
"""Of one core: processes that are neither the broker nor the mover nor the measurement, before or during."""
IDLE_LEAST: Final = 0.7
"""Of all cores' time, just before the run: the broker rests, and so does everybody else."""
SPIN_MOST: Final = 0.05
"""Between the quartiles of the timed loop."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticks:
    """What all cores did since the machine started, in the kernel's ticks."""

    busy: int
    idle: int
    steal: int

    @property
    def total(self) -> int:
        return self.busy + self.idle + self.steal


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    name: str
    parent: int
    own: int
    """Ticks of its own."""
    ended: int = 0
    """Ticks of children that have ended and were waited for, from their whole lives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A moment from which on, or until which, is listened."""

    at: float
    stat: Ticks
    processes: Mapping[int, Process]
    ours: frozenset[int]
    """Broker, mover, measurement."""
    kernel: frozenset[int] = frozenset()
    """The kernel's own threads, which write to disk and send for all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """Between two moments: shares of all cores, and what others took of one."""

    idle: float
    steal: float
    others: float
    loudest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Quiet:
    """What went on beside one run. Shares are 0 to 1; of all cores, or of one where it says so."""

    load: float
    """The average of the minute before. Told, not judged: most of it is the run before this one."""
    idle_before: float
    steal: float
    idle: float
    """During the run. Told, not judged: who is busy is broker and mover."""
    others: float
    """Of one core, the worse of before and during."""
    loudest: str
    """Who of them was busiest; empty when nobody was, or when it is gone already."""
    spin_spread: float


def ticks(stat: str) -> Ticks:
    """The first line of /proc/stat. Waiting for a disk is idle; interrupts are nobody's, and left out."""
    user, nice, system, idle, iowait, _irq, _softirq, steal = map(int, stat.split("\n", 1)[0].split()[1:9])
    return Ticks(busy=user + nice + system, idle=idle + iowait, steal=steal)


def shares(before: Ticks, after: Ticks) -> tuple[float, float]:
    """How much of the time between was idle, and how much was stolen."""
    total = max(1, after.total - before.total)
    return (after.idle - before.idle) / total, (after.steal - before.steal) / total


def heard(start: Mark, end: Mark, *, ticks_per_s: int) -> Heard:
    """What others took is what all took without what is ours: so it holds those that came and went, too.

    It is no less than what the others that are still there say of themselves. The kernel counts the time of
    all by looking now and then, that of each exactly, and interrupts with whom they hit.
    """
    ours, kernel = start.ours | end.ours, start.kernel | end.kernel
    idle, steal = shares(start.stat, end.stat)
    # One of ours that has ended is in its parent by now, with all it ever used; a thread of the kernel is in
    # nobody; and what others' children did may be long ago.
    gone = sum(
        one.own + one.ended
        for pid, one in start.processes.items()
        if pid in ours and pid not in end.processes and one.parent in end.processes and one.parent in ours
    )
    taken: dict[int, int] = {}
    mine = -gone
    for pid, one in end.processes.items():
        before = start.processes.get(pid)
        own = one.own - (before.own if before else 0)
        if pid in ours:
            mine += own + one.ended - (before.ended if before else 0)
        elif pid in kernel:
            mine += own
        else:
            taken[pid] = own
    rest = end.stat.busy - start.stat.busy - mine
    loudest = max(taken, key=lambda pid: taken[pid], default=None)
    return Heard(
        idle=idle,
        steal=steal,
        others=max(0, rest, sum(taken.values())) / ticks_per_s / (end.at - start.at),
        loudest=end.processes[loudest].name if loudest is not None and taken[loudest] > 0 else "",
    )


def spread(figures: Sequence[float]) -> float:
    """How far the quartiles are apart, as a share of the median; 0 for a single figure."""
    if len(figures) < 2:
        return 0.0
    low, _, high = quantiles(figures, n=4, method="inclusive")
    return (high - low) / median(figures)


def noise(quiet: Quiet) -> tuple[str, ...]:
    """What was not quiet, in words; empty when all was."""
    found: list[str] = []
    if quiet.steal > STEAL_MOST:
        found.append(f"{quiet.steal:.1%} of the time stolen")
    if quiet.others > OTHERS_MOST:
        who = f", mostly {quiet.loudest}" if quiet.loudest else ""
        found.append(f"others took {quiet.others:.0%} of a core{who}")
    if quiet.idle_before < IDLE_LEAST:
        found.append(f"only {quiet.idle_before:.0%} idle before")
    if quiet.spin_spread > SPIN_MOST:
        found.append(f"the idle loop spreads {quiet.spin_spread:.0%}")
    return tuple(found)
