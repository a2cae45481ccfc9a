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

from bench.quiet import IDLE_LEAST, OTHERS_MOST, Heard, Mark, Process, Quiet, heard, spread, ticks
from bench.serving import family

WINDOW_S: Final = 0.5
PATIENCE_S: Final = 5.0
"""So long a run waits for the machine to come to rest after the fill."""
SPINS: Final = 9
SPIN_TURNS: Final = 150_000
_TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
_KERNEL: Final = "kthreadd"
"""What all threads of the kernel descend from; inside a container it is not to be seen."""


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
            told = heard(mark, self.mark(), ticks_per_s=_TICKS_PER_S)
            rests = told.idle >= IDLE_LEAST and told.others <= OTHERS_MOST
            if rests or time.monotonic() > deadline:
                return Before(heard=told, load=load, spin_spread=spread(_spins()))

    def mark(self) -> Mark:
        processes = dict(_processes())
        ours = {os.getpid(), *self._broker}
        ours = {pid for root in ours for pid in family(root)}
        kernel = {pid for pid, one in processes.items() if one.name == _KERNEL}
        kernel |= {pid for pid, one in processes.items() if one.parent in kernel}
        return Mark(
            at=time.monotonic(),
            stat=ticks(Path("/proc/stat").read_text()),
            processes=processes,
            ours=frozenset(ours),
            kernel=frozenset(kernel),
        )

    def since(self, mark: Mark, before: Before) -> Quiet:
        during = heard(mark, self.mark(), ticks_per_s=_TICKS_PER_S)
        worse = max(during, before.heard, key=lambda one: one.others)
        return Quiet(
            load=before.load,
            idle_before=before.heard.idle,
            steal=max(during.steal, before.heard.steal),
            idle=during.idle,
            others=worse.others,
            loudest=worse.loudest,
            spin_spread=before.spin_spread,
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


def _processes() -> Iterator[tuple[int, Process]]:
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            head, _, tail = (entry / "stat").read_text(errors="replace").rpartition(")")
        except OSError:
            continue  # gone meanwhile
        fields = tail.split()
        own, ended = sum(map(int, fields[11:13])), sum(map(int, fields[13:15]))
        name = head.partition("(")[2]
        yield int(entry.name), Process(name=name, parent=int(fields[1]), own=own, ended=ended)


def _named_beam() -> Iterator[int]:
    """Whatever runs Erlang here: who gave us a broker has not said which process it is."""
    return (pid for pid, one in _processes() if one.name.startswith("beam"))
