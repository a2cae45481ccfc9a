"""A replay watched while it goes: what it does now on stderr, how it ended on stdout.

Who watches does nothing to it: Ctrl-C ends the watching, and says so.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import ExitStack
from typing import Any, Final, Self

from deadletter.cli.letters.asking import now_ms
from deadletter.cli.replays.replay_text import detail_text
from deadletter.cli.terminal import event_loop
from deadletter.cli.terminal.output import Exit, data, result
from deadletter.core.replaying.replay_states import ReplayState
from deadletter.core.text.safe_text import line, lines
from deadletter.errors import StoreError, Unreachable
from deadletter.operations.records.records import json_of
from deadletter.operations.replays.replay_told import ReplayDetail, ReplayTold, StepPlace
from deadletter.operations.replays.replays import Replays
from deadletter.operations.wording.replay_words import counts_words, left_words, waits_words

LOOK_S: Final = 1.0
"""So often it is looked at."""


async def watch(replays: Replays, number: int, *, as_json: bool) -> Exit:
    """Until it is over, or somebody has seen enough."""
    detail = await replays.replay(number, newcomers=False)
    stop = asyncio.Event()
    with event_loop.stopping(stop.set), LivePicture(quiet=as_json) as picture:
        while detail.replay.ended_ms is None and not stop.is_set():
            picture.show(detail)
            await _rest(stop)
            try:
                detail = await replays.replay(number, newcomers=False)
            except (StoreError, Unreachable) as error:
                picture.say(f"{error}; looking again")
    over = detail.replay.ended_ms is not None
    if over:
        detail = await replays.replay(number)
    if as_json:
        data({"watched_to_the_end": over, **json_of(detail)})
    else:
        left = "" if over else f"stopped watching; replay {number} goes on without you\n"
        result(left + detail_text(detail, now_ms=now_ms()))
    return ended(detail.replay) if over else Exit.DONE


async def _rest(stop: asyncio.Event) -> None:
    try:
        async with asyncio.timeout(LOOK_S):
            await stop.wait()
    except TimeoutError:
        return


def ended(replay: ReplayTold) -> Exit:
    """Whether something is left to do: letters that are back, were refused, or never went."""
    counts = replay.counts
    whole = replay.state is ReplayState.DONE and not counts.returned and not counts.refused
    return Exit.DONE if whole else Exit.LEFT


def picture_lines(detail: ReplayDetail) -> list[str]:
    """What it does now, in a few lines."""
    replay = detail.replay
    step = next((one for one in detail.steps if one.place is StepPlace.NOW), None)
    now = "" if step is None else f", step {step.number} of {step.letters:,}"
    gone = replay.letters - replay.counts.waiting
    said = [f"replay {replay.id}: {replay.state.value}{now}, {gone:,} of {replay.letters:,}"]
    said.append(f"   {counts_words(replay)}")
    if (left := left_words(replay)) is not None:
        said.append(f"   time left: {left}")
    if (waits := waits_words(replay)) is not None:
        said.append(f"   {waits[0]}: {waits[1]}")
    return said


class LivePicture:
    """On a terminal a picture that is drawn anew; elsewhere a line when something else is the matter."""

    def __init__(self, *, quiet: bool) -> None:
        self._quiet = quiet
        self._terminal = not quiet and sys.stderr.isatty()
        self._live: Any = None
        self._open = ExitStack()
        self._last: object = None

    def __enter__(self) -> Self:
        if self._terminal:
            from rich.console import Console  # slow to load
            from rich.live import Live

            console = Console(stderr=True, highlight=False)
            self._live = self._open.enter_context(Live(console=console, transient=True, auto_refresh=False))
        return self

    def __exit__(self, *error: object) -> None:
        self._open.close()

    def show(self, detail: ReplayDetail) -> None:
        if self._live is not None:
            from rich.text import Text

            hint = "   Ctrl-C stops watching, not the replay"
            self._live.update(Text(lines([*picture_lines(detail), hint])), refresh=True)
            return
        waits = waits_words(detail.replay)
        now = (detail.replay.state, [one.place for one in detail.steps], waits and _plain(waits[1]))
        if now != self._last:
            self._last = now
            self.say("; ".join(one.strip() for one in picture_lines(detail)))

    def say(self, text: str) -> None:
        if self._quiet:
            return
        if self._live is not None:
            from rich.text import Text

            self._live.console.print(Text(line(text)))
            return
        sys.stderr.write(f"{line(text)}\n")
        sys.stderr.flush()


def _plain(text: str) -> str:
    """Without its figures: one that counts down is no news."""
    return "".join(char for char in text if not char.isdigit())
