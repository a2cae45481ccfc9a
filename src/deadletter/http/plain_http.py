"""HTTP/1.1 without TLS and proxies, for questions whose answer is read whole."""

from __future__ import annotations

import asyncio
import json
import os
import zlib
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from deadletter.http.answers import HttpAnswer, HttpFailed, NobodyAnswers

_HEAD_BYTES: Final = 256 * 1024
_PIECE_BYTES: Final = 1024 * 1024
_GZIP_OR_ZLIB: Final = 47
"""zlib finds out which of them it is."""


class _Line(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class _ClosedAtRest(Exception):
    """A connection that was kept ended before it said anything."""


class PlainHttp:
    """Asks one server, on as many connections as there are questions at once; they are kept for more.

    `answer_s` is how long it may say nothing, not how long all of its answer may take.
    """

    def __init__(self, url: str, *, headers: Mapping[str, str], answer_s: float, connect_s: float) -> None:
        parts = urlsplit(url)
        self._host = parts.hostname or ""
        self._port = parts.port or 80
        self._path = parts.path.rstrip("/")
        self._headers = {
            "host": parts.netloc.rpartition("@")[2],
            "accept": "*/*",
            "accept-encoding": "gzip, deflate",
            "user-agent": "deadletter",
            **headers,
        }
        self._answer_s = answer_s
        self._connect_s = connect_s
        self._kept: list[_Line] = []

    async def ask(
        self, method: str, path: str, content: object = None, *, answer_s: float | None = None
    ) -> HttpAnswer:
        question = self._question(method, path, content)
        silent_s = self._answer_s if answer_s is None else answer_s
        if self._kept and method != "POST":  # which must not be asked twice: it gets a connection of its own
            try:
                return await self._exchange(self._kept.pop(), method, question, silent_s)
            except _ClosedAtRest:
                self.close()  # those beside it are as old
        try:
            return await self._exchange(await self._open(), method, question, silent_s)
        except _ClosedAtRest as error:
            raise HttpFailed("the connection was closed without an answer") from error

    def close(self) -> None:
        """Give up the connections that are kept."""
        while self._kept:
            self._kept.pop().writer.close()

    def _question(self, method: str, path: str, content: object) -> bytes:
        headers, body = dict(self._headers), b""
        if content is not None:
            body = json.dumps(content).encode()
            headers["content-type"] = "application/json"
        if content is not None or method != "GET":
            headers["content-length"] = str(len(body))
        lines = [
            f"{method} {self._path}/{path} HTTP/1.1",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        return "\r\n".join([*lines, "", ""]).encode("ascii") + body

    async def _open(self) -> _Line:
        try:
            async with asyncio.timeout(self._connect_s):
                reader, writer = await asyncio.open_connection(self._host, self._port, limit=_HEAD_BYTES)
        except TimeoutError as error:
            raise NobodyAnswers(f"no connection within {self._connect_s:g} s") from error
        except OSError as error:
            number = error.errno or 0  # below zero where the name is none; the words for that are its own
            words = os.strerror(number) if number > 0 else error.strerror or str(error)
            raise NobodyAnswers(words) from error
        return _Line(reader, writer)

    async def _exchange(self, line: _Line, method: str, question: bytes, answer_s: float) -> HttpAnswer:
        try:
            line.writer.write(question)
            reading = _Reading(line.reader, answer_s)
            async with asyncio.timeout(answer_s):
                await line.writer.drain()
            answer = HttpAnswer(method, *await reading.answer())
        except BaseException as error:
            line.writer.close()  # whatever still comes on it would be taken for the next answer
            match error:
                case TimeoutError():
                    raise HttpFailed(f"no answer within {answer_s:g} s") from error
                case asyncio.IncompleteReadError():
                    raise HttpFailed("the connection was closed in the middle of the answer") from error
                case OSError():
                    raise _ClosedAtRest from error
                case asyncio.LimitOverrunError() | ValueError() | zlib.error():
                    raise HttpFailed(f"what came is no HTTP: {error}") from error
                case _:
                    raise
        if reading.may_be_kept:
            self._kept.append(line)
        else:
            line.writer.close()
        return answer


class _Reading:
    """One answer out of a connection."""

    def __init__(self, reader: asyncio.StreamReader, piece_s: float) -> None:
        self._reader = reader
        self._piece_s = piece_s
        self.may_be_kept = False

    async def answer(self) -> tuple[int, bytes]:
        status = 100
        headers: dict[str, str] = {}
        while status < 200:  # the others say that more is to come
            status, headers = await self._head()
        body = b"" if status in (204, 304) else await self._body(headers)
        if headers.get("content-encoding", "identity").lower() in ("gzip", "x-gzip", "deflate") and body:
            body = zlib.decompress(body, _GZIP_OR_ZLIB)
        return status, body

    async def _head(self) -> tuple[int, dict[str, str]]:
        try:
            head = await self._until(b"\r\n\r\n")
        except asyncio.IncompleteReadError as error:
            if not error.partial:
                raise _ClosedAtRest from error
            raise
        first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
        version, _, rest = first.partition(" ")
        code = rest[:3]
        if not version.startswith("HTTP/1.") or not (len(code) == 3 and code.isdecimal()):
            raise ValueError(f"it begins with {first[:40]!r}")
        headers = {
            name.strip().lower(): value.strip() for name, _, value in (one.partition(":") for one in lines)
        }
        self.may_be_kept = version == "HTTP/1.1" and headers.get("connection", "").lower() != "close"
        return int(code), headers

    async def _body(self, headers: Mapping[str, str]) -> bytes:
        if headers.get("transfer-encoding", "").lower() == "chunked":
            pieces: list[bytes] = []
            while size := int((await self._until(b"\r\n")).partition(b";")[0], 16):
                pieces.append(await self._exactly(size))
                await self._exactly(2)
            while await self._until(b"\r\n") != b"\r\n":
                pass  # a trailer
            return b"".join(pieces)
        if "content-length" in headers:
            return await self._exactly(int(headers["content-length"]))
        self.may_be_kept = False
        return await self._exactly(None)

    async def _until(self, end: bytes) -> bytes:
        async with asyncio.timeout(self._piece_s):
            return await self._reader.readuntil(end)

    async def _exactly(self, count: int | None) -> bytes:
        """So many bytes; None: all until the end."""
        pieces: list[bytes] = []
        left = count
        while left is None or left > 0:
            async with asyncio.timeout(self._piece_s):
                piece = await self._reader.read(_PIECE_BYTES if left is None else min(left, _PIECE_BYTES))
            if not piece:
                break
            pieces.append(piece)
            left = None if left is None else left - len(piece)
        if left:
            raise asyncio.IncompleteReadError(b"".join(pieces), count)
        return b"".join(pieces)
