"""What a letter or a broker says is shown, and does nothing: no escape reaches a terminal, log or picture.

A letter carries escapes wherever a letter can carry text; queues and exchanges have such names. Every command
is run on them. What comes out holds no character that a terminal acts on and no line that only a name made;
as JSON it is exactly what was put in.

About `core.text.safe_text`, `cli.terminal.screen`, `cli.terminal.move_bar`, `cli.terminal.output`,
`service.telling.log_lines`, `drawing.svg`, `operations.withheld`.
"""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import unicodedata
from contextlib import closing
from typing import Any

import pika
import pytest
from rich.console import Console
from tests import postbox
from tests.brokers import Vhost
from tests.commanding import command

from deadletter.cli.terminal import move_bar
from deadletter.cli.terminal.screen import MoveScreen
from deadletter.core.text import safe_text
from deadletter.move.courier import BrokerBlocked
from deadletter.service.telling.log_lines import as_json, as_text

CLIPBOARD = "\x1b]52;c;cm0gLXJmIH4=\x07"
RED = "\x1b[31m"
TURNED = "\u202egnp.exe\u202c"
MARKS = "\u200e\u200f\u061c\u200b\u2066\ufeff\u00ad\U000e0041"
EVIL = f"a{CLIPBOARD}{RED}\x9b2J\x7f{TURNED}{MARKS}\r\ndlq: all is well"
QUEUE = f"dlq{CLIPBOARD}[red]{TURNED}{MARKS}\u2028done"
"""RabbitMQ takes CR and LF off the names of queues and exchanges; other ends of lines it keeps."""
RAW = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\xad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\U000e0000-\U000e0fff]"
)


def dlq(vhost: Vhost, *arguments: str) -> subprocess.CompletedProcess[str]:
    return command(*arguments, environment={**os.environ, "DLQ_URL": vhost.url, "DLQ_API": vhost.api})


def assert_shown(told: subprocess.CompletedProcess[str]) -> None:
    """Nothing acts, and no name has begun a line of its own."""
    for text in (told.stdout, told.stderr):
        assert not RAW.search(text), repr(RAW.search(text))
        assert not [line for line in text.splitlines() if line.startswith(("dlq: all is well", "done"))]


@pytest.fixture
def evil(vhost: Vhost) -> Vhost:
    """A queue of such a name, dead-lettering into another, with a letter that died there."""
    with closing(pika.BlockingConnection(pika.URLParameters(vhost.url))) as connection:
        channel = connection.channel()
        channel.exchange_declare(f"x{QUEUE}", "topic", durable=True)
        channel.queue_declare(QUEUE, durable=True)
        channel.queue_bind(QUEUE, f"x{QUEUE}", f"#{EVIL}")
        origin = f"work{QUEUE}"
        into = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": QUEUE}
        channel.queue_declare(origin, durable=True, arguments=into)
        channel.queue_bind(origin, f"x{QUEUE}", EVIL)
        nowhere = {"x-dead-letter-exchange": f"nowhere{QUEUE}"}
        channel.queue_declare(f"lost{QUEUE}", durable=True, arguments=nowhere)
        headers: dict[str, Any] = {
            "x-exception-message": EVIL,
            "x-exception-fqcn": EVIL,
            "x-exception-stacktrace": f"{EVIL}\n\tat {EVIL}",
            "deadletter-error-service": EVIL,
            "deadletter-error-host": EVIL,
            "deadletter-error-type": EVIL,
            "deadletter-error-message": EVIL,
            "deadletter-id": EVIL,
            EVIL: EVIL,
        }
        named = dict.fromkeys(
            ("message_id", "type", "app_id", "correlation_id", "content_type", "reply_to"), EVIL
        )
        for body in (EVIL.encode(), json.dumps({EVIL: EVIL}, ensure_ascii=False).encode()):
            channel.basic_publish(
                f"x{QUEUE}", EVIL, body, pika.BasicProperties(headers=headers, delivery_mode=2, **named)
            )
            postbox.wait_for(lambda: postbox.depth_of(channel, origin) == 1, "a letter")
            method, _, _ = channel.basic_get(origin)
            channel.basic_reject(method.delivery_tag, requeue=False)
        postbox.wait_for(lambda: postbox.depth_of(channel, QUEUE) == 2, "dead letters")
    return vhost


def test_peek(evil: Vhost) -> None:
    told = dlq(evil, "peek", QUEUE)
    assert told.returncode == 0
    assert_shown(told)
    assert "\\x1b]52;c;" in told.stdout
    assert "\\u202e" in told.stdout
    found = json.loads(dlq(evil, "peek", QUEUE, "--json").stdout)
    assert found["queue"] == QUEUE
    assert found["letters"][0]["body"] == EVIL
    assert found["letters"][0]["message_id"] == EVIL
    assert found["letters"][0]["headers"][EVIL] == EVIL
    assert not RAW.search(dlq(evil, "peek", QUEUE, "--json").stdout)


def test_check_and_move(evil: Vhost) -> None:
    target = f"dead{QUEUE}"
    assert_shown(dlq(evil, "move", QUEUE, f"{target}missing"))
    postbox.declare(evil.url, target, x_max_length=1, x_overflow="reject-publish")
    told = dlq(evil, "check", "--dlq", QUEUE, "--target", target, "--max-retries", "0")
    assert told.returncode == 1
    assert_shown(told)
    told = dlq(evil, "move", QUEUE, target)
    assert told.returncode == 1
    assert_shown(told)
    assert_shown(dlq(evil, "move", QUEUE, target, "--dry-run"))
    assert_shown(dlq(evil, "peek", f"{QUEUE}missing"))


def test_doctor_and_topology(evil: Vhost) -> None:
    told = dlq(evil, "doctor")
    assert "\\x1b" in told.stdout
    assert_shown(told)
    for form in ("json", "sarif"):
        assert not RAW.search(dlq(evil, "doctor", "--format", form).stdout)
    findings = json.loads(dlq(evil, "doctor", "--json").stdout)["vhosts"][0]["findings"]
    assert any(f"lost{QUEUE}" in finding["subject"] for finding in findings)
    for form in ("svg", "mermaid", "json"):
        told = dlq(evil, "topology", "draw", "--format", form)
        assert told.returncode == 0
        assert not RAW.search(told.stdout)
    assert QUEUE in {node["title"] for node in json.loads(told.stdout)["nodes"]}
    for verb in ("plan", "diff"):
        for layout in ("sweep", "ladder"):
            assert_shown(dlq(evil, "topology", verb, QUEUE, "--layout", layout))


def test_policy_explain(evil: Vhost) -> None:
    told = dlq(evil, "policy", "explain", "--queue", QUEUE)
    assert told.returncode == 0
    assert_shown(told)
    assert_shown(dlq(evil, "policy", "explain", "--queue", f"{QUEUE}missing"))


# -- what does not need a broker ----------------------------------------------------------------------------
def test_a_queue_name_is_no_markup(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rich takes `[red]` for a colour, and `[/]` for an error."""
    said = io.StringIO()

    def console(**_: object) -> Console:
        return Console(file=said, force_terminal=True, width=200, highlight=False)

    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setattr(move_bar, "Console", console)
    with MoveScreen(f"[red]{EVIL}[/][/]") as seen:
        seen.on_event_at(f"[red]{EVIL}[/][/]", BrokerBlocked(reason=f"[red]{EVIL}"))
        seen.say(f"[red]{EVIL}")
        bar = seen.draw()
        assert bar is not None
        bar.refresh()
    written = said.getvalue()
    assert "[red]a\\x1b]52;c;" in written
    assert "[/][/]" in written
    assert not re.search("\x1b\\][0-9]|\x07|\x9b|\u202e|\u200b", written)


def test_log_lines() -> None:
    fields = {"at": "now", "level": "info", "event": EVIL, "queue": QUEUE, "why": EVIL, EVIL: [EVIL]}
    text, data = as_text(fields), as_json(fields)
    assert not RAW.search(text.replace("\n", "\x00"))
    assert not RAW.search(data.replace("\n", "\x00"))
    assert json.loads(data) == fields


def test_everything_that_is_no_visible_character_has_a_stand_in() -> None:
    hidden = [
        chr(number)
        for number in range(0x110000)
        if unicodedata.category(chr(number)) in ("Cc", "Cs", "Zl", "Zp")
        or unicodedata.bidirectional(chr(number))
        in ("LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI")
        or number in (0xAD, 0x61C, 0x200B, 0x200C, 0x200D, 0x200E, 0x200F, 0x2060, 0xFEFF, 0xE0001, 0xE0041)
    ]
    for char in hidden:
        stood_in = safe_text.line(f"a{char}b")
        assert stood_in.isascii()
        assert stood_in.isprintable()
    assert safe_text.line("Größe 注文 ∞ é́") == "Größe 注文 ∞ é́"
    assert safe_text.block("one\n\ttwo\x1b") == "one\n\ttwo\\x1b"
    assert safe_text.line("\udcff") == "\\xff"
    assert safe_text.line("x" * 10, 5) == "xxxx…"


# -- what cannot be looked at -------------------------------------------------------------------------------
@pytest.mark.parametrize("kind", ["classic", "quorum"])
@pytest.mark.parametrize("api", [True, False])
def test_a_queue_whose_letters_go_to_another_consumer_is_not_empty(
    vhost: Vhost, kind: str, api: bool
) -> None:
    postbox.declare(vhost.url, "q", kind=kind, x_single_active_consumer=True)
    with closing(pika.BlockingConnection(pika.URLParameters(vhost.url))) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=1)
        channel.basic_consume("q", lambda *_: None)
        for _ in range(3):
            channel.basic_publish("", "q", b"x", pika.BasicProperties(delivery_mode=2))
        postbox.wait_for(lambda: postbox.depth_of(channel, "q") == 2, "one of three with the consumer")
        where = {"DLQ_API": vhost.api if api else "http://127.0.0.1:9"}
        told = command("peek", "q", environment={**os.environ, "DLQ_URL": vhost.url, **where})
        assert told.returncode == 1
        assert told.stdout.startswith("q holds 2 letters that cannot be looked at: another consumer")
        told = dlq(vhost, "policy", "explain", "--queue", "q")
        assert told.returncode == 2
        assert "another consumer" in told.stderr


def test_a_stream_is_not_empty(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "s", kind="stream")
    with closing(pika.BlockingConnection(pika.URLParameters(vhost.url))) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        for _ in range(3):
            channel.basic_publish("", "s", b"x", pika.BasicProperties(delivery_mode=2))
    told = dlq(vhost, "peek", "s", "--json")
    assert told.returncode == 1
    found = json.loads(told.stdout)
    assert "it is a stream" in found["withheld"]["why"]
    assert found["letters"] == []


def test_what_is_empty_is_still_said_to_be(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "q")
    told = dlq(vhost, "peek", "q")
    assert (told.returncode, told.stdout) == (0, "q is empty\n")
    assert json.loads(dlq(vhost, "peek", "q", "--json").stdout)["withheld"] is None
