"""Questions that are more than plain: over TLS, or through a proxy. httpx takes its time to load."""

from __future__ import annotations

import logging
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from contextvars import ContextVar

import httpx

from deadletter.http.answers import HttpAnswer, HttpFailed, NobodyAnswers

_ASKING: ContextVar[bool] = ContextVar("deadletter_asking", default=False)


def _not_ours(_record: logging.LogRecord) -> bool:
    """httpx writes a line per request, in an application's log too; what the application asks stays there."""
    return not _ASKING.get()


class HttpxAsking:
    """The same conversation as `PlainHttp`."""

    def __init__(self, client: httpx.AsyncClient, url: str) -> None:
        self._client = client
        self._url = url

    async def ask(
        self, method: str, path: str, content: object = None, *, answer_s: float | None = None
    ) -> HttpAnswer:
        asking = _ASKING.set(True)
        try:
            try:
                told = await self._send(method, path, content, answer_s)
            except httpx.RemoteProtocolError:
                # A connection that was kept was closed at the other end in this very moment. All but a POST
                # may be asked twice.
                if method == "POST":
                    raise
                told = await self._send(method, path, content, answer_s)
        except httpx.ConnectError as error:
            raise NobodyAnswers(_words(error)) from error
        except httpx.HTTPError as error:
            raise HttpFailed(_words(error)) from error
        finally:
            _ASKING.reset(asking)
        return HttpAnswer(method, told.status_code, told.content)

    async def _send(self, method: str, path: str, content: object, answer_s: float | None) -> httpx.Response:
        usual = self._client.timeout
        patience = usual if answer_s is None else httpx.Timeout(answer_s, connect=usual.connect)
        return await self._client.request(method, f"{self._url}/{path}", json=content, timeout=patience)


def _words(error: Exception) -> str:
    name = type(error).__name__
    return f"{name}: {error}" if str(error) else name


@asynccontextmanager
async def httpx_asking(
    url: str,
    *,
    headers: Mapping[str, str],
    answer_s: float,
    connect_s: float,
    verify: ssl.SSLContext | bool,
    proxies: bool,
) -> AsyncIterator[HttpxAsking]:
    logging.getLogger("httpx").addFilter(_not_ours)  # as often as one likes: it is there once
    async with httpx.AsyncClient(
        headers=headers,
        timeout=httpx.Timeout(answer_s, connect=connect_s),
        verify=verify,
        trust_env=proxies,
        follow_redirects=False,  # one would carry a token along
    ) as client:
        yield HttpxAsking(client, url)
