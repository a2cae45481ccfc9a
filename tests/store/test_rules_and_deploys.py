"""Rules that start replays, and what a deploy means for the groups of its service; on both databases.

About `service.replay_rules.rules_runner`, `service.replay_rules.rule_health`, `store.replays.rule_table`,
`store.replays.release_cures`, `store.replays.deploy_table`, `store.groups.group_services`,
`operations.replays.deploy_offers`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from tests.store.grounds import Ground
from tests.store.parked import MINUTE_MS, NOON_MS, Clock, letters_at, parked, stored
from tests.store.replayed import frozen

from deadletter.core.grouping.group_query import GroupQuery
from deadletter.core.grouping.group_states import GroupState
from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.core.letter import names
from deadletter.core.replaying.replay_pace import Canary
from deadletter.core.replaying.replay_plan import OUTCOME_MS, ReplayPlan
from deadletter.core.replaying.replay_rules import HOUR_MS, ReplayRule, RuleOccasion
from deadletter.core.replaying.replay_states import ReplayState
from deadletter.service.replay_rules.rules_runner import RulesRunner
from deadletter.service.storing.storekeeper import Storekeeper
from deadletter.service.telling.service_events import ReplayChanged, ServiceEvent, Trouble
from deadletter.store.letters.letter_store import LetterStore
from deadletter.store.replays.deploy_table import DeployStore
from deadletter.store.replays.recipe_table import Recipe, RecipeStore
from deadletter.store.replays.replay_store import ReplayStore
from deadletter.store.replays.replay_views import ReplayView

HOURLY = ReplayRule(name="hourly", when=RuleOccasion.EVERY, enabled=True, origin="orders", give_up=2)


def runner(ground: Ground, *rules: ReplayRule, told: list[ServiceEvent] | None = None) -> RulesRunner:
    """As one instance of the service has it."""
    emit = (told if told is not None else []).append
    keeper = Storekeeper(ground.url, batch=10, retention={}, emit=emit)
    return RulesRunner(keeper, rules, vhosts=[""], emit=emit)


async def all_replays(store: LetterStore) -> list[ReplayView]:
    return await ReplayStore(store).views()


async def sent_and_quiet(store: LetterStore, clock: Clock, replay: int) -> ReplayView:
    """Everything went, and nothing came back in time."""
    replays = ReplayStore(store)
    while await replays.freeze_some(replay):
        pass
    some = await replays.next_portion(replay, 1_000)
    await replays.settled(replay, [one.row for one in some], {}, at_ms=clock.now_ms)
    clock.now_ms += OUTCOME_MS
    await replays.quiet(replay, now_ms=clock.now_ms)
    return await replays.finish(replay)


async def stopped(store: LetterStore, replay: int) -> None:
    """It cured nothing."""
    replays = ReplayStore(store)
    while await replays.freeze_some(replay):
        pass
    await replays.stop(replay, "1 of 1 came back")
    await replays.finish(replay)


async def test_every_hour_until_it_gives_up(ground: Ground) -> None:
    clock = Clock()
    told: list[ServiceEvent] = []
    async with letters_at(ground, clock) as store:
        await store.ingest(stored(parked(1), parked(2, origin="bills")))
        await RecipeStore(store).save(Recipe(name="mend", program=".body"), who="ann")
        one = runner(ground, replace(HOURLY, recipe="mend"), told=told)
        await one.look(store)
        (first,) = await all_replays(store)
        assert (first.who, first.edit, first.recipe, first.pace) == ("rule hourly", ".body", "mend", Canary())
        assert told == [
            ReplayChanged(replay=1, state="freezing", why="rule hourly: 1 open, and its time has come")
        ]
        await one.look(store)
        await runner(ground, replace(HOURLY, recipe="mend")).look(store)  # after a restart
        assert len(await all_replays(store)) == 1
        await stopped(store, first.id)
        clock.now_ms += HOUR_MS - 1
        await one.look(store)
        assert len(await all_replays(store)) == 1
        clock.now_ms += 1
        await one.look(store)
        second, _ = await all_replays(store)
        await stopped(store, second.id)
        clock.now_ms += HOUR_MS
        await one.look(store)
        await one.look(store)
        assert len(await all_replays(store)) == 2
        gave_up = [event for event in told if isinstance(event, Trouble)]
        assert [event.why for event in gave_up] == ["it gave up: 2 runs in a row cured nothing"]
        # a person turns it off, and on again
        await runner(ground, replace(HOURLY, recipe="mend", enabled=False)).look(store)
        await one.look(store)
        assert len(await all_replays(store)) == 3
    audited = ground.sql("SELECT who, action FROM deadletter_audit WHERE who = 'rule hourly' ORDER BY id")
    assert audited.splitlines().count("rule hourly|replay") == 3
    assert audited.splitlines().count("rule hourly|rule gave up") == 1


async def test_what_cured_something_is_no_failure(ground: Ground) -> None:
    clock = Clock()
    async with letters_at(ground, clock) as store:
        one = runner(ground, replace(HOURLY, give_up=1))
        for number in range(3):
            await store.ingest(stored(parked(number)))
            await one.look(store)
            newest = (await all_replays(store))[0]
            assert (await sent_and_quiet(store, clock, newest.id)).state is ReplayState.DONE
            clock.now_ms += HOUR_MS
        assert len(await all_replays(store)) == 3


async def test_off_by_default_and_several_instances_start_one(ground: Ground) -> None:
    async with letters_at(ground) as store, letters_at(ground) as other:
        await store.ingest(stored(*(parked(n) for n in range(5))))
        off = ReplayRule(name="off", when=RuleOccasion.EVERY, origin="orders")
        await runner(ground, off).look(store)
        assert await all_replays(store) == []
        looks = [runner(ground, HOURLY).look(where) for where in (store, other, store, other)]
        await asyncio.gather(*looks)
        assert len(await all_replays(store)) == 1


@asynccontextmanager
async def health(answers: list[int]) -> AsyncIterator[str]:
    """A service that says how it is; the last answer stays."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        code = answers[0] if len(answers) == 1 else answers.pop(0)
        writer.write(b"HTTP/1.1 %d Said\r\ncontent-length: 0\r\nconnection: close\r\n\r\n" % code)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}/health"


async def test_when_the_health_is_back(ground: Ground) -> None:
    clock = Clock(NOON_MS + MINUTE_MS)
    async with letters_at(ground, clock) as store, health([503, 302, 204]) as url:
        await store.ingest(stored(parked(1)))
        rule = ReplayRule(
            name="back", when=RuleOccasion.HEALTHY, enabled=True, origin="orders", health=url, every_ms=1
        )
        for expected in (0, 0, 1):
            await runner(ground, rule).look(store)
            assert len(await all_replays(store)) == expected
            clock.now_ms += MINUTE_MS
        await stopped(store, 1)
        await runner(ground, rule).look(store)
        await runner(ground, replace(rule, health="http://127.0.0.1:9/")).look(store)
        assert len(await all_replays(store)) == 1


async def test_when_a_release_was_told_or_seen(ground: Ground) -> None:
    clock = Clock(NOON_MS + MINUTE_MS)
    async with letters_at(ground, clock) as store:
        await store.ingest(stored(parked(1, release="1.0")))
        rule = ReplayRule(
            name="new", when=RuleOccasion.DEPLOYED, enabled=True, service="shop", origin="orders", every_ms=1
        )
        one = runner(ground, rule)
        await one.look(store)
        assert await all_replays(store) == []
        await DeployStore(store).tell("other", "9", who="ci")
        await one.look(store)
        assert await all_replays(store) == []
        await DeployStore(store).tell("shop", "2.0", who="ci")
        await one.look(store)
        (first,) = await all_replays(store)
        assert first.why == "2.0 of shop was told"
        await stopped(store, first.id)
        clock.now_ms += HOUR_MS
        await one.look(store)
        assert len(await all_replays(store)) == 1
        # another letter of that queue names a release that nobody told of
        later = parked(2, release="3.0", kind="KeyError", error="x", at_ms=clock.now_ms - 1)
        await store.ingest(stored(later, now_ms=clock.now_ms))
        await one.look(store)
        assert len(await all_replays(store)) == 1, "it failed in that release as well"


async def test_a_release_is_noted_once_and_closes_what_it_cured(ground: Ground) -> None:
    clock = Clock()
    service = {names.ERROR_SERVICE: "shop"}
    async with letters_at(ground, clock) as store:
        await store.ingest(
            stored(
                parked(1, headers=dict(service)),
                parked(2, kind="KeyError", error="no such key", headers=dict(service)),
                parked(3, origin="bills"),
            )
        )
        clock.now_ms += MINUTE_MS
        await DeployStore(store).tell("shop", "2.0", who="ci")
        for _ in range(2):
            await runner(ground).look(store)
        found = await store.groups(GroupQuery())
        ours, other, bills = (
            next(one.id for one in found if (one.origin, one.error_type) == place)
            for place in (("orders", "TimeoutError"), ("orders", "KeyError"), ("bills", "TimeoutError"))
        )
        (note,) = (await store.group(str(ours))).notes
        assert "release 2.0 of shop" in note.text
        assert f"dlq replay --group {ours} --pace canary" in note.text
        assert len((await store.group(str(other))).notes) == 1
        assert (await store.group(str(bills))).notes == ()
        clock.now_ms += MINUTE_MS
        plan = ReplayPlan(selection=LetterQuery(group=ours))
        replay = await frozen(ReplayStore(store), plan)
        assert (await sent_and_quiet(store, clock, replay.id)).state is ReplayState.DONE
        cured = await store.group(str(ours))
        assert cured.group.state is GroupState.RESOLVED
        assert cured.notes[-1].text.startswith("resolved by release 2.0 of shop")
        assert (await store.group(str(other))).group.state is GroupState.OPEN
        # nobody told of a release of the other one
        replay = await frozen(ReplayStore(store), ReplayPlan(selection=LetterQuery(group=bills)))
        await sent_and_quiet(store, clock, replay.id)
        assert (await store.group(str(bills))).group.state is GroupState.OPEN
    assert "resolved by release" in ground.sql("SELECT action FROM deadletter_audit ORDER BY id")
