"""The settings of the service: what comes out, where it came from, and what is refused.

About `config.tables.serve`, `config.build`, `config.tables.base`.
"""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from deadletter.config import load
from deadletter.config.command_settings import StoreSettings
from deadletter.config.settings import GuardSettings, Mode, ServeSettings, Settings
from deadletter.config.tables import serve
from deadletter.config.tables.base import LISTEN_PATTERN, listen
from deadletter.config.tables.file import json_schema
from deadletter.config.tables.keys import variables
from deadletter.core.deciding.deaths import OriginBy
from deadletter.core.deciding.policy import MAX_BUDGET_PER_MINUTE, Policy
from deadletter.core.guards.breaker import BreakerTerms
from deadletter.core.layouts import levels
from deadletter.errors import UsageError


def loaded(tmp_path: Path, text: str = "", *, name: str = "deadletter.toml", **environment: str) -> Settings:
    (tmp_path / name).write_text(text)
    return load(directory=tmp_path, home=tmp_path / "home", environment=environment)


def test_without_a_word_the_file_says_what_the_values_say(tmp_path: Path) -> None:
    """The two lists of defaults, of the model and of the dataclasses, are one."""
    settings = loaded(tmp_path)
    assert settings.serve == ServeSettings()
    assert settings.guards == GuardSettings()
    assert settings.store == StoreSettings(url=None, off=False)
    alerts = settings.alerts
    assert (alerts.growth_per_minute, alerts.held, alerts.breaker) == (None, 100, True)
    assert settings.policies.default.budget_per_minute is None


def test_a_container_without_a_file_has_its_watches_from_the_environment(tmp_path: Path) -> None:
    settings = loaded(tmp_path, DLQ_WATCH="*.dlq bills.dead", DLQ_MODE="sweep", DLQ_EVERY="10min")
    assert [(one.dlq, one.mode, one.every_ms) for one in settings.watches] == [
        ("*.dlq", Mode.SWEEP, 600_000),
        ("bills.dead", Mode.SWEEP, 600_000),
    ]
    (plain,) = loaded(tmp_path, DLQ_WATCH="*.dlq", DLQ_EVERY="").watches
    assert plain.mode is Mode.CONSUME
    (often,) = loaded(tmp_path, DLQ_WATCH="*.dlq", DLQ_EVERY="15min").watches
    assert (often.mode, often.every_ms) == (Mode.SWEEP, 900_000), "only a sweep has an interval"


def test_watches_of_the_environment_stand_instead_of_those_of_the_file(tmp_path: Path) -> None:
    file = "[[watches]]\ndlq = 'a.dlq'\nmode = 'manual'\n[[watches]]\ndlq = 'b.dlq'"
    settings = loaded(tmp_path, file, DLQ_WATCH="c.dlq", DLQ_MODE="startup")
    assert [(one.dlq, one.mode) for one in settings.watches] == [("c.dlq", Mode.STARTUP)]
    said = {one.key: str(one.source) for one in settings.effective if one.key.startswith("watches")}
    assert (said["watches[c.dlq].dlq"], said["watches[c.dlq].mode"]) == ("DLQ_WATCH", "DLQ_MODE")


EVERYTHING = """
[serve]
listen = "0.0.0.0:9000"
name = "dlq-1"
log_format = "json"
log_level = "debug"
grace = "1min"
prefetch = 50
heartbeat = "4s"
survey = "1s"
tidy = "2min"
tidy_after = "10min"
adjust_dlqs = false
[guards]
require_consumers = false
max_depth = 1000
budget_per_minute = 600
budget_share = 0.25
budget_floor_per_minute = 30
copies = 2
[guards.breaker]
enabled = false
letters = 5
share = 0.5
window = "2min"
pause = "10s"
pause_max = "1h"
probe = "7s"
[alerts]
growth_per_minute = 9
held = 7
breaker = false
[store]
url = "none"
[[policies]]
name = "p"
budget_per_minute = 3
match.queue = "q"
[default_policy]
budget_per_minute = 4
"""


def test_every_value_comes_out_as_it_was_written(tmp_path: Path) -> None:
    settings = loaded(tmp_path, EVERYTHING)
    assert settings.serve == ServeSettings(
        listen="0.0.0.0:9000",
        name="dlq-1",
        log_format="json",
        log_level="debug",
        grace_ms=60_000,
        prefetch=50,
        heartbeat_ms=4_000,
        survey_ms=1_000,
        tidy_ms=120_000,
        tidy_after_ms=600_000,
        adjust_dlqs=False,
    )
    assert settings.guards == GuardSettings(
        require_consumers=False,
        max_depth=1_000,
        budget_per_minute=600,
        budget_share=0.25,
        budget_floor_per_minute=30,
        copies=2,
        breaker=BreakerTerms(
            enabled=False,
            letters=5,
            share=0.5,
            window_ms=120_000,
            pause_ms=10_000,
            pause_max_ms=3_600_000,
            probe_ms=7_000,
        ),
    )
    for said, default in ((settings.serve, ServeSettings()), (settings.guards, GuardSettings())):
        same = [f.name for f in fields(said) if getattr(said, f.name) == getattr(default, f.name)]
        assert same == [], "a value that is the default shows nothing here"
    alerts = settings.alerts
    assert (alerts.growth_per_minute, alerts.held, alerts.breaker) == (9, 7, False)
    assert settings.store == StoreSettings(url=None, off=True)
    assert [policy.budget_per_minute for policy in settings.policies] == [3, 4]


def test_the_environment_says_each_of_them_in_its_own_type(tmp_path: Path) -> None:
    said = {
        "DLQ_SERVE_LISTEN": "off",
        "DLQ_SERVE_NAME": "7",
        "DLQ_SERVE_LOG_FORMAT": "json",
        "DLQ_SERVE_LOG_LEVEL": "error",
        "DLQ_SERVE_GRACE": "0s",
        "DLQ_SERVE_PREFETCH": "65535",
        "DLQ_SERVE_HEARTBEAT": "1min",
        "DLQ_SERVE_SURVEY": "1h",
        "DLQ_SERVE_TIDY": "1s",
        "DLQ_SERVE_TIDY_AFTER": "5min",
        "DLQ_SERVE_ADJUST_DLQS": "no",
        "DLQ_GUARDS_REQUIRE_CONSUMERS": "false",
        "DLQ_GUARDS_MAX_DEPTH": "1",
        "DLQ_GUARDS_BUDGET_PER_MINUTE": "60",
        "DLQ_GUARDS_BUDGET_SHARE": "1",
        "DLQ_GUARDS_BUDGET_FLOOR_PER_MINUTE": "1",
        "DLQ_GUARDS_COPIES": "1",
        "DLQ_GUARDS_BREAKER_ENABLED": "0",
        "DLQ_GUARDS_BREAKER_LETTERS": "1",
        "DLQ_GUARDS_BREAKER_SHARE": "0.01",
        "DLQ_GUARDS_BREAKER_WINDOW": "1ms",
        "DLQ_GUARDS_BREAKER_PAUSE": "1ms",
        "DLQ_GUARDS_BREAKER_PAUSE_MAX": "1ms",
        "DLQ_GUARDS_BREAKER_PROBE": "1ms",
        "DLQ_ALERTS_GROWTH_PER_MINUTE": "0",
        "DLQ_ALERTS_HELD": "0",
        "DLQ_ALERTS_BREAKER": "false",
        "DLQ_DEFAULT_POLICY_BUDGET_PER_MINUTE": "1",
        "DLQ_STORE": "none",
    }
    ours = {name for name in variables() if name.startswith(("DLQ_SERVE_", "DLQ_GUARDS_"))}
    assert ours <= set(said)
    settings = loaded(tmp_path, **said)
    assert (settings.serve.listen, settings.serve.name, settings.serve.grace_ms) == (None, "7", 0)
    assert settings.guards.budget_share == 1.0
    assert settings.guards.breaker == BreakerTerms(
        enabled=False, letters=1, share=0.01, window_ms=1, pause_ms=1, pause_max_ms=1, probe_ms=1
    )
    assert settings.alerts.breaker is False
    assert settings.policies.default.budget_per_minute == 1
    assert settings.store.off
    by_variable = {e.source.where: e.value for e in settings.effective if e.source.kind == "environment"}
    assert set(by_variable) == set(said)
    assert by_variable["DLQ_SERVE_LISTEN"] == "off"
    assert by_variable["DLQ_STORE"] == "none"


@pytest.mark.parametrize("value", ["127.0.0.1:8025", "[::1]:8025", "localhost:0", " dlq.example:65535 "])
def test_places_to_listen(value: str) -> None:
    assert listen(value) == value.strip()
    assert re.fullmatch(LISTEN_PATTERN, value.strip())


def test_nowhere_to_listen_also_in_yaml(tmp_path: Path) -> None:
    assert loaded(tmp_path, "serve:\n  listen: off\n", name="deadletter.yaml").serve.listen is None
    (tmp_path / "deadletter.yaml").unlink()
    assert loaded(tmp_path, '[serve]\nlisten = "off"').serve.listen is None
    assert re.fullmatch(LISTEN_PATTERN, "off")


@pytest.mark.parametrize(
    "value",
    [
        "",
        "8025",
        "127.0.0.1",
        "h:",
        "h:x",
        "h:65536",
        "::1:8025",
        "http://h:1",
        "u@h:1",
        "a b:1",
        8025,
        True,
        None,
    ],
)
def test_no_place_to_listen(value: object) -> None:
    with pytest.raises(ValueError, match=re.escape("host:port such as 127.0.0.1:8025 or [::1]:8025, or off")):
        listen(value)


def test_a_port_alone_is_told_what_to_write() -> None:
    with pytest.raises(ValueError, match=re.escape("or off; 0.0.0.0:80 for every address")):
        listen(":80")


WATCH = "[[watches]]\n"


@pytest.mark.parametrize(
    ("lines", "layout", "dlq", "delays_ms"),
    [
        ("dlq = 'x'", "return", "x", ()),
        ("dlq = 'x'\nmode = 'sweep'", "sweep", "x", ()),
        ("dlq = 'x'\nmode = 'startup'", "sweep", "x", ()),
        ("dlq = 'x'\nmode = 'manual'", "sweep", "x", ()),
        ("dlq = 'x'\nmode = 'sweep'\nlayout = 'return'", "return", "x", ()),
        ("layout = 'levels'", "levels", "retry-queue", (10_000, 15_000, 20_000)),
        ("layout = 'levels'\nmode = 'sweep'", "levels", "retry-queue", (10_000, 15_000, 20_000)),
        ("layout = 'levels'\ndlq = 'y'\ndelays = ['1s', '1s']", "levels", "y", (1_000, 1_000)),
        (f"layout = 'levels'\ndelays = {['1s'] * 20}", "levels", "retry-queue", (1_000,) * 20),
    ],
)
def test_layouts(tmp_path: Path, lines: str, layout: str, dlq: str, delays_ms: tuple[int, ...]) -> None:
    (watch,) = loaded(tmp_path, WATCH + lines).watches
    assert (watch.layout, watch.dlq, watch.delays_ms) == (layout, dlq, delays_ms)


@pytest.mark.parametrize(
    ("lines", "origins", "origin_by"),
    [
        ("", (), OriginBy.FAILURE),
        ("origins = 'orders'", ("orders",), OriginBy.FAILURE),
        ("origins = ['orders', 'import-*']\norigin_by = 'last'", ("orders", "import-*"), OriginBy.LAST),
    ],
)
def test_origins(tmp_path: Path, lines: str, origins: tuple[str, ...], origin_by: OriginBy) -> None:
    (watch,) = loaded(tmp_path, f"{WATCH}dlq = 'x'\n{lines}").watches
    assert (watch.origins, watch.origin_by) == (origins, origin_by)


def test_the_name_of_the_retry_queue_is_that_of_the_layout() -> None:
    assert serve.RETRY_QUEUE == levels.RETRY_QUEUE


def test_watches_of_levels_side_by_side(tmp_path: Path) -> None:
    text = """
broker.url = "amqp://h/shop"
[[watches]]
layout = "levels"
[[watches]]
layout = "levels"
dlq = "other"
vhost = "shop"
[[watches]]
layout = "levels"
vhost = "elsewhere"
delays = ["1s"]
[[watches]]
dlq = "dlq-queue"
mode = "manual"
"""
    first, second, third, asked = loaded(tmp_path, text).watches
    assert first.delays_ms == second.delays_ms != third.delays_ms
    assert (first.vhost, second.vhost, third.vhost, asked.mode) == ("shop", "shop", "elsewhere", Mode.MANUAL)


@pytest.mark.parametrize("budget", [0, -1, MAX_BUDGET_PER_MINUTE + 1])
def test_a_policy_has_a_budget_or_none(budget: int) -> None:
    with pytest.raises(
        UsageError, match=rf"policy p: budget_per_minute: expected 1 to \d+ letters, got {budget}"
    ):
        Policy(name="p", budget_per_minute=budget)
    assert Policy(name="p", budget_per_minute=1) != Policy(name="p")


def test_the_schema_knows_them() -> None:
    defs = json_schema()["$defs"]
    assert defs["Serve"]["properties"]["listen"]["pattern"] == LISTEN_PATTERN
    assert defs["Serve"]["properties"]["prefetch"]["maximum"] == 65_535
    assert defs["Guards"]["properties"]["breaker"]["$ref"] == "#/$defs/BreakerTable"
    layout = defs["WatchTable"]["properties"]["layout"]["anyOf"][0]
    assert layout["enum"] == ["return", "levels", "sweep"]
    assert defs["WatchTable"]["properties"]["delays"]["anyOf"][0]["maxItems"] == 20
    assert "required" not in defs["WatchTable"]
