"""What else happens on the machine while something is measured (Linux). Judged in `quiet`.

Who is ours: this process and all it started, the broker, and the kernel's own threads, which write to disk
for both. Whatever else had CPU time is somebody else's, also when it came and went in between.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.quiet import IDLE_LEAST, OTHERS_MOST, Quiet, Ticks, shares, spread, ticks
from bench.serving import family

WINDOW_S: Final = 0.5
PATIENCE_S: Final = 5.0
"""So long a run waits for the machine to come to rest after the fill."""
SPINS: Final = 9
SPIN_TURNS: Final = 150_000
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_KERNEL: Final = 2
"""The process that all threads of the kernel descend from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Process:
    name: str
    parent: int
    used: int
    """Ticks, with those of children that ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A moment from which on is listened."""

    at: float
    stat: Ticks
    processes: dict[int, _Process]
    ours: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """Between two moments: shares of all cores, and what others took of one."""

    idle: float
    steal: float
    others: float
    loudest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Before:
    """Just before a run."""

    heard: Heard
    load: float
    spin_spread: float


class Ears:
    """`before` a run, `mark` at its start, `since` at its end."""

    def __init__(self, broker_pid: int | None) -> None:
        self._broker = tuple(_named_beam()) if broker_pid is None else (broker_pid,)

    async def before(self) -> Before:
        """Wait until the machine rests, for a while; then what it was like."""
        load = os.getloadavg()[0]
        deadline = time.monotonic() + PATIENCE_S
        while True:
            mark = self.mark()
            await asyncio.sleep(WINDOW_S)
            heard = self._heard(mark)
            rests = heard.idle >= IDLE_LEAST and heard.others <= OTHERS_MOST
            if rests or time.monotonic() > deadline:
                return Before(heard=heard, load=load, spin_spread=spread(_spins()))

    def mark(self) -> Mark:
        processes = dict(_processes())
        ours = {os.getpid(), *self._broker}
        ours = {pid for root in ours for pid in family(root)}
        ours |= {pid for pid, one in processes.items() if _KERNEL in (pid, one.parent)}
        stat = ticks(Path("/proc/stat").read_text())
        return Mark(at=time.monotonic(), stat=stat, processes=processes, ours=frozenset(ours))

    def since(self, mark: Mark, before: Before) -> Quiet:
        heard = self._heard(mark)
        worse = max(heard, before.heard, key=lambda one: one.others)
        return Quiet(
            load=before.load,
            idle_before=before.heard.idle,
            steal=max(heard.steal, before.heard.steal),
            idle=heard.idle,
            others=worse.others,
            loudest=worse.loudest,
            spin_spread=before.spin_spread,
        )

    def _heard(self, start: Mark) -> Heard:
        end = self.mark()
        ours = start.ours | end.ours
        used = {
            pid: one.used - (start.processes[pid].used if pid in start.processes else 0)
            for pid, one in end.processes.items()
        }
        idle, steal = shares(start.stat, end.stat)
        mine = sum(taken for pid, taken in used.items() if pid in ours)
        rest = end.stat.busy - start.stat.busy - mine
        loudest = max((pid for pid in used if pid not in ours), key=lambda pid: used[pid], default=None)
        return Heard(
            idle=idle,
            steal=steal,
            others=max(0.0, rest / _TICKS_PER_S / (end.at - start.at)),
            loudest=end.processes[loudest].name if loudest is not None and used[loudest] else "",
        )


def _spins() -> list[float]:
    """Seconds of one small loop, several times: on a quiet machine they are alike."""
    found: list[float] = []
    for _ in range(SPINS):
        started = time.perf_counter()
        for _turn in range(SPIN_TURNS):
            pass
        found.append(time.perf_counter() - started)
    return found


def _processes() -> Iterator[tuple[int, _Process]]:
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            head, _, tail = (entry / "stat").read_text(errors="replace").rpartition(")")
        except OSError:
            continue  # gone meanwhile
        fields = tail.split()
        used = sum(map(int, fields[11:15]))  # utime, stime, and those of children waited for
        yield int(entry.name), _Process(name=head.partition("(")[2], parent=int(fields[1]), used=used)


def _named_beam() -> Iterator[int]:
    """Whatever runs Erlang here: who gave us a broker has not said which process it is."""
    return (pid for pid, one in _processes() if one.name.startswith("beam"))
