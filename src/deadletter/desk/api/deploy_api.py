"""Releases of the services whose letters fail."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from deadletter.desk.answers.desk_route import DeskRoute
from deadletter.desk.api.asked import NAME_CHARS, PREFIX, After, AuditedWish, Limit, Name
from deadletter.desk.api.sources import ReplaysSource
from deadletter.operations.replays.replay_told import DeployPage, DeployTold


class DeployWish(AuditedWish):
    service: Name
    release: Name


def deploy_routes(replays: ReplaysSource) -> APIRouter:
    """The routes, without the problems every one of them may answer with."""
    api = APIRouter(prefix=PREFIX, tags=["deploys"], route_class=DeskRoute)

    @api.post("/deploys")
    async def deployed(wish: DeployWish) -> DeployTold:
        """A service has a new release; the answer names open groups that it may have cured."""
        return await (await replays()).deployed(wish.service, wish.release, who=wish.who)

    @api.get("/deploys")
    async def deploys(
        service: Annotated[str | None, Query(max_length=NAME_CHARS)] = None,
        after: After = None,
        limit: Limit = 50,
    ) -> DeployPage:
        """Releases that were told, the newest first."""
        return await (await replays()).deploys(service, after=after, limit=limit)

    return api
