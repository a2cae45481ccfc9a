"""Whether looking is as fast as it can be: `python -m bench.check`.

The same number of dead letters, over and over on one broker: moved by `dlq move`; checked by `dlq check` so
that all of them go, beside that move; looked at by a plain channel that acks nothing, which is the least a
look can be; and checked so that all of them stay, beside that look. Commands run as a user runs them, in
processes of their own, and tell their own time. Rounds alternate and go on until they agree. Then once half
and half, for the memory. Three bars: 0.9 times the pace of the move where letters go, 0.9 times that of the
bare look where they stay, and memory at the large load within 60 MB of that at a tenth of it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import harmonic_mean, median
from typing import Any, Final, NamedTuple

import uvloop
from rich.console import Console
from rich.table import Table

from bench import conditions, report, sites
from bench.agreement import Agreement, agree, most_rounds
from bench.errors import BenchError
from bench.figures import Bar, exit_code
from bench.ground import ENTRY_TTL_MS, clear
from bench.job import Job
from bench.listening import Ears
from bench.management import Vhost, fresh_vhost
from bench.options import add_rounds, positive
from bench.quiet import noise as words
from bench.racers import ready
from bench.sites import Site
from deadletter.amqp.address import parse_addresses
from deadletter.amqp.channel import Channel
from deadletter.amqp.handshake import connect
from deadletter.amqp.publisher import publish_all
from deadletter.core.letter.message import RawMessage, View, encode
from deadletter.errors import DeadletterError

COUNT: Final = 50_000
PACE_BAR: Final = 0.9
GROWTH_BAR_MB: Final = 60.0
DLQ, TARGET, ENTRY = "bench.dlq", "bench.dead", "bench.entry"
_ALL_GO, _HALF_GO, _NONE_GOES = 0, 3, 100
"""Limits for letters of which half were tried once and half nine times."""
_LIMITS: Final = {"check, all go": "move", "check, all stay": "look"}
"""Each with what it is held against."""
_ORDER: Final = ("move", "check, all go", "check, all stay", "look")
"""Of a round: neighbours are compared."""


class Told(NamedTuple):
    seen: int
    moved: int
    seconds: float
    peak_mb: float

    @property
    def per_s(self) -> float:
        return self.seen / self.seconds


class Round(NamedTuple):
    paces: dict[str, float]
    noise: tuple[str, ...]
    """What was not quiet in the first of its runs that was not."""


def main() -> int:
    options = _options()
    console = report.wide_console()
    around = conditions.look(body_bytes=1000, prefetch=1000, rounds=options.rounds)
    report.warn_if_busy(console, around.load, around.cores, is_busy=around.is_busy)
    bars: list[Bar] = []
    try:
        for opening in sites.openings(options):
            with opening() as site:
                for kind in options.type:
                    bars += _measure(console, options, site, kind, around.busy)
    except (BenchError, DeadletterError) as error:
        console.print(f"[red]The measurement broke off:[/] {error}", soft_wrap=True)
        return 2
    report.show_bars(console, bars)
    return exit_code(bars)


def _measure(console: Console, options: argparse.Namespace, site: Site, kind: str, busy: str) -> list[Bar]:
    ears = Ears(site.pid)
    rounds: dict[int, Round] = {}
    with fresh_vhost(site.url, site.api) as vhost:
        small = _check(site, vhost, kind, max(2, options.count // 10), _HALF_GO)
        large = _check(site, vhost, kind, options.count, _HALF_GO)
        for number in range(1, options.most_rounds + 1):
            if number > options.rounds and all(found.quotable for found in _agreements(rounds).values()):
                break
            order = _ORDER if number % 2 else _ORDER[::-1]
            rounds[number] = _round(site, vhost, kind, options.count, order, ears)
            said = "   ".join(f"{name} {rounds[number].paces[name]:7,.0f}/s" for name in _ORDER)
            noise = f"  not quiet: {'; '.join(rounds[number].noise)}" if rounds[number].noise else ""
            print(f"{site.version:8} {kind:7} round {number}  {said}{noise}", flush=True)
    found = _agreements(rounds, busy)
    where = f"RabbitMQ {site.version}, {kind}, {options.count:,} letters"
    console.print(_table(where, rounds, found, large))
    for doubt in dict.fromkeys(doubt for one in found.values() for doubt in one.doubts):
        console.print(f"[yellow]Not quotable:[/] {doubt}", soft_wrap=True, highlight=False)
    grown = large.peak_mb - small.peak_mb
    return [
        *(_pace_bar(where, name, one) for name, one in found.items()),
        Bar(
            what=f"{where}: half go, {grown:.1f} MB more than with a tenth, allowed {GROWTH_BAR_MB:.0f}",
            passed=grown <= GROWTH_BAR_MB,
        ),
    ]


def _round(site: Site, vhost: Vhost, kind: str, count: int, order: Sequence[str], ears: Ears) -> Round:
    """There and back; the pace of each is that of both runs together."""
    paces: dict[str, list[float]] = {name: [] for name in order}
    noise: tuple[str, ...] = ()
    for name in (*order, *reversed(order)):
        uvloop.run(_fill(site, vhost.url, kind, count))
        before, mark = uvloop.run(ears.before()), ears.mark()
        match name:
            case "move":
                told = _move(vhost, count)
            case "look":
                told = uvloop.run(_look(vhost.url, count))
            case _:
                told = _checked_by(vhost, count, _ALL_GO if name == "check, all go" else _NONE_GOES)
        noise = noise or words(ears.since(mark, before))
        paces[name].append(told.per_s)
    return Round({name: harmonic_mean(found) for name, found in paces.items()}, noise)


def _agreements(rounds: Mapping[int, Round], busy: str = "") -> dict[str, Agreement]:
    noise = {number: one.noise for number, one in rounds.items()}
    return {
        name: agree(
            {number: one.paces[name] / one.paces[limit] for number, one in rounds.items()},
            noise,
            to=f"the {limit}",
            busy=busy,
        )
        for name, limit in _LIMITS.items()
    }


def _pace_bar(where: str, name: str, found: Agreement) -> Bar:
    ratio = found.ratio.median
    what = f"{where}: {name}, at {ratio:.2f} × the pace of the {_LIMITS[name]}, needed {PACE_BAR} ×"
    return Bar(what=what, passed=ratio >= PACE_BAR, quotable=found.quotable)


def _table(where: str, rounds: Mapping[int, Round], found: Mapping[str, Agreement], half: Told) -> Table:
    shown = Table(title=f"Looking at dead letters: {where}", title_justify="left")
    shown.add_column("what")
    for column in ("letters/s", "× its limit", "the limit"):
        shown.add_column(column, justify="right")
    shown.add_column("")
    for name in _ORDER:
        pace = f"{median(one.paces[name] for one in rounds.values()):,.0f}"
        if name in found:
            one = found[name]
            word = "PASS" if one.ratio.median >= PACE_BAR else "RED"
            said = word if one.quotable else f"{word}, not quotable"
            shown.add_row(name, pace, str(one.ratio), _LIMITS[name], said)
        else:
            shown.add_row(
                name, pace, "", "", "" if all(o.quotable for o in found.values()) else "not quotable"
            )
    shown.add_row("check, half go (once)", f"{half.per_s:,.0f}", "", "", f"{half.peak_mb:.0f} MB at most")
    return shown


def _move(vhost: Vhost, count: int) -> Told:
    # With their deaths, as the checker leaves them on: a broker takes longer over such a letter.
    told, peak_mb = _dlq(vhost, "move", DLQ, TARGET, "--keep-deaths", "--json")
    return _checked(Told(count, int(told["moved"]), float(told["seconds"]), peak_mb), count)


async def _look(url: str, count: int) -> Told:
    async with ready("look", Vhost(name="", url=url, api="")) as racer:
        await racer.go(Job(url=url, source=DLQ, target="", count=count, prefetch=0))
        told = await racer.finish()
    assert told is not None
    return Told(count, 0, told.seconds, (told.rss_peak_bytes or 0) / 1e6)


def _check(site: Site, vhost: Vhost, kind: str, count: int, limit: int) -> Told:
    uvloop.run(_fill(site, vhost.url, kind, count))
    return _checked_by(vhost, count, limit)


def _checked_by(vhost: Vhost, count: int, limit: int) -> Told:
    told, peak_mb = _dlq(
        vhost, "check", "--dlq", DLQ, "--target", TARGET, "--max-retries", str(limit),
        "--count-by", "header:x-retry-count", "--json",
    )  # fmt: skip
    (queue,) = told["queues"]
    found = Told(int(queue["seen"]), int(queue["moved"]), float(queue["seconds"]), peak_mb)
    going = {_ALL_GO: count, _HALF_GO: count // 2, _NONE_GOES: 0}[limit]
    if found.seen != count:
        raise BenchError(f"expected {count:,} letters to be looked at, got {found.seen:,}")
    return _checked(found, going)


def _checked(told: Told, expected: int) -> Told:
    if told.moved != expected:
        raise BenchError(f"expected {expected:,} letters to be moved, got {told.moved:,}")
    return told


def _dlq(vhost: Vhost, *arguments: str) -> tuple[Any, float]:
    """What the command told as JSON, and the most memory it had."""
    command = [str(Path(sys.executable).with_name("dlq")), *arguments]
    environment = {**os.environ, "DLQ_URL": vhost.url, "DLQ_API": vhost.api}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        said = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise BenchError(f"{' '.join(command)} ended with {process.returncode}: {said.decode()}")
    return json.loads(said), usage.ru_maxrss / 1000


async def _fill(site: Site, url: str, kind: str, count: int) -> None:
    """Half of the letters with a count of 1, half with 9, in turn, each with a real `x-death`."""
    connection = await connect(parse_addresses(url)[0], name="bench: fill")
    try:
        channel = await connection.channel()
        await clear(url, ENTRY, DLQ, TARGET)
        await asyncio.to_thread(site.begin_log)
        await _declare(channel, kind)
        await channel.select_confirms()
        outcome = await publish_all(channel, "", ENTRY, _letters(count))
        if outcome.confirmed != count:
            raise BenchError(f"expected {count:,} letters to be confirmed, got {outcome}")
        for _ in range(1200):
            if (await channel.declare_queue(DLQ, passive=True)).message_count >= count:
                break
            await asyncio.sleep(0.1)
        await asyncio.sleep(1.0)
    finally:
        await connection.close()


async def _declare(channel: Channel, kind: str) -> None:
    for queue in (DLQ, TARGET):
        await channel.declare_queue(queue, arguments={"x-queue-type": kind})
    await channel.declare_queue(
        ENTRY,
        arguments={
            "x-message-ttl": ENTRY_TTL_MS,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": DLQ,
        },
    )


def _letters(count: int) -> Iterator[RawMessage]:
    kinds = [
        encode(View(delivery_mode=2, content_type="application/json", headers={"x-retry-count": retries}))
        for retries in (1, 9)
    ]
    for number in range(count):
        yield RawMessage(kinds[number % 2], b"x" * 1000)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.check", description=(__doc__ or "").split("\n")[0])
    sites.add_arguments(parser, default=())
    parser.add_argument("--count", type=positive, default=COUNT, help="letters (%(default)s)")
    add_rounds(parser)
    parser.add_argument("--type", action="append", choices=["classic", "quorum"], help="(both)")
    options = parser.parse_args()
    options.most_rounds = most_rounds(options.rounds, options.most_rounds)
    options.type = options.type or ["classic", "quorum"]
    return options


if __name__ == "__main__":
    sys.exit(main())
