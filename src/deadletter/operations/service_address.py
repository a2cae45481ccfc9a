"""Where the service answers HTTP, and how a command speaks to it: URL, token, proxies, time."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from deadletter.config.urls import is_loopback
from deadletter.errors import UsageError
from deadletter.operations.home_key import home_token, key_file, read_key

if TYPE_CHECKING:  # who asks plainly needs none
    import httpx

DEFAULT_AT: Final = "http://127.0.0.1:8025"
CONNECT_S: Final = 5.0


def service_url(at: str) -> str:
    """The base of its URLs, without a slash behind; `host:port` is enough."""
    base = at if "://" in at else f"http://{at}"
    try:
        parts = urlsplit(base)
        whole = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        whole = False
    if not whole:
        raise UsageError(f"expected --at as a URL such as {DEFAULT_AT}, got {at!r}")
    return base.rstrip("/")


def home(listen: str) -> str:
    """Where a command on this machine finds a service that listens so."""
    host, _, port = listen.rpartition(":")
    return f"{ {'0.0.0.0': '127.0.0.1', '[::]': '[::1]', '': '127.0.0.1'}.get(host, host) }:{port}"  # noqa: S104


def token_headers(token: str | None, url: str) -> dict[str, str]:
    """With the token that was said; else, on this machine, with that of the user who started the service."""
    token = token or own_token(url)
    if token and not (token.isascii() and token.isprintable() and token == token.strip()):
        raise UsageError("expected DLQ_API_TOKEN as printable ASCII without spaces around it")
    return {"authorization": f"Bearer {token}"} if token else {}


def own_token(url: str) -> str | None:
    """Of a service on this machine that this very user started; None: there is none."""
    parts = urlsplit(url)
    if not is_loopback(parts.hostname or ""):
        return None
    key = read_key(key_file(os.environ, Path.home()))
    return None if key is None else home_token(key, parts.port or (443 if parts.scheme == "https" else 80))


def trusts_environment(url: str) -> bool:
    """A proxy of the environment is for other machines."""
    return not is_loopback(urlsplit(url).hostname or "")


def meets_tls(url: str) -> bool:
    """Whether certificates may have to be judged on the way there; to load the trusted ones takes 15 ms."""
    return urlsplit(url).scheme != "http" or trusts_environment(url)  # a proxy may speak TLS, too


def patience(answer_s: float, connect_s: float = CONNECT_S) -> httpx.Timeout:
    import httpx

    return httpx.Timeout(answer_s, connect=connect_s)
