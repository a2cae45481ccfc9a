"""`dlq doctor` as a person runs it: on a live broker, on a file, with nobody there.

About `cli.doctor_command`, `operations.examining`, `doctor.sarif`, `doctor.finding`.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from tests.brokers import Vhost, call
from tests.commanding import command

from deadletter.core.layouts import LAYOUTS
from deadletter.core.topology.rabbitmq_versions import version_of


def dlq(*arguments: str, url: str, api: str | None = None) -> subprocess.CompletedProcess[str]:
    return run("doctor", *arguments, url=url, api=api)


def run(*arguments: str, url: str, api: str | None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DLQ_URL": url} | ({} if api is None else {"DLQ_API": api})
    return command(*arguments, environment=environment)


def broken(vhost: Vhost) -> None:
    vhost.put("queues", "orders", durable=True, arguments={"x-dead-letter-exchange": "nowhere"})


def mended(vhost: Vhost) -> None:
    vhost.put("exchanges", "nowhere", type="direct", durable=True)
    vhost.put("queues", "orders.dlq", durable=True)
    call(
        vhost.broker, "POST", "bindings", vhost.name, "e", "nowhere", "q", "orders.dlq",
        content={"routing_key": "orders"},
    )  # fmt: skip


def test_a_letter_that_would_be_lost_is_found_and_the_cure_works(vhost: Vhost) -> None:
    broken(vhost)
    sick = dlq(url=vhost.url, api=vhost.api)
    assert sick.returncode == 1, sick.stderr
    assert "[missing-dlx]" in sick.stdout
    assert "queue orders" in sick.stdout
    assert "1 error" in sick.stdout
    assert sick.stderr == ""

    mended(vhost)
    healthy = dlq(url=vhost.url, api=vhost.api)
    assert "missing-dlx" not in healthy.stdout
    assert "error" not in healthy.stdout


def test_json_sarif_and_ignore(vhost: Vhost) -> None:
    broken(vhost)
    told = json.loads(dlq("--json", url=vhost.url, api=vhost.api).stdout)
    (found,) = told["vhosts"]
    assert found["broker"] == vhost.broker.version
    finding = next(f for f in found["findings"] if f["rule"] == "missing-dlx")
    assert finding["severity"] == "error"
    assert finding["harm"] == "lost"
    assert finding["path"][0] == "queue orders"

    log = json.loads(dlq("--format", "sarif", url=vhost.url, api=vhost.api).stdout)
    (run,) = log["runs"]
    result = next(r for r in run["results"] if r["ruleId"] == "missing-dlx")
    assert run["tool"]["driver"]["rules"][result["ruleIndex"]]["id"] == "missing-dlx"
    assert result["level"] == "error"

    ignored = dlq("--ignore", "missing-dlx", "--at-least", "error", url=vhost.url, api=vhost.api)
    assert ignored.returncode == 0, ignored.stdout
    unknown = dlq("--ignore", "no-such-rule", url=vhost.url, api=vhost.api)
    assert unknown.returncode == 2
    assert "no-such-rule" in unknown.stderr
    assert "missing-dlx" in unknown.stderr


def test_a_file_is_examined_without_a_broker(vhost: Vhost, tmp_path: Path) -> None:
    broken(vhost)
    exported = tmp_path / "definitions.json"
    exported.write_text(json.dumps(call(vhost.broker, "GET", "definitions")))
    nobody = "amqp://127.0.0.1:1"
    told = dlq("--definitions", str(exported), "--vhost", vhost.name, url=nobody)
    assert told.returncode == 1, told.stderr
    assert "[missing-dlx]" in told.stdout
    assert "a file shows the shape only" in told.stdout
    wrong = dlq("--definitions", str(exported), "--vhost", "none", url=nobody)
    assert wrong.returncode == 2
    assert vhost.name in wrong.stderr


def test_nobody_there_is_said_with_its_own_exit_code(vhost: Vhost) -> None:
    told = dlq(url=vhost.url, api="http://127.0.0.1:1")
    assert told.returncode == 3
    assert told.stdout == ""
    assert "127.0.0.1:1" in told.stderr
    assert "Traceback" not in told.stderr


@pytest.mark.parametrize("layout", LAYOUTS)
def test_our_own_layouts_are_clean(vhost: Vhost, layout: str) -> None:
    if layout == "native" and version_of(vhost.broker.version) < (4, 3):
        refused = topology("plan", layout, vhost)
        assert refused.returncode == 2, "where it cannot be, it must be refused"
        return
    applied = topology("apply", layout, vhost)
    assert applied.returncode == 0, applied.stdout + applied.stderr
    assert topology("diff", layout, vhost).returncode == 0
    told = dlq(url=vhost.url, api=vhost.api)
    assert told.returncode == 0, told.stdout + told.stderr
    assert "nothing found" in told.stdout


def topology(verb: str, layout: str, vhost: Vhost) -> subprocess.CompletedProcess[str]:
    delays = "1s" if layout == "loop" else "linear:1s..3s"  # a loop has one delay
    options = ["--layout", layout, "--queue", "orders", "--declare-queue", "--backoff", delays]
    return run("topology", verb, *options, "--retries", "3", url=vhost.url, api=vhost.api)


def test_nothing_is_changed(vhost: Vhost) -> None:
    broken(vhost)
    before = {kind: vhost.list(kind) for kind in ("exchanges", "bindings", "policies")}
    dlq(url=vhost.url, api=vhost.api)
    assert {kind: vhost.list(kind) for kind in before} == before
    assert [queue["name"] for queue in vhost.list("queues")] == ["orders"]


def test_every_rule_is_explained() -> None:
    told = dlq("--rules", url="amqp://127.0.0.1:1")
    assert told.returncode == 0
    rules = json.loads(dlq("--rules", "--json", url="amqp://127.0.0.1:1").stdout)
    assert len(rules) >= 15
    assert all(rule["id"] in told.stdout and rule["why"] for rule in rules)
