"""The settings a command works with: frozen values, and for each where it came from.

No pydantic in here: whoever gets these needs to know nothing of files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Final, Literal

from deadletter.config.command_settings import BrokerSettings, CheckSettings, Source, StoreSettings
from deadletter.core.access.rights import Role
from deadletter.core.deciding.backoff import Backoff, Fixed
from deadletter.core.deciding.deaths import OriginBy
from deadletter.core.deciding.policy import Policies, Policy
from deadletter.core.grouping.grouping_rules import GROUPED_BY_DEFAULT, Grouping
from deadletter.core.grouping.retention import Retention
from deadletter.core.guards.breaker import BreakerTerms
from deadletter.core.letter.names import PARKED
from deadletter.core.replaying.replay_rules import ReplayRule

_BREAKER: Final = BreakerTerms()
_KEPT: Final = Retention()


class Mode(StrEnum):
    """When a watch takes letters."""

    CONSUME = "consume"
    SWEEP = "sweep"
    STARTUP = "startup"
    MANUAL = "manual"


@dataclass(frozen=True, slots=True, kw_only=True)
class Watch:
    """`pauses`: growing pauses between sweeps instead of `every_ms`. `policies`: names; None means all.

    `layout`: return, levels or sweep. `delays_ms`: of the numbered levels, with layout levels only.
    """

    dlq: str
    vhost: str
    mode: Mode
    layout: str = "return"
    delays_ms: tuple[int, ...] = ()
    every_ms: int | None = None
    pauses: Backoff | None = None
    limit_per_boot: int | None = None
    policies: tuple[str, ...] | None = None
    origins: tuple[str, ...] = ()
    """Patterns of queues that are believed to be an origin, whatever the shape of the broker says."""
    origin_by: OriginBy = OriginBy.FAILURE


@dataclass(frozen=True, slots=True, kw_only=True)
class AlertSettings:
    """Above these; None: no such alert."""

    depth_warning: int
    depth_critical: int
    age_warning_ms: int | None
    age_critical_ms: int | None
    growth_per_minute: int | None = None
    """More letters a minute than this come into a dead-letter queue."""
    held: int | None = 100
    """More letters than this wait because a guard holds them."""
    breaker: bool = True
    channels: tuple[str, ...] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardSettings:
    """What keeps retries from doing harm."""

    require_consumers: bool = True
    max_depth: int | None = None
    budget_per_minute: int | None = None
    budget_share: float | None = None
    """Retries into an origin are at most this share of what else is published to it (0.2 is 20 %), and
    always at least `budget_floor_per_minute`."""
    budget_floor_per_minute: int = 60
    breaker: BreakerTerms = _BREAKER
    copies: int = 4
    """More letters of one id and attempt than this stop the path of their origin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """How `dlq serve` runs."""

    listen: str | None = "127.0.0.1:8025"
    """Where it answers HTTP; None: nowhere."""
    name: str | None = None
    """What this instance is called; None: its host and process."""
    log_format: Literal["text", "json"] = "text"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    grace_ms: int = 30_000
    """How long an orderly end may take."""
    prefetch: int = 500
    heartbeat_ms: int = 10_000
    """At least so often broker and service hear of each other."""
    survey_ms: int = 5_000
    """How often queues are looked at."""
    tidy_ms: int = 60_000
    """How often unused delays and ways back are looked for."""
    tidy_after_ms: int = 3_600_000
    """And after how long without use they are deleted."""
    adjust_dlqs: bool = True
    """Take the delivery limit off watched dead-letter queues, by a policy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeskQueue:
    """A queue whose letters come into the store, and how long they stay."""

    name: str
    vhost: str
    retention: Retention


@dataclass(frozen=True, slots=True, kw_only=True)
class DeskToken:
    """Somebody who may come in; the token itself is known to them alone."""

    name: str
    role: Role
    hash: str = field(repr=False)
    vhosts: tuple[str, ...] = ("*",)
    queues: tuple[str, ...] = ("*",)
    sees_masked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcRole:
    """Who has this value in the claim has this role; `*`: who has an account."""

    value: str
    role: Role
    vhosts: tuple[str, ...] = ("*",)
    queues: tuple[str, ...] = ("*",)
    sees_masked: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcSettings:
    """An OpenID Connect provider."""

    issuer: str
    client_id: str
    name: str = "your account"
    scopes: tuple[str, ...] = ("openid",)
    role_claim: str = "groups"
    roles: tuple[OidcRole, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeskSettings:
    """Which letters come into the store, and who may see them."""

    page: bool | None = None
    """None: on this machine, and elsewhere where somebody can sign in."""
    addresses: tuple[str, ...] = ()
    session_idle_ms: int = 8 * 3_600_000
    session_end_ms: int = 7 * 86_400_000
    tokens: tuple[DeskToken, ...] = ()
    oidc: OidcSettings | None = None
    mask: tuple[str, ...] = ()
    ingest: bool = True
    asked: bool = False
    """Whether somebody said so, by `ingest` or by `queues`: else letters come into a store that is there
    anyway, if they are as safe in it as in their queue."""
    batch: int | None = None
    """None: as many as are good for the database."""
    retention: Retention = _KEPT
    """Of `deadletter.parked`, in whichever vhost, unless `queues` names it."""
    queues: tuple[DeskQueue, ...] = ()
    grouping: Grouping = GROUPED_BY_DEFAULT
    schemas: tuple[tuple[str, Path], ...] = ()
    """Patterns of origins, each with the file of the schema that an edited body must keep."""
    replay_rules: tuple[ReplayRule, ...] = ()

    def in_vhost(self, vhost: str) -> Mapping[str, Retention]:
        """The queues of this vhost whose letters come into the store."""
        if not self.ingest:
            return {}
        named = {queue.name: queue.retention for queue in self.queues if queue.vhost == vhost}
        return {PARKED: self.retention, **named}


@dataclass(frozen=True, slots=True, kw_only=True)
class Effective:
    """One value that is in force, secrets hidden, and who said it."""

    key: str
    value: object
    source: Source


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything, from everywhere."""

    broker: BrokerSettings
    store: StoreSettings
    policies: Policies
    watches: tuple[Watch, ...]
    alerts: AlertSettings
    check: CheckSettings
    guards: GuardSettings = GuardSettings()
    serve: ServeSettings = ServeSettings()
    desk: DeskSettings = DeskSettings()
    file: Path | None
    effective: tuple[Effective, ...] = field(repr=False)

    def policies_of(self, watch: Watch) -> Policies:
        """The policies that decide for a watch, in the file's order.

        With numbered levels each retry waits as long as its number says, whatever the policy's back-off, and
        what nobody configured is parked at once.
        """
        rules = self.policies.rules
        if watch.policies is not None:
            chosen: Sequence[str] = watch.policies
            rules = tuple(rule for rule in rules if rule.name in chosen)
        if not watch.delays_ms:
            return Policies(rules=rules, default=self.policies.default)
        backoff = Fixed(delays_ms=watch.delays_ms)
        return Policies(
            rules=tuple(
                replace(
                    rule, backoff=backoff, errors=tuple(replace(one, backoff=None) for one in rule.errors)
                )
                for rule in rules
            ),
            default=Policy(name="default", retries=0, backoff=backoff),
        )

    def source(self, key: str) -> Source:
        """Where an effective value came from. KeyError for a key that has none."""
        return {e.key: e.source for e in self.effective}[key]
