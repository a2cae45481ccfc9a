"""What `dlq run` answers over HTTP: whether all processes take messages, and their counts in one place.

The processes write their counts into files of one directory (prometheus_client's way for many processes), and
whoever asks reads all of them. So it needs no word from a process, and none of them can keep it waiting.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Gauge, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkersSeen:
    """How they are at this moment."""

    wanted: int
    ready: int
    restarts: int

    @property
    def ok(self) -> bool:
        return self.ready == self.wanted


def health_app(seen: Callable[[], WorkersSeen], counts: Path) -> Starlette:
    """`counts` is the directory with the processes' files."""

    async def live(_: Request) -> Response:
        return _told(seen(), 200)

    async def ready(_: Request) -> Response:
        now = seen()
        return _told(now, 200 if now.ok else 503)

    async def metrics(_: Request) -> Response:
        return Response(_metrics(seen(), counts), media_type=CONTENT_TYPE_LATEST)

    return Starlette(
        routes=[
            Route("/health/live", live),
            Route("/health/ready", ready),
            Route("/metrics", metrics),
        ]
    )


def _told(seen: WorkersSeen, status: int) -> Response:
    told = {"ok": status == 200, "workers": seen.wanted, "ready": seen.ready, "restarts": seen.restarts}
    return JSONResponse(told, status)


def _metrics(seen: WorkersSeen, counts: Path) -> bytes:
    ours = CollectorRegistry()
    for name, text, value in (
        ("deadletter_run_workers", "Processes that there shall be.", seen.wanted),
        ("deadletter_run_workers_ready", "Processes that take messages.", seen.ready),
        ("deadletter_run_restarts", "How often a process was started again after it died.", seen.restarts),
    ):
        Gauge(name, text, registry=ours).set(value)
    theirs = CollectorRegistry()
    MultiProcessCollector(theirs, str(counts))  # type: ignore[no-untyped-call]  # it has no types
    return generate_latest(ours) + generate_latest(theirs)
