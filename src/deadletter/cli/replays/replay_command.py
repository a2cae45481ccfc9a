"""`dlq replay`: what would be sent and what there is to say about it; with `--yes`, a replay that begins."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from secrets import token_hex
from typing import Final

from deadletter.cli.letters.asking import now_ms
from deadletter.cli.letters.letter_filters import LetterFilters
from deadletter.cli.letters.record_options import ChangeWish
from deadletter.cli.replays.asking_replays import with_desk
from deadletter.cli.replays.edit_trial import EditTrial, trial_json, trial_lines, tried
from deadletter.cli.replays.replay_text import before_text, next_text
from deadletter.cli.replays.watching import watch
from deadletter.cli.terminal import event_loop
from deadletter.cli.terminal.output import Exit, data, result
from deadletter.cli.terminal.units import count
from deadletter.cli.terminal.widths import terminal_width
from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.core.replaying.preflight import RemarkLevel, worst
from deadletter.core.replaying.replay_pace import ReplayPace
from deadletter.core.replaying.replay_target import ReplayTarget
from deadletter.core.text.safe_text import line
from deadletter.errors import DeadletterError, UsageError
from deadletter.operations.records.records import WHY_CHARS, json_of
from deadletter.operations.replays.at_hand import DeskAtHand
from deadletter.operations.replays.replay_told import (
    UNCHANGED,
    EditWish,
    PreflightTold,
    ReplayTold,
    ReplayWish,
)

_GLANCE: Final = 20
"""So many letters an edit is tried on when it was tried before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartWish:
    """A replay as somebody asks for it."""

    filters: LetterFilters
    vhost: str = ""
    target: ReplayTarget
    pace: ReplayPace
    outcome_ms: int
    edit: EditWish = UNCHANGED
    try_most: int
    tried: str | None = None
    """What the trial of this very edit on this very selection said: an edit of many begins with it."""
    resolves: bool = False
    overrules_guards: bool = False
    anyway: bool = False
    """It begins although the look before it says stop."""
    why: str = ""
    yes: bool = False
    watch: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Looked:
    """What is known before it begins."""

    wish: ReplayWish
    told: PreflightTold
    trial: EditTrial | None
    code: str | None
    missing: int
    """Named, and not there, or not open."""

    @property
    def nothing(self) -> bool:
        return not self.told.letters and self.told.exact


def run(wish: ChangeWish, start: StartWish) -> Exit:
    if start.filters.says_nothing:
        raise UsageError(
            "expected letters: their numbers, or filters such as --group 12 or --since 2h (dlq letters takes "
            "the same and shows them)"
        )
    if len(start.why) > WHY_CHARS:
        raise UsageError(f"--why: expected at most {WHY_CHARS} characters, got {len(start.why)}")
    if start.watch and not start.yes:
        raise UsageError("--watch: expected --yes with it; without, nothing begins that could be watched")

    async def work(desk: DeskAtHand) -> Exit:
        looked = await _look(desk, wish, start)
        held = _held(start, looked)
        if not start.yes or held is not None or looked.nothing:
            _tell(wish, looked, held)
            return _unstarted(start, looked, held)
        replay = await desk.replays.start(looked.wish, who=wish.named, why=start.why, run=token_hex(8))
        if start.watch:
            return await watch(desk.replays, replay.id, as_json=wish.as_json)
        if wish.as_json:
            data(_as_json(looked, replay))
        else:
            result(_started(looked, replay))
        return Exit.LEFT if looked.missing else Exit.DONE

    return with_desk(wish, work)


async def _look(desk: DeskAtHand, wish: ChangeWish, start: StartWish) -> _Looked:
    query = await start.filters.query(desk.records)
    asked = ReplayWish(
        selection=query,
        vhost=start.vhost,
        target=start.target,
        edit=start.edit,
        pace=start.pace,
        outcome_ms=start.outcome_ms,
        resolves=start.resolves,
        overrules_guards=start.overrules_guards,
    )
    told = await desk.replays.preflight(asked)
    trial = code = None
    if start.edit != UNCHANGED and told.letters:
        asked_of = replace(query, vhost=start.vhost or None)
        most = _GLANCE if start.yes and start.tried is not None else start.try_most
        trial = await _try(desk, wish, start, asked_of, most=most)
        code = _code(start.filters, trial.program)
        if start.tried != code and most < start.try_most:  # another edit than the one that was tried
            trial = await _try(desk, wish, start, asked_of, most=start.try_most)
    return _Looked(
        wish=asked,
        told=told,
        trial=trial,
        code=code,
        missing=max(0, len(query.ids) - told.letters) if told.exact else 0,
    )


async def _try(
    desk: DeskAtHand, wish: ChangeWish, start: StartWish, query: LetterQuery, *, most: int
) -> EditTrial:
    stop = event_loop.StopAsked()
    with event_loop.stopping(stop):
        trial = await tried(
            desk.replays, query, start.edit, most=most, quiet=wish.as_json, stopped=lambda: stop.asked
        )
    if stop.asked and start.yes:
        raise DeadletterError("stopped while the edit was tried; nothing was sent")
    return trial


def _code(filters: LetterFilters, program: str) -> str:
    """Of this edit and these filters as they were typed: who says it has seen what they do together."""
    said = json.dumps([asdict(filters), program], sort_keys=True)
    return hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def _held(start: StartWish, looked: _Looked) -> str | None:
    """Why it does not begin, and what makes it; None: nothing is in its way."""
    if looked.nothing:
        return None
    if worst(looked.told.remarks) is RemarkLevel.STOP and not start.anyway:
        return "the look before it says STOP; --anyway begins all the same"
    many = looked.told.letters > 1 or not looked.told.exact
    if looked.trial is not None and many and start.tried != looked.code:
        said = "an edit of many is tried first" if start.tried is None else "--tried is of another edit"
        return f"{said}; if the above is what you want: --yes --tried {looked.code}"
    return None


def _unstarted(start: StartWish, looked: _Looked, held: str | None) -> Exit:
    stopped = worst(looked.told.remarks) is RemarkLevel.STOP and not looked.nothing
    left = bool(looked.missing) or held is not None if start.yes else stopped
    return Exit.LEFT if left else Exit.DONE


def _tell(wish: ChangeWish, looked: _Looked, held: str | None) -> None:
    if wish.as_json:
        data(_as_json(looked, None))
        return
    said: list[str] = []
    if looked.nothing:
        said.append("no open letters like that; nothing to replay")
    else:
        edit = [] if looked.trial is None else [line(looked.trial.program), *trial_lines(looked.trial)]
        said.append(before_text(looked.wish, looked.told, edit, now_ms=now_ms(), width=terminal_width()))
        said.append(f"nothing was sent; {held or 'the same with --yes begins it'}")
    said += _missing(looked)
    result("\n".join(said))


def _missing(looked: _Looked) -> list[str]:
    return [f"named, but not here or not open: {count(looked.missing)}"] if looked.missing else []


def _started(looked: _Looked, replay: ReplayTold) -> str:
    least = "" if looked.told.exact else "at least "
    said = [f"replay {replay.id} begins: {least}{count(looked.told.letters)}; dlq serve sends them"]
    return "\n".join([*said, *_missing(looked), next_text(replay)])


def _as_json(looked: _Looked, replay: ReplayTold | None) -> dict[str, object]:
    return {
        "done": replay is not None,
        "preflight": json_of(looked.told),
        "edit": None if looked.trial is None else trial_json(looked.trial),
        "tried": looked.code,
        "missing": looked.missing,
        "replay": json_of(replay),
    }
