"""Settings: who wins, what comes out, and where each value came from.

About `config.sources`, `config.build`, `config.policy_names`, `config.tables.base`, `config.settings`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from deadletter.config import load
from deadletter.config.settings import Mode, Settings
from deadletter.config.tables.counting import count_by
from deadletter.core.deciding.backoff import Exponential, Fixed, Linear
from deadletter.core.deciding.deaths import ByQueue, ByReason, FirstEntry, NamedHeader, OwnAttempt, SumOfAll
from deadletter.core.deciding.policy import (
    DEFAULT_POLICY,
    ErrorRule,
    HeaderMatch,
    JqCondition,
    Match,
    Policy,
    Then,
)
from deadletter.errors import ConfigError


def loaded(
    tmp_path: Path,
    text: str = "",
    *,
    name: str = "deadletter.toml",
    environment: dict[str, str] | None = None,
    options: dict[str, object] | None = None,
) -> Settings:
    """A file in a directory of its own, with nothing else around it."""
    if text:
        (tmp_path / name).write_text(text)
    return load(directory=tmp_path, home=tmp_path / "home", environment=environment or {}, options=options)


def test_nothing_at_all_is_a_whole_configuration(tmp_path: Path) -> None:
    settings = loaded(tmp_path)
    assert settings.file is None
    assert [str(address) for address in settings.broker.addresses] == ["amqp://guest@127.0.0.1:5672/%2F"]
    assert settings.broker.api == "http://guest:guest@127.0.0.1:15672/api"
    assert settings.policies.rules == ()
    assert settings.policies.default == DEFAULT_POLICY
    assert settings.store.url is None
    assert (settings.alerts.depth_warning, settings.alerts.depth_critical) == (10, 50)
    assert settings.check.max_retries == 3
    assert {effective.source.kind for effective in settings.effective} == {"default"}


POLICY = """
[[policies]]
name = "orders"
retries = 7
deadline = "2h"
then = "discard"
count_by = "reason:rejected"
backoff = { kind = "exponential", first = "500ms", factor = 3, cap = "1min", jitter = 0.1, floor = "100ms" }
[policies.match]
queue = "orders.*"
routing_key = "order.#"
reason = "rejected"
error_type = ["Timeout*", "a.B"]
header = { tenant = "gold", retries = "3" }
content_type = "application/*"
body = ".total > 1"
[[policies.errors]]
error_type = "RateLimited"
backoff = { kind = "fixed", delays = ["60s", "2m"] }
[[policies.errors]]
error_type = "Slow"
retries = 2
backoff = { kind = "linear", step = "1s", first = "3s" }
then = "leave"

[default_policy]
retries = 0
"""


def test_a_policy_comes_out_as_it_was_written(tmp_path: Path) -> None:
    policies = loaded(tmp_path, POLICY).policies
    assert policies.rules == (
        Policy(
            name="orders",
            match=Match(
                queue="orders.*",
                routing_key="order.#",
                reasons=frozenset({"rejected"}),
                error_types=("Timeout*", "a.B"),
                headers=(
                    HeaderMatch(header="tenant", value="gold"),
                    HeaderMatch(header="retries", value="3"),
                ),
                content_type="application/*",
                body=JqCondition(program=".total > 1"),
            ),
            retries=7,
            backoff=Exponential(first_ms=500, factor=3.0, cap_ms=60_000, jitter=0.1, floor_ms=100),
            deadline_ms=7_200_000,
            then=Then.DISCARD,
            count_by=ByReason(reason="rejected"),
            errors=(
                ErrorRule(error_types=("RateLimited",), backoff=Fixed(delays_ms=(60_000, 120_000))),
                ErrorRule(
                    error_types=("Slow",),
                    retries=2,
                    backoff=Linear(step_ms=1_000, first_ms=3_000),
                    then=Then.LEAVE,
                ),
            ),
        ),
    )
    assert policies.default.retries == 0


def test_yaml_says_the_same_as_toml(tmp_path: Path) -> None:
    yaml = """
policies:
  - name: orders
    retries: 7
    deadline: 2h
    then: discard
    count_by: reason:rejected
    backoff: {kind: exponential, first: 500ms, factor: 3, cap: 1min, jitter: 0.1, floor: 100ms}
    match:
      queue: orders.*
      routing_key: "order.#"
      reason: rejected
      error_type: ["Timeout*", a.B]
      header: {tenant: gold, retries: "3"}
      content_type: application/*
      body: .total > 1
    errors:
      - error_type: RateLimited
        backoff: {kind: fixed, delays: [60s, 2m]}
      - {error_type: Slow, retries: 2, backoff: {kind: linear, step: 1s, first: 3s}, then: leave}
default_policy: {retries: 0}
"""
    toml_directory = tmp_path / "toml"
    toml_directory.mkdir()
    for name in ("deadletter.yaml", "deadletter.yml"):
        settings = loaded(tmp_path, yaml, name=name)
        assert settings.policies == loaded(toml_directory, POLICY).policies
        assert settings.source("policies[orders].retries").where.endswith(f"{name}:4")
        (tmp_path / name).unlink()


def test_the_line_wins_over_the_environment_over_the_file_over_the_default(tmp_path: Path) -> None:
    text = '[broker]\nurl = "amqp://file"\napi = "http://file:1"\nname = "file"\n'
    environment = {"DLQ_URL": "amqp://environment", "DLQ_API": "http://environment:2", "DLQ_STORE": ""}
    options: dict[str, object] = {"broker.url": "amqp://option", "broker.api": None}
    settings = loaded(tmp_path, text, environment=environment, options=options)
    assert settings.broker.addresses[0].host == "option"
    assert settings.broker.api == "http://guest:guest@environment:2/api"
    assert settings.broker.name == "file"
    assert settings.store.url is None
    said = {e.key: (e.source.kind, e.source.where) for e in settings.effective}
    assert said["broker.url"] == ("option", "--url")
    assert said["broker.api"] == ("environment", "DLQ_API")
    assert said["broker.name"] == ("file", f"{tmp_path}/deadletter.toml:4")
    assert said["store.url"] == ("default", "default")


def test_the_environment_replaces_single_values_in_their_own_types(tmp_path: Path) -> None:
    text = '[default_policy]\nretries = 9\nthen = "discard"\n[alerts]\ndepth = {warning = 1, critical = 2}\n'
    settings = loaded(
        tmp_path,
        text,
        environment={
            "DLQ_DEFAULT_POLICY_RETRIES": "4",
            "DLQ_DEFAULT_POLICY_BACKOFF_KIND": "fixed",
            "DLQ_DEFAULT_POLICY_BACKOFF_DELAYS": "1s 5s",
            "DLQ_DEFAULT_POLICY_BACKOFF_JITTER": "0.5",
            "DLQ_DEFAULT_POLICY_DEADLINE": "3h",
            "DLQ_ALERTS_DEPTH_CRITICAL": "20",
            "DLQ_ALERTS_CHANNELS": "log https://hook.example/x,y",
            "DLQ_CHECK_CREATE": "false",
            "DLQ_CHECK_COUNT_BY": "header:x-retry-count",
            "DLQ_BROKER_NAME": "7",
        },
    )
    default = settings.policies.default
    assert (default.retries, default.then, default.deadline_ms) == (4, Then.DISCARD, 10_800_000)
    assert default.backoff == Fixed(delays_ms=(1_000, 5_000), jitter=0.5)
    assert (settings.alerts.depth_warning, settings.alerts.depth_critical) == (1, 20)
    assert settings.alerts.channels == ("log", "https://hook.example/x,y")
    assert settings.check.create is False
    assert settings.check.count_by == NamedHeader(header="x-retry-count")
    assert settings.broker.name == "7"
    assert settings.source("alerts.depth.warning").kind == "file"
    assert settings.source("alerts.depth.critical").where == "DLQ_ALERTS_DEPTH_CRITICAL"


def test_which_file(tmp_path: Path) -> None:
    here, home, named = tmp_path / "here", tmp_path / "home", tmp_path / "named.toml"
    user = home / ".config" / "deadletter" / "deadletter.toml"
    for path in (here / "deadletter.toml", user, named):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f'broker.name = "{path.parent.name}"\n')

    def found(config: Path | None = None, environment: dict[str, str] | None = None) -> Path | None:
        return load(config=config, directory=here, home=home, environment=environment or {}).file

    assert found(named, {"DLQ_CONFIG": "/nonexistent"}) == named
    assert found(None, {"DLQ_CONFIG": str(named)}) == named
    assert found(None, {"DLQ_CONFIG": ""}) == here / "deadletter.toml"
    (here / "deadletter.toml").unlink()
    assert found() == user
    user.unlink()
    assert found() is None


@pytest.mark.parametrize("source", ["--config", "DLQ_CONFIG"])
def test_a_named_file_must_be_there(tmp_path: Path, source: str) -> None:
    missing = tmp_path / "missing.toml"
    config = missing if source == "--config" else None
    with pytest.raises(ConfigError, match=f"{source}: file: expected a file, got .*missing.toml"):
        load(config=config, directory=tmp_path, home=tmp_path, environment={"DLQ_CONFIG": str(missing)})


def test_two_files_in_one_directory_are_one_too_many(tmp_path: Path) -> None:
    (tmp_path / "deadletter.yaml").write_text("{}")
    with pytest.raises(ConfigError, match=r"expected one file, got deadletter.toml and deadletter.yaml"):
        loaded(tmp_path, "[broker]\n")


def test_watches(tmp_path: Path) -> None:
    text = """
broker.url = "amqp://h/shop"
[[policies]]
name = "a"
match.queue = "a"
[[policies]]
name = "b"
match.queue = "b"
[[watches]]
dlq = "a.dlq"
policies = ["b"]
[[watches]]
dlq = "b.dlq"
mode = "sweep"
[[watches]]
dlq = "*.dlq"
vhost = "/"
mode = "sweep"
backoff = { kind = "exponential", first = "300s", factor = 3 }
limit_per_boot = 3
policies = "all"
"""
    settings = loaded(tmp_path, text)
    first, second, third = settings.watches
    assert (first.mode, first.vhost, first.every_ms, first.policies) == (Mode.CONSUME, "shop", None, ("b",))
    assert [policy.name for policy in settings.policies_of(first)] == ["b", "default"]
    assert (second.mode, second.every_ms, second.policies) == (Mode.SWEEP, 900_000, None)
    assert [policy.name for policy in settings.policies_of(second)] == ["a", "b", "default"]
    assert (third.vhost, third.every_ms, third.limit_per_boot) == ("/", None, 3)
    assert third.pauses == Exponential(first_ms=300_000, factor=3.0)


@pytest.mark.parametrize(
    ("url", "api", "full"),
    [
        ("amqp://u:p%2Fw@h/v", None, "http://u:p%2Fw@h:15672/api"),
        ("amqps://u:p@h", None, "https://u:p@h:15671/api"),
        ("amqp://[::1]:9", None, "http://guest:guest@[::1]:15672/api"),
        ("amqp://u:p@h", "http://other:8080", "http://u:p@other:8080/api"),
        ("amqp://u:p@h", "http://a:b@other/rabbit/api/", "http://a:b@other/rabbit/api"),
    ],
)
def test_the_management_api_is_on_the_same_host_for_the_same_user(
    tmp_path: Path, url: str, api: str | None, full: str
) -> None:
    settings = loaded(tmp_path, options={"broker.url": url, "broker.api": api})
    assert settings.broker.api == full
    assert full not in str(settings.effective) or "@" not in full


def test_several_addresses_of_one_cluster(tmp_path: Path) -> None:
    as_list = loaded(tmp_path, 'broker.url = ["amqp://a", "amqp://b"]\n')
    as_text = loaded(tmp_path, environment={"DLQ_URL": "amqp://a,amqp://b"})
    assert [address.host for address in as_list.broker.addresses] == ["a", "b"]
    assert as_list.broker.addresses == as_text.broker.addresses


@pytest.mark.parametrize(
    ("text", "strategy"),
    [
        ("own", OwnAttempt()),
        ("first", FirstEntry()),
        ("sum", SumOfAll()),
        ("reason:expired", ByReason(reason="expired")),
        ("queue:a:b", ByQueue(queue="a:b")),
        ("header:x-retry-count", NamedHeader(header="x-retry-count")),
    ],
)
def test_counts_are_read(text: str, strategy: object) -> None:
    assert count_by(text) == strategy


@pytest.mark.parametrize("text", ["", "own:", "reason", "reason:nope", "queue:", "header:", "sum:x", 3, None])
def test_counts_nobody_knows(text: object) -> None:
    with pytest.raises(ValueError, match="reason:"):
        count_by(text)


def test_policies_that_nobody_named_are_called_what_they_match(tmp_path: Path) -> None:
    (tmp_path / "deadletter.toml").write_text(
        "[[policies]]\nmatch = { queue = 'orders', reason = ['expired'] }\nretries = 1\n"
        "[[policies]]\nmatch = { queue = 'orders', reason = ['rejected'] }\nretries = 2\n"
        "[[policies]]\nmatch = { error_type = ['TimeoutError'] }\n"
        "[[policies]]\nname = 'TimeoutError-2'\nmatch = { queue = 'a*' }\n"
        "[[policies]]\nmatch = { header = { tenant = 'x' } }\n"
        "[[policies]]\nmatch = { queue = 'default' }\n"
        "[[policies]]\nretries = 3\n"
        "[[watches]]\ndlq = '*.dlq'\npolicies = ['orders-2', 'policy-7']\n"
    )
    settings = load(directory=tmp_path, home=tmp_path / "home", environment={})
    assert [policy.name for policy in settings.policies.rules] == [
        "orders", "orders-2", "TimeoutError", "TimeoutError-2", "policy-5", "default-2", "policy-7",
    ]  # fmt: skip
    shown = {one.key: (one.value, str(one.source)) for one in settings.effective}
    assert shown["policies[orders-2].name"] == ("orders-2", "default")
