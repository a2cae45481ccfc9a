"""Replays: looked at before, started, watched, turned.

A start that is asked for twice with the same `run`, because no answer came, is one replay.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request

from deadletter.core.replaying.replay_states import ReplayState
from deadletter.desk.answers.desk_route import DeskRoute, run_of
from deadletter.desk.api.asked import PREFIX, After, Limit
from deadletter.desk.api.replay_wishes import PaceWish, ReplayPlanBody, ReplayStartBody, TurnWish, pace_of
from deadletter.desk.api.sources import ReplaysSource
from deadletter.operations.replays.replay_told import (
    OutcomePage,
    OutcomeState,
    PreflightTold,
    ReplayDetail,
    ReplayPage,
    ReplayTold,
)

ReplayNumber = Annotated[int, Path(ge=1, lt=2**63, description="Its number.", examples=[1])]


def replay_routes(replays: ReplaysSource) -> APIRouter:
    """The routes, without the problems every one of them may answer with."""
    api = APIRouter(prefix=PREFIX, tags=["replays"], route_class=DeskRoute)

    @api.post("/replays/preflight")
    async def preflight(plan: ReplayPlanBody) -> PreflightTold:
        """What is to be known before such a replay. Nothing is changed."""
        return await (await replays()).preflight(plan.wish())

    @api.post("/replays")
    async def start(wish: ReplayStartBody, request: Request) -> ReplayTold:
        """Send letters again. The look before it is made once more, and nothing begins where it says stop."""
        return await (await replays()).start(
            wish.wish(),
            who=wish.who,
            why=wish.why,
            run=run_of(request, wish.run),
            careful=not wish.anyway,
        )

    @api.get("/replays")
    async def listed(
        state: Annotated[list[ReplayState], Query(max_length=len(ReplayState))] = [],  # noqa: B006 FastAPI's
        after: After = None,
        limit: Limit = 50,
    ) -> ReplayPage:
        """Replays, the newest first."""
        return await (await replays()).replays(state, after=after, limit=limit)

    @api.get("/replays/{replay}")
    async def one(
        replay: ReplayNumber,
        newcomers: Annotated[bool, Query(description="Whether letters that came later are counted.")] = True,
    ) -> ReplayDetail:
        """One replay, with the steps of its canary and what came after it."""
        return await (await replays()).replay(replay, newcomers=newcomers)

    @api.get("/replays/{replay}/outcomes")
    async def outcomes(
        replay: ReplayNumber,
        state: OutcomeState | None = None,
        doubtful: Annotated[bool, Query(description="Only what may have gone twice.")] = False,
        after: After = None,
        limit: Limit = 50,
    ) -> OutcomePage:
        """What became of each letter."""
        return await (await replays()).outcomes(replay, state, doubtful=doubtful, after=after, limit=limit)

    @api.post("/replays/{replay}/pause")
    async def pause(replay: ReplayNumber, wish: TurnWish) -> ReplayTold:
        """Send nothing until it is resumed."""
        return await (await replays()).pause(replay, who=wish.who)

    @api.post("/replays/{replay}/resume")
    async def resume(replay: ReplayNumber, wish: TurnWish) -> ReplayTold:
        """Go on."""
        return await (await replays()).resume(replay, who=wish.who)

    @api.post("/replays/{replay}/cancel")
    async def cancel(replay: ReplayNumber, wish: TurnWish) -> ReplayTold:
        """Send no more: what waits is open again."""
        return await (await replays()).cancel(replay, who=wish.who)

    @api.post("/replays/{replay}/pace")
    async def pace(replay: ReplayNumber, wish: PaceWish) -> ReplayTold:
        """Another pace from now on."""
        return await (await replays()).set_pace(replay, pace_of(wish.pace), who=wish.who)

    return api
