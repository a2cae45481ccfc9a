"""The service over HTTP: metrics, health, status, and sweeps on demand. `docs/api.md` tells it to people."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated, ClassVar, Final

from fastapi import Body, FastAPI, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from pydantic import BaseModel, ConfigDict, Field

from deadletter import __version__
from deadletter.core.text.safe_text import markup
from deadletter.desk.access import Access, GuardedApp
from deadletter.desk.problems import MEDIA_TYPE, tell_problems
from deadletter.desk.record_api import RecordsSource, record_routes
from deadletter.desk.view import ServiceView, Status, SweepAnswer
from deadletter.service.telling.service_health import Condition, ServiceHealth
from deadletter.service.telling.service_metrics import Metrics

_DLQS: Final = 1_000


class SweepWish(BaseModel):
    """What to sweep."""

    model_config: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    dlqs: list[Annotated[str, Field(min_length=1, max_length=255)]] = Field(
        default=[],
        max_length=_DLQS,
        description="Watched dead-letter queues; none: all whose watch does not consume.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweeps:
    """What became of it."""

    sweeps: list[SweepAnswer]


class ProblemBody(BaseModel):
    """Why a request was refused."""

    title: str
    status: int
    detail: str


def _problems(**said: str) -> dict[int | str, dict[str, object]]:
    schema = {"$ref": "#/components/schemas/Problem"}
    return {
        int(code[1:]): {"description": text, "content": {MEDIA_TYPE: {"schema": schema}}}
        for code, text in said.items()
    }


def create_app(
    service: ServiceView,
    metrics: Metrics,
    health: ServiceHealth,
    access: Access,
    records: RecordsSource | None = None,
) -> FastAPI:
    """The app, behind its checks. `records`: the stored letters, where there is a store."""
    app = FastAPI(
        title="Deadletter",
        version=__version__,
        description="What `dlq serve` says and does over HTTP.",
        docs_url=None,  # its page loads scripts from another host
        redoc_url=None,
    )
    app.add_middleware(GuardedApp, access=access)
    tell_problems(app)

    @app.get("/", response_class=HTMLResponse, include_in_schema=False)
    async def front() -> str:
        return front_page(service.status())

    @app.get(
        "/metrics",
        response_class=Response,
        responses={200: {"description": "For Prometheus, as text.", "content": {"text/plain": {}}}},
    )
    async def read_metrics(request: Request) -> Response:
        """The numbers of this instance, in OpenMetrics or Prometheus' plain format."""
        # in a thread: thousands of series take longer to write than a letter may wait
        text, kind = await asyncio.to_thread(
            metrics.snapshot().render, ",".join(request.headers.getlist("accept"))
        )
        return Response(text, headers={"content-type": kind})

    unwell: dict[int | str, dict[str, object]] = {
        503: {"model": Condition, "description": "No; `reasons` why."}
    }

    @app.get("/health/live", response_model=Condition, responses=unwell)
    async def live() -> JSONResponse:
        """Whether the process works; if not, restart it."""
        return _told(health.live())

    @app.get("/health/ready", response_model=Condition, responses=unwell)
    async def ready() -> JSONResponse:
        """Whether letters are being taken care of."""
        return _told(health.ready())

    @app.get("/api/status")
    async def status() -> Status:
        """The service now."""
        return service.status()

    @app.post(
        "/api/sweeps",
        responses={
            **_problems(
                _401="The token is missing or wrong.",
                _403="From another site's page; or from another machine, and no token is set.",
                _413="The body is too large.",
                _415="The body is not JSON.",
                _422="Not a wish, or no watch takes care of a queue that it names; nothing was swept.",
                _503="The broker does not answer.",
            )
        },
    )
    async def sweep(wish: Annotated[SweepWish | None, Body()] = None) -> Sweeps:
        """Sweep dead-letter queues now; answers when it is done, or under way elsewhere."""
        return Sweeps(sweeps=await service.sweep(wish.dlqs if wish else ()))

    if records is not None:
        app.include_router(
            record_routes(records),
            responses=_problems(
                _401="The token is missing or wrong.",
                _403="From another site's page; or from another machine, and no token is set.",
                _404="No letter or group is called so, or several are.",
                _413="The body is too large.",
                _415="The body is not JSON.",
                _422="Not what is asked here, or a jq program that is none.",
                _503="The store does not answer.",
            ),
        )

    original = app.openapi

    def with_problems() -> dict[str, object]:
        document = original()
        document["components"]["schemas"]["Problem"] = ProblemBody.model_json_schema()
        return document

    app.openapi = with_problems  # type: ignore[method-assign]
    return app


def _told(condition: Condition) -> JSONResponse:
    said = {"ok": condition.ok, "reasons": list(condition.reasons), "notes": list(condition.notes)}
    return JSONResponse(said, status_code=200 if condition.ok else 503)


_STYLE = """
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 44rem; margin: 3rem auto; padding: 0 1rem }
code { font-size: .95em } table { border-collapse: collapse; width: 100% }
th, td { text-align: left; padding: .25rem .75rem .25rem 0; vertical-align: top }
td.number, th.number { text-align: right } .trouble { border-left: .25rem solid #c33; padding-left: .75rem }
""".strip()
_SHOWN = 50


def front_page(status: Status) -> str:
    troubles = "".join(
        f'<p class="trouble"><strong>{markup(t.what)}</strong> does not work: {markup(t.why)}</p>'
        for t in status.troubles[:_SHOWN]
    )
    rows = "".join(
        f'<tr><td>{markup(q.queue)}</td><td class="number">{q.depth:,}</td>'
        f"<td>{markup(q.mode or 'ours')}</td><td>{markup(q.last_sweep or '–')}</td></tr>"
        for q in status.queues[:_SHOWN]
    )
    more = len(status.queues) - _SHOWN
    rows += f'<tr><td colspan="4">… and {more:,} more, in /api/status</td></tr>' if more > 0 else ""
    version = f", RabbitMQ {markup(status.broker_version)}" if status.broker_version else ""
    return f"""<!doctype html>
<html lang="en">
<head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Deadletter</title>
<style>{_STYLE}</style></head>
<body>
<h1>Deadletter</h1>
<p><strong>{markup(status.stage)}</strong>: instance {markup(status.instance)} of dlq
{markup(status.version)}, at {markup(status.broker)}{version}.</p>
{troubles}
<table>
<thead><tr><th>queue</th><th class="number">letters</th><th>watched</th><th>last sweep</th></tr></thead>
<tbody>{rows or '<tr><td colspan="4">no queue has been seen yet</td></tr>'}</tbody>
</table>
<h2>What is here</h2>
<ul>
<li><a href="/api/status"><code>/api/status</code></a>: all of this and more, as JSON</li>
<li><a href="/metrics"><code>/metrics</code></a>: numbers for Prometheus</li>
<li><a href="/health/live"><code>/health/live</code></a> and
<a href="/health/ready"><code>/health/ready</code></a>: for orchestrators</li>
<li><code>POST /api/sweeps</code>: sweep now; on the command line: <code>dlq sweep</code></li>
<li><a href="/openapi.json"><code>/openapi.json</code></a>: all of it for programs</li>
</ul>
</body>
</html>
"""
