"""`dlq move`: from one queue to another, and an account of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deadletter import config
from deadletter.amqp.address import Address
from deadletter.broker.queue_counts import counts_of_existing
from deadletter.broker.session import Link, supervise
from deadletter.broker.streams import refuse_streams
from deadletter.cli.stored_here import stored_words
from deadletter.cli.terminal import event_loop
from deadletter.cli.terminal.output import Exit, data, parked_lines, result
from deadletter.cli.terminal.screen import MoveScreen
from deadletter.cli.terminal.units import count
from deadletter.core.text.amounts import parse_rate, parse_span
from deadletter.core.text.durations import elapsed_text
from deadletter.core.text.safe_text import line, lines
from deadletter.errors import UsageError
from deadletter.move.courier import Bounds, Courier, Deaths, Ended, MoveTally, Send, Terms
from deadletter.operations.lifting import renewed_words, taking


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveWish:
    """What was asked for, as it was typed."""

    source: str
    target: str
    file: Path | None
    url: str | None
    limit: int | None
    rate: str | None
    for_: str | None
    keep_deaths: bool
    prefetch: int
    api: str | None
    lift_limit: bool
    dry_run: bool
    as_json: bool


def run(wish: MoveWish) -> Exit:
    if wish.source == wish.target:
        raise UsageError(f"source and target are the same queue, {wish.source!r}; nothing to move")
    options = {"broker.url": wish.url, "broker.api": wish.api}
    settings = config.load_command(config=wish.file, options=options)
    broker = settings.broker
    terms = Terms(prefetch=wish.prefetch, rate_per_s=None if wish.rate is None else parse_rate(wish.rate))
    bounds = Bounds(count=wish.limit, seconds=None if wish.for_ is None else parse_span(wish.for_))
    elsewhere = stored_words(wish.source, settings)
    return event_loop.run(_move(wish, broker.addresses, broker.api, bounds, terms, elsewhere))


async def _move(
    wish: MoveWish,
    addresses: Sequence[Address],
    api: str | None,
    bounds: Bounds,
    terms: Terms,
    elsewhere: str | None,
) -> Exit:
    """`elsewhere`: where letters of the source are, if they are not in it."""

    async def look(link: Link) -> int:
        depth = await _depth(link, wish.source)
        await refuse_streams(await link.connection("consume"), wish.source)
        await _depth(link, wish.target)
        return depth

    depth = await supervise(addresses, look)
    if wish.dry_run:
        would = depth if wish.limit is None else min(depth, wish.limit)
        if wish.as_json:
            data({"source": wish.source, "target": wish.target, "dry_run": True, "would_move": would})
        else:
            words = f"would move {count(would)} from {wish.source} to {wish.target}; nothing was touched"
            result(line(words if would or elsewhere is None else f"{words}; {elsewhere}"))
        return Exit.DONE
    verdict = Send(
        routing_key=wish.target,
        deaths=Deaths.KEEP if wish.keep_deaths else Deaths.SET_ASIDE,
        unwrap=True,
    )
    with MoveScreen(f"{wish.source} → {wish.target}") as screen:
        async with taking(addresses, wish.source, api=api, lift=wish.lift_limit) as asked:
            courier = Courier(
                addresses,
                source=wish.source,
                decide=lambda _letter: verdict,
                bounds=bounds,
                terms=terms,
                limits=asked.limits,
                on_event=screen.on_event,
            )
            with event_loop.stopping(courier.stop):
                tally = await courier.run()
    notes = list(asked.notes)
    if not tally.moved and tally.ended in (Ended.COMPLETE, Ended.EMPTY) and elsewhere is not None:
        notes.append(elsewhere)
    if tally.renewed:
        words = renewed_words(tally.renewed, wish.source, asked.deliveries.limit)
        notes.append(f"{words}; {asked.advice}")
    if wish.as_json:
        data(_as_json(wish, tally, notes))
    else:
        result(_as_text(wish, tally, notes))
    complete = tally.ended in (Ended.COMPLETE, Ended.EMPTY) and not tally.failed
    safe = not tally.sheltered and not tally.endangered
    return Exit.DONE if complete and safe else Exit.LEFT


async def _depth(link: Link, queue: str) -> int:
    return (await counts_of_existing(await link.connection("consume"), queue)).ready


def _as_text(wish: MoveWish, tally: MoveTally, notes: Sequence[str]) -> str:
    speed = f", {tally.moved / tally.seconds:,.0f}/s" if tally.seconds > 0 and tally.moved > 1 else ""
    said = [
        f"moved {count(tally.moved)} from {wish.source} to {wish.target} "
        f"in {elapsed_text(tally.seconds)}{speed}"
        if tally.moved
        else f"moved nothing from {wish.source}: {tally.ended.value}"
    ]
    if tally.moved and tally.ended not in (Ended.COMPLETE, Ended.EMPTY):
        said.append(f"ended early: {tally.ended.value}; the rest is still in {wish.source}")
    if tally.failed:
        said.append(f"{count(tally.failed)} stayed in {wish.source}:")
        said += [f"  {number:,} × {why}" for why, number in tally.reasons.items()]
        said += [f"  for example {failure.id}" for failure in tally.examples[:1]]
    if tally.maybe_twice:
        said.append(
            f"after a lost connection up to {count(tally.maybe_twice)} may be in both queues, or twice in "
            f"{wish.target}; copies carry the same deadletter-id"
        )
    said += [*parked_lines(wish.source, tally.sheltered, tally.endangered), *notes]
    return lines(said)


def _as_json(wish: MoveWish, tally: MoveTally, notes: Sequence[str]) -> dict[str, object]:
    return {
        "run": tally.run,
        "source": wish.source,
        "target": wish.target,
        "moved": tally.moved,
        "failed": tally.failed,
        "renewed": tally.renewed,
        "parked": dict(tally.sheltered),
        "endangered": dict(tally.endangered),
        "reasons": dict(tally.reasons),
        "examples": [{"id": failure.id, "why": failure.why} for failure in tally.examples],
        "maybe_twice": tally.maybe_twice,
        "reconnects": tally.reconnects,
        "seconds": round(tally.seconds, 3),
        "ended": tally.ended.name.lower(),
        "notes": list(notes),
    }
