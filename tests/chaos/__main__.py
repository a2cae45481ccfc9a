"""`python -m tests.chaos --minutes 5 --rate 500 --broker 4.3`: a storm, and the count after it."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import uvloop
from tests.brokers import fresh_vhost
from tests.chaos.storm import Storm, Weather
from tests.postgres import private_postgres

from deadletter.testing.node.private import private_broker


def storm(weather: Weather, version: str | None, *, quiet: bool = False) -> Storm:
    """One storm on a broker and a PostgreSQL of its own."""
    began = time.monotonic()

    def say(line: str) -> None:
        if not quiet:
            print(f"{time.monotonic() - began:7.1f} s  {line}", file=sys.stderr, flush=True)

    with (
        private_broker(version) as broker,
        fresh_vhost(broker) as vhost,
        private_postgres() as postgres,
        tempfile.TemporaryDirectory(prefix="dlq-chaos-") as home,
    ):
        one = Storm(vhost=vhost, postgres=postgres, home=Path(home), weather=weather, say=say)
        uvloop.run(one.run())
        return one


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0)
    parser.add_argument("--rate", type=int, default=500, help="letters a second")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the dice; shown, to repeat it")
    parser.add_argument("--broker", default=None, metavar="VERSION", help="3.10, 4.0, 4.3")
    asked = parser.parse_args()
    print(f"seed {asked.seed}", file=sys.stderr)
    found = storm(Weather(minutes=asked.minutes, rate_per_s=asked.rate, seed=asked.seed), asked.broker)
    print("\n".join(found.told()))
    return 0 if found.fair else 1


if __name__ == "__main__":
    sys.exit(main())
