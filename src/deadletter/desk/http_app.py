"""The service over HTTP: the API and the page, behind their checks. `docs/api.md` tells it to people."""

from __future__ import annotations

from fastapi import Depends, FastAPI

from deadletter import __version__
from deadletter.desk.access.access import Access
from deadletter.desk.access.rightful_records import ScopedRecordsSource, rightful_records
from deadletter.desk.access.rightful_replays import ScopedReplaysSource, rightful_replays
from deadletter.desk.access.rightful_service import RightfulService
from deadletter.desk.access.route_rights import rightful
from deadletter.desk.api.all_routes import add_api
from deadletter.desk.api.service_api import service_routes
from deadletter.desk.api.sources import NO_MORE, MoreSources
from deadletter.desk.door.door_routes import door_routes
from deadletter.desk.door.doorman import Doorman
from deadletter.desk.door.guarded_app import GuardedApp
from deadletter.desk.page.pages import add_pages
from deadletter.desk.problems import tell_problems
from deadletter.desk.view import ServiceView
from deadletter.service.telling.service_health import ServiceHealth
from deadletter.service.telling.service_metrics import Metrics


def create_app(
    service: ServiceView,
    metrics: Metrics,
    health: ServiceHealth,
    access: Access,
    records: ScopedRecordsSource | None = None,
    replays: ScopedReplaysSource | None = None,
    more: MoreSources = NO_MORE,
) -> FastAPI:
    """The app, behind its checks. `records`, `replays`: of the stored letters, where there is a store."""
    app = FastAPI(
        title="Deadletter",
        version=__version__,
        description="What `dlq serve` says and does over HTTP.",
        docs_url=None,  # its page loads scripts from another host
        redoc_url=None,
        dependencies=[Depends(rightful)],
    )
    app.state.doorman = doorman = Doorman(access, more.journal)
    app.add_middleware(GuardedApp, doorman=doorman)
    app.include_router(door_routes(doorman))
    of_letters = None if records is None else rightful_records(records, access, more.journal)
    service = RightfulService(service, more.journal)
    of_replays = None if replays is None else rightful_replays(replays, access)
    tell_problems(app, add_pages(app, service, of_letters, of_replays, more).problem)
    app.include_router(service_routes(service, metrics, health))
    add_api(app, of_letters, of_replays, more)
    return app
