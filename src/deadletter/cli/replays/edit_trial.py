"""An edit tried on a selection, portion by portion, and what that says to people. Nothing is changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from deadletter.cli.terminal.progress import GrowingCount
from deadletter.cli.terminal.units import count
from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.core.replaying.letter_diff import difference_json, difference_lines
from deadletter.core.text.safe_text import line
from deadletter.operations.replays.replay_told import TRIED, EditFailure, EditSample, EditWish
from deadletter.operations.replays.replays import Replays

TRIED_MOST: Final = 10_000
"""So many letters an edit is tried on, unless somebody says otherwise."""
_SAMPLE: Final = 2
_FAILURES: Final = 10
_FAILURES_JSON: Final = 1_000
_REASONS: Final = 50


@dataclass(slots=True, kw_only=True)
class EditTrial:
    """What an edit would do to the letters it was tried on."""

    program: str = ""
    letters: int = 0
    changed: int = 0
    same: int = 0
    failed: int = 0
    sample: list[EditSample] = field(default_factory=list)
    failures: list[EditFailure] = field(default_factory=list)
    """The first of them; `reasons` counts them all."""
    reasons: Counter[str] = field(default_factory=Counter)
    whole: bool = False
    """Whether it was tried on all of the selection."""


async def tried(
    replays: Replays,
    selection: LetterQuery,
    edit: EditWish,
    *,
    most: int,
    quiet: bool,
    stopped: Callable[[], bool] = lambda: False,
) -> EditTrial:
    """On at most so many letters of the selection, the oldest first."""
    trial, after = EditTrial(), None
    with GrowingCount("trying the edit", quiet=quiet) as shown:
        while trial.letters < most and not stopped():
            limit = min(TRIED, most - trial.letters)
            part = await replays.try_edit(selection, edit, after=after, limit=limit)
            trial.program = part.program
            trial.letters += part.letters
            trial.changed += part.changed
            trial.same += part.same
            trial.failed += part.failed
            trial.sample += part.sample[: _SAMPLE - len(trial.sample)]
            trial.failures += part.failures[: _FAILURES_JSON - len(trial.failures)]
            for why in (one for failure in part.failures for one in failure.why):
                if why in trial.reasons or len(trial.reasons) < _REASONS:
                    trial.reasons[why] += 1
            shown.count(trial.letters)
            after = part.more
            if after is None:
                trial.whole = True
                break
    return trial


def trial_lines(trial: EditTrial, *, of: str = "") -> list[str]:
    """How many change, stay, cannot be changed; which, and why; the difference of some. `of`: what they are
    letters of."""
    rest = "" if trial.whole else " (there are more, which were not looked at)"
    whose = f" of {of}" if of else ""
    figures = f"{trial.changed:,} would change, {trial.same:,} stay as they are"
    said = [f"{count(trial.letters)}{whose}: {figures}, {trial.failed:,} cannot be changed{rest}"]
    said += [
        line(f"  letter {failed.letter}: {'; '.join(failed.why)}") for failed in trial.failures[:_FAILURES]
    ]
    if trial.failed > _FAILURES:
        said.append(f"  and {trial.failed - _FAILURES:,} more")
    for sample in trial.sample:
        said.append(f"  letter {sample.letter}:")
        said += [f"    {line(one)}" for one in difference_lines(sample.differences)]
    return said


def trial_json(trial: EditTrial) -> dict[str, Any]:
    return {
        "letters": trial.letters,
        "changed": trial.changed,
        "same": trial.same,
        "failed": trial.failed,
        "whole": trial.whole,
        "reasons": dict(trial.reasons),
        "failures": [{"letter": one.letter, "why": list(one.why)} for one in trial.failures],
        "sample": [
            {"letter": one.letter, "differences": difference_json(one.differences)} for one in trial.sample
        ],
    }
