"""`dlq sweep` against a running desk.

About `cli.sweep_command`, `cli.serve_options`, `cli.terminal.output`, `cli.terminal.units`.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest
from tests.web.conftest import Desk, Opened

from deadletter.cli import sweep_command
from deadletter.cli.terminal.output import Exit, exit_for
from deadletter.desk.view import SweepAnswer, SweepState
from deadletter.errors import DeadletterError, Unreachable, UsageError


async def swept(at: str, *dlqs: str, token: str | None = None, as_json: bool = False) -> Exit:
    """In a thread: the command is synchronous, and the desk is in this loop."""
    names: Sequence[str] = dlqs
    return await asyncio.to_thread(sweep_command.run, dlqs=names, at=at, token=token, as_json=as_json)


async def test_the_table(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.office.answers += [
        SweepAnswer(dlq="b.dlq", state=SweepState.ELSEWHERE, why="i2 sweeps it now"),
    ]
    assert await swept(desk.url, "a.dlq", "b.dlq") is Exit.DONE
    assert desk.office.asked == [["a.dlq", "b.dlq"]]
    assert capsys.readouterr().out.splitlines() == [
        "queue             seen  moved  left  failed  took",
        "a.dlq  swept      3     3      0     0       250 ms",
        "b.dlq  elsewhere  0     0      0     0       –",
        "b.dlq: i2 sweeps it now",
        "moved 3 letters of 3 in 2 queues",
    ]


async def test_json(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    assert await swept(desk.url, as_json=True) is Exit.DONE
    (one,) = json.loads(capsys.readouterr().out)["sweeps"]
    assert (one["dlq"], one["state"], one["moved"]) == ("a.dlq", "swept", 3)
    assert desk.office.asked == [[]]


async def test_an_address_without_a_scheme_is_enough(desk: Desk) -> None:
    assert await swept(desk.url.removeprefix("http://") + "/") is Exit.DONE


@pytest.mark.parametrize(
    "answer",
    [
        SweepAnswer(dlq="a.dlq", state=SweepState.FAILED, why="locked"),
        SweepAnswer(dlq="a.dlq", state=SweepState.SWEPT, seen=2, moved=1, failed=1),
        SweepAnswer(dlq="a.dlq", state=SweepState.SWEPT, seen=2, moved=1, left=1),
    ],
)
async def test_what_failed_or_stayed_is_exit_1(desk: Desk, answer: SweepAnswer) -> None:
    desk.office.answers.append(answer)
    assert await swept(desk.url) is Exit.LEFT


async def test_nothing_to_sweep(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    desk.office.answers.clear()
    assert await swept(desk.url) is Exit.DONE
    assert capsys.readouterr().out.startswith("nothing to sweep")


async def test_a_queue_nobody_watches_is_a_usage_error(desk: Desk) -> None:
    with pytest.raises(UsageError, match="watched queue, got 'unknown'"):
        await swept(desk.url, "unknown")


async def test_a_token_is_brought_along(opened: Opened) -> None:
    async with opened(token="s3cret") as desk:
        assert await swept(desk.url, token="s3cret") is Exit.DONE
        with pytest.raises(DeadletterError, match="DLQ_API_TOKEN") as error:
            await swept(desk.url)
        assert exit_for(error.value) is Exit.LEFT


async def test_a_broker_that_is_away_is_exit_3(desk: Desk) -> None:
    desk.office.error = Unreachable("nobody answers at rabbit:5672")
    with pytest.raises(Unreachable, match="cannot sweep now: nobody answers at rabbit:5672"):
        await swept(desk.url)


async def test_nobody_there_says_how_to_start() -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        at = f"http://127.0.0.1:{one.getsockname()[1]}"
        with pytest.raises(Unreachable, match=r"dlq serve.*SIGUSR1") as error:
            await swept(at)
    assert at in str(error.value)
    assert exit_for(error.value) is Exit.UNREACHABLE


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"sweeps": [{}]}', b'{"sweeps": 1}'])
@pytest.mark.parametrize("status", [200, 301, 404])
def test_somebody_else_there_is_not_taken_for_the_service(body: bytes, status: int) -> None:
    class Other(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(status)
            self.send_header("location", "http://elsewhere.example/")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Other) as server:
        Thread(target=server.handle_request, daemon=True).start()
        with pytest.raises(Unreachable, match="but not dlq serve"):
            sweep_command.run(dlqs=[], at=f"http://127.0.0.1:{server.server_port}", token=None, as_json=False)


@pytest.mark.parametrize("at", ["ftp://x", "http://", "", "http://x:99999"])
def test_an_address_that_is_none(at: str) -> None:
    with pytest.raises(UsageError, match="expected --at as a URL"):
        sweep_command.run(dlqs=[], at=at, token=None, as_json=False)


@pytest.mark.parametrize("token", ["a\nb", "ü", " a"])
def test_a_token_that_no_header_holds(token: str) -> None:
    with pytest.raises(UsageError, match="DLQ_API_TOKEN") as error:
        sweep_command.run(dlqs=[], at="http://127.0.0.1:1", token=token, as_json=False)
    assert token not in str(error.value) or token == " a"
