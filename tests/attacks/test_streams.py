"""A stream where a queue is expected, and no management API: it is not empty, and it is no queue.

Nothing of a stream is handed out to who does not say from where, and two of three versions count nothing in
it: an operator would read "empty" and delete it.

About `broker.streams`, `operations.withheld`, `cli.move_command`, `cli.peek_command`.
"""

from __future__ import annotations

import json
import os
import subprocess

import pytest
from tests.brokers import Vhost
from tests.commanding import command
from tests.postbox import declare, depth, drain, fill, publish_raw

from deadletter.core.letter.message import RawMessage

STREAM = "orders.log"


def without_api(vhost: Vhost, *arguments: str) -> subprocess.CompletedProcess[str]:
    nowhere = "http://127.0.0.1:9"  # the discard port: nobody answers
    return command(*arguments, environment={**os.environ, "DLQ_URL": vhost.url, "DLQ_API": nowhere})


@pytest.fixture
def stream(vhost: Vhost) -> str:
    declare(vhost.url, STREAM, kind="stream")
    declare(vhost.url, "orders")
    publish_raw(vhost.url, STREAM, *(RawMessage(properties=b"\0\0", body=b"%d" % n) for n in range(3)))
    return STREAM


def test_peek_says_that_it_is_a_stream(vhost: Vhost, stream: str) -> None:
    told = without_api(vhost, "peek", stream)
    assert told.returncode == 1, told
    assert "it is a stream" in told.stdout
    assert "empty" not in told.stdout
    told = without_api(vhost, "peek", stream, "--json")
    assert told.returncode == 1, told
    assert "it is a stream" in json.loads(told.stdout)["withheld"]["why"]


@pytest.mark.parametrize("more", [[], ["--dry-run"], ["--json"]])
def test_move_says_that_it_is_a_stream(vhost: Vhost, stream: str, more: list[str]) -> None:
    told = without_api(vhost, "move", stream, "orders", *more)
    assert told.returncode == 1, told
    assert "it is a stream" in told.stdout + told.stderr
    assert depth(vhost.url, "orders") == 0


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_queue_is_moved_as_ever_and_an_empty_one_is_empty(vhost: Vhost, kind: str) -> None:
    """The question costs no letter a delivery."""
    declare(vhost.url, "orders.dlq", "orders", kind=kind)
    told = without_api(vhost, "peek", "orders.dlq")
    assert (told.returncode, "orders.dlq is empty" in told.stdout) == (0, True), told
    fill(vhost.url, "orders.dlq", [b"1"], dead=False)
    assert without_api(vhost, "move", "orders.dlq", "orders").returncode == 0
    (letter,) = drain(vhost.url, "orders", expect=1)
    assert (letter.body, letter.redelivered) == (b"1", False)
