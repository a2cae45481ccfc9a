"""What the commands about replays share: the records and the replays at hand, and a replay's number."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from deadletter.cli.letters.letter_filters import is_number
from deadletter.cli.letters.record_options import RecordsWish
from deadletter.cli.terminal import event_loop
from deadletter.cli.terminal.output import Exit
from deadletter.errors import UsageError
from deadletter.operations.replays.at_hand import DeskAtHand, replays_at_hand


def with_desk(wish: RecordsWish, work: Callable[[DeskAtHand], Coroutine[Any, Any, Exit]]) -> Exit:
    """Does the work of a command on the records and replays at hand."""

    async def main() -> Exit:
        async with replays_at_hand(wish.whereabouts()) as desk:
            return await work(desk)

    return event_loop.run(main())


def replay_number(said: str) -> int:
    if not is_number(said):
        raise UsageError(f"expected the number of a replay, as dlq replays lists them, got {said!r}")
    return int(said)
