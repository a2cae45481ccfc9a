"""Replays that nobody starts: `[[desk.replay_rules]]`, and what a deploy means for the groups of its service.

Every instance looks, and each run happens once: it has a name made of the rule and of its run before, and the
store begins one replay of a name. So it does not matter who looks first, nor who is killed after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Final, assert_never

from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.core.letter.header_values import shown
from deadletter.core.replaying.replay_pace import Canary
from deadletter.core.replaying.replay_plan import ReplayPlan
from deadletter.core.replaying.replay_rules import (
    GiveUp,
    NoReplay,
    ReplayRule,
    RuleFacts,
    RuleOccasion,
    StartReplay,
    decide_rule,
)
from deadletter.errors import DeadletterError, NotStored, StoreError
from deadletter.operations.replays.deploy_offers import note_offers
from deadletter.service.replay_rules.rule_health import is_well
from deadletter.service.storing.storekeeper import Storekeeper
from deadletter.service.telling.service_events import Recovered, ReplayChanged, ServiceEvent, Trouble
from deadletter.store.letters.letter_store import LetterStore
from deadletter.store.replays.recipe_table import RecipeStore
from deadletter.store.replays.replay_store import ReplayStore
from deadletter.store.replays.replay_views import ReplayView
from deadletter.store.replays.rule_table import RuleRow, RuleStore, who_of

LOOK_S: Final = 15.0
AWAY_S: Final = 1.0
"""How often it is looked whether the store is open."""
_LOOKED_AT: Final = 50
"""So many of the newest letters say when the last one failed."""


class RulesRunner:
    """Of one service. `vhosts`: where its letters are; a rule is looked at in each of them."""

    def __init__(
        self,
        keeper: Storekeeper,
        rules: Sequence[ReplayRule],
        *,
        vhosts: Sequence[str],
        emit: Callable[[ServiceEvent], None],
        look_s: float = LOOK_S,
    ) -> None:
        self._keeper = keeper
        self._rules = rules
        self._vhosts = vhosts
        self._emit = emit
        self._look_s = look_s
        self._failing: set[str] = set()
        self._given_up: set[str] = set()
        self._noted_to = 0
        """The last deploy whose groups have their notes."""

    async def run(self) -> None:
        """Until it is cancelled. A store that is away is waited for, and told by others."""
        while True:
            store = self._keeper.store
            if store is not None:
                await self.look(store)
            await asyncio.sleep(self._look_s if store is not None else AWAY_S)

    async def look(self, store: LetterStore) -> None:
        """Once at everything."""
        await self._said("deploys", self._note_deploys(store))
        for rule in self._rules:
            for vhost in self._vhosts:
                name = rule.name if len(self._vhosts) == 1 else f"{rule.name} ({vhost})"
                await self._said(f"rule:{name}", self._follow(store, rule, name, vhost))

    async def _said(self, what: str, looking: Awaitable[None]) -> None:
        """One that fails is said, and does not keep the others."""
        try:
            await looking
        except StoreError:
            return
        except DeadletterError as error:
            self._fails(what, str(error))
        except Exception as error:  # noqa: BLE001 -- it is said, and the service goes on
            said = f"{type(error).__name__}: {shown(str(error), 300)}"
            self._fails(what, f"a mistake of ours, please report it: {said}")
        else:
            if what in self._failing:
                self._failing.discard(what)
                self._emit(Recovered(what=what))

    def _fails(self, what: str, why: str) -> None:
        self._failing.add(what)
        self._emit(Trouble(what=what, why=why, seconds=self._look_s))

    def _gave_up(self, name: str, why: str) -> None:
        """Once in the life of a service: somebody has to look at it."""
        if name not in self._given_up:
            self._given_up.add(name)
            self._emit(Trouble(what=f"rule:{name}", why=f"it gave up: {why}"))

    # -- deploys -----------------------------------------------------------------------------------------
    async def _note_deploys(self, store: LetterStore) -> None:
        self._noted_to = await note_offers(store, after=self._noted_to)

    # -- rules -------------------------------------------------------------------------------------------
    async def _follow(self, store: LetterStore, rule: ReplayRule, name: str, vhost: str) -> None:
        rules, replays = RuleStore(store), ReplayStore(store)
        row = await rules.row(name, rule)
        if not rule.enabled:
            return
        if row.gave_up:
            self._gave_up(name, "a person turns it off and on again, when it may be tried once more")
            return
        running = False
        if row.last_replay is not None:
            last = await _view(replays, row.last_replay)
            running = last is not None and last.ended_ms is None
            if not running:
                cured = last is not None and bool(last.counts.done + last.counts.quiet)
                await rules.ended(name, row.last_replay, cured=cured)
                row = await rules.row(name, rule)
        if rule.when is RuleOccasion.HEALTHY and rule.health is not None:
            healthy = await is_well(rule.health)
            if healthy is (row.healthy_since_ms is None):
                await rules.healthy(name, healthy=healthy)
                row = await rules.row(name, rule)
        selection = await _selection(store, rule, vhost)
        if selection is None:
            return  # nothing of that group ever came
        decision = decide_rule(rule, await self._facts(store, rule, row, selection, running=running))
        match decision:
            case StartReplay(why=why):
                plan = await _plan(store, rule, selection, vhost)
                # whoever decides by the same run before begins the same replay
                run = f"rule {name} after {row.last_ms or 0}: {_digest(plan)}"
                begun = await replays.begin(plan, who=who_of(name), why=why, run=run)
                await rules.began(name, begun.id, at_ms=begun.made_ms)
                told = f"rule {name}: {why}"
                self._emit(ReplayChanged(replay=begun.id, state=begun.state.value, why=told))
            case GiveUp(why=why):
                await rules.gives_up(name, why)
                self._gave_up(name, why)
            case NoReplay():
                return
            case _:
                assert_never(decision)

    async def _facts(
        self, store: LetterStore, rule: ReplayRule, row: RuleRow, selection: LetterQuery, *, running: bool
    ) -> RuleFacts:
        page = await store.find(selection)
        while not page.letters and page.more is not None:  # it stopped looking, and none was among those
            page = await store.find(replace(selection, after=page.more))
        newest = page.letters
        release = None
        if rule.when is RuleOccasion.DEPLOYED and rule.service is not None:
            release = await RuleStore(store).release(rule.service, rule.origin)
        return RuleFacts(
            now_ms=store.now_ms(),
            letters=len(newest),
            failed_ms=max((letter.died_ms for letter in newest), default=None),
            running=running,
            last_ms=row.last_ms,
            failures=row.failures,
            gave_up=row.gave_up,
            healthy_since_ms=row.healthy_since_ms,
            release=release.release if release is not None else None,
            released_ms=release.at_ms if release is not None else None,
        )


async def _view(replays: ReplayStore, replay: int) -> ReplayView | None:
    try:
        return await replays.view(replay)
    except NotStored:
        return None


async def _selection(store: LetterStore, rule: ReplayRule, vhost: str) -> LetterQuery | None:
    """Its letters; None: there is no group as it names."""
    group = None
    if rule.group is not None:
        try:
            group = (await store.group(rule.group)).group.id
        except NotStored:
            return None
    return LetterQuery(vhost=vhost, group=group, origin=rule.origin, error=rule.error, limit=_LOOKED_AT)


async def _plan(store: LetterStore, rule: ReplayRule, selection: LetterQuery, vhost: str) -> ReplayPlan:
    """NotStored: its recipe is none."""
    recipe = None if rule.recipe is None else await RecipeStore(store).named(rule.recipe)
    return ReplayPlan(
        selection=selection,
        vhost=vhost,
        edit=recipe.program if recipe is not None else "",
        recipe=recipe.name if recipe is not None else "",
        pace=Canary(),
    )


def _digest(plan: ReplayPlan) -> str:
    return blake2b(repr(plan).encode("utf-8", "replace"), digest_size=8).hexdigest()
