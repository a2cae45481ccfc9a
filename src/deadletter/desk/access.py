"""Who may ask what: checked for every request, before the app sees it.

* **From where.** Listening on this machine alone, only its own names are accepted as Host: else a web page
  could have its name point here and read all there is (DNS rebinding).
* **From whom.** What changes something must not come from a page of another site: browsers say where a
  request comes from (`Sec-Fetch-Site`, `Origin`), other programs say nothing. There is no CORS. A body is
  JSON, or an archive of letters, which no form can send.
* **With a token**, where DLQ_API_TOKEN is set, for what changes something and for what shows letters (bodies
  are other people's data); without one, neither can be done from another machine.
* **How much.** A body is read whole before it is looked at, up to a bound in bytes and in time.
"""

from __future__ import annotations

import asyncio
import hmac
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deadletter.config.urls import is_loopback
from deadletter.desk.problems import problem
from deadletter.operations.records.exact_letters import MAX_BYTES as ARCHIVE_BYTES
from deadletter.operations.records.exact_letters import MEDIA_TYPE as ARCHIVE_TYPE

BODY_BYTES: Final = 65_536
BODY_S: Final = 10.0
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_PRIVATE: Final = "/api/v1/"
"""Below this are letters: who may read them is who may change something."""
_BODIES: Final = {"/api/v1/archive": (ARCHIVE_TYPE, ARCHIVE_BYTES)}
"""What a path takes, and how much of it, where that is not JSON."""
_HOME: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_SAFETY: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """`host`: what the service listens on. `token`: what changing and reading letters needs."""

    host: str
    token: str | None = field(default=None, repr=False)

    @property
    def at_home(self) -> bool:
        """Whether only this machine can reach us."""
        return is_loopback(self.host)


class GuardedApp:
    """The app behind these checks."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access
        self._names = _HOME | {access.host.lower()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_SAFETY]
            await send(message)

        headers = Headers(scope=scope)
        refused = self._refused_host(headers) or self._refused_right(scope["method"], scope["path"], headers)
        if refused is None:
            _, most = _taken(scope["path"])
            body = await _body(headers, receive, most)
            if isinstance(body, bytes):
                await self._app(scope, _again(body, receive), send_safely)
                return
            refused = body
        await refused(scope, receive, send_safely)

    def _refused_host(self, headers: Headers) -> Response | None:
        if not self._access.at_home:
            return None
        named = _name_of(headers.get("host", ""))
        if named in self._names:
            return None
        return problem(
            421,
            f"expected the Host localhost, 127.0.0.1 or [::1], because the service listens on this machine "
            f"alone, got {named[:100]!r}; ask for it by one of these names",
        )

    def _refused_right(self, method: str, path: str, headers: Headers) -> Response | None:
        if method not in _SAFE:
            return self._refused_form(path, headers) or self._refused_token(headers)
        return self._refused_token(headers) if path.startswith(_PRIVATE) else None

    def _refused_form(self, path: str, headers: Headers) -> Response | None:
        if _from_another_site(headers):
            return problem(
                403, "expected a request from this site or from a program, got one from another site's page"
            )
        if headers.get("content-length", "0") != "0" or "transfer-encoding" in headers:
            kind = headers.get("content-type", "").partition(";")[0].strip().lower()
            expected, _ = _taken(path)
            if kind != expected:
                return problem(415, f"expected a body of {expected}, got {kind[:100] or 'no type'}")
        return None

    def _refused_token(self, headers: Headers) -> Response | None:
        if self._access.token is not None:
            scheme, _, given = headers.get("authorization", "").partition(" ")
            same = hmac.compare_digest(given.strip().encode(), self._access.token.encode())
            if scheme.lower() != "bearer" or not same:
                return problem(
                    401,
                    "expected the token that the service was started with (DLQ_API_TOKEN), as "
                    "Authorization: Bearer …",
                    {"www-authenticate": "Bearer"},
                )
        elif not self._access.at_home:
            return problem(
                403,
                f"the service listens on {self._access.host}, where other machines reach it, and has no "
                "token; set DLQ_API_TOKEN for it, or [serve] listen to 127.0.0.1, to allow changes "
                "and a look at letters",
            )
        return None


def _from_another_site(headers: Headers) -> bool:
    said = headers.get("sec-fetch-site")
    if said is not None:
        return said not in ("same-origin", "none")
    origin = headers.get("origin")  # a browser from before Sec-Fetch-Site
    return origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower()


def _name_of(host: str) -> str:
    """The name in a Host header, without port and brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower().removesuffix(".")


def _taken(path: str) -> tuple[str, int]:
    return _BODIES.get(path, ("application/json", BODY_BYTES))


async def _body(headers: Headers, receive: Receive, most: int) -> bytes | Response:
    """The whole body of a request, or the refusal."""
    too_large = problem(413, f"expected a body of at most {most:,} bytes")
    length = headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > most:
        return too_large
    if length == "0" and "transfer-encoding" not in headers:
        return b""
    parts = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return problem(400, "the body ended too early")
                parts += message.get("body", b"")
                if len(parts) > most:
                    return too_large
                if not message.get("more_body", False):
                    return bytes(parts)
    except TimeoutError:
        return problem(408, f"expected the body within {BODY_S:.0f} s")


def _again(body: bytes, receive: Receive) -> Receive:
    """The body, and then whatever comes after it."""
    told = False

    async def once() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return once
