"""`dlq topology` where no broker is asked: plans in every form, what is refused, back-off as one types it.

About `cli.topologies.topology_command`, `cli.topologies.topology_options`, `cli.topologies.topology_words`,
`cli.terminal.delays`, `operations.migrating.carry`.
"""

from __future__ import annotations

import json
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from typer.testing import CliRunner

from deadletter.cli.main import whole_app
from deadletter.cli.terminal.delays import parse_backoff
from deadletter.core.deciding.backoff import Backoff, Exponential, Fixed, Linear
from deadletter.core.letter.envelope import ExchangeKey
from deadletter.core.letter.field_table import Value, encode
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.message import HEADERS, MESSAGE_ID, RawMessage
from deadletter.core.letter.same_letter import likeness
from deadletter.errors import UsageError

ASKED = ("topology", "plan", "--queue", "orders", "--broker-version", "4.3.6", "--backoff", "1s,1min")


def run(*arguments: str) -> str:
    done = CliRunner().invoke(whole_app(), [*ASKED, *arguments])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_a_table() -> None:
    lines = run().splitlines()
    assert lines[0] == "layout return for queue orders, RabbitMQ 4.3.6"
    assert any(line.startswith("queue     deadletter.delay.60000 ") for line in lines)
    assert any(line.startswith("binding   deadletter.return.orders → queue orders") for line in lines)
    assert any("auto chose return" in line for line in lines)


def test_json_and_definitions() -> None:
    told = json.loads(run("--json"))
    assert told["layout"] == "return"
    assert {queue["name"] for queue in told["queues"]} >= {"deadletter.delay.1000", "deadletter.delay.60000"}
    assert told["notes"]
    document = json.loads(run("--format", "definitions"))
    assert document["queues"] == told["queues"]
    assert document["vhosts"] == [{"name": "/"}]


def test_pictures(tmp_path: Path) -> None:
    assert run("--format", "mermaid").startswith("flowchart LR")
    file = tmp_path / "plan.svg"
    assert run("--format", "svg", "--output", str(file)) == ""
    drawn = file.read_text()
    ET.fromstring(drawn)
    assert "the application's queue" in drawn.replace("&#x27;", "'")
    assert "no such queue" not in drawn


def test_the_number_of_retries_is_that_of_the_listed_delays() -> None:
    told = json.loads(run("--layout", "ladder", "--json"))
    assert {queue["name"] for queue in told["queues"]} == {
        "orders__retry.1",
        "orders__retry.2",
        "orders__dlq",
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--format", "png"), "--format: expected table"),
        (("--layout", "spiral"), "layout: expected return"),
        (("--policy", "default"), "got both"),
        (("--output", "/nowhere/at/all"), "expected a file"),
    ],
)
def test_usage(arguments: tuple[str, ...], said: str) -> None:
    done = CliRunner().invoke(whole_app(), [*ASKED, *arguments])
    assert isinstance(done.exception, UsageError)
    assert said in str(done.exception)


def test_an_unknown_policy_names_those_there_are() -> None:
    done = CliRunner().invoke(whole_app(), [*ASKED[:6], "--policy", "nobody"])
    assert "(default), got 'nobody'" in str(done.exception)


def test_a_rate_is_for_migrations() -> None:
    done = CliRunner().invoke(whole_app(), ["topology", "apply", "--queue", "orders", "--rate", "5/s"])
    assert "--migrate" in str(done.exception)


def test_definitions_are_drawn_offline(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    run("--format", "definitions", "--output", str(file))
    done = CliRunner().invoke(
        whole_app(),
        ["topology", "draw", "--definitions", str(file), "--format", "mermaid", "--queue", "deadletter.due"],
    )
    assert done.exit_code == 0
    assert "deadletter.delay.60000" in done.stdout
    assert "deadletter.parked" not in done.stdout


# -- back-off ---------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("1s", Fixed(delays_ms=(1000,))),
        ("1s, 5s,2min", Fixed(delays_ms=(1000, 5000, 120_000))),
        ("linear:10s..5min", Linear(step_ms=10_000, cap_ms=300_000)),
        ("5,90", Fixed(delays_ms=(5_000, 90_000))),
        ("exponential:1s", Exponential(first_ms=1000)),
        ("exponential:500ms..10min", Exponential(first_ms=500, cap_ms=600_000)),
    ],
)
def test_backoff_as_one_types_it(text: str, meant: Backoff) -> None:
    assert parse_backoff(text) == meant


@pytest.mark.parametrize("text", ["", "-5", "1s,,2s", "cubic:1s", "linear:", "exponential:1s..", "1s..5s"])
def test_backoff_that_makes_no_sense(text: str) -> None:
    with pytest.raises(UsageError, match="--backoff: expected"):
        parse_backoff(text)


# -- likeness ---------------------------------------------------------------------------------------------
def letter(
    headers: dict[str, Value], *, body: bytes = b"x", key: bytes = b"k", again: bool = False
) -> Letter:
    table = encode(headers)
    properties = (HEADERS | MESSAGE_ID).to_bytes(2, "big") + len(table).to_bytes(4, "big") + table + b"\x02m1"
    return Letter(
        source="q", message=RawMessage(properties, body), came_by=ExchangeKey(b"", key), redelivered=again
    )


def test_what_a_quorum_queue_and_a_move_do_to_headers_changes_no_likeness() -> None:
    first = letter({"n": 1, "CC": ["a"]})
    again = letter({"CC": ["a"], "n": 1, "x-delivery-count": 2}, again=True)
    moved = letter({"CC": ["a"], "n": 1, "deadletter-id": "0", "deadletter-source": "q"})
    assert likeness(first) == likeness(again) == likeness(moved)


@pytest.mark.parametrize(
    "other",
    [letter({"n": 2, "CC": ["a"]}), letter({"n": 1}), letter({"n": 1, "CC": ["a"]}, body=b"y")],
)
def test_another_letter_is_not_alike(other: Letter) -> None:
    assert likeness(letter({"n": 1, "CC": ["a"]})) != likeness(other)
    assert likeness(letter({})) != likeness(letter({}, key=b"other"))
