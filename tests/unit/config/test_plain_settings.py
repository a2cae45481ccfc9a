"""Settings made without the tables are those that the tables make; whatever is not plain is left to these.

About `config.plain`, `config.command_settings`, `config.tables.counting`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from deadletter import config
from deadletter.config.command_settings import CommandSettings
from deadletter.config.plain import plain_settings, plainly_spoken
from deadletter.config.settings import DeskSettings
from deadletter.config.tables.file import File
from deadletter.config.tables.keys import below, fields, variables
from deadletter.core.letter.names import PARKED
from deadletter.errors import ConfigError

PLAIN = [
    "",
    "[broker]",
    '[broker]\nurl = "amqp://u:p%40w@rabbit:5673/shop"',
    '[broker]\nurl = ["amqp://a/v", "amqps://b/v"]\napi = "http://rabbit:15672/mq"\nname = "Shop"',
    '[broker]\nurl = "amqp://a/v,amqp://b/v"\napi = "https://x:y@rabbit/api"',
    '[store]\nurl = "none"',
    '[store]\nurl = "postgresql://u:p@h/d"',
    '[check]\ndlq = "dlq.*"\ntarget = "dead.*"\nmax_retries = 0\ncount_by = "sum"',
    '[check]\ntarget_type = "classic"\ncreate = false\ncount_by = "reason:rejected"',
]
NOT_PLAIN = [
    '[broker]\nurl = "http://rabbit"',
    "[broker]\nurl = []",
    "[broker]\nurl = 5",
    '[broker]\napi = "rabbit"',
    '[broker]\nname = ""',
    '[broker]\nname = "' + 256 * "n" + '"',
    '[broker]\nuser = "u"',
    '[store]\nurl = "mysql://h/d"',
    '[store]\nurl = ""',
    '[check]\nmax_retries = -1',
    "[check]\nmax_retries = true",
    "[check]\nmax_retries = 2147483649",
    "[check]\nmax_retries = 3.0",
    '[check]\ncount_by = "often"',
    '[check]\ntarget_type = "stream"',
    '[check]\ncreate = "yes"',
    '[check]\ndlq = "a"\ntarget = "a"',
    '[check]\ndlq = "a"\ntarget = "b.*"',
    'broker = "amqp://rabbit"',
    "check = []",
    'nothing = "known"',
]  # fmt: skip


def loaded(directory: Path, text: str, **environment: str) -> CommandSettings:
    (directory / "deadletter.toml").write_text(text)
    return config.load_command(directory=directory, home=directory, environment=environment)


def as_by_tables(directory: Path, **environment: str) -> CommandSettings:
    whole = config.load(directory=directory, home=directory, environment=environment)
    said = whole.file is not None and "[check]" in whole.file.read_text()
    return CommandSettings(broker=whole.broker, store=whole.store, check=whole.check if said else None)


@pytest.mark.parametrize("text", PLAIN)
def test_what_is_plain_is_read_as_the_tables_read_it(
    tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deadletter.toml").write_text(text)
    expected = as_by_tables(tmp_path, DLQ_API="http://here:1")
    monkeypatch.delattr(config, "_judged")
    assert loaded(tmp_path, text, DLQ_API="http://here:1") == expected


@pytest.mark.parametrize("text", NOT_PLAIN)
def test_what_is_wrong_is_left_to_the_tables(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError) as told:
        loaded(tmp_path, text)
    with pytest.raises(ConfigError) as by_tables:
        as_by_tables(tmp_path)
    assert told.value.problems == by_tables.value.problems


def test_more_than_plain_is_read_by_the_tables(tmp_path: Path) -> None:
    settings = loaded(
        tmp_path,
        '[[watches]]\ndlq = "orders.dlq"\n[desk]\ningest = true\n[[desk.queues]]\nname = "old"\n',
    )
    assert [watch.dlq for watch in settings.watches] == ["orders.dlq"]
    assert settings.stored.names == {PARKED, "old"}
    assert settings.stored.asked


def test_what_is_stored_by_default() -> None:
    plain, desk = plain_settings({}), DeskSettings()
    assert plain is not None
    assert plain.stored.names == desk.in_vhost("/").keys()
    assert (plain.stored.ingest, plain.stored.asked) == (desk.ingest, desk.asked)


@pytest.mark.parametrize("option", ["broker.url", "check.dlq"])
def test_an_option_wins_over_a_file(tmp_path: Path, option: str) -> None:
    (tmp_path / "deadletter.toml").write_text('[broker]\nurl = "amqp://file"\n[check]\ndlq = "file"\n')
    value = {"broker.url": "amqp://said", "check.dlq": "said"}[option]
    said = config.load_command(directory=tmp_path, home=tmp_path, environment={}, options={option: value})
    assert said.check is not None
    assert (said.broker.addresses[0].host, said.check.dlq) == (
        ("said", "file") if option == "broker.url" else ("file", "said")
    )


def test_variables() -> None:
    said = plainly_spoken({"DLQ_URL": "amqp://a", "DLQ_API": "", "DLQ_API_TOKEN": "t", "HOME": "/"})
    assert said is not None
    assert said.values == [(("broker", "url"), "amqp://a", "DLQ_URL")]
    for other in ({*variables()} - {"DLQ_URL", "DLQ_API", "DLQ_STORE"}) | {
        "DLQ_ULR",
        "DLQ_WATCH",
        "DLQ_MODE",
    }:
        assert plainly_spoken({other: "1"}) is None, other


def test_a_typing_error_in_a_variable_is_heard_of(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="DLQ_API"):
        loaded(tmp_path, "", DLQ_API_URL="http://rabbit")


def test_every_key_of_these_tables_is_known_to_both() -> None:
    """A key that is new in the file is not plain until somebody says so."""
    values: dict[str, dict[str, object]] = {
        "broker": {"url": "amqp://a", "api": "http://a", "name": "n"},
        "store": {"url": "none"},
        "check": {
            "dlq": "a", "target": "b", "max_retries": 1, "count_by": "own", "target_type": "quorum",
            "create": True,
        },
    }  # fmt: skip
    tables = fields((File,))
    for name, table in values.items():
        assert fields(below(tables[name]).tables).keys() == table.keys()
    assert plain_settings(values) is not None
    assert all(plain_settings({name: {}}) is None for name in tables if name not in values)
