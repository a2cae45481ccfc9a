"""The line that begins a replay, as it would be typed."""

from __future__ import annotations

from typing import assert_never

from deadletter.core.replaying.replay_plan import OUTCOME_MS, selection_json
from deadletter.core.replaying.replay_target import ReplayTarget, ToExchange, ToOrigin, ToQueue
from deadletter.core.text.durations import duration_text
from deadletter.operations.replays.next_commands import selection_arguments, typed
from deadletter.operations.replays.replay_told import UNCHANGED, ReplayWish
from deadletter.operations.wording.pace_words import pace_arguments


def replay_line(wish: ReplayWish, *, why: str = "") -> str | None:
    """None: nobody can type it. One with an edit is tried first, and its trial tells the code that `--yes`
    wants: so the line has no `--yes` then."""
    chosen = selection_arguments(selection_json(wish.selection))
    if not chosen:
        return None
    said = ["replay", *chosen, *_target(wish.target), *_edit(wish), *pace_arguments(wish.pace)]
    if wish.outcome_ms != OUTCOME_MS:
        said += ["--outcome", duration_text(wish.outcome_ms).replace(" ", "")]
    if wish.resolves:
        said.append("--resolve")
    if wish.overrules_guards:
        said.append("--overrule-guards")
    if wish.vhost:
        said += ["--vhost", wish.vhost]
    if why:
        said += ["--why", why]
    if wish.edit == UNCHANGED:
        said.append("--yes")
    return typed(*said)


def _target(target: ReplayTarget) -> list[str]:
    match target:
        case ToOrigin():
            return []
        case ToQueue(queue=queue):
            return ["--to-queue", queue]
        case ToExchange(exchange=exchange, key=key):
            return ["--to-exchange", exchange, *([] if key is None else ["--key", key])]
        case _:
            assert_never(target)


def _edit(wish: ReplayWish) -> list[str]:
    if wish.edit.recipe:
        return ["--recipe", wish.edit.recipe]
    return ["--edit", wish.edit.program] if wish.edit.program else []
