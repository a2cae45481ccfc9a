"""The commands on settings and policies, as a person types them.

About `cli.config_command`, `cli.config_options`, `cli.policies.policy_command`,
`cli.policies.policy_options`, `cli.letter_file`, `config.build`, `core.deciding.explain`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.commanding import command
from tests.paths import ROOT

import deadletter

SOURCES = Path(deadletter.__file__).parents[1]
EXAMPLE = ROOT / "docs" / "examples" / "deadletter.toml"


AMQP_URL = "an AMQP URL such as amqp://user:password@host:5672/vhost"


def dlq(
    *arguments: str | Path, directory: Path, stdin: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("DLQ_")}
    return command(
        *map(str, arguments),
        environment={**clean, "HOME": str(directory), **environment},
        directory=directory,
        stdin=stdin,
    )


def answer(*arguments: str | Path, directory: Path, stdin: str = "", **environment: str) -> Any:
    done = dlq(*arguments, "--json", directory=directory, stdin=stdin, **environment)
    assert done.stderr == ""
    assert done.returncode == 0
    return json.loads(done.stdout)


def test_show_says_what_is_in_force_and_who_said_it(tmp_path: Path) -> None:
    (tmp_path / "deadletter.toml").write_text('[broker]\nurl = "amqp://u:hunter2@file/"\nname = "shop"\n')
    done = dlq(
        "config", "show", "--api", "http://a:hunter2@b:1", directory=tmp_path, DLQ_STORE="sqlite:///x.db"
    )
    lines = [line.split() for line in done.stdout.splitlines()]
    assert done.returncode == 0
    assert ["broker.url", '"amqp://u:***@file/"', "deadletter.toml:2"] in lines
    assert ["broker.api", '"http://a:***@b:1"', "--api"] in lines
    assert ["broker.name", '"shop"', "deadletter.toml:3"] in lines
    assert ["store.url", '"sqlite:///x.db"', "DLQ_STORE"] in lines
    assert ["check.dlq", "(not", "set)", "default"] in lines
    assert "hunter2" not in done.stdout + done.stderr


def test_show_as_json(tmp_path: Path) -> None:
    told = answer("config", "show", "--config", EXAMPLE, directory=tmp_path, DLQ_URL="amqp://u:hunter2@h")
    assert told["file"] == str(EXAMPLE)
    values = {setting["key"]: setting for setting in told["settings"]}
    assert values["broker.url"] == {
        "key": "broker.url",
        "value": "amqp://u:***@h",
        "source": {"kind": "environment", "where": "DLQ_URL"},
    }
    assert values["policies[orders].match.reason"]["value"] == ["rejected", "delivery_limit"]
    assert "change-me" not in json.dumps(told)


def test_check_lists_every_problem_and_ends_with_2(tmp_path: Path) -> None:
    (tmp_path / "deadletter.toml").write_text('[broker]\nurl = "x:hunter2@y"\nuri = 1\n[check]\ncreate = 3\n')
    done = dlq("config", "check", directory=tmp_path)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines() == [
        "dlq: 3 problems in the configuration:",
        "  deadletter.toml:3: broker.uri: expected a key there is (did you mean url?), got this key",
        "  deadletter.toml:5: check.create: expected true or false, got 3",
        f'  deadletter.toml:2: broker.url: expected {AMQP_URL}, got "x:***@y"',
    ]
    done = dlq("config", "check", "--json", directory=tmp_path)
    assert done.returncode == 2
    told = json.loads(done.stdout)
    assert told["ok"] is False
    assert told["problems"][0] == {
        "key": "broker.uri",
        "expected": "a key there is (did you mean url?)",
        "got": "this key",
        "source": "deadletter.toml:3",
    }
    assert "hunter2" not in done.stdout


def test_check_is_content_with_a_good_file_and_with_none(tmp_path: Path) -> None:
    assert dlq("config", "check", directory=tmp_path).stdout.startswith("no file;")
    assert (
        dlq("config", "check", "--config", EXAMPLE, directory=tmp_path).stdout == f"{EXAMPLE}: no problems\n"
    )
    assert answer("config", "check", directory=tmp_path, DLQ_CONFIG=str(EXAMPLE))["ok"] is True


def test_a_missing_file_is_a_usage_error(tmp_path: Path) -> None:
    done = dlq("policy", "list", "--config", "nope.toml", directory=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert "--config: file: expected a file, got nope.toml" in done.stderr


def test_the_schema_is_one(tmp_path: Path) -> None:
    schema = json.loads(dlq("config", "schema", directory=tmp_path).stdout)
    assert schema["$schema"].startswith("https://json-schema.org/")
    assert set(schema["properties"]) == {
        "alerts", "broker", "check", "default_policy", "desk", "guards", "policies", "serve", "store",
            "watches",
    }  # fmt: skip
    assert schema["additionalProperties"] is False
    policy = schema["$defs"]["PolicyTable"]["properties"]
    assert set(policy) == {
        "name", "match", "retries", "backoff", "deadline", "then", "count_by", "budget_per_minute", "errors",
    }  # fmt: skip
    reason = json.dumps(schema["$defs"]["MatchTable"]["properties"]["reason"])
    assert "rejected" in reason
    assert "array" in reason
    assert policy["deadline"]["anyOf"][0]["pattern"]


def test_policies_are_listed_in_order_with_the_default_last(tmp_path: Path) -> None:
    done = dlq("policy", "list", "--config", EXAMPLE, "--store", "none", directory=tmp_path)
    assert done.stdout.splitlines()[:2] == [
        "too-late: queue notifications, reason expired",
        "    discard at once, no retries",
    ]
    told = answer("policy", "list", "--config", EXAMPLE, "--store", "none", directory=tmp_path)
    assert [p["name"] for p in told["policies"]] == ["too-late", "big-orders", "orders", "goqueue", "default"]
    assert 60_000 in told["levels_ms"]


LEVELS = """
[[policies]]
match = { routing_key = "order.placed" }
retries = 3
backoff = { kind = "exponential", first = "1s" }
[[watches]]
layout = "levels"
delays = ["10s", "15s", "20s"]
"""


def test_with_numbered_delays_the_list_has_what_applies(tmp_path: Path) -> None:
    (tmp_path / "deadletter.toml").write_text(LEVELS)
    lines = dlq("policy", "list", "--store", "none", directory=tmp_path).stdout.splitlines()
    assert lines == [
        "for retry-queue, by its numbered delays (10 s, 15 s, 20 s) and not by a back-off:",
        "order.placed: routing key order.placed",
        "    10 s, 15 s, 20 s, then park after 3 retries ≈ 45 s",
        "default: everything",
        "    park at once, no retries",
    ]
    (tmp_path / "deadletter.toml").write_text(LEVELS + '[[watches]]\ndlq = "*.dlq"\n')
    lines = dlq("policy", "list", "--store", "none", directory=tmp_path).stdout.splitlines()
    assert lines[0] == "order.placed: routing key order.placed"
    assert lines[1].startswith("    1 s, 2 s, 4 s")
    assert lines[5].startswith("for retry-queue, by its numbered delays")
    (numbered,) = answer("policy", "list", "--store", "none", directory=tmp_path)["numbered"]
    assert (numbered["dlq"], numbered["delays_ms"]) == ("retry-queue", [10_000, 15_000, 20_000])


BIG_ORDER = {
    "queue": "orders",
    "exchange": "shop",
    "routing_key": "order.eu.placed",
    "headers": {"tenant": "gold-7"},
    "content_type": "application/json; charset=utf-8",
    "body": {"total": 1200, "currency": "EUR"},
}


def explained(tmp_path: Path, letter: object, *more: str) -> Any:
    file = tmp_path / "letter.json"
    file.write_text(json.dumps(letter))
    return answer("policy", "explain", "--file", file, "--config", EXAMPLE, *more, directory=tmp_path)


def test_explain_says_which_policy_and_why_and_what_then(tmp_path: Path) -> None:
    file = tmp_path / "letter.json"
    file.write_text(json.dumps({**BIG_ORDER, "body": {"total": 12}}))
    done = dlq("policy", "explain", "--file", file, "--config", EXAMPLE, directory=tmp_path)
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        "died in orders (rejected), came by shop with key 'order.eu.placed', not sent back before",
        "",
        "policies, in order",
        "  too-late    no: origin 'orders' is not like 'notifications'",
        "  big-orders  no: its body condition says no",
        "  orders      decides: 5 s, 10 s, 15 s, 20 s, 25 s, then park after 5 retries ≈ 1.2 min",
        "",
        "if it fails every time",
        "  now        retry after 5 s   retry 1 of 5 after 5 s",
        "  + 5 s      retry after 10 s  retry 2 of 5 after 10 s",
        "  + 15 s     retry after 15 s  retry 3 of 5 after 15 s",
        "  + 30 s     retry after 20 s  retry 4 of 5 after 20 s",
        "  + 50 s     retry after 25 s  retry 5 of 5 after 25 s",
        "  + 1.2 min  park              all 5 retries are used up",
    ]


def test_explain_asks_jq(tmp_path: Path) -> None:
    told = explained(tmp_path, BIG_ORDER)
    assert [c["policy"] for c in told["considered"]] == ["too-late", "big-orders"]
    assert [step["decision"] for step in told["steps"]] == ["retry"] * 8 + ["park"]
    assert told["steps"][0]["choices_ms"] == [800, 1000, 1200]


def test_explain_reads_what_the_management_api_returns(tmp_path: Path) -> None:
    from_api = [
        {
            "payload_bytes": 40,
            "redelivered": True,
            "exchange": "dlx",
            "routing_key": "orders.dlq",
            "message_count": 3,
            "properties": {
                "content_type": "application/json",
                "delivery_mode": 2,
                "headers": {
                    "x-death": [
                        {
                            "count": 1,
                            "exchange": "shop",
                            "queue": "orders",
                            "reason": "rejected",
                            "routing-keys": ["order.eu.placed"],
                            "time": 1_700_000_000,
                        }
                    ],
                    "tenant": "gold-1",
                },
            },
            "payload": "eyJ0b3RhbCI6IDEyMDAsICJjdXJyZW5jeSI6ICJFVVIifQ==",
            "payload_encoding": "base64",
        }
    ]
    told = explained(tmp_path, from_api)
    assert told["letter"]["origin"] == {
        "queue": "orders",
        "exchange": "shop",
        "routing_keys": ["order.eu.placed"],
    }
    # it died in 2023 and the deadline is a day: the time was read as one
    assert [(step["decision"], step["cause"]) for step in told["steps"]] == [("park", "deadline-passed")]


@pytest.mark.parametrize(
    ("letter", "decision"),
    [
        ({}, ("park", "origin-unknown")),
        ({"queue": "notifications", "reason": "expired"}, ("discard", "no-retries")),
        ({"queue": "orders", "headers": {"deadletter-error-type": "app.ValidationError"}},
         ("park", "no-retries")),
        ({"queue": "legacy.a", "headers": {"x-retry-count": "3", "deadletter-error-type": "Timeout"}},
         ("park", "retries-exhausted")),
        ({"queue": "x", "reason": "maxlen"}, ("retry", "retries-left")),
        ({"queue": "x", "body_base64": "AP8="}, ("retry", "retries-left")),
    ],
)  # fmt: skip
def test_explain_what_happens_first(tmp_path: Path, letter: object, decision: tuple[str, str]) -> None:
    first = explained(tmp_path, letter)["steps"][0]
    assert (first["decision"], first["cause"]) == decision


def test_explain_with_the_policies_of_a_watch_and_from_stdin(tmp_path: Path) -> None:
    arguments = ("policy", "explain", "--file", "-", "--config", EXAMPLE)
    letter = json.dumps({"queue": "notifications", "reason": "expired"})
    told = answer(*arguments, "--watch", "orders.dlq", directory=tmp_path, stdin=letter)
    assert [c["policy"] for c in told["considered"]] == ["big-orders", "orders", "default"]
    done = dlq(*arguments, "--watch", "nobody", directory=tmp_path, stdin=letter)
    assert done.returncode == 2
    assert "--watch: expected a dead-letter queue that a watch takes (orders.dlq," in done.stderr


def test_a_copied_letter_is_told_apart_by_the_brokers_version(tmp_path: Path) -> None:
    deaths = [{"queue": queue, "reason": "rejected", "count": 1, "time": 1_700_000_000} for queue in "ab"]
    own = {"deadletter-id": "1", "deadletter-origin-queue": "b", "x-death": deaths}
    on_3 = explained(tmp_path, {"headers": own}, "--broker-version", "3.10")
    on_4 = explained(tmp_path, {"headers": own}, "--broker-version", "4.3")
    assert (on_3["letter"]["provenance"], on_4["letter"]["provenance"]) == ("ambiguous", "returned")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "expected a letter as JSON"),
        ("[]", "expected one letter, got a list of 0"),
        ("3", "expected a letter as a JSON object, got int"),
        ('{"header": {}}', "header: expected a key of a letter (did you mean headers?)"),
        ('{"headers": 3}', "headers: expected an object, got int"),
        ('{"body": "a", "payload": "b"}', "expected one body, got body and payload"),
        ('{"body_base64": "?"}', "body_base64: expected base64"),
        ('{"queue": "q", "reason": "bored"}', "reason: expected one of rejected"),
        ('{"content_type": 3}', "content_type: expected a text, got int"),
    ],
)
def test_a_letter_that_is_none(tmp_path: Path, text: str, why: str) -> None:
    done = dlq("policy", "explain", "--file", "-", directory=tmp_path, stdin=text)
    assert (done.returncode, done.stdout) == (2, "")
    assert why in done.stderr


def test_help_is_there_at_once(tmp_path: Path) -> None:
    """No command's libraries are loaded before a command needs them."""
    loaded = subprocess.run(
        [sys.executable, "-c", "import sys, deadletter.cli.main, deadletter.config; print(*sys.modules)"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    ).stdout.split()
    assert not {"pydantic", "rich", "yaml", "jq", "asyncio", "deadletter.config.tables.file"}.intersection(
        loaded
    )
