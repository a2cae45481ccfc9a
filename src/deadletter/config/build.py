"""From valid tables to the values the code works with.

A table whose keys are the value's own is taken as it is (`dict(table)` has its fields by name): a new key is
then written in its table and in its value, and nowhere between. No settings load when they differ.

`effective` is every value in force as it was written, with who wrote it: what `dlq config show` prints.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from deadletter.config import urls
from deadletter.config.command_settings import DEFAULT, BrokerSettings, CheckSettings, StoreSettings
from deadletter.config.files import Trail
from deadletter.config.secrets import clean
from deadletter.config.settings import (
    AlertSettings,
    DeskQueue,
    DeskSettings,
    DeskToken,
    Effective,
    GuardSettings,
    Mode,
    OidcRole,
    OidcSettings,
    ServeSettings,
    Watch,
)
from deadletter.config.tables import desk as desk_tables
from deadletter.config.tables import file as file_table
from deadletter.config.tables import policies as policy_tables
from deadletter.config.tables import serve as serve_tables
from deadletter.config.tables.base import Table
from deadletter.config.tables.file import File
from deadletter.config.tables.keys import KINDS, below, fields
from deadletter.config.validate import Validator, ValidParts
from deadletter.core.access.rights import Role
from deadletter.core.deciding.deaths import OriginBy
from deadletter.core.deciding.policy import ErrorRule, HeaderMatch, JqCondition, Match, Policies, Policy, Then
from deadletter.core.grouping.category import Category
from deadletter.core.grouping.grouping_rules import Grouping, GroupingRule
from deadletter.core.grouping.in_app import OwnCode
from deadletter.core.grouping.retention import Retention
from deadletter.core.guards.breaker import BreakerTerms
from deadletter.core.replaying.replay_rules import ReplayRule, RuleOccasion

EVERY_MS: Final = 900_000
LEVELS_MS: Final = (10_000, 15_000, 20_000)


def match(table: policy_tables.MatchTable) -> Match:
    return Match(
        queue=table.queue,
        routing_key=table.routing_key,
        reasons=frozenset(table.reason or ()),
        error_types=tuple(table.error_type or ()),
        headers=tuple(HeaderMatch(header=name, value=value) for name, value in (table.header or {}).items()),
        content_type=table.content_type,
        body=None if table.body is None else JqCondition(program=table.body),
    )


def _handled(name: str, which: Match, table: policy_tables.HandlingTable) -> Policy:
    return Policy(
        name=name,
        match=which,
        retries=table.retries,
        backoff=table.backoff.built(),
        deadline_ms=table.deadline_ms,
        then=Then(table.then),
        count_by=table.count_by,
        budget_per_minute=table.budget_per_minute,
        errors=tuple(
            ErrorRule(
                error_types=tuple(rule.error_type),
                backoff=None if rule.backoff is None else rule.backoff.built(),
                retries=rule.retries,
                then=None if rule.then is None else Then(rule.then),
            )
            for rule in table.errors
        ),
    )


def policy(table: policy_tables.PolicyTable) -> Policy:
    """May raise UsageError where the core knows a limit that the file's model does not."""
    assert table.name is not None, "who has none got one when everything was gathered"
    return _handled(table.name, match(table.match), table)


def default_policy(table: policy_tables.DefaultPolicy) -> Policy:
    return _handled("default", Match(), table)


def policies(parts: ValidParts) -> Policies:
    assert parts.default_policy is not None
    return Policies(
        rules=tuple(policy(table) for table in parts.policies if table is not None),
        default=default_policy(parts.default_policy),
    )


def broker(table: file_table.Broker) -> BrokerSettings:
    addresses = urls.addresses(table.url)
    return BrokerSettings(
        addresses=addresses,
        api=urls.management_api(table.api, addresses[0]),
        name=table.name or addresses[0].host,
    )


def store(table: file_table.StoreTable) -> StoreSettings:
    off = table.url == urls.NO_STORE
    return StoreSettings(url=None if off else table.url, off=off)


def delays_ms(table: serve_tables.WatchTable) -> tuple[int, ...]:
    """The delays of a watch's numbered levels; none with another layout."""
    if table.way != "levels":
        return ()
    return LEVELS_MS if table.delays_ms is None else tuple(table.delays_ms)


def watch(table: serve_tables.WatchTable, vhost: str) -> Watch:
    mode = Mode(table.mode)
    every_ms = table.every_ms
    if mode is Mode.SWEEP and every_ms is None and table.backoff is None:
        every_ms = EVERY_MS
    return Watch(
        dlq=table.takes,
        vhost=table.vhost or vhost,
        mode=mode,
        layout=table.way,
        delays_ms=delays_ms(table),
        every_ms=every_ms,
        pauses=None if table.backoff is None else table.backoff.built(),
        limit_per_boot=table.limit_per_boot,
        policies=None if table.policies is None else tuple(table.policies),
        origins=tuple(table.origins or ()),
        origin_by=OriginBy(table.origin_by),
    )


def guards(table: serve_tables.Guards) -> GuardSettings:
    return GuardSettings(**dict(table) | {"breaker": BreakerTerms(**dict(table.breaker))})


def serve(table: serve_tables.Serve) -> ServeSettings:
    return ServeSettings(**dict(table))


def desk(table: desk_tables.Desk, vhost: str) -> DeskSettings:
    return DeskSettings(
        page=table.page,
        addresses=tuple(table.addresses),
        session_idle_ms=table.session_idle_ms,
        session_end_ms=table.session_end_ms,
        tokens=tuple(
            DeskToken(
                name=token.name,
                role=Role(token.role),
                hash=token.hash,
                vhosts=tuple(token.vhosts),
                queues=tuple(token.queues),
                sees_masked=token.sees_masked,
            )
            for token in table.tokens
        ),
        oidc=_oidc(table.oidc),
        mask=tuple(table.mask),
        ingest=table.ingest,
        asked=table.asked,
        batch=table.batch,
        retention=_retention(Retention(), table.retention),
        queues=tuple(
            DeskQueue(
                name=queue.name,
                vhost=queue.vhost or vhost,
                retention=_retention(_retention(Retention(), table.retention), queue.retention),
            )
            for queue in table.queues
        ),
        grouping=Grouping(
            own=OwnCode(ours=tuple(table.own_code), foreign=tuple(table.foreign_code)),
            rules=tuple(
                GroupingRule(
                    group=rule.group,
                    category=None if rule.category is None else Category(rule.category),
                    origin=rule.origin,
                    error=rule.error,
                    message=rule.message,
                    headers=tuple((rule.header or {}).items()),
                )
                for rule in table.groups
            ),
        ),
        schemas=tuple((schema.queue, Path(schema.file)) for schema in table.schemas),
        replay_rules=tuple(
            ReplayRule(**{**dict(rule), "when": RuleOccasion(rule.when)}) for rule in table.replay_rules
        ),
    )


def _oidc(table: desk_tables.OidcTable) -> OidcSettings | None:
    if table.issuer is None:
        return None
    return OidcSettings(
        issuer=table.issuer,
        client_id=table.client_id,
        name=table.name,
        scopes=tuple(table.scopes),
        role_claim=table.role_claim,
        roles=tuple(
            OidcRole(
                value=one.value,
                role=Role(one.role),
                vhosts=tuple(one.vhosts),
                queues=tuple(one.queues),
                sees_masked=one.sees_masked,
            )
            for one in table.roles
        ),
    )


def _retention(usual: Retention, table: desk_tables.RetentionTable) -> Retention:
    """What the table says, else what is usual."""
    return replace(usual, **{key: value for key, value in dict(table).items() if value is not None})


def alerts(table: serve_tables.AlertsTable) -> AlertSettings:
    return AlertSettings(
        depth_warning=table.depth.warning,
        depth_critical=table.depth.critical,
        age_warning_ms=table.age.warning_ms,
        age_critical_ms=table.age.critical_ms,
        growth_per_minute=table.growth_per_minute,
        held=table.held,
        breaker=table.breaker,
        channels=tuple(table.channels),
    )


def check(table: file_table.CheckTable) -> CheckSettings:
    return CheckSettings(**dict(table))


def effective(judge: Validator, broker: BrokerSettings) -> tuple[Effective, ...]:
    """In the file's order; what follows from something else, as the API's address does, as it follows."""
    worked_out = {"broker.api": clean(broker.api), "broker.name": broker.name}
    return tuple(
        Effective(key=e.key, value=worked_out[e.key], source=e.source)
        if e.value is None and e.key in worked_out
        else e
        for e in _table(judge, judge.gathered.tree, (File,), (), written=True)
    )


def _table(
    judge: Validator, raw: dict[str, Any], models: tuple[type[Table], ...], trail: Trail, *, written: bool
) -> Iterator[Effective]:
    kind = raw.get("kind")
    own = tuple(m for m in models if len(models) == 1 or KINDS[models.index(m)] == kind)
    for name, field in fields(own).items():
        here = (*trail, name)
        said = written and name in raw
        value = raw[name] if name in raw else field.get_default()
        inside = below(field)
        if inside.tables and inside.many and value:
            for place, item in enumerate(value):
                yield from _table(judge, item, inside.tables, (*here, place), written=said)
        elif inside.tables and not inside.many and value is not None:
            yield from _table(judge, value, inside.tables, here, written=said)
        elif value is not None or not any(isinstance(part, int) for part in here):
            source = judge.gathered.source(here) if said else DEFAULT
            yield Effective(key=judge.key(here), value=clean(value, here), source=source)
