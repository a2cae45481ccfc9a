"""`dlq move` as a person runs it: what it prints, how it ends, and what it says when something is wrong.

About `cli.move_command`, `cli.main`, `cli.terminal.options`, `cli.terminal.event_loop`,
`cli.terminal.screen`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
from tests import postbox
from tests.brokers import Vhost


def dlq(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "deadletter.cli.main", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, **environment},
    )


def complaint(done: subprocess.CompletedProcess[str], code: int) -> str:
    """The one line an error is told in."""
    assert done.returncode == code, done
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("dlq: ")
    return done.stderr


@pytest.fixture
def letters(vhost: Vhost) -> Vhost:
    postbox.declare(vhost.url, "source", "target")
    postbox.fill(vhost.url, "source", [b"%d" % n for n in range(300)])
    return vhost


def test_it_moves_and_says_so(letters: Vhost) -> None:
    done = dlq("move", "source", "target", DLQ_URL=letters.url)
    assert done.returncode == 0
    assert done.stdout.startswith("moved 300 letters from source to target in ")
    assert done.stderr == "", "no terminal, no progress bar"
    again = dlq("move", "source", "target", "--url", letters.url)
    assert (again.returncode, again.stdout) == (
        0,
        "moved nothing from source: everything that was asked for was looked at\n",
    )


def test_json(letters: Vhost) -> None:
    done = dlq("move", "source", "target", "--limit", "100", "--json", DLQ_URL=letters.url)
    told = json.loads(done.stdout)
    assert (told["moved"], told["failed"], told["ended"], done.returncode) == (100, 0, "complete", 0)
    assert postbox.depth(letters.url, "source") == 200


def test_dry_run_touches_nothing(letters: Vhost) -> None:
    done = dlq("move", "source", "target", "--dry-run", "--limit", "50", DLQ_URL=letters.url)
    assert done.stdout == "would move 50 letters from source to target; nothing was touched\n"
    told = json.loads(dlq("move", "source", "target", "--dry-run", "--json", DLQ_URL=letters.url).stdout)
    assert told["would_move"] == 300
    assert not any(post.redelivered for post in postbox.drain(letters.url, "source", expect=300))


def test_a_target_that_refuses_is_exit_1_with_the_reason(vhost: Vhost) -> None:
    postbox.declare(vhost.url, "source")
    postbox.declare(vhost.url, "target", x_max_length=1, x_overflow="reject-publish")
    postbox.fill(vhost.url, "source", [b"%d" % n for n in range(50)])
    done = dlq("move", "source", "target", DLQ_URL=vhost.url)
    assert done.returncode == 1
    assert "stayed in source" in done.stdout
    assert "is the target full?" in done.stdout


def test_ctrl_c_ends_in_good_order(letters: Vhost) -> None:
    command = [sys.executable, "-m", "deadletter.cli.main", "move", "source", "target", "--rate", "20/s"]
    environment = {**os.environ, "DLQ_URL": letters.url}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment
    ) as process:
        postbox.wait_for(lambda: postbox.depth(letters.url, "target") > 0, "the first letters")
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    assert process.returncode == 1, err
    assert b"ended early: it was asked to stop; the rest is still in source" in out
    moved = len(postbox.drain(letters.url, "target"))
    assert len(postbox.drain(letters.url, "source", expect=300 - moved)) == 300 - moved


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["source", "source"], "source and target are the same queue"),
        (["source", "target", "--rate", "fast"], "expected a rate above zero such as 500/s"),
        (["source", "target", "--for", "-1"], "expected a time above zero"),
        (["source", "target", "--url", "http://x"], "expected an AMQP URL such as amqp://"),
        (["source", "target", "--url", "amqp://u:secret@h/a/b"], "write it as %2F"),
        (["source", "target", "--url", "amqp://h/?color=red"], "unknown parameter 'color'"),
        (
            ["source", "target", "--url", "amqps://h/?cacertfile=/no/such"],
            "cannot read the TLS files /no/such",
        ),
        (["x" * 300, "target"], "at most 255 bytes"),
    ],
)
def test_nonsense_is_exit_2(vhost: Vhost, arguments: list[str], said: str) -> None:
    told = complaint(dlq("move", *arguments, DLQ_URL=vhost.url), 2)
    assert said in told
    assert "secret" not in told


def test_a_queue_that_is_not_there_is_exit_1(letters: Vhost) -> None:
    assert "no queue 'nope' in vhost" in complaint(dlq("move", "nope", "target", DLQ_URL=letters.url), 1)
    assert "no queue 'nope' in vhost" in complaint(dlq("move", "source", "nope", DLQ_URL=letters.url), 1)


def test_a_broker_that_cannot_be_reached_is_exit_3(vhost: Vhost) -> None:
    wrong = vhost.url.replace("guest:guest", "guest:wrong-password")
    told = complaint(dlq("move", "a", "b", DLQ_URL=wrong), 3)
    assert "ACCESS_REFUSED" in told
    assert "wrong-password" not in told
    missing = vhost.url.rsplit("/", 1)[0] + "/nowhere"
    assert "is the vhost there" in complaint(dlq("move", "a", "b", DLQ_URL=missing), 3)
    closed = "amqp://guest:guest@127.0.0.1:1/"
    assert "is the broker running there?" in complaint(dlq("move", "a", "b", DLQ_URL=closed), 3)
    assert "none of the hosts answers" in complaint(
        dlq("move", "a", "b", DLQ_URL=f"{closed},amqp://guest:guest@127.0.0.1:2/"), 3
    )
    no_tls = vhost.url.replace("amqp://", "amqps://")
    assert "is it a plain port? use amqp://" in complaint(dlq("move", "a", "b", DLQ_URL=no_tls), 3)
    page = vhost.api.replace("http://", "amqp://guest:guest@").removesuffix("/api")
    assert complaint(dlq("move", "a", "b", DLQ_URL=page), 3)


def test_no_permission_is_said(vhost: Vhost) -> None:
    from tests.brokers import call

    call(vhost.broker, "PUT", "users", "poor", content={"password": "p", "tags": ""})
    call(
        vhost.broker,
        "PUT",
        "permissions",
        vhost.name,
        "poor",
        content={"configure": ".*", "write": "", "read": ".*"},
    )
    postbox.declare(vhost.url, "source", "target")
    postbox.fill(vhost.url, "source", [b"a", b"b"], dead=False)
    done = dlq("move", "source", "target", DLQ_URL=vhost.url.replace("guest:guest", "poor:p"))
    assert done.returncode == 1, done.stdout
    assert "403" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert len(postbox.drain(vhost.url, "source", expect=2)) == 2
    call(vhost.broker, "DELETE", "users", "poor")


def test_help_names_every_option_and_exit_code() -> None:
    told = dlq("--help")
    assert told.returncode == 0
    assert "0 done, 1 something was left or refused, 2 usage, 3 cannot reach" in " ".join(told.stdout.split())
    for option in ("--limit", "--rate", "--for", "--dry-run", "--json", "--keep-deaths", "DLQ_URL"):
        assert option in dlq("move", "--help").stdout
    assert dlq("--version").stdout.startswith("dlq 0.")
