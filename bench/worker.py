"""One mover in a process of its own, so that its CPU time and its memory are its own.

    python -m bench.worker courier

It imports what it needs, says "ready", waits for a job on its standard input, does it, and tells what it
cost. Imports are not counted; connecting is.
"""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from bench.job import Job, Told

READY: Final = "ready\n"
STICKS: Final = {
    "courier": "bench.sticks.courier",
    "spliced": "bench.sticks.spliced",
    "pika": "bench.sticks.pika_pipelined",
    "aio-pika": "bench.sticks.aio_pika_tasks",
    "checker": "bench.sticks.checker",
    "look": "bench.sticks.look",
}


def main() -> None:
    move: Callable[[Job], None] = importlib.import_module(STICKS[sys.argv[1]]).move
    sys.stdout.write(READY)
    sys.stdout.flush()
    line = sys.stdin.readline()
    if not line:
        return  # whoever started us is gone
    rss_start_bytes = _status_bytes("VmRSS")
    started, cpu = time.perf_counter(), time.process_time()
    move(Job.from_line(line))
    told = Told(
        seconds=time.perf_counter() - started,
        cpu_s=time.process_time() - cpu,
        rss_start_bytes=rss_start_bytes,
        rss_peak_bytes=_status_bytes("VmHWM"),
    )
    sys.stdout.write(told.to_line())


def _status_bytes(field: str) -> int:
    """A line of /proc/self/status. Not getrusage: its peak may be that of the parent before the exec."""
    for line in Path("/proc/self/status").read_text().splitlines():
        name, _, value = line.partition(":")
        if name == field:
            return int(value.split()[0]) * 1024
    raise LookupError(f"no {field} in /proc/self/status")


if __name__ == "__main__":
    main()
