"""The way in: a conversation with a server, as light as it can be."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from deadletter.http.answers import Asking
from deadletter.http.plain_http import PlainHttp

if TYPE_CHECKING:
    import ssl

_PROXIES: Final = ("http_proxy", "all_proxy")


@asynccontextmanager
async def asking(
    url: str,
    *,
    headers: Mapping[str, str],
    answer_s: float,
    connect_s: float | None = None,
    verify: ssl.SSLContext | bool = True,
    proxies: bool = True,
) -> AsyncIterator[Asking]:
    """Ask the server at `url`. `verify` is for TLS; `proxies`: those of the environment are for it, too."""
    if connect_s is None:
        connect_s = answer_s
    if is_plain(url, proxies=proxies, environ=os.environ):
        plain = PlainHttp(url, headers=headers, answer_s=answer_s, connect_s=connect_s)
        try:
            yield plain
        finally:
            plain.close()
        return
    from deadletter.http.by_httpx import httpx_asking

    async with httpx_asking(
        url, headers=headers, answer_s=answer_s, connect_s=connect_s, verify=verify, proxies=proxies
    ) as asked:
        yield asked


def is_plain(url: str, *, proxies: bool, environ: Mapping[str, str], platform: str = sys.platform) -> bool:
    """Whether nothing stands between us and this server.

    Not so on macOS and Windows, which have proxies that no variable tells of.
    """
    ordinary = url.isascii() and url.isprintable() and " " not in url and not urlsplit(url).query
    if not ordinary or not url.startswith("http://"):
        return False
    if not proxies:
        return True
    named = any(name.lower() in _PROXIES and value for name, value in environ.items())
    return not named and platform not in ("darwin", "win32")
