"""How long `dlq --help` takes: a command that hesitates is not reached for.

    python -m bench.startup

The median of eleven starts, against the bar of 0.3 s; exit 1 when it is red.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path

BAR_S = 0.3
STARTS = 11


def main() -> int:
    command = [str(Path(sys.executable).with_name("dlq")), "--help"]
    taken: list[float] = []
    for _ in range(STARTS):
        started = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        taken.append(time.perf_counter() - started)
    median = statistics.median(taken)
    verdict = "PASS" if median <= BAR_S else "RED"
    print(
        f"dlq --help  median {median:.3f} s of {STARTS}, worst {max(taken):.3f} s, bar {BAR_S} s  {verdict}"
    )
    return 0 if median <= BAR_S else 1


if __name__ == "__main__":
    sys.exit(main())
