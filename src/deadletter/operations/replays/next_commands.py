"""The command that does the next thing, as it would be typed: under every screen that shows a replay."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, assert_never

from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.core.replaying.replay_plan import selection_from
from deadletter.core.replaying.replay_states import ReplayState
from deadletter.core.text.safe_text import is_plain
from deadletter.operations.replays.replay_told import ReplayTold

_TYPED = {
    "queue": "--queue",
    "origin": "--origin",
    "group": "--group",
    "error": "--error",
    "cause": "--cause",
    "message_id": "--message-id",
    "text": "--text",
    "where": "--where",
}
_IDS = 20
"""A line with more numbers than these helps nobody."""


def typed(*words: str) -> str | None:
    """A line for a shell; None where it cannot be shown as it would have to be typed."""
    said = shlex.join(["dlq", *words])
    return said if is_plain(said) else None


def selection_arguments(told: Mapping[str, Any]) -> list[str] | None:
    """The filters that mean this selection; None: nobody can type it."""
    try:
        query = selection_from(told)
    except (TypeError, ValueError):
        return None  # of a newer version
    plain = LetterQuery()
    untyped = ("letter_id", "discard")
    if len(query.ids) > _IDS or any(getattr(query, name) != getattr(plain, name) for name in untyped):
        return None
    said = [str(one) for one in query.ids]
    for name, option in _TYPED.items():
        if (value := getattr(query, name)) is not None:
            said += [option, str(value)]
    for option, at_ms in (("--since", query.died_from_ms), ("--until", query.died_until_ms)):
        if at_ms is not None:
            at = datetime.fromtimestamp(at_ms / 1000, UTC)
            said += [option, f"{at:%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03d}"]
    for name, pattern in query.headers:
        said += ["--header", f"{name}={pattern}"]
    return said


def selection_words(told: Mapping[str, Any]) -> str:
    """Which letters, for people: as it would be typed, where it can be."""
    said = selection_arguments(told)
    if said:
        return shlex.join(said)
    ids = told.get("ids")
    return f"{len(ids):,} letters by number" if ids else str(dict(told) or "all")


def next_lines(replay: ReplayTold) -> list[tuple[str, str]]:
    """What could be done now, and the line for it; the likeliest first."""
    number, counts = str(replay.id), replay.counts
    found: list[tuple[str, str | None]] = []
    match replay.state:
        case ReplayState.FREEZING | ReplayState.RUNNING:
            found += [
                ("watch it", typed("replays", number, "--watch")),
                ("hold it", typed("replay", "pause", number)),
            ]
        case ReplayState.PAUSED:
            found += [
                ("go on", typed("replay", "resume", number)),
                ("end it; what waits stays here", typed("replay", "cancel", number)),
            ]
        case ReplayState.STOPPED | ReplayState.CANCELLED:
            found += _looks(replay)
            rest = selection_arguments(replay.selection)
            if counts.let_go and rest:
                found.append(("send the rest, once it is cured", typed("replay", *rest)))
        case ReplayState.DONE:
            found += _looks(replay) or [
                ("what became of each", typed("replays", number, "--outcomes", "all"))
            ]
            found.append(_close(replay))
        case _:
            assert_never(replay.state)
    if replay.state is not ReplayState.DONE and counts.returned and replay.state is not ReplayState.STOPPED:
        found.append(("what came back", typed("replays", number, "--outcomes", "back")))
    return [(what, said) for what, said in found if said]


def _looks(replay: ReplayTold) -> list[tuple[str, str | None]]:
    """At what needs a person."""
    number, counts = str(replay.id), replay.counts
    return [
        (what, typed("replays", number, "--outcomes", word))
        for what, word, letters in (
            ("what came back, and why", "back", counts.returned),
            ("what was refused, and why", "refused", counts.refused),
            ("what may have gone twice", "doubtful", counts.doubtful),
        )
        if letters
    ]


def _close(replay: ReplayTold) -> tuple[str, str | None]:
    """Its group, where all of it went and nothing is back."""
    group, counts = replay.selection.get("group"), replay.counts
    whole = replay.letters and not counts.returned and not counts.refused and not counts.let_go
    if group is None or not whole or replay.resolves:
        return "", None
    return "nothing of it is back: say that it is cured", typed("resolve", str(group))
