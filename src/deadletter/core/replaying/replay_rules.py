"""Rules that start replays by themselves: a rule and what is known in, start or not and why out.

A rule is off until somebody turns it on. It never starts a second replay beside its own first one, begins
each with a canary, and gives up after so many runs in a row that cured nothing: then a person looks.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias, assert_never

HOUR_MS: Final = 3_600_000


class RuleOccasion(StrEnum):
    """When a rule looks whether to start."""

    EVERY = "every"
    """As often as it says."""
    HEALTHY = "healthy"
    """When the health of what failed is back."""
    DEPLOYED = "deployed"
    """When a new release of the service was told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayRule:
    """Which letters (all that is said must hold), on which occasion, and how long it is tried."""

    name: str
    when: RuleOccasion
    enabled: bool = False
    group: str | None = None
    origin: str | None = None
    error: str | None = None
    every_ms: int = HOUR_MS
    """At least so long between the beginnings of two runs, whatever the occasion."""
    health: str | None = None
    """The URL that says whether what failed is well."""
    service: str | None = None
    recipe: str | None = None
    give_up: int = 5
    """After so many runs in a row that cured nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleFacts:
    """What is known when a rule is looked at. Times are milliseconds since 1970; None: never, or unknown."""

    now_ms: int
    letters: int
    """Open letters of its selection."""
    failed_ms: int | None = None
    """When the newest of them failed."""
    running: bool = False
    """A replay of this rule has not ended."""
    last_ms: int | None = None
    """When its last run began."""
    failures: int = 0
    """Runs in a row, up to the last one, that cured nothing."""
    gave_up: bool = False
    healthy_since_ms: int | None = None
    """Since when its health is good; None: it is not, or nobody knows."""
    release: str | None = None
    released_ms: int | None = None
    """The newest release that was told of its service, and when."""


@dataclass(frozen=True, slots=True)
class StartReplay:
    why: str


@dataclass(frozen=True, slots=True)
class NoReplay:
    """Not now. `again_ms`: when it may be otherwise for no other reason than time."""

    why: str
    again_ms: int | None = None


@dataclass(frozen=True, slots=True)
class GiveUp:
    """It is tried no more until a person says so."""

    why: str


RuleDecision: TypeAlias = StartReplay | NoReplay | GiveUp


def decide_rule(rule: ReplayRule, known: RuleFacts) -> RuleDecision:
    """Whether this rule starts a replay now."""
    if not rule.enabled:
        return NoReplay("the rule is off")
    if known.gave_up:
        return NoReplay("it gave up; a person has to turn it on again")
    if known.running:
        return NoReplay("its last replay is not over")
    if known.failures >= rule.give_up:
        return GiveUp(f"{known.failures} runs in a row cured nothing")
    if known.letters == 0:
        return NoReplay("no letters are open")
    if known.last_ms is not None and known.now_ms < known.last_ms + rule.every_ms:
        return NoReplay("its last run was not long ago", known.last_ms + rule.every_ms)
    return _occasion(rule, known)


def _occasion(rule: ReplayRule, known: RuleFacts) -> RuleDecision:
    match rule.when:
        case RuleOccasion.EVERY:
            return StartReplay(f"{known.letters:,} open, and its time has come")
        case RuleOccasion.HEALTHY:
            since = known.healthy_since_ms
            if since is None:
                return NoReplay(f"{rule.health} is not known to be well")
            if known.failed_ms is not None and known.failed_ms >= since:
                return NoReplay(f"{rule.health} says it is well, and letters failed all the same")
            if known.last_ms is not None and known.last_ms >= since:
                return NoReplay("it ran since the health came back")
            return StartReplay(f"{rule.health} is well again")
        case RuleOccasion.DEPLOYED:
            if known.released_ms is None:
                return NoReplay(f"no release of {rule.service} was told")
            if known.last_ms is not None and known.last_ms >= known.released_ms:
                return NoReplay(f"it ran since {known.release} of {rule.service} was told")
            if known.failed_ms is not None and known.failed_ms >= known.released_ms:
                return NoReplay(f"letters failed after {known.release} of {rule.service} as well")
            return StartReplay(f"{known.release} of {rule.service} was told")
        case _:
            assert_never(rule.when)
