"""What stands open to others: the port of the service, held by those who never finish a request; the store's
file, read by those who share the machine.

About `desk.server`, `store.opening`.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx
import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from deadletter.desk import server
from deadletter.desk.server import serve
from deadletter.store.opening import open_store

UNFINISHED = 250


async def _app(scope: Scope, receive: Receive, send: Send) -> None:
    if scope["method"] == "POST":
        while (await receive()).get("more_body"):
            pass
    await PlainTextResponse("alive")(scope, receive, send)


@asynccontextmanager
async def answering() -> AsyncIterator[tuple[str, int]]:
    """A server, and the port where it answers."""
    ready: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    task = asyncio.create_task(serve(_app, "127.0.0.1:0", on_ready=ready.set_result))
    try:
        url = await ready
        yield url, int(url.rpartition(":")[2])
    finally:
        task.cancel()
        await asyncio.wait({task})


async def is_dropped(reader: asyncio.StreamReader) -> bool:
    """Whether the server ends this connection within a minute, and without an answer that was not asked."""
    try:
        return await asyncio.wait_for(reader.read(), 60) == b""
    except ConnectionError:
        return True


async def test_unfinished_requests_do_not_keep_others_out() -> None:
    async with answering() as (url, port):
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(UNFINISHED)]
        for number, (_, writer) in enumerate(held):
            writer.write(b"GET /health/live HTTP/1.1\r\nHost: a\r\n" if number % 2 else b"GET")
        async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=60) as client:
            for _ in range(20):
                answer = await client.get("/health/live", headers={"connection": "close"})
                assert (answer.status_code, answer.text) == (200, "alive")
        for _, writer in held:
            writer.close()


async def test_answered_connections_that_stay_open_do_not_keep_others_out() -> None:
    async with answering() as (url, port):
        held = []
        for _ in range(UNFINISHED):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            held.append((reader, writer))
            assert b"200 OK" in await reader.readuntil(b"\r\n")
        async with httpx.AsyncClient(base_url=url, trust_env=False, timeout=60) as client:
            assert (await client.get("/health/live")).status_code == 200
        for _, writer in held:
            writer.close()


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: a\r\n",
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\nx",
    ],
    ids=["nothing", "head", "body"],
)
async def test_who_dribbles_is_dropped(monkeypatch: pytest.MonkeyPatch, begun: bytes) -> None:
    monkeypatch.setattr(server, "REQUEST_S", 1.0)
    async with answering() as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(begun)

        async def dribble() -> None:
            while True:
                await asyncio.sleep(0.1)
                writer.write(b"x" if begun else b"")

        dribbling = asyncio.create_task(dribble())
        assert await is_dropped(reader)
        dribbling.cancel()
        await asyncio.wait({dribbling})
        writer.close()


async def test_a_second_request_has_no_more_time_than_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "REQUEST_S", 1.0)
    async with answering() as (_, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        await reader.readuntil(b"alive")
        writer.write(b"GET / HTTP/1.1\r\n")
        assert await is_dropped(reader)
        writer.close()


# -- the store's file ---------------------------------------------------------------------------------------
@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
async def test_the_stores_file_is_its_owners_alone(tmp_path: Path, mask: int) -> None:
    path = tmp_path / "new" / "store.db"
    with umask(mask):
        async with open_store(f"sqlite:///{path}") as store:
            await store.set_event("order.placed", 3)
        assert mode(path) == 0o600
        with sqlite3.connect(path) as other:
            other.execute("PRAGMA journal_mode=WAL")
            other.execute("INSERT INTO dlq_event_config (id, name, max_retries) VALUES (9, 'a', 1)")
            other.commit()
            beside = [found for found in path.parent.iterdir() if found != path]
            assert {found.name for found in beside} >= {"store.db-wal", "store.db-shm"}
            assert {mode(found) for found in beside} == {0o600}
        other.close()


async def test_no_moment_shows_the_file_to_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is made by us with its mode, not by SQLite and narrowed afterwards."""
    modes: list[int] = []
    real = os.open

    def watched(file: str | Path, flags: int, mode: int = 0o777, **more: int) -> int:
        if flags & os.O_CREAT:
            modes.append(mode)
        return real(file, flags, mode, **more)

    monkeypatch.setattr(os, "open", watched)
    with umask(0):
        async with open_store(f"sqlite:///{tmp_path / 'store.db'}"):
            pass
    assert modes == [0o600]


async def test_a_link_to_nowhere_gets_a_file_of_the_same_mode(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "real.db")
    with umask(0):
        async with open_store(f"sqlite:///{tmp_path / 'link.db'}"):
            pass
    assert mode(tmp_path / "real.db") == 0o600


async def test_a_file_that_is_there_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.touch(0o640)
    path.chmod(0o640)
    async with open_store(f"sqlite:///{path}"):
        pass
    assert mode(path) == 0o640
