"""Replays to which odd things happen: people, retention, the target, the vhost, the store, the service.

The claim each time: no letter is lost, none goes twice without a crash, what stays says why, and it goes on
or can be ended.

About `service.replaying.replayer`, `service.replaying.replay_run`, `service.replaying.replay_consignment`,
`service.replaying.replay_ways`,
`store.replays.replay_store`, `store.replays.freezing`, `store.replays.draft_table`.
"""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import pytest
from tests.brokers import Vhost, call
from tests.postgres import PrivatePostgres
from tests.replaying import (
    Ledger,
    asleep,
    begun,
    changed,
    consuming,
    doubtful_ids,
    letter_id,
    open_ids,
    parked_letter,
    replay_of,
    stock,
    until_replay,
)
from tests.serving import Application, served
from tests.store.regrouped import regroup
from tests.storekeeping import settings

from deadletter.core.grouping.group_query import GroupQuery
from deadletter.core.grouping.grouping_rules import Grouping, GroupingRule
from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.core.replaying.replay_pace import AllAtOnce
from deadletter.core.replaying.replay_states import ReplayState, SentState
from deadletter.core.replaying.replay_target import ToExchange
from deadletter.errors import NotStored, WireError
from deadletter.store.letters.letter_store import LetterStore, open_letters
from deadletter.store.replays.draft_table import DraftStore
from deadletter.store.replays.replay_store import ReplayStore
from deadletter.store.replays.replay_views import ReplayedLetter, ReplayView
from deadletter.testing.node.private import PrivateBroker

pytestmark = pytest.mark.replays

COUNT = 2_000


def over(view: ReplayView) -> bool:
    return view.ended_ms is not None


def nothing_left(view: ReplayView) -> bool:
    return view.state is ReplayState.RUNNING and not (view.counts.waiting or view.counts.sending)


async def refused(url: str, replay: int) -> list[ReplayedLetter]:
    return await changed(url, lambda store: store.outcomes(replay, SentState.REFUSED, limit=1_000))


async def stocked(url: str, vhost: Vhost, count: int = COUNT) -> None:
    await stock(url, vhost.name, [parked_letter(number) for number in range(count)])


# -- people -----------------------------------------------------------------------------------------------
async def test_the_same_twice_is_a_replay_and_one_of_nothing(vhost: Vhost, tmp_path: Path, url: str) -> None:
    await stocked(url, vhost)
    async with Application(vhost.url) as app:
        ledger = await consuming(app)
        first = await begun(url, vhost.name, outcome_ms=500)
        second = await begun(url, vhost.name, outcome_ms=500)
        with served(vhost, tmp_path, settings(url)):
            views = [await until_replay(url, replay, over) for replay in (first, second)]
    assert [view.state for view in views] == [ReplayState.DONE, ReplayState.DONE]
    assert sum(view.letters for view in views) == sum(view.counts.quiet for view in views) == COUNT
    assert (len(ledger.got), ledger.twice) == (COUNT, set())


async def test_others_want_the_letters_meanwhile(vhost: Vhost, tmp_path: Path, url: str) -> None:
    """They are discarded, their time is over, they are repaired by hand, they are regrouped."""
    await stocked(url, vhost)
    async with open_letters(url, prepare=False) as store:
        (group,) = await store.groups(GroupQuery())
    async with Application(vhost.url) as app:
        ledger = await consuming(app)
        replay = await begun(
            url, vhost.name, selection=LetterQuery(group=group.id), pace=AllAtOnce(rate_per_s=400.0)
        )
        await changed(url, lambda store: _frozen(store, replay))
        with served(vhost, tmp_path, settings(url, '[desk.retention]\nage = "1s"\n')):
            await app.until(lambda: len(ledger.got) > 100, 120, "it is at work")
            async with open_letters(url, prepare=False) as store:
                await _meddle(store)
            view = await until_replay(url, replay, nothing_left)
            await app.until(lambda: len(ledger.got) == COUNT, 120, "all of them")
    assert (view.counts.gone, view.counts.refused, ledger.twice) == (COUNT, 0, set())


async def _frozen(store: ReplayStore, replay: int) -> None:
    while await store.freeze_some(replay):
        pass


async def _meddle(store: LetterStore) -> None:
    assert await store.discard(range(1, COUNT + 1), who="bob", why="away with them") == 0
    detail = await store.letter(str(COUNT))
    with pytest.raises(NotStored, match="in no replay"):
        await DraftStore(store).save(COUNT, detail.letter, who="bob")
    await regroup(store, Grouping(rules=(GroupingRule(group="all of {origin}"),)))


async def test_two_terminals_pause_and_resume(vhost: Vhost, tmp_path: Path, url: str) -> None:
    """As fast as they can, and one changes the pace: each letter once, and the last word holds."""
    await stocked(url, vhost)
    async with Application(vhost.url) as app:
        ledger = await consuming(app)
        with served(vhost, tmp_path, settings(url)):
            replay = await begun(url, vhost.name, pace=AllAtOnce(rate_per_s=500.0))
            await app.until(lambda: bool(ledger.got), 120, "it is at work")

            async def terminal(who: str) -> None:
                async with open_letters(url, prepare=False) as store:
                    replays = ReplayStore(store)
                    for turn in range(15):
                        await replays.pause(replay, who=who)
                        await replays.resume(replay, who=who)
                        await replays.set_pace(replay, AllAtOnce(rate_per_s=400.0 + turn), who=who)

            await asyncio.gather(terminal("ann"), terminal("bob"))
            await changed(url, lambda store: store.pause(replay, who="ann"))
            await until_replay(url, replay, lambda told: not told.counts.sending)
            before = await replay_of(url, replay)
            await asyncio.sleep(2)
            after = await replay_of(url, replay)
            assert (after.state, after.counts) == (ReplayState.PAUSED, before.counts)
            assert before.counts.waiting > 0, "else it shows nothing"
            await changed(url, lambda store: store.set_pace(replay, AllAtOnce(), who="bob"))
            await changed(url, lambda store: store.resume(replay, who="bob"))
            view = await until_replay(url, replay, nothing_left)
            await app.until(lambda: len(ledger.got) == COUNT, 120, "all of them")
    assert (view.counts.gone, ledger.twice, view.counts.doubtful) == (COUNT, set(), 0)


@pytest.mark.parametrize("count", [30_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
@pytest.mark.timeout(1_800)
async def test_cancelled_while_it_freezes(vhost: Vhost, tmp_path: Path, url: str, count: int) -> None:
    await stocked(url, vhost, count)
    async with Application(vhost.url) as app:
        ledger = await consuming(app)
        with served(vhost, tmp_path, settings(url)):
            replay = await begun(url, vhost.name)
            await until_replay(url, replay, lambda told: told.letters > 2_000)
            view = await changed(url, lambda store: store.cancel(replay, who="ann"))
            assert view.state is ReplayState.CANCELLED
            view = await until_replay(url, replay, over, 900)
    assert (ledger.got.total(), view.counts.let_go) == (0, view.letters)
    assert 2_000 < view.letters <= count
    assert await _open_count(url) == count


async def _open_count(url: str) -> int:
    async with open_letters(url, prepare=False) as store:
        return sum(group.open for group in await store.groups(GroupQuery()))


# -- the target -------------------------------------------------------------------------------------------
async def test_the_queue_of_some_is_gone(vhost: Vhost, tmp_path: Path) -> None:
    """More than a hundred of them, between others that have theirs: those go, these stay and say why."""
    url = f"sqlite:///{tmp_path / 'letters.db'}"
    origins = ["orders", "gone"]
    made = [parked_letter(number, origin=origins[number % 2]) for number in range(COUNT)]
    await stock(url, vhost.name, made)
    async with Application(vhost.url) as app:
        ledger = await consuming(app)
        with served(vhost, tmp_path, settings(url)):
            replay = await begun(url, vhost.name, outcome_ms=500)
            view = await until_replay(url, replay, over)
    half = COUNT // 2
    assert view.state is ReplayState.DONE, view.told
    assert (view.counts.quiet, view.counts.refused) == (half, half)
    assert set(ledger.got) == {letter_id(number) for number in range(0, COUNT, 2)}
    assert set(await open_ids(url)) == {letter_id(number) for number in range(1, COUNT, 2)}
    assert {one.why for one in await refused(url, replay)} == {"there is no queue gone"}


async def test_all_of_them_have_no_queue(vhost: Vhost, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'letters.db'}"
    origins = ["gone", "gone.too"]
    made = [parked_letter(number, origin=origins[number % 2]) for number in range(COUNT)]
    await stock(url, vhost.name, made)
    with served(vhost, tmp_path, settings(url)):
        replay = await begun(url, vhost.name, outcome_ms=500)
        view = await until_replay(url, replay, over)
    assert view.state is ReplayState.STOPPED
    assert "there is no queue gone" in view.told
    assert view.counts.refused + view.counts.let_go == COUNT
    assert len(await open_ids(url)) == COUNT


async def test_a_queue_that_refuses_what_is_too_many(vhost: Vhost, tmp_path: Path) -> None:
    """By a policy. What it refuses stays with the reason; the replay waits until it takes letters, and goes
    on."""
    url = f"sqlite:///{tmp_path / 'letters.db'}"
    count = 150
    await stocked(url, vhost, count)
    limit = {"max-length": 20, "overflow": "reject-publish"}
    vhost.put("policies", "small", pattern="^orders$", definition=limit, **{"apply-to": "queues"})
    async with Application(vhost.url) as app:
        await app.with_dlq("orders", kind="classic")
        ledger, hangs = Ledger(), await app.connection.channel()
        await hangs.qos(1)
        await hangs.consume("orders", lambda _delivery: None, lambda: None)
        with served(vhost, tmp_path, settings(url)):
            replay = await begun(url, vhost.name, pace=AllAtOnce(rate_per_s=50.0), outcome_ms=2_000)
            held = await until_replay(url, replay, lambda told: "guard (full)" in told.told)
            await asyncio.sleep(3)
            still = await replay_of(url, replay)
            assert still.counts.waiting >= held.counts.waiting - 5, "one now and then is tried"
            await app.consume("orders", ledger.take)
            await hangs.close()
            view = await until_replay(url, replay, over)
            await app.until(lambda: len(ledger.got) == view.counts.quiet, 120, "what was taken")
    assert view.state is ReplayState.DONE, view.told
    assert view.counts.refused + view.counts.quiet == count
    assert ledger.twice == set()
    home = await open_ids(url)
    assert len(home) == len(set(home)) == view.counts.refused
    assert set(home) | set(ledger.got) == {letter_id(number) for number in range(count)}
    assert all("full" in one.why for one in await refused(url, replay))


@pytest.mark.parametrize("kind", ["classic", "quorum"])
async def test_a_full_queue_at_full_speed_keeps_the_rest_of_a_portion_home(
    vhost: Vhost, tmp_path: Path, url: str, kind: str
) -> None:
    """Two thousand are marked at once. When the queue says no, those that were not published stay home as
    if nobody had asked for them: no reason, no doubt."""
    await stocked(url, vhost)
    async with Application(vhost.url) as app:
        await app.with_dlq("orders", kind=kind, x_max_length=20, x_overflow="reject-publish")
        hangs = await app.connection.channel()
        await hangs.qos(1)
        await hangs.consume("orders", lambda _delivery: None, lambda: None)
        with served(vhost, tmp_path, settings(url)):
            replay = await begun(url, vhost.name, outcome_ms=600_000)
            held = await until_replay(
                url, replay, lambda told: "guard (full)" in told.told and not told.counts.sending
            )
            assert held.counts.refused <= COUNT / 4
            assert held.counts.waiting >= COUNT / 2
            await changed(url, lambda store: store.cancel(replay, who="ann"))
            view = await replay_of(url, replay)
            in_queue = await app.depth("orders")
    counts = view.counts
    assert (counts.gone + counts.refused + counts.let_go, counts.doubtful) == (COUNT, 0)
    assert counts.gone == in_queue + 1, "and one that its consumer has in hand"
    home = await open_ids(url)
    assert len(home) == len(set(home)) == counts.refused + counts.let_go


async def test_a_budget_holds_replays_too(vhost: Vhost, tmp_path: Path) -> None:
    """Ten a second, and six seconds' worth at once: however large a portion is."""
    url, count = f"sqlite:///{tmp_path / 'letters.db'}", 200
    await stocked(url, vhost, count)
    async with Application(vhost.url) as app:
        await app.with_dlq("orders")
        await app.consume("orders", lambda _delivery, _times: True, keep=True)
        with served(vhost, tmp_path, settings(url, "[guards]\nbudget_per_minute = 600\n")):
            replay = await begun(url, vhost.name)
            await until_replay(url, replay, nothing_left)
            await app.until(lambda: len(app.deliveries) == count, 120, "all of them")
    came = [at for _, _, at in app.deliveries]
    spent = max(number + 1 - 10 * (at - came[0]) for number, at in enumerate(came))
    assert spent <= 150, "a bucketful, and what a slow delivery adds"


async def test_the_exchange_is_deleted_in_the_middle(vhost: Vhost, tmp_path: Path) -> None:
    """The broker closes the line, and of those under way nobody knows: they are home, and in the list."""
    url = f"sqlite:///{tmp_path / 'letters.db'}"
    await stocked(url, vhost)
    async with Application(vhost.url) as app:
        ledger = await consuming(app)
        await app.channel.declare_exchange("shop", "fanout")
        await app.channel.bind_queue("orders", "shop", "")
        with served(vhost, tmp_path, settings(url)):
            target = ToExchange(exchange="shop")
            replay = await begun(
                url, vhost.name, target=target, pace=AllAtOnce(rate_per_s=500.0), outcome_ms=2_000
            )
            await app.until(lambda: len(ledger.got) > 300, 120, "it is at work")
            await app.channel.delete_exchange("shop")
            view = await until_replay(url, replay, over)
            doubtful = await doubtful_ids(url, replay)
    home = await open_ids(url)
    assert (view.state, "shop" in view.told) == (ReplayState.STOPPED, True), view.told
    assert view.counts.quiet + view.counts.refused + view.counts.let_go == COUNT
    assert len(home) == len(set(home)) == view.counts.refused + view.counts.let_go
    assert set(home) | set(ledger.got) == {letter_id(number) for number in range(COUNT)}
    assert ledger.twice | (set(home) & set(ledger.got)) <= doubtful


async def test_the_vhost_is_deleted_in_the_middle(
    broker: PrivateBroker, vhost: Vhost, tmp_path: Path, url: str
) -> None:
    """The service lives; who cancels has every letter again that is not known to have gone. A vhost goes
    queue by queue: what is published after its queue and before the line went is refused, and home, too."""
    await stocked(url, vhost)
    async with Application(vhost.url) as app:
        await app.with_dlq("orders")
        with served(vhost, tmp_path, settings(url)) as (one,):
            replay = await begun(url, vhost.name, pace=AllAtOnce(rate_per_s=500.0))
            await until_replay(url, replay, lambda told: told.counts.sent > 300)
            call(broker, "DELETE", "vhosts", vhost.name)
            await asyncio.sleep(12)  # a lease is over after ten seconds
            assert one.process.poll() is None, one.said()
            view = await changed(url, lambda store: store.cancel(replay, who="ann"))
            counts = view.counts
            assert (counts.waiting, counts.sending) == (0, 0), "none is claimed for ever"
            assert counts.gone + counts.refused + counts.let_go == COUNT
            assert len(await open_ids(url)) == counts.refused + counts.let_go
            assert one.end() == 0
        with suppress(WireError):
            await app.connection.close()


# -- the store and the service ----------------------------------------------------------------------------
async def test_the_store_is_read_only_for_a_while(
    vhost: Vhost, tmp_path: Path, postgres: PrivatePostgres
) -> None:
    url = postgres.fresh_database()
    name = url.rpartition("/")[2]
    await stocked(url, vhost)
    async with Application(vhost.url) as app:
        ledger = await consuming(app)
        with served(vhost, tmp_path, settings(url)) as (one,):
            replay = await begun(url, vhost.name, pace=AllAtOnce(rate_per_s=500.0))
            await app.until(lambda: len(ledger.got) > 300, 120, "it is at work")
            for only in ("on", "off"):
                postgres.psql(
                    f"ALTER DATABASE {name} SET default_transaction_read_only = {only};"
                    f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"
                )
                if only == "on":
                    await app.until(lambda: "store:replays" in str(one.get("/health/live")), 120, "noticed")
                    await asyncio.sleep(2)  # what was under way arrives
                    got = len(ledger.got)
                    await asyncio.sleep(1)
                    assert len(ledger.got) == got, "what cannot be noted is not sent"
            view = await until_replay(url, replay, nothing_left)
            await app.until(lambda: len(ledger.got) == COUNT, 120, "all of them")
            assert ledger.twice <= await doubtful_ids(url, replay)
            assert (view.state, view.counts.gone) == (ReplayState.RUNNING, COUNT)


async def test_somebody_holds_the_file_for_a_while(vhost: Vhost, tmp_path: Path) -> None:
    """SQLite has one who writes; a backup, or a person in a shell, may be that one for long."""
    file = tmp_path / "letters.db"
    url = f"sqlite:///{file}"
    await stocked(url, vhost)
    async with Application(vhost.url) as app:
        ledger = await consuming(app)
        with served(vhost, tmp_path, settings(url)):
            replay = await begun(url, vhost.name, pace=AllAtOnce(rate_per_s=500.0))
            await app.until(lambda: len(ledger.got) > 300, 120, "it is at work")
            with closing(sqlite3.connect(file, isolation_level=None, timeout=60)) as somebody:
                somebody.execute("BEGIN IMMEDIATE")
                await asyncio.sleep(15)  # a lease is over after ten seconds
                somebody.execute("ROLLBACK")
            view = await until_replay(url, replay, nothing_left)
            await app.until(lambda: len(ledger.got) == COUNT, 120, "all of them")
            assert ledger.twice <= await doubtful_ids(url, replay)
    assert view.counts.gone == COUNT


async def test_ended_and_started_again(vhost: Vhost, tmp_path: Path, url: str) -> None:
    """SIGTERM, three times: what was marked went, and nothing is in doubt."""
    await stocked(url, vhost)
    async with Application(vhost.url) as app:
        ledger = await consuming(app)
        with served(vhost, tmp_path, settings(url)) as (one,):
            replay = await begun(url, vhost.name, pace=AllAtOnce(rate_per_s=300.0), outcome_ms=2_000)
            for turn in range(3):
                wanted = 300 * (turn + 1)
                await app.until(lambda: len(ledger.got) > wanted, 60, one.said())  # noqa: B023 -- used at once
                assert one.end() == 0
                view = await replay_of(url, replay)
                assert (view.counts.sending, view.counts.doubtful, view.holder) == (0, 0, "")
                one.start()
            view = await until_replay(url, replay, over)
    assert (view.state, view.counts.quiet, view.counts.doubtful) == (ReplayState.DONE, COUNT, 0)
    assert (len(ledger.got), ledger.twice) == (COUNT, set())


@pytest.mark.slow
@pytest.mark.kills
async def test_one_that_stood_still_and_wakes_up(vhost: Vhost, tmp_path: Path, url: str) -> None:
    """SIGSTOP for longer than its lease; another one has its replay meanwhile. Then it goes on, with letters
    in its hands that are not its own any more."""
    await stocked(url, vhost, 5_000)
    async with Application(vhost.url) as app:
        ledger = await consuming(app)
        with served(vhost, tmp_path, settings(url), instances=2, start=False) as (one, two):
            one.start()
            replay = await begun(url, vhost.name, pace=AllAtOnce(rate_per_s=300.0), outcome_ms=2_000)
            await app.until(lambda: len(ledger.got) > 600, 120, "it is at work")
            two.start()
            before = (await replay_of(url, replay)).holder
            async with asleep(one, url):
                await until_replay(url, replay, lambda told: told.holder not in ("", before))
                got = len(ledger.got)
                await app.until(lambda: len(ledger.got) > got + 300, 120, two.said())
            view = await until_replay(url, replay, over)
            assert ledger.twice <= await doubtful_ids(url, replay)
    assert (view.state, view.counts.quiet, len(ledger.got)) == (ReplayState.DONE, 5_000, 5_000)
