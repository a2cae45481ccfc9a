"""Replays under attack: kill -9, a broker and a PostgreSQL that restart, a target that goes, fills or fails.

The claim each time: no letter is lost; what may have gone twice has one id and is in the list; what the store
counts agrees with a ledger that the consumer kept.

About `service.replaying.replayer`, `service.replaying.replay_run`, `service.replaying.replay_consignment`,
`service.replaying.settling`, `service.replaying.store_access`, `move.sending`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from tests.brokers import Vhost
from tests.postgres import PrivatePostgres
from tests.replaying import (
    Ledger,
    asleep,
    begun,
    changed,
    consuming,
    doubtful_ids,
    letter_id,
    parked_letter,
    replay_of,
    stock,
    until_replay,
)
from tests.serving import Application, served
from tests.storekeeping import settings

from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.core.replaying.replay_pace import AllAtOnce
from deadletter.core.replaying.replay_states import ReplayState
from deadletter.core.replaying.replay_target import ToQueue
from deadletter.store.replays.replay_store import ReplayStore
from deadletter.store.replays.replay_views import ReplayView
from deadletter.testing.node.private import PrivateBroker

pytestmark = pytest.mark.replays


def all_sent(view: ReplayView) -> bool:
    counts = view.counts
    return view.letters > 0 and not (counts.waiting or counts.sending) and view.state is ReplayState.RUNNING


async def assert_agrees(app: Application, url: str, replay: int, ledger: Ledger, count: int) -> None:
    """Nothing lost, and every double has one id and is in the list."""
    await app.until(lambda: len(ledger.got) == count, 120, "each of them arrives")
    view = await replay_of(url, replay)
    doubtful = await doubtful_ids(url, replay)
    assert set(ledger.got) == {letter_id(number) for number in range(count)}, "nothing lost"
    assert ledger.letters == {(letter_id(number), b"%d" % number) for number in range(count)}, "their own ids"
    assert ledger.twice <= doubtful, "what came twice is in the list"
    assert (view.counts.gone, view.counts.doubtful) == (count, len(doubtful))
    assert view.counts.all == view.letters == count


async def killed(vhost: Vhost, home: Path, url: str, *, count: int, kills: int, rate: float) -> None:
    chance = random.Random(14)
    await stock(url, vhost.name, [parked_letter(number) for number in range(count)])
    async with Application(vhost.url) as app:
        ledger = await consuming(app)
        replay = await begun(url, vhost.name, pace=AllAtOnce(rate_per_s=rate), outcome_ms=5_000)
        with served(vhost, home, settings(url), start=False) as (one,):
            for _ in range(kills):
                before = sum(ledger.got.values())
                one.start(ready=False)
                # The lease of the one that was killed has to be over first.
                await app.until(lambda: sum(ledger.got.values()) > before, 120, one.said())  # noqa: B023 -- used at once
                await asyncio.sleep(chance.random() * 0.7)
                one.kill()
            one.start(ready=False)
            view = await until_replay(url, replay, lambda told: told.ended_ms is not None, 300)
            await assert_agrees(app, url, replay, ledger, count)
            assert (view.state, view.counts.quiet) == (ReplayState.DONE, len(ledger.got))
            assert one.end() == 0


async def test_killed_while_it_sends(vhost: Vhost, tmp_path: Path, url: str) -> None:
    await killed(vhost, tmp_path, url, count=2_000, kills=2, rate=600.0)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
async def test_killed_twenty_five_times_in_twenty_thousand(vhost: Vhost, tmp_path: Path, url: str) -> None:
    # a life sends a second's worth at once and some more: slow enough that letters are left for the last one
    await killed(vhost, tmp_path, url, count=20_000, kills=25, rate=400.0)


@pytest.mark.parametrize(
    ("kind", "how"), [("quorum", "killed"), ("classic", "killed"), ("quorum", "stopped")]
)
async def test_the_broker_restarts_in_it(
    broker: PrivateBroker, vhost: Vhost, tmp_path: Path, url: str, kind: str, how: str
) -> None:
    """Nobody consumes meanwhile: what is in the queue at the end is what really went."""
    count = 3_000
    await stock(url, vhost.name, [parked_letter(number) for number in range(count)])
    with served(vhost, tmp_path, settings(url)):
        async with Application(vhost.url) as app:
            await app.with_dlq("orders", kind=kind)
            pace = AllAtOnce(rate_per_s=1_000.0 if how == "killed" else 100.0)  # rabbitmqctl takes its time
            replay = await begun(url, vhost.name, pace=pace, overrules_guards=True, outcome_ms=5_000)
            await until_replay(url, replay, lambda told: told.counts.gone > 500)
            await asyncio.to_thread(broker.kill if how == "killed" else partial(stop_app, broker))
        in_the_middle = await replay_of(url, replay)
        await asyncio.to_thread(broker.restart if how == "killed" else partial(start_app, broker))
        assert not all_gone(in_the_middle), "else it shows nothing"
        view = await until_replay(url, replay, lambda told: told.ended_ms is not None, 200)
        async with Application(vhost.url) as app:
            ledger = Ledger()
            await app.consume("orders", ledger.take)
            await assert_agrees(app, url, replay, ledger, count)
    assert (view.state, view.counts.quiet) == (ReplayState.DONE, count)


def all_gone(view: ReplayView) -> bool:
    return not (view.counts.waiting or view.counts.sending)


def stop_app(broker: PrivateBroker) -> None:
    broker.rabbitmqctl("stop_app")


def start_app(broker: PrivateBroker) -> None:
    broker.rabbitmqctl("start_app")
    broker.rabbitmqctl("await_startup")


async def test_the_store_restarts_in_it(vhost: Vhost, tmp_path: Path, postgres: PrivatePostgres) -> None:
    url, count = postgres.fresh_database(), 3_000
    await stock(url, vhost.name, [parked_letter(number) for number in range(count)])
    async with Application(vhost.url) as app:
        ledger = await consuming(app)
        with served(vhost, tmp_path, settings(url)) as (one,):
            replay = await begun(url, vhost.name, pace=AllAtOnce(rate_per_s=1_000.0))
            await app.until(lambda: len(ledger.got) > 500, 120, "it is at work")
            await asyncio.to_thread(postgres.stop)
            await app.until(lambda: "store:replays" in str(one.get("/health/live")), 120, "it is noticed")
            await asyncio.to_thread(postgres.start)
            await until_replay(url, replay, all_sent)
            await assert_agrees(app, url, replay, ledger, count)


async def test_two_instances_and_three_replays_that_overlap(vhost: Vhost, tmp_path: Path, url: str) -> None:
    """On one PostgreSQL; or, on one machine, on one file, which both of them write to in turn. Each of them
    has one of the replays, and both freeze at the same time."""
    count = 6_000
    await stock(url, vhost.name, [parked_letter(number) for number in range(count)])
    async with Application(vhost.url) as app:
        ledger = await consuming(app)
        with served(vhost, tmp_path, settings(url), instances=2) as (one, two):
            wanted = (LetterQuery(origin="orders"), LetterQuery(cause="retries-exhausted"))
            held: dict[int, str] = {}
            for sleeper, selection in zip((one, two), wanted, strict=True):
                async with asleep(sleeper, url):
                    replay = await begun(url, vhost.name, selection=selection)
                    await changed(url, lambda store: store.pause(replay, who="ann"))  # noqa: B023 -- used at once
                    view = await until_replay(url, replay, lambda told: bool(told.holder))
                    held[replay] = view.holder
            assert len(set(held.values())) == 2, "each of them has one"
            replays = [*held, await begun(url, vhost.name)]
            await asyncio.gather(
                *(changed(url, partial(ReplayStore.resume, replay=one, who="ann")) for one in held)
            )
            views = [
                await until_replay(
                    url,
                    replay,
                    lambda view: (
                        view.state in (ReplayState.RUNNING, ReplayState.DONE)
                        and not (view.counts.waiting or view.counts.sending)
                    ),
                )
                for replay in replays
            ]
            await app.until(lambda: len(ledger.got) == count, 120, "all of them")
    assert ledger.twice == set()
    assert sum(view.letters for view in views) == sum(view.counts.gone for view in views) == count
    assert [view.counts.doubtful for view in views] == [0, 0, 0]


async def test_the_target_is_deleted_in_the_middle(vhost: Vhost, tmp_path: Path, url: str) -> None:
    count = 2_000
    await stock(url, vhost.name, [parked_letter(number) for number in range(count)])
    async with Application(vhost.url) as app:
        ledger = await consuming(app)
        with served(vhost, tmp_path, settings(url)):
            replay = await begun(url, vhost.name, pace=AllAtOnce(rate_per_s=500.0))
            await app.until(lambda: len(ledger.got) > 300, 120, "it is at work")
            await app.channel.delete_queue("orders")
            view = await until_replay(url, replay, lambda told: told.state is ReplayState.STOPPED)
            view = await until_replay(
                url, replay, lambda told: not (told.counts.waiting or told.counts.sending)
            )
    counts = view.counts
    assert counts.refused >= 100
    assert "could not be sent" in view.told
    assert counts.gone + counts.refused + counts.let_go == count
    assert set(ledger.got) <= {letter_id(number) for number in range(count)}
    assert ledger.twice == set()


async def test_a_full_target_keeps_the_rest_home(vhost: Vhost, tmp_path: Path, url: str) -> None:
    """Nobody consumes it, and it refuses what is more than fifty."""
    await stock(url, vhost.name, [parked_letter(number) for number in range(400)])
    async with Application(vhost.url) as app:
        await app.with_dlq("orders", kind="classic", x_max_length=50, x_overflow="reject-publish")
        with served(vhost, tmp_path, settings(url)):
            replay = await begun(url, vhost.name, overrules_guards=True)
            view = await until_replay(url, replay, lambda told: told.state is ReplayState.STOPPED)
            view = await until_replay(
                url, replay, lambda told: not (told.counts.waiting or told.counts.sending)
            )
        assert await app.depth("orders") == 50
    assert view.counts.sent == 50
    assert view.counts.refused + view.counts.let_go == 350


async def test_one_that_the_broker_does_not_take_alone(
    broker: PrivateBroker, vhost: Vhost, tmp_path: Path
) -> None:
    """Its headers do not fit, or it is larger than the broker takes: it stays, and no other with it."""
    url = f"sqlite:///{tmp_path / 'letters.db'}"
    limit = 200_000
    take_at_most(broker, limit)
    try:
        made = [parked_letter(number) for number in range(200)]
        made[77] = parked_letter(77, body=b"x" * (limit + 1))
        await stock(url, vhost.name, made)
        async with Application(vhost.url) as app:
            ledger = await consuming(app)
            with served(vhost, tmp_path, settings(url)):
                replay = await begun(url, vhost.name)
                view = await until_replay(url, replay, all_sent)
                await app.until(lambda: len(ledger.got) == 199, 120, "all the others")
                doubtful = await doubtful_ids(url, replay)
        assert (view.counts.refused, view.counts.sent) == (1, 199)
        assert letter_id(77) not in ledger.got
        assert ledger.twice <= doubtful
    finally:
        take_at_most(broker, 134_217_728)


def take_at_most(broker: PrivateBroker, size: int) -> None:
    """In both places where a version may look for it; the first alone was not enough on 4.3."""
    broker.rabbitmqctl("eval", f"application:set_env(rabbit, max_message_size, {size}).")
    broker.rabbitmqctl("eval", f"persistent_term:put(max_message_size, {size}).")


async def test_a_broker_without_memory_makes_it_wait(
    broker: PrivateBroker, vhost: Vhost, tmp_path: Path
) -> None:
    url, count = f"sqlite:///{tmp_path / 'letters.db'}", 3_000
    await stock(url, vhost.name, [parked_letter(number) for number in range(count)])
    async with Application(vhost.url) as app:
        ledger = await consuming(app)
        with served(vhost, tmp_path, settings(url)):
            replay = await begun(url, vhost.name, pace=AllAtOnce(rate_per_s=1_000.0))
            await app.until(lambda: len(ledger.got) > 300, 120, "it is at work")
            with alarm(broker):
                await asyncio.sleep(3)
            await until_replay(url, replay, all_sent)
            await assert_agrees(app, url, replay, ledger, count)
    assert ledger.twice == set()


@contextmanager
def alarm(broker: PrivateBroker) -> Iterator[None]:
    broker.rabbitmqctl("set_vm_memory_high_watermark", "0.00001")
    try:
        yield
    finally:
        broker.rabbitmqctl("set_vm_memory_high_watermark", "0.4")


async def test_another_queue_gets_them_and_they_are_its_letters(vhost: Vhost, tmp_path: Path) -> None:
    """They die there, come back, and have the ids they had."""
    url, count = f"sqlite:///{tmp_path / 'letters.db'}", 50
    await stock(url, vhost.name, [parked_letter(number) for number in range(count)])
    async with Application(vhost.url) as app:
        await app.with_dlq("elsewhere")
        await app.consume("elsewhere", lambda _delivery, _times: False)
        with served(vhost, tmp_path, settings(url)):
            replay = await begun(url, vhost.name, target=ToQueue(queue="elsewhere"))
            view = await until_replay(url, replay, lambda told: told.ended_ms is not None)
    assert view.counts.returned == count
