"""`dlq waiting`: what waits in delays, due or held; let out now, or parked."""

from __future__ import annotations

import os
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
from deadletter.cli.terminal.users import user_name
from deadletter.config.command_settings import BrokerSettings
from deadletter.core.text.durations import rough_duration_text
from deadletter.core.text.safe_text import line, lines
from deadletter.errors import UsageError
from deadletter.move.courier import Courier
from deadletter.operations.outlook.letting_out import let_out_words
from deadletter.operations.outlook.service_outlook import service_outlook
from deadletter.operations.waiting import LetOut, WaitingChoice, WaitingLook, Waits, let_out, look

_NOTHING: Final = "nothing waits: no delay, nothing due, nothing held"


def choice(origin: str | None, waits: str | None, letter_id: str | None) -> WaitingChoice:
    """As it was typed."""
    if waits is not None and waits not in list(Waits):
        raise UsageError(f"expected --for as one of {', '.join(Waits)}, got {waits!r}")
    return WaitingChoice(origin=origin, waits=None if waits is None else Waits(waits), letter_id=letter_id)


def show(
    *,
    wish: WaitingChoice,
    most: int,
    file: Path | None,
    options: Mapping[str, object],
    at: str | None,
    as_json: bool,
) -> Exit:
    if at is not None:
        _nothing_else(at, options)
        seen = event_loop.run(_told_by(at, wish, most))
    else:
        broker = config.load(config=file, options=options).broker
        seen = event_loop.run(look(broker.addresses, broker.api, wish, most=most))
    if as_json:
        data({**asdict(seen), "letters": seen.letters})
    else:
        result(_as_text(seen, int(time.time() * 1000)))
    return Exit.DONE


def _nothing_else(at: str, options: Mapping[str, object]) -> None:
    if any(value is not None for value in options.values()):
        raise UsageError(f"expected --at or --url and --api, got both: the service at {at} has a broker")


async def _told_by(at: str, wish: WaitingChoice, most: int) -> WaitingLook:
    async with service_outlook(at, os.environ.get("DLQ_API_TOKEN")) as outlook:
        told = await outlook.waiting(wish, vhost="", most=most)
        return WaitingLook(queues=told.queues, kinds=told.kinds, looked_at=told.looked_at)


async def _let_out_by(at: str, wish: WaitingChoice, why: str | None) -> LetOut:
    async with service_outlook(at, os.environ.get("DLQ_API_TOKEN")) as outlook:
        return await outlook.let_out(wish, vhost="", park=why, who=user_name())


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
    at: str | None,
    as_json: bool,
) -> Exit:
    """Let out, or with a reason park."""
    if not everything and wish == WaitingChoice():
        raise UsageError(
            "expected which letters are meant: --origin, --for, --id, or --all for all that waits"
        )
    if at is not None:
        _nothing_else(at, options)
        if dry_run:
            raise UsageError("expected --dry-run without --at: dlq waiting --at tells what waits")
        return _ended(event_loop.run(_let_out_by(at, wish, why)), why, as_json)
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
    return _ended(event_loop.run(_change(broker, wish, why)), why, as_json)


def _ended(done: LetOut, why: str | None, as_json: bool) -> Exit:
    if as_json:
        data(asdict(done))
    else:
        result(lines(let_out_words(done, parking=why is not None)))
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
