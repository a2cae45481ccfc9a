"""Signing in and out."""

from __future__ import annotations

from typing import Annotated, Final
from urllib.parse import parse_qs

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from deadletter.desk.door.accounts import BEGUN_S
from deadletter.desk.door.doorman import Doorman, Refused
from deadletter.desk.door.hosts import name_of
from deadletter.desk.door.sign_in_page import inside, sign_in_page
from deadletter.errors import NotAllowed

BEGUN: Final = "-begun"
"""The cookie of a sign-in that has begun elsewhere is called like that of the session, with this behind."""


def door_routes(doorman: Doorman) -> APIRouter:
    routes = APIRouter(include_in_schema=False)

    def page(request: Request, goes_to: str, trouble: str = "") -> str:
        return sign_in_page(
            nonce=request.state.nonce,
            goes_to=inside(goes_to),
            trouble=trouble,
            account="" if (oidc := doorman.access.oidc()) is None else oidc.name,
            at_home=doorman.access.home_token() is not None and doorman.access.at_home,
        )

    @routes.get("/sign-in", response_class=HTMLResponse)
    async def asked(request: Request, next_: Annotated[str, Query(alias="next")] = "/") -> Response:
        if not doorman.asks:
            return doorman.stranger()
        return HTMLResponse(page(request, next_))

    @routes.post("/sign-in")
    async def told(request: Request) -> Response:
        form = parse_qs((await request.body()).decode("utf-8", "replace"), max_num_fields=10)
        goes_to = inside(form.get("next", ["/"])[0])
        come = await doorman.let_in(form.get("token", [""])[0], request.client.host if request.client else "")
        if isinstance(come, Refused):
            return HTMLResponse(page(request, goes_to, come.why), come.status, come.headers)
        answer = RedirectResponse(goes_to, 303)
        doorman.give(answer, come, request.scope, name_of(request.headers.get("host", "")))
        return answer

    def back(request: Request) -> str:
        host = request.headers.get("host", "")
        return f"{'https' if doorman.access.secure(name_of(host)) else 'http'}://{host}/sign-in/end"

    def begun(request: Request) -> str:
        return doorman.cookie_name(request.scope, name_of(request.headers.get("host", ""))) + BEGUN

    @routes.get("/sign-in/begin")
    async def begin(request: Request, next_: Annotated[str, Query(alias="next")] = "/") -> Response:
        try:
            going = await doorman.accounts.begin(back(request), inside(next_))
        except NotAllowed as error:
            return HTMLResponse(page(request, next_, f"That did not work: {error}."), 403)
        answer = RedirectResponse(going.address, 303)
        secure = doorman.access.secure(name_of(request.headers.get("host", "")))
        # Lax: it has to come along when the provider sends the browser back
        answer.set_cookie(
            begun(request), going.cookie, max_age=BEGUN_S, httponly=True, samesite="lax", secure=secure
        )
        return answer

    @routes.get("/sign-in/end")
    async def end(request: Request) -> Response:
        address = request.client.host if request.client else ""
        answer: Response
        try:
            if doorman.account_attempts.wait_s(address):
                raise NotAllowed("there were too many attempts; wait a minute")
            kept = request.cookies.get(begun(request), "")
            account = await doorman.accounts.end(request.query_params, kept, back(request))
            session = await doorman.account_let_in(account, address)
        except NotAllowed as error:
            await doorman.account_refused(address)
            answer = HTMLResponse(page(request, "/", f"That did not work: {error}."), 403)
        else:
            answer = RedirectResponse(inside(account.goes_to), 303)
            doorman.give(answer, session, request.scope, name_of(request.headers.get("host", "")))
        answer.delete_cookie(begun(request), httponly=True, samesite="lax")
        return answer

    @routes.post("/sign-out")
    async def gone(request: Request) -> Response:
        if request.state.session is not None:
            await doorman.let_out(request.state.session)
        answer = RedirectResponse("/sign-in", 303)
        doorman.take(answer, request.scope, name_of(request.headers.get("host", "")))
        return answer

    return routes
