"""Policies: which are in force, what they would do to a letter, rows of the table."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Request, Response
from pydantic import Field

from deadletter.core.deciding.backoff import MAX_RETRIES
from deadletter.core.deciding.event_config import MAX_NAME_CHARS
from deadletter.desk.access.present import person
from deadletter.desk.answers.desk_route import DeskRoute
from deadletter.desk.answers.entity_tags import IfMatch, tell_version, version_of
from deadletter.desk.api.asked import PREFIX, AuditedWish, LetterName, Who
from deadletter.desk.api.sources import RecordsSource
from deadletter.operations.rulebook.rulebook import (
    ExplanationTold,
    PoliciesTold,
    RowRemoved,
    RowTold,
    Rulebook,
)

RoutingKey = Annotated[
    str, Path(max_length=MAX_NAME_CHARS, description="A routing key, or a pattern.", examples=["order.#"])
]


class RowWish(AuditedWish):
    max_retries: int = Field(ge=0, le=MAX_RETRIES)


def policy_routes(rulebook: Rulebook, records: RecordsSource) -> APIRouter:
    """The routes, without the problems every one of them may answer with. `records`: as seen by who asks."""
    api = APIRouter(prefix=PREFIX, tags=["policies"], route_class=DeskRoute)

    @api.get("/policies")
    async def policies() -> PoliciesTold:
        """Policies in the order in which they are asked: the store's table, the file, the default."""
        return await rulebook.policies()

    @api.get("/letters/{name}/policy")
    async def explained(request: Request, name: LetterName) -> ExplanationTold:
        """What the policies in force would do to a stored letter that fails now."""
        seen = await (await records()).letter(name)  # NotStored: it is not theirs
        return await rulebook.explain(str(seen.letter.id), request.state.masks)

    @api.get("/policies/rows/{routing_key:path}")
    async def row(routing_key: RoutingKey, response: Response) -> RowTold:
        """One row of the table."""
        found = await rulebook.row(routing_key)
        tell_version(response, found.version)
        return found

    @api.put("/policies/rows/{routing_key:path}")
    async def set_row(
        routing_key: RoutingKey, wish: RowWish, response: Response, if_match: IfMatch = None
    ) -> RowTold:
        """So many retries for this routing key: in force within seconds."""
        done = await rulebook.set_row(
            routing_key, wish.max_retries, who=person().called(wish.who), version=version_of(if_match)
        )
        tell_version(response, done.version)
        return done

    @api.delete("/policies/rows/{routing_key:path}")
    async def remove_row(routing_key: RoutingKey, who: Who = "api", if_match: IfMatch = None) -> RowRemoved:
        """Remove a row; the file decides again."""
        return await rulebook.remove_row(routing_key, who=person().called(who), version=version_of(if_match))

    return api
