"""Replays for people: before one, a list of them, one whole, what became of its letters.

What nobody said is not claimed: a letter that did not come back is "not returned in 10 min". Only what its
consumer confirmed is done.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, assert_never

from deadletter.cli.letters.asking import age_text, at_text
from deadletter.cli.letters.groups_text import letters_table
from deadletter.cli.terminal.output import columns
from deadletter.cli.terminal.units import count
from deadletter.core.replaying.preflight import RemarkLevel
from deadletter.core.replaying.replay_states import ReplayState
from deadletter.core.replaying.replay_target import target_words
from deadletter.core.text.durations import duration_text
from deadletter.core.text.safe_text import line, lines
from deadletter.operations.replays.next_commands import next_lines, selection_words
from deadletter.operations.replays.replay_told import (
    CanaryStep,
    OutcomePage,
    PreflightTold,
    ReplayDetail,
    ReplayPage,
    ReplayTold,
    ReplayWish,
    StepPlace,
)
from deadletter.operations.wording.pace_words import pace_words
from deadletter.operations.wording.replay_words import (
    ORIGINS,
    and_more,
    left_words,
    origins_words,
    outcome_counts,
    outcome_words,
    told_pace,
    told_target,
    waits_words,
)

_LEVELS: Final = {
    RemarkLevel.STOP: "STOP",
    RemarkLevel.WARNING: "WARNING",
    RemarkLevel.NOTE: "note",
    RemarkLevel.OK: "ok",
}


# -- before one ------------------------------------------------------------------------------------------
def before_text(
    wish: ReplayWish, told: PreflightTold, edit: Sequence[str], *, now_ms: int, width: int | None
) -> str:
    """What would be sent, where to, how, and what there is to say about that."""
    least = "" if told.exact else "at least "
    said = [
        line(f"would replay {least}{count(told.letters)} to {target_words(wish.target)}"),
        *(lines(_plan(wish, told)).split("\n")),
    ]
    if told.sample:
        said += ["such as", letters_table(told.sample, now_ms=now_ms, width=width, indent=3)]
    if edit:
        said += ["the edit", *(f"   {one}" for one in edit)]
    if told.remarks:
        rows = [[_LEVELS[one.level], one.about, one.text] for one in told.remarks]
        said += ["before it goes", columns(rows, indent=3)]
    if told.unanswered:
        said.append(f"of {count(told.unanswered)} the jq program could say nothing; they are left out")
    return "\n".join(said)


def _plan(wish: ReplayWish, told: PreflightTold) -> Iterator[str]:
    if told.origins:
        most = sorted(told.origins.items(), key=lambda one: -one[1])
        named = ", ".join(f"{origin} {letters:,}" for origin, letters in most[:ORIGINS])
        yield f"   failed in  {named}" + and_more(len(most) - ORIGINS)
    yield f"   pace       {pace_words(wish.pace)}"
    yield f'   outcome    what is not back after {duration_text(wish.outcome_ms)} is told as "not returned"'
    if told.drafts:
        yield f"   repaired   {count(told.drafts)} of those below: the repaired one goes"
    if wish.resolves:
        yield "   then       groups of which all went and none came back are resolved"
    if wish.overrules_guards:
        yield "   guards     overruled: it goes although a guard holds retries of that queue"


# -- one -------------------------------------------------------------------------------------------------
def detail_text(detail: ReplayDetail, *, now_ms: int) -> str:
    replay = detail.replay
    origins = f": {origins_words(detail.origins)}" if detail.origins else ""
    rows = [["to", told_target(replay) + origins], ["pace", told_pace(replay)]]
    if detail.steps and replay.letters:
        rows.append(
            ["steps", ", ".join(_step(one, over=replay.ended_ms is not None) for one in detail.steps)]
        )
    if replay.edit:
        by = f"recipe {replay.recipe}: " if replay.recipe else ""
        rows.append(["edit", by + replay.edit])
    rows.append(["letters", _letters(replay, detail.newcomers)])
    if replay.overrules_guards:
        rows.append(["guards", "overruled"])
    if (left := left_words(replay)) is not None:
        rows.append(["time left", left])
    if (waits := waits_words(replay)) is not None:
        rows.append(waits)
    parts = [line(head_words(replay, now_ms)), columns(rows, indent=3)]
    if replay.letters:
        parts.append(
            columns([[f"{one.letters:>9,}", one.name, one.words] for one in outcome_counts(replay)], indent=3)
        )
    parts.append(next_text(replay))
    return "\n".join(part for part in parts if part)


def head_words(replay: ReplayTold, now_ms: int) -> str:
    """`replay 7: running, begun 3 min ago by anna: the ledger is back`."""
    when = f"begun {_ago(replay.made_ms, now_ms)}"
    if replay.ended_ms is not None:
        when += f", over {_ago(replay.ended_ms, now_ms)}"
    elif replay.state in (ReplayState.STOPPED, ReplayState.CANCELLED):
        when += ", outcomes of what was sent are waited for"
    why = f": {replay.why}" if replay.why else ""
    return f"replay {replay.id}: {replay.state.value}, {when}, by {replay.who or 'itself'}{why}"


def _ago(at_ms: int, now_ms: int) -> str:
    told = age_text(at_ms, now_ms)
    return told if told == "now" else f"{told} ago"


def _step(step: CanaryStep, *, over: bool) -> str:
    match step.place:
        case StepPlace.BEHIND:
            return f"{step.letters:,} done with"
        case StepPlace.NOW:
            now = "" if over else " NOW"
            return f"{step.letters:,}{now} ({step.sent or 0:,} sent, {step.returned or 0:,} back)"
        case StepPlace.AHEAD:
            return f"{step.letters:,}"
        case _:
            assert_never(step.place)


def _letters(replay: ReplayTold, newcomers: int | None) -> str:
    frozen = "so far: they are being collected" if replay.state is ReplayState.FREEZING else "frozen"
    said = f"{replay.letters:,} {frozen} ({selection_words(replay.selection)})"
    return f"{said}; {newcomers:,} came since and are left out" if newcomers else said


def next_text(replay: ReplayTold) -> str:
    """What to type next."""
    found = next_lines(replay)
    return columns([[said, what] for what, said in found], indent=3) if found else ""


# -- many ------------------------------------------------------------------------------------------------
_HEAD: Final = ("#", "state", "letters", "done", "not back", "back", "waiting", "refused", "begun", "which")


def page_text(page: ReplayPage, *, now_ms: int) -> str:
    if not page.replays:
        return "no replays like that; dlq replay --group 12 says what one would do"
    rows = [list(_HEAD), *(_row(one, now_ms) for one in page.replays)]
    said = [columns(rows)]
    if page.more is not None:
        said.append(f"there are more: --after {page.more}")
    newest = page.replays[0].id
    said.append(f"all about one: dlq replays {newest}; what is not back: nobody said that it succeeded")
    return "\n".join(said)


def _row(replay: ReplayTold, now_ms: int) -> list[str]:
    counts = replay.counts
    waiting = counts.waiting + counts.sending + counts.sent
    figures = (replay.letters, counts.done, counts.quiet, counts.returned, waiting, counts.refused)
    edit = f", recipe {replay.recipe}" if replay.recipe else ", edited" if replay.edit else ""
    pace = str(replay.pace.get("pace", ""))
    why = f": {replay.why}" if replay.why else ""
    which = f"{selection_words(replay.selection)} → {told_target(replay)}, {pace}{edit}, {replay.who}{why}"
    return [
        str(replay.id),
        replay.state.value,
        *(f"{one:,}" for one in figures),
        age_text(replay.made_ms, now_ms),
        which,
    ]


# -- what became of each ---------------------------------------------------------------------------------
def outcomes_text(replay: ReplayTold, page: OutcomePage, word: str, *, now_ms: int) -> str:
    said = [line(head_words(replay, now_ms))]
    if not page.outcomes:
        said.append(f"   no letters of it: {word}")
    else:
        rows = [["#", "sent (UTC)", "what became of it"]]
        rows += [[str(one.letter), at_text(one.sent_ms), outcome_words(replay, one)] for one in page.outcomes]
        said.append(columns(rows, indent=3))
        if page.more is not None:
            said.append(f"there are more: --after {page.more}")
        one = page.outcomes[0]
        seen = one.letter if one.returned_letter is None else one.returned_letter
        group = "" if one.returned_group is None else f"; its group: dlq groups {one.returned_group}"
        said.append(f"all about a letter: dlq show {seen}{group}")
    said.append(next_text(replay))
    return "\n".join(part for part in said if part)
