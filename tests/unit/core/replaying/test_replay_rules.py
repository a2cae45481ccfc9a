"""About `core.replaying.replay_rules`, `config.tables.desk`: when a rule starts a replay, and why not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from deadletter.config import load
from deadletter.core.replaying.replay_rules import (
    HOUR_MS,
    GiveUp,
    NoReplay,
    ReplayRule,
    RuleFacts,
    RuleOccasion,
    StartReplay,
    decide_rule,
)
from deadletter.errors import ConfigError

NOW = 100 * HOUR_MS
HOURLY = ReplayRule(name="r", when=RuleOccasion.EVERY, enabled=True, origin="orders", give_up=3)
HEALTH = replace(HOURLY, when=RuleOccasion.HEALTHY, health="http://ledger/health")
DEPLOY = replace(HOURLY, when=RuleOccasion.DEPLOYED, service="ledger")
KNOWN = RuleFacts(now_ms=NOW, letters=5, failed_ms=NOW - 3 * HOUR_MS)


@pytest.mark.parametrize(
    ("rule", "known", "decision"),
    [
        (replace(HOURLY, enabled=False), KNOWN, NoReplay),
        (HOURLY, KNOWN, StartReplay),
        (HOURLY, replace(KNOWN, letters=0), NoReplay),
        (HOURLY, replace(KNOWN, running=True), NoReplay),
        (HOURLY, replace(KNOWN, last_ms=NOW - HOUR_MS + 1), NoReplay),
        (HOURLY, replace(KNOWN, last_ms=NOW - HOUR_MS), StartReplay),
        (HOURLY, replace(KNOWN, failures=2), StartReplay),
        (HOURLY, replace(KNOWN, failures=3), GiveUp),
        (HOURLY, replace(KNOWN, failures=3, gave_up=True), NoReplay),
        (HOURLY, replace(KNOWN, failures=3, running=True), NoReplay),
        (HEALTH, KNOWN, NoReplay),
        (HEALTH, replace(KNOWN, healthy_since_ms=NOW - HOUR_MS), StartReplay),
        (HEALTH, replace(KNOWN, healthy_since_ms=NOW - 4 * HOUR_MS), NoReplay),
        (HEALTH, replace(KNOWN, healthy_since_ms=NOW - 2 * HOUR_MS, last_ms=NOW - HOUR_MS), NoReplay),
        (DEPLOY, KNOWN, NoReplay),
        (DEPLOY, replace(KNOWN, release="2.0", released_ms=NOW - HOUR_MS), StartReplay),
        (DEPLOY, replace(KNOWN, release="2.0", released_ms=NOW - 4 * HOUR_MS), NoReplay),
        (DEPLOY, replace(KNOWN, release="2", released_ms=NOW - 2 * HOUR_MS, last_ms=NOW - HOUR_MS), NoReplay),
    ],
)
def test_a_rule_starts_or_says_why_not(
    rule: ReplayRule, known: RuleFacts, decision: type[StartReplay | NoReplay | GiveUp]
) -> None:
    found = decide_rule(rule, known)
    assert type(found) is decision
    assert found.why


def test_it_says_when_to_look_again() -> None:
    found = decide_rule(HOURLY, replace(KNOWN, last_ms=NOW - 1))
    assert found == NoReplay("its last run was not long ago", NOW - 1 + HOUR_MS)


def test_rules_and_schemas_of_the_file(tmp_path: Path) -> None:
    text = (
        "[[desk.schemas]]\nqueue = 'orders'\nfile = 'orders.schema.json'\n"
        "[[desk.replay_rules]]\nname = 'ledger'\nwhen = 'deployed'\nservice = 'ledger'\norigin = 'orders'\n"
        "enabled = true\nevery = '2h'\ngive_up = 2\nrecipe = 'numbers'\n"
    )
    (tmp_path / "deadletter.toml").write_text(text)
    desk = load(directory=tmp_path, home=tmp_path / "home", environment={}).desk
    assert desk.schemas == (("orders", Path("orders.schema.json")),)
    assert desk.replay_rules == (
        ReplayRule(
            name="ledger", when=RuleOccasion.DEPLOYED, service="ledger", origin="orders", enabled=True,
            every_ms=2 * HOUR_MS, give_up=2, recipe="numbers",
        ),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ("when = 'every'", "group, origin or error"),
        ("when = 'healthy'\norigin = 'o'", "health"),
        ("when = 'deployed'\norigin = 'o'", "service"),
        ("when = 'sometimes'\norigin = 'o'", "when"),
        ("when = 'every'\norigin = 'o'\nevery = '1s'", "every"),
        (
            "when = 'every'\norigin = 'o'\n[[desk.replay_rules]]\nname = 'r'\nwhen = 'every'\ngroup = '1'",
            "once",
        ),
    ],
)
def test_what_a_rule_cannot_say(tmp_path: Path, rule: str, problem: str) -> None:
    (tmp_path / "deadletter.toml").write_text(f"[[desk.replay_rules]]\nname = 'r'\n{rule}\n")
    with pytest.raises(ConfigError, match=problem):
        load(directory=tmp_path, home=tmp_path / "home", environment={})
