"""Replays in words.

What nobody said is not claimed: a letter that did not come back is "not returned in 10 min". Only what its
consumer confirmed is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, assert_never

from deadletter.core.letter.header_values import shown
from deadletter.core.replaying.replay_pace import pace_from
from deadletter.core.replaying.replay_states import ReplayState
from deadletter.core.replaying.replay_target import target_from, target_words
from deadletter.core.text.durations import duration_text, rough_duration_text
from deadletter.errors import UsageError
from deadletter.operations.replays.replay_told import OutcomeState, OutcomeTold, ReplayTold
from deadletter.operations.wording.pace_words import pace_words

ORIGINS: Final = 5


class OutcomeWord(StrEnum):
    """What became of letters, as people ask for them."""

    BACK = "back"
    QUIET = "quiet"
    DONE = "done"
    REFUSED = "refused"
    DOUBTFUL = "doubtful"
    SENT = "sent"
    WAITING = "waiting"
    LET_GO = "let-go"
    ALL = "all"


OUTCOMES: Final = {
    OutcomeWord.BACK: OutcomeState.RETURNED,
    OutcomeWord.QUIET: OutcomeState.QUIET,
    OutcomeWord.DONE: OutcomeState.DONE,
    OutcomeWord.REFUSED: OutcomeState.REFUSED,
    OutcomeWord.SENT: OutcomeState.SENT,
    OutcomeWord.WAITING: OutcomeState.WAITING,
    OutcomeWord.LET_GO: OutcomeState.LET_GO,
}
"""`doubtful` and `all` are no state: letters of any may be that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeCount:
    """How many letters of a replay have come to this. `asks`: how one asks for them."""

    name: str
    letters: int
    words: str
    asks: OutcomeWord


def outcome_counts(replay: ReplayTold) -> list[OutcomeCount]:
    """Figures with their words, where there are any; together they are all that were frozen, and the
    doubtful ones, which are among them."""
    counts = replay.counts
    quiet = f"not returned in {duration_text(replay.outcome_ms)}"
    told = (
        ("done", counts.done, "their consumer said so", OutcomeWord.DONE),
        ("not returned", counts.quiet, quiet, OutcomeWord.QUIET),
        ("back", counts.returned, "failed again, and in the store again", OutcomeWord.BACK),
        ("sent", counts.sent, "confirmed by the broker; the outcome is not known yet", OutcomeWord.SENT),
        ("sending", counts.sending, "published, or about to be", OutcomeWord.ALL),
        ("waiting", counts.waiting, "not sent yet", OutcomeWord.WAITING),
        (
            "refused",
            counts.refused,
            "could not be sent; in the store, each with the reason",
            OutcomeWord.REFUSED,
        ),
        ("let go", counts.let_go, "never sent; in the store, open", OutcomeWord.LET_GO),
        (
            "doubtful",
            counts.doubtful,
            "of all of these: may have gone twice, with the same id",
            OutcomeWord.DOUBTFUL,
        ),
    )
    return [
        OutcomeCount(name=name, letters=letters, words=words, asks=asks)
        for name, letters, words, asks in told
        if letters
    ]


def counts_words(replay: ReplayTold) -> str:
    """In a line, as far as there is something to say: `3 back, 12 not returned in 10 min, 480 waiting`."""
    counts = replay.counts
    quiet = f"not returned in {duration_text(replay.outcome_ms)}"
    told = (
        (counts.done, "done"),
        (counts.quiet, quiet),
        (counts.returned, "back"),
        (counts.sent + counts.sending, "sent, outcome not known"),
        (counts.waiting, "waiting"),
        (counts.refused, "refused"),
        (counts.let_go, "let go"),
        (counts.doubtful, "may have gone twice"),
    )
    return ", ".join(f"{letters:,} {words}" for letters, words in told if letters) or "no letters yet"


def told_target(replay: ReplayTold) -> str:
    try:
        return target_words(target_from(replay.target))
    except UsageError:  # of a newer version
        return shown(str(replay.target))


def told_pace(replay: ReplayTold) -> str:
    try:
        return pace_words(pace_from(replay.pace))
    except UsageError:  # of a newer version
        return shown(str(replay.pace))


def origins_words(origins: Sequence[str]) -> str:
    """`orders, refunds and 3 more`."""
    return f"{', '.join(origins[:ORIGINS])}{and_more(len(origins) - ORIGINS)}"


def and_more(number: int) -> str:
    return f" and {number:,} more" if number > 0 else ""


def left_words(replay: ReplayTold) -> str | None:
    """An honest time left; None: there is nothing left to send."""
    if replay.state is not ReplayState.RUNNING or not (replay.counts.waiting or replay.counts.sending):
        return None
    if replay.left_ms is not None:
        return f"about {rough_duration_text(replay.left_ms)} until all are sent, if it goes on like this"
    if replay.pace.get("pace") == "canary":
        return "nobody can say: a canary waits for outcomes"
    return "nobody can say yet"


def waits_words(replay: ReplayTold) -> list[str] | None:
    """Why it stands still, or stopped; None: nothing to say."""
    stopped = replay.state is ReplayState.STOPPED
    if not replay.waits_for or (replay.ended_ms is not None and not stopped):
        return None
    return ["stopped" if stopped else "waits", replay.waits_for]


def outcome_words(replay: ReplayTold, one: OutcomeTold) -> str:
    """What became of one letter, and whether that is doubtful."""
    said = became_words(replay, one)
    return f"MAY HAVE GONE TWICE; {said}" if one.doubtful else said


def became_words(replay: ReplayTold, one: OutcomeTold) -> str:
    """What became of one letter."""
    after = "" if one.after_ms is None else f" after {rough_duration_text(one.after_ms)}"
    match one.state:
        case OutcomeState.RETURNED:
            said = f"back{after}{_as_letter(one)}"
            said += f": {one.error}" if one.error else ""
        case OutcomeState.DONE:
            said = f"done{after}: its consumer said so"
        case OutcomeState.QUIET:
            said = f"not returned in {duration_text(replay.outcome_ms)}"
        case OutcomeState.REFUSED:
            said = f"refused, in the store: {one.why or 'no reason told'}"
        case OutcomeState.LET_GO:
            said = f"never sent, in the store{f': {one.why}' if one.why else ''}"
        case OutcomeState.SENT:
            said = "sent; the outcome is not known yet"
        case OutcomeState.SENDING:
            said = "being sent"
        case OutcomeState.WAITING:
            said = "not sent yet"
        case _:
            assert_never(one.state)
    return said


def _as_letter(one: OutcomeTold) -> str:
    said = "" if one.returned_letter is None else f" as letter {one.returned_letter}"
    if one.same_group is True:
        return f"{said}, same group"
    if one.same_group is False:
        return f"{said}, ANOTHER group ({one.returned_group})"
    return said
