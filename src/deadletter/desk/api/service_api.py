"""The service itself: metrics, health, status, and sweeps on demand."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import APIRouter, Body, Request, Response
from fastapi.responses import JSONResponse
from pydantic import Field

from deadletter.desk.api.asked import Name, Strict
from deadletter.desk.problems import problems
from deadletter.desk.view import ServiceView, Status, SweepAnswer
from deadletter.service.telling.service_health import Condition, ServiceHealth
from deadletter.service.telling.service_metrics import Metrics

_DLQS: Final = 1_000


class SweepWish(Strict):
    """What to sweep."""

    dlqs: list[Name] = Field(
        default=[],
        max_length=_DLQS,
        description="Watched dead-letter queues; none: all whose watch does not consume.",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweeps:
    """What became of it."""

    sweeps: list[SweepAnswer]


def service_routes(service: ServiceView, metrics: Metrics, health: ServiceHealth) -> APIRouter:
    api = APIRouter(tags=["service"])

    @api.get(
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

    @api.get("/health/live", response_model=Condition, responses=unwell)
    async def live() -> JSONResponse:
        """Whether the process works; if not, restart it."""
        return _told(health.live())

    @api.get("/health/ready", response_model=Condition, responses=unwell)
    async def ready() -> JSONResponse:
        """Whether letters are being taken care of."""
        return _told(health.ready())

    @api.get("/api/status")
    async def status() -> Status:
        """The service now."""
        return service.status()

    @api.post(
        "/api/sweeps",
        responses={
            **problems(
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

    return api


def _told(condition: Condition) -> JSONResponse:
    said = {"ok": condition.ok, "reasons": list(condition.reasons), "notes": list(condition.notes)}
    return JSONResponse(said, status_code=200 if condition.ok else 503)
