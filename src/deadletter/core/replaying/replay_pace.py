"""How fast a replay goes: what was seen in, the next step out.

Three paces. `AllAtOnce`: everything, at a rate where one is given. `Canary`: 1, then 10, then 100 …, each
step when the outcome of the step before is known and the queue is as empty again as it was; a letter that
was refused says nothing of the consumer, and the next one takes its place in the step. `Auto`: as fast
as the consumer keeps up, which its queue tells.

Canary and auto never let the queue grow beyond its room, and stop by themselves when more than a share comes
back: what was not sent stays home. A share of a few letters is rounded up to a whole one, so that a consumer
that fails for two in a hundred is not taken for a broken one; but the very first letter must not come back.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from math import ceil
from typing import Any, Final, TypeAlias, assert_never

from deadletter.core.letter.header_values import shown
from deadletter.errors import UsageError

SECOND_MS: Final = 1_000
_EVEN: Final = 20
"""A step is drained when no more than its twentieth is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AllAtOnce:
    rate_per_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Canary:
    """After the last of `steps` each is as large as that one."""

    steps: tuple[int, ...] = (1, 10, 100, 1_000, 10_000)
    share: float = 0.05
    wait_s: float = 60.0
    """A letter that is not back after this time did not fail at once: the next step may come."""
    room: int = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Auto:
    """`floor`: so many at first, then twice as many as have left the queue. `ceiling`: letters a second."""

    room: int = 1_000
    share: float = 0.05
    floor: int = 10
    ceiling: int = 10_000


ReplayPace: TypeAlias = AllAtOnce | Canary | Auto


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayStage:
    """The step of a canary: what was counted when it began."""

    number: int = 0
    began_ms: int = 0
    gone: int = 0
    returned: int = 0
    backlog: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaySeen:
    """What is known at a moment. Letters of the replay by what became of them, and its queue."""

    waiting: int
    sending: int = 0
    sent: int = 0
    """Confirmed, and the outcome is not known."""
    returned: int = 0
    done: int = 0
    quiet: int = 0
    stage: ReplayStage = ReplayStage()
    last_sent_ms: int | None = None
    depth: int | None = None
    """Letters ready in the queue they go to; None: nobody can say."""
    unacked: int = 0
    """With its consumers, as far as anybody can say."""
    unacked_ms: int | None = None
    """What was sent until then is counted in `unacked`; None: nobody counts."""
    consumers: int | None = None
    released_lately: int = 0
    """In the last second: the depth may not show them yet."""
    window_sent: int = 0
    window_returned: int = 0
    """Sent within the time that outcomes are waited for, and how many of those are back."""

    @property
    def gone(self) -> int:
        """Letters that the broker took."""
        return self.sent + self.returned + self.done + self.quiet

    @property
    def backlog(self) -> int:
        """What its consumers still have to do."""
        return (self.depth or 0) + self.unacked


@dataclass(frozen=True, slots=True, kw_only=True)
class SendUpTo:
    """So many may be sent now. `stage` is to be kept with the replay before they are."""

    letters: int
    stage: ReplayStage


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitFor:
    """Nothing now. `until_ms` None: look again soon."""

    why: str
    until_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReplay:
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishReplay:
    """Nothing waits, and every outcome is known."""


NextStep: TypeAlias = SendUpTo | WaitFor | StopReplay | FinishReplay


def next_step(pace: ReplayPace, seen: ReplaySeen, now_ms: int) -> NextStep:
    """What a replay does now."""
    if stop := _too_many_back(pace, seen):
        return stop
    if not seen.waiting:
        if seen.sending or seen.sent:
            return WaitFor(why=f"all are sent; the outcome of {seen.sending + seen.sent} is not known yet")
        return FinishReplay()
    match pace:
        case AllAtOnce(rate_per_s=rate):
            return _at_rate(rate, seen, now_ms)
        case Canary():
            return _canary(pace, seen, now_ms)
        case Auto():
            return _auto(pace, seen, now_ms)
        case _:
            assert_never(pace)


def allowed_back(share: float, letters: int) -> int:
    """So many of these letters may come back."""
    return ceil(share * letters) if letters > 1 else 0


def _too_many_back(pace: ReplayPace, seen: ReplaySeen) -> StopReplay | None:
    """As soon as it is known, whatever else is still awaited. A replay that has nothing left to keep home is
    not stopped."""
    match pace:
        case AllAtOnce():
            return None
        case Canary():
            size = max(_size(pace, seen.stage), seen.gone - seen.stage.gone)
            back, of = seen.returned - seen.stage.returned, f"step {seen.stage.number + 1}"
        case Auto():
            size, back, of = max(seen.window_sent, pace.floor), seen.window_returned, "of those sent lately"
        case _:
            assert_never(pace)
    if not seen.waiting or back <= allowed_back(pace.share, size):
        return None
    return StopReplay(why=f"{back} of {size} came back ({of}); no more than {pace.share:.0%} should")


# -- all at once ------------------------------------------------------------------------------------------
def _at_rate(rate: float | None, seen: ReplaySeen, now_ms: int) -> NextStep:
    if rate is None:
        return SendUpTo(letters=seen.waiting, stage=seen.stage)
    if rate < 1:
        next_ms = (seen.last_sent_ms or 0) + ceil(SECOND_MS / rate)
        if seen.sending or now_ms < next_ms:
            return WaitFor(why=f"{rate:g} letters a second", until_ms=max(next_ms, now_ms + 1))
        return SendUpTo(letters=1, stage=seen.stage)
    free = int(rate) - seen.released_lately - seen.sending
    if free < 1:
        return WaitFor(why=f"{rate:g} letters a second", until_ms=now_ms + SECOND_MS // 10)
    return SendUpTo(letters=min(seen.waiting, free), stage=seen.stage)


# -- canary -----------------------------------------------------------------------------------------------
def _canary(pace: Canary, seen: ReplaySeen, now_ms: int) -> NextStep:
    stage = seen.stage
    gone = seen.gone - stage.gone
    if not stage.began_ms:
        stage = replace(stage, began_ms=now_ms, backlog=seen.backlog)
    left = _size(pace, stage) - gone - seen.sending
    if left > 0:
        return _within(pace.room, seen, left, stage)
    if waits := _step_waits(pace, seen, gone, now_ms):
        return waits
    following = ReplayStage(
        number=stage.number + 1,
        began_ms=now_ms,
        gone=seen.gone,
        returned=seen.returned,
        backlog=seen.backlog,
    )
    return _within(pace.room, seen, _size(pace, following), following)


def _size(pace: Canary, stage: ReplayStage) -> int:
    return pace.steps[min(stage.number, len(pace.steps) - 1)]


def _step_waits(pace: Canary, seen: ReplaySeen, gone: int, now_ms: int) -> WaitFor | None:
    """Why the next step does not come yet."""
    step = f"step {seen.stage.number + 1}"
    if seen.sending:
        return WaitFor(why=f"{step}: the broker has not confirmed {seen.sending}")
    known_ms = (seen.last_sent_ms or 0) + ceil(pace.wait_s * SECOND_MS)
    if seen.sent and now_ms < known_ms:
        return WaitFor(why=f"{step}: the outcome of {seen.sent} is not known yet", until_ms=known_ms)
    if seen.consumers == 0:
        return WaitFor(why=f"{step}: the queue has no consumer")
    is_old = seen.unacked_ms is not None and seen.unacked_ms <= (seen.last_sent_ms or 0)
    if is_old and seen.sent + seen.quiet:
        return WaitFor(why=f"{step}: the broker has not told yet how many letters its consumers have in hand")
    if seen.backlog > seen.stage.backlog + gone // _EVEN:
        return WaitFor(
            why=f"{step}: the queue is not drained, its consumers have {seen.backlog} letters to do "
            f"and had {seen.stage.backlog} before"
        )
    return None


# -- auto -------------------------------------------------------------------------------------------------
def _auto(pace: Auto, seen: ReplaySeen, now_ms: int) -> NextStep:
    if seen.consumers == 0:
        return WaitFor(why="the queue has no consumer")
    stage = seen.stage if seen.stage.began_ms else ReplayStage(began_ms=now_ms, backlog=seen.backlog)
    more = max(0, seen.backlog - stage.backlog)
    in_queue = seen.sent if seen.depth is None else min(seen.gone, more)
    ramp = pace.floor + 2 * (seen.gone - in_queue) - seen.gone - seen.sending
    if ramp < 1:
        return WaitFor(why=f"its consumers have not begun with the first {seen.gone + seen.sending} letters")
    free = pace.ceiling - seen.released_lately - seen.sending
    if free < 1:
        return WaitFor(why=f"{pace.ceiling} letters a second", until_ms=now_ms + SECOND_MS // 10)
    return _within(pace.room, seen, min(ramp, free), stage)


def _within(room: int, seen: ReplaySeen, wanted: int, stage: ReplayStage) -> NextStep:
    """As many as there is room for in the queue. Where nobody knows its depth, letters of which the outcome
    is not known count as being there."""
    depth = seen.sent if seen.depth is None else seen.depth + seen.released_lately
    free = room - depth - seen.sending
    if free < 1:
        return WaitFor(why=f"the queue has {depth} letters, and there is room for {room}")
    return SendUpTo(letters=min(seen.waiting, wanted, free), stage=stage)


# -- as the store keeps it, and as people say it ----------------------------------------------------------
_NAMES: Final[dict[str, type[ReplayPace]]] = {"all": AllAtOnce, "canary": Canary, "auto": Auto}


def pace_json(pace: ReplayPace) -> dict[str, Any]:
    """As the store keeps it."""
    (name,) = (name for name, kind in _NAMES.items() if isinstance(pace, kind))
    return {"pace": name, **asdict(pace)}


def pace_from(told: Mapping[str, Any]) -> ReplayPace:
    """UsageError for what is no pace."""
    kind = _NAMES.get(str(told.get("pace")))
    values = {name: value for name, value in told.items() if name != "pace"}
    if kind is None or values.keys() - {field.name for field in fields(kind)}:
        raise UsageError(f"pace {shown(str(dict(told)))}: expected all, canary or auto, and its own settings")
    if "steps" in values:
        values["steps"] = tuple(values["steps"])
    pace = kind(**values)
    if wrong := _wrong(pace):
        raise UsageError(wrong)
    return pace


def _wrong(pace: ReplayPace) -> str | None:
    """What is wrong with a pace."""
    match pace:
        case AllAtOnce(rate_per_s=rate):
            return None if rate is None or rate > 0 else f"rate: expected more than 0, got {rate:g}"
        case Canary(steps=steps, share=share, wait_s=wait_s, room=room):
            if not steps or min(steps) < 1:
                return f"steps: expected numbers of letters, got {shown(str(list(steps)))}"
            if wait_s < 0:
                return f"wait: expected a time, got {wait_s:g} s"
        case Auto(share=share, room=room, floor=floor, ceiling=ceiling):
            if floor < 1 or ceiling < 1:
                return f"floor and ceiling: expected at least 1, got {floor} and {ceiling}"
        case _:
            assert_never(pace)
    if room < 1:
        return f"room: expected at least 1, got {room}"
    return None if 0 <= share <= 1 else f"share: expected 0 to 1, got {share:g}"
