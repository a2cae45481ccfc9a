"""What the commands about stored letters share: the records at hand, moments and ages."""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from typing import Any

from deadletter.cli.letters.record_options import RecordsWish
from deadletter.cli.terminal import event_loop
from deadletter.cli.terminal.output import Exit
from deadletter.core.text.durations import rough_duration_text
from deadletter.operations.records.at_hand import records_at_hand
from deadletter.operations.records.records import Records


def with_records(wish: RecordsWish, work: Callable[[Records], Coroutine[Any, Any, Exit]]) -> Exit:
    """Does the work of a command on the records at hand."""

    async def main() -> Exit:
        async with records_at_hand(wish.whereabouts()) as records:
            return await work(records)

    return event_loop.run(main())


def now_ms() -> int:
    return int(time.time() * 1000)


def at_text(at_ms: int | None) -> str:
    """A time, for people."""
    if at_ms is None:
        return "–"
    try:
        return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError, OSError):
        return f"{at_ms} ms"


def age_text(at_ms: int, now: int) -> str:
    """How long ago, in a few characters: seconds and minutes whole."""
    ago = now - at_ms
    unit = 60_000 if ago >= 60_000 else 1_000
    return "now" if ago < 1_000 else rough_duration_text(ago if ago >= 3_600_000 else ago - ago % unit)
