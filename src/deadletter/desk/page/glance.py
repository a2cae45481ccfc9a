"""Is everything all right? One sentence, and its reasons. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from deadletter.core.replaying.replay_states import ReplayState
from deadletter.desk.page.shown import counted
from deadletter.desk.view import Status
from deadletter.operations.records.records import GroupLine
from deadletter.operations.replays.replay_told import ReplayTold

NEW_MS: Final = 3_600_000
"""A group is new for so long."""
_FEW: Final = 3
_BEFORE: Final = 6
_FASTER: Final = 2.0


class GlanceLevel(StrEnum):
    GOOD = "good"
    WARN = "warn"
    BAD = "bad"


@dataclass(frozen=True, slots=True, kw_only=True)
class GlanceReason:
    """`url`: where to look; empty: it is on this page."""

    text: str
    url: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    level: GlanceLevel
    sentence: str
    reasons: tuple[GlanceReason, ...]


def is_new(group: GroupLine, now_ms: int) -> bool:
    return now_ms - group.first_ms < NEW_MS


def fails_again(group: GroupLine) -> bool:
    return group.reopened_ms is not None


def is_growing(group: GroupLine) -> bool:
    """The last two hours brought clearly more than the hours before them."""
    last, before = group.hours[-2:], group.hours[-2 - _BEFORE : -2]
    if sum(last) < _FEW or not before:
        return False
    return sum(last) / len(last) > _FASTER * sum(before) / len(before)


def glance(
    status: Status,
    *,
    groups: Sequence[GroupLine],
    replays: Sequence[ReplayTold],
    away: str,
    now_ms: int,
) -> Glance:
    """`groups`: open ones. `away`: why the store does not answer; empty: it does."""
    bad = [GlanceReason(text=f"{one.what} does not work: {one.why}") for one in status.troubles]
    if away:
        bad.append(GlanceReason(text=f"the store does not answer: {away}"))
    warn = list(_warnings(status, groups, replays, now_ms))
    if bad:
        return Glance(level=GlanceLevel.BAD, sentence="Something does not work.", reasons=(*bad, *warn))
    if status.stage == "starting":
        return Glance(level=GlanceLevel.WARN, sentence="The service starts.", reasons=tuple(warn))
    if warn:
        return Glance(
            level=GlanceLevel.WARN, sentence="It works, and some of it wants a look.", reasons=tuple(warn)
        )
    calm = (
        f"{counted(len(groups), 'open group')}, none new in the last hour" if groups else "no group is open"
    )
    return Glance(
        level=GlanceLevel.GOOD, sentence="Everything is all right.", reasons=(GlanceReason(text=calm),)
    )


def _warnings(
    status: Status, groups: Sequence[GroupLine], replays: Sequence[ReplayTold], now_ms: int
) -> list[GlanceReason]:
    found: list[GlanceReason] = []
    for gate in status.gates:
        held = f", {counted(gate.held)} held" if gate.held else ""
        found.append(GlanceReason(text=f"{gate.origin} is {gate.state}{held}: {gate.why}"))
    for one_said, many_said, some in (
        ("a group fails again", "groups fail again", [one for one in groups if fails_again(one)]),
        (
            "a group is new in the last hour",
            "groups are new in the last hour",
            [one for one in groups if is_new(one, now_ms) and not fails_again(one)],
        ),
        (
            "a group is growing",
            "groups are growing",
            [one for one in groups if is_growing(one) and not is_new(one, now_ms)],
        ),
    ):
        if len(some) == 1:
            found.append(GlanceReason(text=f"{one_said}: {some[0].title}", url=f"/groups/{some[0].id}"))
        elif some:
            found.append(GlanceReason(text=f"{len(some):,} {many_said}", url="/groups"))
    for one in replays:
        if one.state in (ReplayState.STOPPED, ReplayState.PAUSED) and one.ended_ms is None:
            said = f"replay {one.id} is {one.state.value}: {one.waits_for}"
            found.append(GlanceReason(text=said, url=f"/replays/{one.id}"))
    if status.findings:
        found.append(
            GlanceReason(text=f"{counted(len(status.findings), 'finding')} about queues", url="#findings")
        )
    found += [GlanceReason(text=f"a policy is ignored: {one}") for one in status.policies.problems[:3]]
    return found
