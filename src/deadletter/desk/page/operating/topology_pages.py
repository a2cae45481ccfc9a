"""The topology of a vhost as a picture, with how many letters are where."""

from __future__ import annotations

import asyncio
from typing import Annotated, ClassVar, Final

from fastapi import APIRouter, Query, Request, Response
from markupsafe import Markup
from pydantic import BaseModel, ConfigDict, Field

from deadletter.desk.answers.in_sight import sees_all
from deadletter.desk.api.asked import NAME_CHARS, Name
from deadletter.desk.api.sources import MoreSources
from deadletter.desk.page.frame import PageFrame
from deadletter.desk.page.operating.vhosts import vhost_view
from deadletter.desk.page.shown import command_line, query_text
from deadletter.desk.page.whoever import person_of
from deadletter.drawing.graph import DrawnShape, Graph
from deadletter.drawing.svg import svg
from deadletter.errors import UsageError
from deadletter.operations.outlook.outlook import TopologyTold

_AROUND: Final = 20
_LISTED: Final = 500


class TopologyAsked(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="ignore")

    vhost: str = Field(default="", max_length=NAME_CHARS)
    queue: Annotated[list[Name], Field(max_length=_AROUND)] = []


def topology_routes(frame: PageFrame, more: MoreSources) -> APIRouter:
    routes = APIRouter(include_in_schema=False)

    @routes.get("/topology")
    async def topology(request: Request, asked: Annotated[TopologyAsked, Query()]) -> Response:
        sees_all(person_of(request))
        view = vhost_view(request, more.outlook, asked.vhost)
        told, wrong = None, ""
        try:
            told = await view.outlook.topology(vhost=view.vhost, around=tuple(asked.queue))
        except UsageError as error:
            wrong = str(error)
        said = {**view.said, "queue": asked.queue}
        return await frame.page(
            request,
            "operating/topology.html",
            asked=asked,
            view=view,
            said_so=said,
            told=told,
            wrong=wrong,
            picture=None if told is None else await asyncio.to_thread(_picture, told, view.said),
            holes=[] if told is None else [one for one in told.nodes if one.shape is DrawnShape.HOLE],
            queues=[] if told is None else _queues(told),
            drawn=f"/api/v1/topology/drawn{query_text({**view.said, 'around': asked.queue})}",
            command=command_line(
                "topology", "draw", *(word for one in asked.queue for word in ("--queue", one))
            ),
        )

    return routes


def _picture(told: TopologyTold, said: dict[str, object]) -> Markup:
    """Every name in it is escaped where it is drawn; it brings no style and no script."""
    picture = Graph(nodes=told.nodes, arrows=told.arrows)
    links = {
        node.id: f"/topology{query_text({**said, 'queue': node.title})}"
        for node in told.nodes
        if node.shape is DrawnShape.QUEUE
    }
    return Markup(svg(picture, title=f"vhost {told.vhost}", within=True, links=links))  # noqa: S704 -- drawn by us, names escaped


def _queues(told: TopologyTold) -> list[tuple[str, tuple[str, ...]]]:
    """For those who do not see the picture: each queue with what it says of itself."""
    return sorted((one.title, one.lines) for one in told.nodes if one.shape is DrawnShape.QUEUE)[:_LISTED]
