"""How long one waits after Enter: a command that hesitates is not reached for.

    python -m bench.startup

`dlq --help`; and on a private broker `dlq move` and `dlq check` until their first letter is in its target (a
consumer waits for it there), `dlq peek`, `dlq doctor` and `dlq sweep` until the first word of their answer.
The median of eleven starts each, against bars of 0.3 and 0.25 s; exit 1 when one is red. CPU is that of the
whole command, the least of all starts: it says whether it was the command or the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

from bench import report, sites
from bench.errors import BenchError
from bench.figures import Bar
from bench.ground import SOURCE, TARGET, Ground
from bench.management import Vhost, fresh_vhost
from bench.options import positive
from bench.serving import serving
from deadletter.amqp.address import parse_addresses
from deadletter.amqp.channel import Delivery
from deadletter.amqp.handshake import connect
from deadletter.errors import DeadletterError

HELP_BAR_S: Final = 0.3
BAR_S: Final = 0.25
STARTS: Final = 11
_LETTER_S: Final = 60.0
_WATCH: Final = f'[[watches]]\ndlq = "{SOURCE}.none"\n'


class Start(NamedTuple):
    waited_s: float
    cpu_s: float


class Started(NamedTuple):
    """A command that runs. `at` is when it was started."""

    process: subprocess.Popen[bytes]
    at: float

    def first_word(self) -> float:
        """When it began to answer; the rest is read as well."""
        assert self.process.stdout is not None
        with self.process.stdout as told:
            first = told.read(1)
            heard_at = time.perf_counter()
            told.read()
        if not first:
            raise BenchError(f"{self.process.args!r} says nothing")
        return heard_at

    def cpu_s(self) -> float:
        """Once it has ended."""
        _, status, used = os.wait4(self.process.pid, 0)
        self.process.returncode = os.waitstatus_to_exitcode(status)
        if self.process.returncode not in (0, 1):
            raise BenchError(f"{self.process.args!r} ended with {self.process.returncode}")
        return used.ru_utime + used.ru_stime


def start(*words: str, home: Path | None = None) -> Started:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DLQ_")}
    # it would compile every module at every start, as no installed command does
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    if home is not None:
        environment["HOME"] = str(home)
    command = [str(Path(sys.executable).with_name("dlq")), *words]
    at = time.perf_counter()
    return Started(subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, bufsize=0), at)


def until_it_speaks(*words: str, home: Path | None = None) -> Start:
    begun = start(*words, home=home)
    heard_at = begun.first_word()
    return Start(heard_at - begun.at, begun.cpu_s())


async def until_the_letter(vhost: Vhost, *words: str) -> Start:
    """Until a letter is in the target, where a consumer waits and takes it."""
    came: asyncio.Future[float] = asyncio.get_running_loop().create_future()

    def on_delivery(_letter: Delivery) -> None:
        if not came.done():
            came.set_result(time.perf_counter())

    connection = await connect(parse_addresses(vhost.url)[0], name="bench: first letter")
    try:
        channel = await connection.channel()
        await channel.consume(TARGET, on_delivery, lambda: None)
        begun = start(*words)
        async with asyncio.timeout(_LETTER_S):
            came_at = await came
        await asyncio.to_thread(begun.first_word)
        return Start(came_at - begun.at, await asyncio.to_thread(begun.cpu_s))
    finally:
        await connection.close()


async def on_a_broker(vhost: Vhost, starts: int) -> dict[str, list[Start]]:
    where = ("--url", vhost.url, "--api", vhost.api)
    taken: dict[str, list[Start]] = {name: [] for name in ("move", "check", "peek", "doctor", "sweep")}
    async with Ground.open(vhost) as ground, serving(vhost, _WATCH) as service:
        moving = {
            "move": ["move", SOURCE, TARGET, *where],
            "check": ["check", "--dlq", SOURCE, "--target", TARGET, "--max-retries", "0", *where],
        }
        looking = {
            "peek": ["peek", SOURCE, *where],
            "doctor": ["doctor", *where],
            "sweep": ["sweep", "--at", service.at],
        }
        for _ in range(starts):
            for name, words in moving.items():
                await ground.lay("classic", 1, body_bytes=100)
                taken[name].append(await until_the_letter(vhost, *words))
            await ground.lay("classic", 1, body_bytes=100)
            for name, words in looking.items():
                taken[name].append(await asyncio.to_thread(until_it_speaks, *words, home=service.home))
    return taken


def bar(name: str, starts: Sequence[Start], bar_s: float) -> Bar:
    waited = [one.waited_s for one in starts]
    cpu_s = min(one.cpu_s for one in starts)
    middle = median(waited)
    return Bar(
        what=f"dlq {name}: median {middle:.3f} s of {len(starts)}, least {min(waited):.3f} s, worst "
        f"{max(waited):.3f} s, CPU {cpu_s:.3f} s, allowed {bar_s:g} s",
        passed=middle <= bar_s,
    )


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.startup", description=(__doc__ or "").split("\n")[0]
    )
    sites.add_arguments(parser, default=())
    parser.add_argument("--starts", type=positive, default=STARTS, help="(%(default)s)")
    options = parser.parse_args()
    try:
        helped = [until_it_speaks("--help") for _ in range(options.starts)]
        bars = [bar("--help", helped, HELP_BAR_S)]
        for opening in sites.openings(options):
            with opening() as site, fresh_vhost(site.url, site.api) as vhost:
                taken = asyncio.run(on_a_broker(vhost, options.starts))
            bars += [bar(f"{name}, RabbitMQ {site.version}", starts, BAR_S) for name, starts in taken.items()]
    except (BenchError, DeadletterError, TimeoutError) as error:
        print(f"The measurement broke off: {error}", file=sys.stderr)
        return 2
    report.show_bars(report.wide_console(), bars)
    return 0 if all(one.passed for one in bars) else 1


if __name__ == "__main__":
    sys.exit(main())
