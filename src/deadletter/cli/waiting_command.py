"""`dlq waiting`: what waits in delays, due or held; let out now, or parked."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Final

from deadletter import config
from deadletter.cli.terminal import event_loop
from deadletter.cli.terminal.output import Exit, columns, data, result
from deadletter.cli.terminal.screen import MoveScreen
from deadletter.cli.terminal.units import count
from deadletter.config.settings import BrokerSettings
from deadletter.core.text.durations import rough_duration_text
from deadletter.core.text.safe_text import line, lines
from deadletter.errors import UsageError
from deadletter.move.courier import Courier
from deadletter.operations.waiting import LetOut, WaitingChoice, WaitingLook, Waits, let_out, look

_NOTHING: Final = "nothing waits: no delay, nothing due, nothing held"


def choice(origin: str | None, waits: str | None, letter_id: str | None) -> WaitingChoice:
    """As it was typed."""
    if waits is not None and waits not in list(Waits):
        raise UsageError(f"expected --for as one of {', '.join(Waits)}, got {waits!r}")
    return WaitingChoice(origin=origin, waits=None if waits is None else Waits(waits), letter_id=letter_id)


def show(
    *, wish: WaitingChoice, most: int, file: Path | None, options: Mapping[str, object], as_json: bool
) -> Exit:
    broker = config.load(config=file, options=options).broker
    seen = event_loop.run(look(broker.addresses, broker.api, wish, most=most))
    if as_json:
        data({**asdict(seen), "letters": seen.letters})
    else:
        result(_as_text(seen, int(time.time() * 1000)))
    return Exit.DONE


def _as_text(seen: WaitingLook, now_ms: int) -> str:
    if not seen.queues:
        return _NOTHING
    said = [f"{count(seen.letters)} waiting, in {len(seen.queues)} queues"]
    if seen.looked_at < seen.letters:
        said.append(
            f"{seen.looked_at:,} of them were looked at (--most for more); the figures below are of those"
        )
    rows = [["letters", "origin", "waits for", "attempt", "goes", ""]]
    rows += [
        [
            f"{kind.letters:,}",
            kind.origin or "(unknown)",
            kind.waits.value,
            "" if kind.attempt is None else str(kind.attempt),
            _when(kind.due_from_ms, kind.due_until_ms, now_ms),
            kind.why,
        ]
        for kind in seen.kinds
    ]
    return lines(said) + "\n\n" + columns(rows)


def _when(first_ms: int | None, last_ms: int | None, now_ms: int) -> str:
    if first_ms is None or last_ms is None:
        return ""
    if last_ms <= now_ms:
        return "now"
    last = f"in {rough_duration_text(last_ms - now_ms)}"
    if first_ms <= now_ms:
        return f"now … {last}"
    first = f"in {rough_duration_text(first_ms - now_ms)}"
    return first if first == last else f"{first} … {last}"


def change(
    *,
    wish: WaitingChoice,
    why: str | None,
    everything: bool,
    dry_run: bool,
    file: Path | None,
    options: Mapping[str, object],
    as_json: bool,
) -> Exit:
    """Let out, or with a reason park."""
    if not everything and wish == WaitingChoice():
        raise UsageError(
            "expected which letters are meant: --origin, --for, --id, or --all for all that waits"
        )
    broker = config.load(config=file, options=options).broker
    if dry_run:
        seen = event_loop.run(look(broker.addresses, broker.api, wish, most=1_000_000))
        would = sum(kind.letters for kind in seen.kinds)
        if as_json:
            data({"dry_run": True, "would": would})
        else:
            verb = "park" if why is not None else "let out"
            result(line(f"would {verb} {count(would)}; nothing was changed"))
        return Exit.DONE
    done = event_loop.run(_change(broker, wish, why))
    if as_json:
        data(asdict(done))
    else:
        result(_told(done, why))
    return Exit.LEFT if done.failed or done.left else Exit.DONE


async def _change(broker: BrokerSettings, wish: WaitingChoice, why: str | None) -> LetOut:
    couriers: list[Courier] = []
    stopped = False

    def stop() -> None:
        nonlocal stopped
        stopped = True
        for courier in couriers:
            courier.stop()

    def begin(courier: Courier) -> None:
        couriers.append(courier)
        if stopped:
            courier.stop()

    with MoveScreen("parking" if why is not None else "letting out") as screen, event_loop.stopping(stop):
        return await let_out(
            broker.addresses, broker.api, wish, park=why, on_event=screen.on_event, on_courier=begin
        )


def _told(done: LetOut, why: str | None) -> str:
    if not (done.released or done.parked or done.left or done.failed):
        return "nothing that waits was meant"
    said = [
        f"parked {count(done.parked)}" if why is not None else f"sent {count(done.released)} home",
    ]
    if why is None and done.parked:
        said.append(f"parked {count(done.parked)}: their origin is not there")
    if done.left:
        said.append(f"{count(done.left)} stayed: their origin refused them (is it full?)")
    if done.failed:
        said += [f"{number:,} stayed: {reason}" for reason, number in done.reasons.items()]
    if done.maybe_twice:
        said.append(f"after a lost connection up to {count(done.maybe_twice)} may be there twice, same id")
    return lines(said)
