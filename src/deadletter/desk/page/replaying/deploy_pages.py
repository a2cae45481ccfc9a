"""Deploys: releases that were told, and which groups to try with a new one."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from deadletter.desk.page.forms import form_of
from deadletter.desk.page.frame import PageFrame
from deadletter.desk.page.store_sources import StoreSources
from deadletter.desk.page.whoever import called
from deadletter.operations.replays.replay_told import DeployTold
from deadletter.store.replays.deploy_table import NAME_CHARS

PAGE: Final = 50


class DeploysAsked(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="ignore")

    service: str = Field(default="", max_length=NAME_CHARS)
    after: int | None = Field(default=None, ge=0, lt=2**63)


def deploy_routes(frame: PageFrame, sources: StoreSources) -> APIRouter:
    routes = APIRouter(include_in_schema=False)

    @routes.get("/replays/deploys")
    async def deploys(request: Request, asked: Annotated[DeploysAsked, Query()]) -> Response:
        return await _page(request, asked, None)

    @routes.post("/replays/deploys")
    async def tell(request: Request) -> Response:
        """Tell of a release. What can be tried with it is the answer: the same told again writes nothing."""
        form = await form_of(request)
        service, release = form.text("service", NAME_CHARS).strip(), form.text("release", NAME_CHARS).strip()
        told = await (await sources.replays()).deployed(service, release, who=called(request))
        return await _page(request, DeploysAsked(), told)

    async def _page(request: Request, asked: DeploysAsked, told: DeployTold | None) -> Response:
        replays = await sources.replays()
        page = await replays.deploys(asked.service or None, after=asked.after, limit=PAGE)
        return await frame.page(
            request,
            "replaying/deploys.html",
            asked=asked,
            deploys=page.deploys,
            more=page.more,
            told=told,
        )

    return routes
