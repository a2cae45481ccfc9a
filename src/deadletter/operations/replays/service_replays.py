"""Replays, asked of the running service over HTTP: `/api/v1`, as `docs/api.md` tells it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.core.replaying.replay_pace import ReplayPace, pace_json
from deadletter.core.replaying.replay_plan import selection_json
from deadletter.core.replaying.replay_states import ReplayState
from deadletter.core.replaying.replay_target import target_json
from deadletter.operations.records.records import json_of
from deadletter.operations.records.service_wire import ServiceWire, part_of
from deadletter.operations.replays.replay_told import (
    TRIED,
    DeployPage,
    DeployTold,
    DraftDropped,
    DraftSaved,
    DraftTold,
    DraftWish,
    EditTried,
    EditWish,
    OutcomePage,
    OutcomeState,
    PreflightTold,
    Proposals,
    Recipes,
    ReplayDetail,
    ReplayPage,
    ReplayTold,
    ReplayWish,
)
from deadletter.store.replays.recipe_table import Recipe


class ServiceReplays:
    """The operations, over the wire to the service."""

    def __init__(self, wire: ServiceWire) -> None:
        self._wire: Final = wire

    # -- replays -----------------------------------------------------------------------------------------
    async def preflight(self, wish: ReplayWish) -> PreflightTold:
        return await self._wire.change(PreflightTold, "POST", "replays/preflight", wish_json(wish))

    async def start(
        self, wish: ReplayWish, *, who: str, why: str, run: str = "", careful: bool = False
    ) -> ReplayTold:
        asked = {**wish_json(wish), "who": who, "why": why, "run": run, "anyway": not careful}
        return await self._wire.change(ReplayTold, "POST", "replays", asked)

    async def replays(
        self, states: Sequence[ReplayState] = (), *, after: int | None = None, limit: int = 50
    ) -> ReplayPage:
        params = [("state", state.value) for state in states] + _page(after, limit)
        return await self._wire.get(ReplayPage, "replays", params)

    async def replay(self, replay: int, *, newcomers: bool = True) -> ReplayDetail:
        return await self._wire.get(
            ReplayDetail, f"replays/{replay}", [("newcomers", str(newcomers).lower())]
        )

    async def outcomes(
        self,
        replay: int,
        state: OutcomeState | None = None,
        *,
        doubtful: bool = False,
        after: int | None = None,
        limit: int = 50,
    ) -> OutcomePage:
        params = [("doubtful", str(doubtful).lower()), *_page(after, limit)]
        if state is not None:
            params.append(("state", state.value))
        return await self._wire.get(OutcomePage, f"replays/{replay}/outcomes", params)

    async def pause(self, replay: int, *, who: str) -> ReplayTold:
        return await self._turned(replay, "pause", who=who)

    async def resume(self, replay: int, *, who: str) -> ReplayTold:
        return await self._turned(replay, "resume", who=who)

    async def cancel(self, replay: int, *, who: str) -> ReplayTold:
        return await self._turned(replay, "cancel", who=who)

    async def set_pace(self, replay: int, pace: ReplayPace, *, who: str) -> ReplayTold:
        return await self._turned(replay, "pace", who=who, pace=json_of(pace_json(pace)))

    async def _turned(self, replay: int, how: str, **wish: object) -> ReplayTold:
        return await self._wire.change(ReplayTold, "POST", f"replays/{replay}/{how}", wish)

    # -- edits -------------------------------------------------------------------------------------------
    async def try_edit(
        self, selection: LetterQuery, edit: EditWish, *, after: int | None = None, limit: int = TRIED
    ) -> EditTried:
        wish = {
            "selection": json_of(selection_json(selection)),
            "edit": edit.program,
            "recipe": edit.recipe,
            "after": after,
            "limit": limit,
        }
        return await self._wire.change(EditTried, "POST", "edits/preview", wish)

    async def recipes(self) -> Recipes:
        return await self._wire.get(Recipes, "recipes")

    async def recipe(self, name: str) -> Recipe:
        return await self._wire.get(Recipe, f"recipes/{part_of(name)}")

    async def save_recipe(self, recipe: Recipe, *, who: str, replace: bool = False) -> Recipe:
        wish = {
            "name": recipe.name,
            "program": recipe.program,
            "note": recipe.note,
            "origin": recipe.origin,
            "group_key": recipe.group_key,
            "replace": replace,
            "who": who,
        }
        return await self._wire.change(Recipe, "POST", "recipes", wish)

    async def delete_recipe(self, name: str, *, who: str) -> Recipe:
        answer = await self._wire.ask("DELETE", f"recipes/{part_of(name)}", params=[("who", who)])
        return self._wire.read(Recipe, answer)

    async def propose(self, letter: str) -> Proposals:
        return await self._wire.get(Proposals, f"letters/{part_of(letter)}/proposals")

    async def draft(self, letter: str) -> DraftTold:
        return await self._wire.get(DraftTold, f"letters/{part_of(letter)}/draft")

    async def save_draft(
        self, letter: str, wish: DraftWish, *, who: str, note: str = "", keep: bool = True
    ) -> DraftSaved:
        asked = {
            "edit": wish.edit.program,
            "recipe": wish.edit.recipe,
            "text": wish.text,
            "note": note,
            "keep": keep,
            "who": who,
        }
        path = f"letters/{part_of(letter)}/draft"
        return await self._wire.change(DraftSaved, "PUT", path, asked, version=wish.version)

    async def drop_draft(self, letter: str, *, who: str) -> DraftDropped:
        answer = await self._wire.ask("DELETE", f"letters/{part_of(letter)}/draft", params=[("who", who)])
        return self._wire.read(DraftDropped, answer)

    # -- deploys -----------------------------------------------------------------------------------------
    async def deployed(self, service: str, release: str, *, who: str) -> DeployTold:
        wish = {"service": service, "release": release, "who": who}
        return await self._wire.change(DeployTold, "POST", "deploys", wish)

    async def deploys(
        self, service: str | None = None, *, after: int | None = None, limit: int = 50
    ) -> DeployPage:
        named = [] if service is None else [("service", service)]
        return await self._wire.get(DeployPage, "deploys", named + _page(after, limit))


def wish_json(wish: ReplayWish) -> dict[str, Any]:
    """A wish as the API takes it."""
    return {
        "selection": json_of(selection_json(wish.selection)),
        "vhost": wish.vhost,
        "target": json_of(target_json(wish.target)),
        "edit": wish.edit.program,
        "recipe": wish.edit.recipe,
        "pace": json_of(pace_json(wish.pace)),
        "outcome_ms": wish.outcome_ms,
        "resolves": wish.resolves,
        "overrules_guards": wish.overrules_guards,
    }


def _page(after: int | None, limit: int) -> list[tuple[str, str]]:
    return [("limit", str(limit)), *([] if after is None else [("after", str(after))])]
