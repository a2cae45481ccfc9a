"""Who may come in: checked for every request, before the app sees it.

* **By which name.** One of ours, or a web page could have its name point here (`hosts`).
* **From where.** What changes something must not come from a page of another site; in a session it brings the
  session's own form token, or is JSON from a page of ours, which no other page can send. There is no CORS.
* **Who it is.** A token (`Authorization: Bearer …`, for programs), or a session (a cookie, for people). What
  is open to all is named in `route_rights`; for the rest somebody must be there, and what they may do is
  asked by the route, and by what it does.
* **How much.** A body is read whole before it is looked at, up to a bound in bytes and in time.
"""

from __future__ import annotations

import secrets
from functools import partial
from urllib.parse import parse_qs, quote, urlencode

from starlette.datastructures import Headers, QueryParams
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from deadletter.desk.access.present import PRESENT
from deadletter.desk.access.rightful_records import masks_for
from deadletter.desk.access.route_rights import is_open
from deadletter.desk.door import bodies
from deadletter.desk.door.doorman import Come, Doorman, Refused
from deadletter.desk.door.hosts import from_another_site, from_this_site, name_of
from deadletter.desk.door.safety import with_safety
from deadletter.desk.door.sign_in_page import DOOR, bounce_page, inside
from deadletter.desk.problems import problem

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_API = "/api/"


class GuardedApp:
    """The app behind these checks. `request.state`: `person`, `masks`, `csrf`, `nonce`, `is_still_in`."""

    def __init__(self, app: ASGIApp, doorman: Doorman) -> None:
        self._app = app
        self._doorman = doorman

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        nonce = secrets.token_urlsafe(16)
        cookies: list[tuple[bytes, bytes]] = []

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*with_safety(message.get("headers", ()), nonce), *cookies]
            await send(message)

        headers = Headers(scope=scope)
        path: str = scope["path"]
        answer: Response | Come = (
            self._doorman.hosts.refused(path, headers)
            or await self._door(scope, headers)
            or await self._came(scope, headers)
        )
        if isinstance(answer, Come):
            come, answer = answer, self._refused(scope, headers, answer) or answer
            if isinstance(answer, Come):
                body = await bodies.read_body(path, headers, receive)
                refused = (
                    body if isinstance(body, Response) else self._forged(scope["method"], headers, body, come)
                )
                if isinstance(body, bytes) and refused is None:
                    cookies += self._renewed(scope, headers, come)
                    state = scope.setdefault("state", {})
                    state |= {
                        "person": come.person,
                        "session": come.session,
                        "csrf": ""
                        if come.session is None
                        else self._doorman.sessions.form_token(come.session),
                        "nonce": nonce,
                        "masks": None
                        if come.person is None
                        else masks_for(come.person, self._doorman.access),
                        "is_still_in": partial(self._doorman.is_still, come),
                    }
                    token = PRESENT.set(come.person)
                    try:
                        await self._app(scope, bodies.again(body, receive), send_safely)
                    finally:
                        PRESENT.reset(token)
                    return
                assert refused is not None
                answer = refused
        await answer(scope, receive, send_safely)

    # -- who it is ---------------------------------------------------------------------------------------
    async def _door(self, scope: Scope, headers: Headers) -> Response | None:
        """The address that is printed at the start has the token, and is changed for a session at once."""
        asked = QueryParams(scope["query_string"])
        token = asked.get("token")
        if scope["method"] != "GET" or token is None or scope["path"].startswith(_API):
            return None
        if scope["path"] != DOOR:  # it is none there, and shall not stay in the address
            rest = [one for one in asked.multi_items() if one[0] != "token"]
            return RedirectResponse(_address({**scope, "query_string": urlencode(rest).encode()}), 303)
        come = await self._doorman.let_in(token, _from(scope))
        if isinstance(come, Refused):
            return come.answer()
        answer = RedirectResponse(DOOR, 303)
        self._doorman.give(answer, come, scope, name_of(headers.get("host", "")))
        return answer

    async def _came(self, scope: Scope, headers: Headers) -> Response | Come:
        if not is_open(scope["path"]):
            await self._doorman.look_at_keys()
        if "authorization" in headers:
            scheme, _, given = headers["authorization"].partition(" ")
            found = await self._doorman.bearer(scheme, given.strip(), _from(scope))
            return Come(None) if isinstance(found, Response) and is_open(scope["path"]) else found
        cookie = cookie_parser(headers.get("cookie", "")).get(
            self._doorman.cookie_name(scope, name_of(headers.get("host", "")))
        )
        if cookie and (come := await self._doorman.session(cookie)) is not None:
            return come
        return Come(self._doorman.anybody())

    def _renewed(self, scope: Scope, headers: Headers, come: Come) -> list[tuple[bytes, bytes]]:
        if come.session is None or (again := self._doorman.sessions.renewed(come.session)) is None:
            return []
        answer = Response()
        self._doorman.give(answer, again, scope, name_of(headers.get("host", "")))
        return [one for one in answer.raw_headers if one[0] == b"set-cookie"]

    # -- what is refused ---------------------------------------------------------------------------------
    def _refused(self, scope: Scope, headers: Headers, come: Come) -> Response | None:
        method, path = scope["method"], scope["path"]
        changes = method not in _SAFE
        if changes and from_another_site(headers):
            return problem(
                403, "expected a request from this site or from a program, got one from another site's page"
            )
        if not is_open(path) and (refused := self._unknown(scope, headers, come)) is not None:
            return refused
        return bodies.refused_kind(path, headers) if changes else None

    def _unknown(self, scope: Scope, headers: Headers, come: Come) -> Response | None:
        """Somebody who has to say first who they are; or there is nothing for them."""
        path = scope["path"]
        is_page = not path.startswith(_API)
        if is_page and not self._doorman.access.page:
            return problem(404, "there is no page here: [desk] page = false; /api and /metrics are there")
        if come.person is not None:
            return None
        if is_page and "text/html" in headers.get("accept", ""):
            looks = scope["method"] == "GET"
            where = _address(scope) if looks else _section(path)
            if looks and headers.get("sec-fetch-site") == "cross-site":
                return bounce_page(where)
            if self._doorman.asks:
                return RedirectResponse(f"/sign-in?next={quote(where, safe='')}", 303)
        return self._doorman.stranger()

    def _forged(self, method: str, headers: Headers, body: bytes, come: Come) -> Response | None:
        """What a session's own pages did not send."""
        if method in _SAFE or come.session is None:
            return None
        if bodies.kind_of(headers) == bodies.FORM:
            told = parse_qs(body.decode("utf-8", "replace"), max_num_fields=10_000).get("csrf", [""])[0]
            if self._doorman.sessions.is_form_token(come.session, told):
                return None
        elif from_this_site(headers) or self._doorman.sessions.is_form_token(
            come.session, headers.get("x-csrf-token", "")
        ):
            return None
        return problem(
            403, "expected the form of a page of this session; load the page again, and send it anew"
        )


def _section(path: str) -> str:
    """Where somebody goes on whose form came after the sign-in had ended: nothing of it was done."""
    return inside(path if path.endswith("/edit") else f"/{path.split('/')[1]}")


def _address(scope: Scope) -> str:
    raw = bytes(scope.get("raw_path") or scope["path"].encode())
    return inside((raw + b"?" + scope["query_string"] if scope["query_string"] else raw).decode("latin-1"))


def _from(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else ""
