"""One consumer in a process of its own, so that its CPU time is its own: `python -m bench.handlers ours`.

It imports what it needs, waits for a task on its standard input, does it, and tells what it cost.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable

from bench.handlers.task import Clock, Task


def main() -> None:
    name = sys.argv[1].replace("-", "_")
    module = "ours" if name == "ours" else f"{name}_handler"
    consume: Callable[[Task, Clock], None] = importlib.import_module(f"bench.handlers.{module}").consume
    line = sys.stdin.readline()
    if not line:
        return  # whoever started us is gone
    task = Task.from_line(line)
    clock = Clock(task.count)
    consume(task, clock)
    sys.stdout.write(clock.told().to_line())


if __name__ == "__main__":
    main()
