"""From valid tables to the values the code works with."""

from __future__ import annotations

from typing import Final, assert_never

from deadletter.config import model, urls
from deadletter.config.judge import Parts
from deadletter.config.settings import (
    AlertSettings,
    BrokerSettings,
    CheckSettings,
    Mode,
    StoreSettings,
    Watch,
)
from deadletter.core.backoff import MAX_DELAY_MS, Backoff, Exponential, Fixed, Linear
from deadletter.core.policy import ErrorRule, HeaderMatch, JqCondition, Match, Policies, Policy, Then

EVERY_MS: Final = 900_000


def backoff(table: model.FixedBackoff | model.LinearBackoff | model.ExponentialBackoff) -> Backoff:
    match table:
        case model.FixedBackoff():
            return Fixed(
                delays_ms=tuple(table.delays_ms),
                jitter=table.jitter,
                floor_ms=table.floor_ms,
                cap_ms=MAX_DELAY_MS if table.cap_ms is None else table.cap_ms,
            )
        case model.LinearBackoff():
            return Linear(
                step_ms=table.step_ms,
                first_ms=table.first_ms,
                jitter=table.jitter,
                floor_ms=table.floor_ms,
                cap_ms=table.cap_ms,
            )
        case model.ExponentialBackoff():
            return Exponential(
                first_ms=table.first_ms,
                factor=table.factor,
                jitter=table.jitter,
                floor_ms=table.floor_ms,
                cap_ms=table.cap_ms,
            )
        case _:
            assert_never(table)


def match(table: model.Match) -> Match:
    return Match(
        queue=table.queue,
        routing_key=table.routing_key,
        reasons=frozenset(table.reason or ()),
        error_types=tuple(table.error_type or ()),
        headers=tuple(HeaderMatch(header=name, value=value) for name, value in (table.header or {}).items()),
        content_type=table.content_type,
        body=None if table.body is None else JqCondition(program=table.body),
    )


def _handled(name: str, which: Match, table: model.Handling) -> Policy:
    return Policy(
        name=name,
        match=which,
        retries=table.retries,
        backoff=backoff(table.backoff),
        deadline_ms=table.deadline_ms,
        then=Then(table.then),
        count_by=table.count_by,
        errors=tuple(
            ErrorRule(
                error_types=tuple(rule.error_type),
                backoff=None if rule.backoff is None else backoff(rule.backoff),
                retries=rule.retries,
                then=None if rule.then is None else Then(rule.then),
            )
            for rule in table.errors
        ),
    )


def policy(table: model.PolicyTable) -> Policy:
    """May raise UsageError where the core knows a limit that the file's model does not."""
    return _handled(table.name, match(table.match), table)


def default_policy(table: model.DefaultPolicy) -> Policy:
    return _handled("default", Match(), table)


def policies(parts: Parts) -> Policies:
    assert parts.default_policy is not None
    return Policies(
        rules=tuple(policy(table) for table in parts.policies if table is not None),
        default=default_policy(parts.default_policy),
    )


def broker(table: model.Broker) -> BrokerSettings:
    addresses = urls.addresses(table.url)
    return BrokerSettings(
        addresses=addresses,
        api=urls.management_api(table.api, addresses[0]),
        name=table.name or addresses[0].host,
    )


def store(table: model.Store) -> StoreSettings:
    return StoreSettings(url=table.url)


def watch(table: model.WatchTable, vhost: str) -> Watch:
    mode = Mode(table.mode)
    every_ms = table.every_ms
    if mode is Mode.SWEEP and every_ms is None and table.backoff is None:
        every_ms = EVERY_MS
    return Watch(
        dlq=table.dlq,
        vhost=table.vhost or vhost,
        mode=mode,
        every_ms=every_ms,
        pauses=None if table.backoff is None else backoff(table.backoff),
        limit_per_boot=table.limit_per_boot,
        policies=None if table.policies is None else tuple(table.policies),
    )


def alerts(table: model.Alerts) -> AlertSettings:
    return AlertSettings(
        depth_warning=table.depth.warning,
        depth_critical=table.depth.critical,
        age_warning_ms=table.age.warning_ms,
        age_critical_ms=table.age.critical_ms,
        channels=tuple(table.channels),
    )


def check(table: model.Check) -> CheckSettings:
    return CheckSettings(
        dlq=table.dlq,
        target=table.target,
        max_retries=table.max_retries,
        count_by=table.count_by,
        target_type=table.target_type,
        create=table.create,
    )
