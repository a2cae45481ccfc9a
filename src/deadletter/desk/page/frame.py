"""The frame around every page: the templates, what all of them know, the headers that keep them safe.

A page has no inline script and no inline style (`desk.door.safety` tells browsers so): a letter that holds
markup can do nothing even where it were not escaped. Every page has an ETag of what it shows, without its
nonce and without how long ago things were: whoever asks again (`live.js`) hears 304 while nothing changed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import cache
from hashlib import blake2b
from typing import Final, TypeAlias

from fastapi import Request, Response
from fastapi.responses import HTMLResponse
from jinja2 import Environment, PackageLoader, StrictUndefined

from deadletter import __version__
from deadletter.core.access.scope import Scope
from deadletter.desk.page import charts, shown
from deadletter.desk.page.said import COOKIE, said_in
from deadletter.desk.page.sections import SECTIONS, section_at
from deadletter.desk.page.static_files import static_url
from deadletter.desk.page.whoever import Mays, csrf_of, person_of

THEME: Final = "dlq_theme"
THEMES: Final = ("auto", "light", "dark")
_AGES: Final = re.compile(r">[^<]{0,40}</time>")


@dataclass(frozen=True, slots=True, kw_only=True)
class NavCounts:
    """What the navigation tells beside a view, by the path of the view."""

    by_path: Mapping[str, str]


CountsSource: TypeAlias = Callable[[Scope], Awaitable[NavCounts]]
"""For who sees so much."""


async def no_counts(_scope: Scope) -> NavCounts:
    return NavCounts(by_path={})


class PageFrame:
    """Makes pages. `now_ms`: the time, which tests set."""

    def __init__(
        self,
        counts: CountsSource = no_counts,
        now_ms: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        self.now_ms: Final = now_ms
        self._counts = counts
        self._templates = _environment()

    async def page(
        self,
        request: Request,
        template: str,
        *,
        status: int = 200,
        **told: object,
    ) -> Response:
        """The page of a template. `told`: what it is about."""
        nonce: str = request.state.nonce
        said, person = said_in(request), person_of(request)
        theme = request.cookies.get(THEME, "auto")
        counts = await self._counts(person.scope) if status == 200 else NavCounts(by_path={})
        html = self._templates.get_template(template).render(
            told,
            address=_address(request),
            counts=counts.by_path,
            csrf=csrf_of(request),
            here=section_at(request.url.path),
            may=Mays(person),
            me=person.called(),
            nonce=nonce,
            now_ms=self.now_ms(),
            person=person,
            said=said,
            signed_in=request.state.session is not None,
            theme=theme if theme in THEMES else "auto",
        )
        seen = _AGES.sub("", html.replace(nonce, ""))
        tag = f'"{blake2b(seen.encode(), digest_size=12).hexdigest()}"'
        safe = {"etag": tag}
        if status == 200 and request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=safe)
        answer = HTMLResponse(html, status_code=status, headers=safe)
        if said is not None:
            answer.delete_cookie(COOKIE, path="/")
        return answer

    async def problem(self, request: Request, status: int, title: str, detail: str) -> Response:
        """A page for what went wrong."""
        return await self.page(request, "problem.html", status=status, title=title, detail=detail)


def _address(request: Request) -> str:
    """This page, for forms that come back to it."""
    query = request.url.query
    return f"{request.url.path}?{query}" if query else request.url.path


@cache
def _environment() -> Environment:
    """One for every app of a process: nothing in it is an app's own, and templates are compiled once."""
    made = Environment(
        loader=PackageLoader("deadletter.desk.page"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=shown.finalized,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "ago": shown.ago,
        "as_it_stands": shown.as_it_stands,
        "block": shown.block,
        "counted": shown.counted,
        "exact_time": shown.exact_time,
        "iso_time": shown.iso_time,
        "number": shown.number,
        "path_part": shown.path_part,
        "plain": shown.plain,
        "size": shown.size,
        "span": shown.span,
        "to_ms": shown.to_ms,
        "value": shown.value,
    }
    made.globals |= {
        "bars": charts.bars,
        "command_line": shown.command_line,
        "is_odd": shown.is_odd,
        "line_chart": charts.line,
        "query_text": shown.query_text,
        "sections": SECTIONS,
        "static": static_url,
        "themes": THEMES,
        "version": __version__,
    }
    return made
