"""Questions over HTTP: what is asked, how answers come, what is said where none comes, who asks.

About `http.asking`, `http.plain_http`, `http.answers`, `http.by_httpx`.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress

import pytest

from deadletter.http.answers import Asking, HttpAnswer, HttpFailed, NobodyAnswers
from deadletter.http.asking import asking, is_plain
from deadletter.http.by_httpx import httpx_asking
from deadletter.http.plain_http import PlainHttp

OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"


class Server:
    """Answers with what it was given, one answer a question; b"" closes the connection instead."""

    def __init__(self, *answers: bytes) -> None:
        self.asked: list[bytes] = []
        self.connections = 0
        self.url = ""
        self.spoke = asyncio.Event()
        self.at_work: set[asyncio.Task[None] | None] = set()
        self._answers: Iterator[bytes] = iter(answers)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.at_work.add(asyncio.current_task())
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
                self.asked.append(head + await reader.readexactly(int(length or 0)))
                answer = next(self._answers, b"")
                writer.write(answer)
                self.spoke.set()
                if not answer or b"close" in answer:
                    break
        except asyncio.IncompleteReadError:
            pass
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


@asynccontextmanager
async def serving(*answers: bytes) -> AsyncIterator[Server]:
    server = Server(*answers)
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}/api"
    async with listening:
        yield server
        await asyncio.gather(*filter(None, server.at_work))


@asynccontextmanager
async def plain(url: str, answer_s: float = 30.0) -> AsyncIterator[PlainHttp]:
    client = PlainHttp(url, headers={"authorization": "Basic x"}, answer_s=answer_s, connect_s=answer_s)
    try:
        yield client
    finally:
        client.close()


async def test_what_is_asked() -> None:
    async with serving(OK, OK) as server, plain(server.url) as client:
        await client.ask("GET", "queues/%2F?page=1")
        await client.ask("PUT", "policies/%2F/p", {"pattern": "ü"})
    get, put = server.asked
    first, *headers = get.decode().rstrip().split("\r\n")
    assert first == "GET /api/queues/%2F?page=1 HTTP/1.1"
    assert f"host: {server.url.split('/')[2]}" in headers
    assert "authorization: Basic x" in headers
    head, _, body = put.partition(b"\r\n\r\n")
    assert head.startswith(b"PUT /api/policies/%2F/p HTTP/1.1\r\n")
    assert b"content-type: application/json" in head
    assert json.loads(body) == {"pattern": "ü"}


ZIPPED, DEFLATED = gzip.compress(b'{"a": 1}', mtime=0), zlib.compress(b"{}")


@pytest.mark.parametrize(
    ("raw", "status", "body"),
    [
        (OK, 200, b"{}"),
        (b"HTTP/1.1 404 Not Found\r\nContent-Length: 3\r\n\r\nabc", 404, b"abc"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
        (b"HTTP/1.1 200\r\ncontent-length: 0\r\n\r\n", 200, b""),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, 200, b"{}"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n3;x\r\nabc\r\n1\r\n0\r\n0\r\nt: 1\r\n\r\n",
            200,
            b"abc0",
        ),
        (b"HTTP/1.0 200 OK\r\nconnection: close\r\n\r\nto the end", 200, b"to the end"),
        (
            b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n%s"
            % (len(ZIPPED), ZIPPED),
            200,
            b'{"a": 1}',
        ),
        (
            b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-encoding: deflate\r\n\r\n" + DEFLATED,
            200,
            b"{}",
        ),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 3000000\r\n\r\n" + 3_000_000 * b"a", 200, 3_000_000 * b"a"),
    ],
)  # fmt: skip
async def test_answers(raw: bytes, status: int, body: bytes) -> None:
    async with serving(raw) as server, plain(server.url) as client:
        assert await client.ask("GET", "x") == HttpAnswer("GET", status, body)


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"SSH-2.0-x close\r\n\r\n", "no HTTP: it begins with 'SSH-2.0-x close'"),
        (b"HTTP/1.1 OK close\r\n\r\n", "no HTTP"),
        (b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: x\r\n\r\n", "no HTTP"),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nclose\r\n", "no HTTP"),
        (b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-encoding: gzip\r\n\r\nabc", "no HTTP"),
        (
            b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 9\r\n\r\nabc",
            "in the middle of the answer",
        ),
        (b"HTTP/1.1 200 OK\r\nconnection: close", "in the middle of the answer"),
        (b"close" + 300_000 * b"a", "no HTTP"),
        (b"", "closed without an answer"),
    ],
)
async def test_what_is_no_whole_answer(raw: bytes, why: str) -> None:
    async with serving(raw) as server, plain(server.url) as client:
        with pytest.raises(HttpFailed, match=why) as told:
            await client.ask("GET", "x")
    assert not isinstance(told.value, NobodyAnswers)
    assert len(server.asked) == 1


async def test_who_says_nothing_is_not_waited_for() -> None:
    async with serving(b"HTTP/1.1 200 OK\r\n") as server, plain(server.url, answer_s=0.05) as client:
        with pytest.raises(HttpFailed, match=r"no answer within 0\.05 s"):
            await client.ask("GET", "x")


async def test_nobody_there() -> None:
    async with serving() as server:
        url = server.url
    async with plain(url) as client:
        with pytest.raises(NobodyAnswers, match="refused"):
            await client.ask("GET", "x")


async def test_a_connection_is_kept_unless_the_server_ends_it() -> None:
    closing = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
    async with serving(OK, OK, closing, OK) as server, plain(server.url) as client:
        for _ in range(4):
            assert (await client.ask("GET", "x")).status == 200
    assert server.connections == 2


async def test_a_kept_connection_that_had_just_ended_is_no_failure() -> None:
    async with serving(OK, b"", OK) as server, plain(server.url) as client:
        for _ in range(2):
            assert (await client.ask("GET", "x")).status == 200
    assert (server.connections, len(server.asked)) == (2, 3)


async def test_a_post_is_asked_once_whatever_becomes_of_the_connection() -> None:
    async with serving(OK, b"", OK) as server, plain(server.url) as client:
        assert (await client.ask("GET", "x")).status == 200
        with pytest.raises(HttpFailed, match="without an answer"):
            await client.ask("POST", "x", {})
    assert [one[:4] for one in server.asked] == [b"GET ", b"POST"]


async def test_questions_at_once_have_connections_of_their_own() -> None:
    async with serving(OK, OK, OK) as server, plain(server.url) as client:
        told = await asyncio.gather(*(client.ask("GET", "x") for _ in range(3)))
    assert [answer.json() for answer in told] == [{}, {}, {}]
    assert server.connections == 3


async def test_whoever_is_cancelled_leaves_no_answer_to_the_next() -> None:
    first = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n"
    async with serving(first, OK) as server, plain(server.url) as client:
        asked = asyncio.create_task(client.ask("GET", "x"))
        await server.spoke.wait()
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert (await client.ask("GET", "y")).body == b"{}"


@pytest.mark.parametrize(
    ("url", "proxies", "environ", "platform", "expected"),
    [
        ("http://rabbit:15672/api", True, {}, "linux", True),
        ("http://[::1]:15672/api", True, {"HTTP_PROXY": "", "HTTPS_PROXY": "http://p"}, "linux", True),
        ("http://rabbit", True, {"http_proxy": "http://p"}, "linux", False),
        ("http://rabbit", True, {"ALL_PROXY": "http://p"}, "linux", False),
        ("http://127.0.0.1", False, {"ALL_PROXY": "http://p"}, "darwin", True),
        ("http://rabbit", True, {}, "darwin", False),
        ("https://rabbit", False, {}, "linux", False),
        ("http://räbbit", False, {}, "linux", False),
        ("http://rabbit/a b", False, {}, "linux", False),
    ],
)
def test_what_is_plain(
    url: str, proxies: bool, environ: dict[str, str], platform: str, expected: bool
) -> None:
    assert is_plain(url, proxies=proxies, environ=environ, platform=platform) is expected


async def test_who_is_asked_plainly(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)

    async def kind() -> type[Asking]:
        async with asking("http://127.0.0.1:1", headers={}, answer_s=1) as asked:
            return type(asked)

    monkeypatch.setattr("sys.platform", "linux")
    assert await kind() is PlainHttp
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:2")
    assert (await kind()).__name__ == "HttpxAsking"


async def test_httpx_asks_the_same_and_says_the_same() -> None:
    refused = b"HTTP/1.1 401 No\r\ncontent-length: 0\r\n\r\n"
    async with serving(OK, refused, b"", OK, b"", b"") as server:
        async with httpx_asking(
            server.url, headers={"authorization": "Basic x"}, answer_s=30, connect_s=30, verify=True,
            proxies=False,
        ) as client:  # fmt: skip
            assert await client.ask("PUT", "a/%2F", {"b": 1}) == HttpAnswer("PUT", 200, b"{}")
            assert await client.ask("GET", "c") == HttpAnswer("GET", 401, b"")
            assert (await client.ask("GET", "d")).status == 200, "the connection had just ended"
            with pytest.raises(HttpFailed, match="RemoteProtocolError"):
                await client.ask("GET", "e")
            asked = len(server.asked)
            with pytest.raises(HttpFailed, match="RemoteProtocolError"):
                await client.ask("POST", "f", {})
            assert len(server.asked) == asked + 1, "what is not said twice"
        url = server.url
    assert server.asked[0].startswith(b"PUT /api/a/%2F HTTP/1.1\r\n")
    assert b"authorization: Basic x" in server.asked[0].lower().replace(b"basic", b"Basic")
    async with httpx_asking(
        url, headers={}, answer_s=30, connect_s=30, verify=True, proxies=False
    ) as client:  # fmt: skip
        with pytest.raises(NobodyAnswers, match="ConnectError"):
            await client.ask("GET", "x")
