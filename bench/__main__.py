"""All measurements, one after the other: `python -m bench`, which is `make bench`; or those that are named.

A red one does not keep the others from running. Before each, the machine is given time to come to rest: the
load of one measurement would be the noise of the next. Ends with the worst exit code of all: 2 when one broke
off, else 1 when one is red, else 3 when one is not quotable, else 0.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from typing import Final

from bench import conditions

MEASUREMENTS: Final = {
    # What the rest is compared with comes first, on a machine that has done nothing yet.
    "movers": (),
    "check": ("--broker", "3.10", "--broker", "4.0", "--broker", "4.3"),
    "serve": ("--broker", "3.10", "--broker", "4.3"),
    "consumer": ("--broker", "3.10", "--broker", "4.3"),
    "replay": (),
    "desk": (),
    "startup": (),
    "doctor": (),
    "growth": (),
    "memory": (),  # last: a broker that has held a million letters leaves the disk busy
}
_WORDS: Final = {0: "every bar met", 1: "RED", 2: "broke off", 3: "no bar red, not quotable"}
_WORST: Final = (0, 3, 1, 2)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=(__doc__ or "").split("\n")[0])
    parser.add_argument(
        "name", nargs="*", metavar="NAME", help=f"only these: {', '.join(MEASUREMENTS)} (all, in this order)"
    )
    asked: list[str] = parser.parse_args().name
    if unknown := [name for name in asked if name not in MEASUREMENTS]:
        parser.error(f"expected some of {', '.join(MEASUREMENTS)}, got {unknown[0]!r}")
    told: dict[str, tuple[int, float]] = {}
    for name, arguments in MEASUREMENTS.items():
        if asked and name not in asked:
            continue
        conditions.come_to_rest()
        print(f"\n== {name}", flush=True)
        began = time.monotonic()
        try:
            code = subprocess.run([sys.executable, "-m", f"bench.{name}", *arguments], check=False).returncode
        except KeyboardInterrupt:
            return 130
        told[name] = code, time.monotonic() - began
    print()
    for name, (code, seconds) in told.items():
        print(f"{name:10} {seconds / 60:5.1f} min  {_WORDS.get(code, f'ended with {code}')}")
    return worst([code for code, _ in told.values()])


def worst(codes: list[int]) -> int:
    """The one to end with; a code that means nothing to us is a measurement that broke off."""
    return max((code if code in _WORST else 2 for code in codes), key=_WORST.index, default=0)


if __name__ == "__main__":
    sys.exit(main())
