"""What a person does with a replay that goes: hold it, let it go on, end it."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, assert_never

from deadletter.operations.replays.replay_told import ReplayTold
from deadletter.operations.replays.replays import Replays


class Turn(StrEnum):
    PAUSE = "pause"
    RESUME = "resume"
    CANCEL = "cancel"


TURNED: Final = {
    Turn.PAUSE: "paused; what is being sent is settled, nothing more is sent",
    Turn.RESUME: "goes on",
    Turn.CANCEL: "cancelled; what was not sent is in the store, open; what was sent is waited for",
}
"""What it means, for people."""


async def turn(replays: Replays, number: int, to: Turn, *, who: str) -> ReplayTold:
    """UsageError: it is over."""
    match to:
        case Turn.PAUSE:
            return await replays.pause(number, who=who)
        case Turn.RESUME:
            return await replays.resume(number, who=who)
        case Turn.CANCEL:
            return await replays.cancel(number, who=who)
        case _:
            assert_never(to)
