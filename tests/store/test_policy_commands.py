"""`dlq policy list | set | remove` as a person types them, on both backends.

About `cli.policies.policy_store`, `cli.policies.policy_options`.
"""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.commanding import command
from tests.store.grounds import Ground, SqliteGround

pytestmark = pytest.mark.unprepared

CONFIG = """
[default_policy]
backoff = { kind = "fixed", delays = ["1s", "5s"] }
[[policies]]
name = "orders"
match = { routing_key = "order.*" }
retries = 1
"""


def dlq(*arguments: str, home: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("DLQ_", "XDG_"))}
    return command(*arguments, environment={**clean, "HOME": str(home), **environment}, directory=home)


def answer(*arguments: str, home: Path, code: int = 0, **environment: str) -> Any:
    done = dlq(*arguments, "--json", home=home, **environment)
    assert (done.returncode, done.stderr) == (code, "")
    return json.loads(done.stdout)


def shown(ground: Ground) -> str:
    return ground.url.replace(":secret", "")


def test_set_list_remove(ground: Ground, tmp_path: Path) -> None:
    home = tmp_path
    (home / "deadletter.toml").write_text(CONFIG)
    assert dlq("policy", "list", "--store", ground.url, home=home).stdout.splitlines()[:2] == [
        f"nothing from dlq_event_config in {shown(ground)}",
        "from deadletter.toml:",
    ]
    if isinstance(ground, SqliteGround):
        assert not ground.path.exists()

    done = dlq("policy", "set", "order.placed", "3", "--store", ground.url, home=home)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "order.placed: 1 s, 5 s, 5 s, then park after 3 retries ≈ 11 s",
        f"    from dlq_event_config in {shown(ground)}",
    ]
    told = answer("policy", "set", "order.#", "0", home=home, DLQ_STORE=ground.url)
    assert told == {"routing_key": "order.#", "max_retries": 0, "store": shown(ground)}
    ground.sql("INSERT INTO dlq_event_config VALUES (8, NULL, 1), (9, 'order.placed', -1)")

    done = dlq("policy", "list", home=home, DLQ_STORE=ground.url)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"from dlq_event_config in {shown(ground)}:",
        "dlq_event_config:order.placed: routing key order.placed",
        "    1 s, 5 s, 5 s, then park after 3 retries ≈ 11 s",
        "dlq_event_config:order.#: routing key order.#",
        "    park at once, no retries",
        "from deadletter.toml:",
        "orders: routing key order.*",
        "    1 s ± 20 %, then park after 1 retry ≈ 1 s",
        "default: everything",
        "    1 s, 5 s, 5 s, 5 s, 5 s, then park after 5 retries ≈ 21 s",
        "ignored in dlq_event_config:",
        "    row 9 (order.placed) is ignored: max_retries: expected a number from 0 to 10000, got -1",
        "    row 8 is ignored: expected a routing key as its name, got null",
    ]
    told = answer("policy", "list", "--store", ground.url, home=home)
    assert [(policy["name"], policy["from"]) for policy in told["policies"]] == [
        ("dlq_event_config:order.placed", "table"),
        ("dlq_event_config:order.#", "table"),
        ("orders", "file"),
        ("default", "file"),
    ]
    assert told["policies"][0]["match"]["routing_key"] == "order.placed"
    assert (told["file"], told["store"], told["store_error"]) == ("deadletter.toml", shown(ground), None)
    assert len(told["ignored"]) == 2

    done = dlq("policy", "remove", "order.placed", "--store", ground.url, home=home)
    assert done.returncode == 0
    assert done.stdout == f"removed 2 rows for order.placed from dlq_event_config in {shown(ground)}\n"
    told = answer("policy", "remove", "order.placed", "--store", ground.url, home=home, code=1)
    assert told == {"routing_key": "order.placed", "removed": 0, "store": shown(ground)}
    done = dlq("policy", "remove", "order.placed", "--store", ground.url, home=home)
    assert (done.returncode, done.stderr) == (1, "")
    assert "nothing to remove" in done.stdout


def test_without_a_store_in_the_settings_it_is_a_file_of_the_user(tmp_path: Path) -> None:
    path = tmp_path / ".local" / "share" / "deadletter" / "deadletter.db"
    assert answer("policy", "list", home=tmp_path)["store"] is None
    assert answer("policy", "remove", "a", home=tmp_path, code=1)["removed"] == 0
    assert not path.exists()
    assert answer("policy", "set", "a", "2", home=tmp_path)["store"] == f"sqlite:///{path}"
    assert path.exists()
    assert answer("policy", "list", home=tmp_path)["policies"][0]["name"] == "dlq_event_config:a"
    assert answer("policy", "remove", "a", home=tmp_path)["removed"] == 1


def test_no_store_at_all(tmp_path: Path) -> None:
    told = answer("policy", "list", home=tmp_path, DLQ_STORE="none")
    assert (told["store"], [policy["name"] for policy in told["policies"]]) == (None, ["default"])
    done = dlq("policy", "set", "a", "2", home=tmp_path, DLQ_STORE="none")
    assert (done.returncode, done.stdout) == (2, "")
    assert "expected a store to write to" in done.stderr
    assert not (tmp_path / ".local").exists()


def test_what_makes_no_sense_ends_with_2(ground: Ground, tmp_path: Path) -> None:
    for arguments, why in (
        (("set", "a" * 101, "1"), "expected at most 100 characters"),
        (("set", "a", "10001"), "max_retries: expected a number from 0 to 10000, got 10001"),
        (("set", "a", "many"), "MAX_RETRIES"),
    ):
        done = dlq("policy", *arguments, "--store", ground.url, home=tmp_path)
        assert (done.returncode, done.stdout) == (2, "")
        assert why in done.stderr
    if isinstance(ground, SqliteGround):
        assert not ground.path.exists()
    for url in ("mysql://u:hunter2@h/d", "postgresql://u:hunter2/x@h/d", "sqlite:///:memory:"):
        for words in (["list"], ["set", "a", "1"], ["remove", "a"]):
            done = dlq("policy", *words, "--store", url, home=tmp_path)
            assert (done.returncode, done.stdout) == (2, ""), url
            assert "hunter2" not in done.stderr


def test_a_store_that_cannot_be_reached_ends_with_3(tmp_path: Path) -> None:
    url = "postgresql://u:hunter2@127.0.0.1:1/d"
    printed = {}
    for words in (["list"], ["set", "a", "1"], ["remove", "a"]):
        done = dlq("policy", *words, "--store", url, home=tmp_path)
        printed[words[0]] = done.stdout.splitlines()
        assert done.returncode == 3
        assert done.stderr.startswith("dlq: the store postgresql://u@127.0.0.1:1/d does not answer: ")
        assert "hunter2" not in done.stderr + done.stdout
        assert "Traceback" not in done.stderr
    assert printed["list"][0] == "dlq_event_config in postgresql://u@127.0.0.1:1/d could not be read"
    assert printed["list"][-2] == "default: everything"  # what is known is shown
    assert printed["set"] == printed["remove"] == []


def test_a_file_that_somebody_keeps_locked_ends_with_3(sqlite_ground: SqliteGround, tmp_path: Path) -> None:
    assert dlq("policy", "set", "a", "1", "--store", sqlite_ground.url, home=tmp_path).returncode == 0
    with closing(sqlite3.connect(sqlite_ground.path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        done = dlq("policy", "set", "a", "2", "--store", sqlite_ground.url, home=tmp_path)
        assert done.returncode == 3
        assert "is locked by somebody who writes to it; nothing was done" in done.stderr
        assert dlq("policy", "list", "--store", sqlite_ground.url, home=tmp_path).returncode == 0
    assert sqlite_ground.sql("SELECT max_retries FROM dlq_event_config") == "1"
