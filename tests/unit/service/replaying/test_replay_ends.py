"""A replay that the broker, or the store, ends in the middle: no letter stays under way.

About `service.replaying.replay_run`, `service.replaying.replay_consignment`, `service.replaying.settling`.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.store.parked import parked

from deadletter.amqp.address import parse_addresses
from deadletter.broker.session import Link
from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.core.grouping.stored_letter import stored_letter
from deadletter.core.replaying.replay_pace import AllAtOnce
from deadletter.core.replaying.replay_plan import ReplayPlan
from deadletter.core.replaying.replay_states import ReplayState
from deadletter.core.replaying.replay_target import ToExchange
from deadletter.errors import StoreUnreachable
from deadletter.move import sending
from deadletter.service.replaying import replay_consignment, replay_run
from deadletter.service.replaying.replay_edits import ReplayEdits
from deadletter.service.replaying.replay_ground import ReplayGround
from deadletter.service.replaying.replay_run import ReplayRun
from deadletter.service.replaying.settling import Settling
from deadletter.service.replaying.store_access import StoreAccess
from deadletter.store.letters.letter_store import open_letters
from deadletter.store.replays.replay_store import ReplayStore
from deadletter.store.replays.replay_views import ClaimedLetter
from deadletter.testing.memory import MemoryBroker

(ADDRESS,) = parse_addresses("amqp://guest:guest@broker.example/")
COUNT = 200
PORTION = 50


async def test_the_exchange_goes_while_the_next_letters_are_being_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are marked and nobody was given them: they are home with the reason, and the replay ends."""
    monkeypatch.setattr(replay_run, "PORTION", PORTION)
    monkeypatch.setattr(replay_consignment, "PORTION", PORTION)
    monkeypatch.setattr(sending, "_TURN", 1)
    monkeypatch.setattr(sending, "asyncio", _Slowly())
    broker = MemoryBroker("4.0.5")
    link = Link(ADDRESS, "test", broker.connect)
    channel = await link.channel()
    await channel.declare_exchange("shop", "fanout")
    await channel.declare_queue("orders")
    await channel.bind_queue("orders", "shop", "")
    async with open_letters(f"sqlite:///{tmp_path}/store.db") as letters:
        await letters.ingest([stored_letter(parked(n), now_ms=1, vhost="/") for n in range(COUNT)])
        store = _GoneMeanwhile(letters, lambda: channel.delete_exchange("shop"))
        plan = ReplayPlan(
            selection=LetterQuery(),
            vhost="/",
            target=ToExchange(exchange="shop"),
            pace=AllAtOnce(),
            outcome_ms=1,
        )
        begun = await store.begin(plan, who="ann", why="")
        while await store.freeze_some(begun.id):
            pass
        (view,) = await store.leased("me", now_ms=time.time_ns() // 1_000_000, lease_ms=600_000)
        ground = ReplayGround(
            ways=cast("Any", SimpleNamespace()),
            gates=cast("Any", SimpleNamespace()),
            unacked=lambda _queue: None,
            programs=cast("Any", None),
            edits=ReplayEdits(),
            emit=lambda _event: None,
        )
        run = ReplayRun(view, StoreAccess(lambda: store, lambda _event: None), ground)
        async with asyncio.timeout(60):
            await run.on(link)
        ended = await store.view(begun.id)
        assert (ended.state, ended.ended_ms is not None) == (ReplayState.STOPPED, True)
        assert ended.counts.sending == 0
        assert ended.counts.doubtful < PORTION, "those in the air; of the marked ones it is known"
        assert ended.counts.refused >= PORTION
        assert ended.counts.gone + ended.counts.refused + ended.counts.let_go == COUNT
    await link.close()


class _Slowly:
    """asyncio, with which a letter takes 5 ms to publish, as a large one does."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    def sleep(self, _seconds: float) -> Any:
        return asyncio.sleep(0.005)


class _GoneMeanwhile(ReplayStore):
    """A store that takes its time for the second portion, in which the exchange goes."""

    def __init__(self, letters: Any, gone: Any) -> None:
        super().__init__(letters)
        self._gone, self._asked = gone, 0

    async def next_portion(self, *args: Any, **options: Any) -> list[ClaimedLetter]:
        found = await super().next_portion(*args, **options)
        self._asked += 1
        if self._asked == 2:
            await self._gone()
            await asyncio.sleep(0.3)
        return found


async def test_who_waits_for_the_store_to_know_is_told_that_it_never_will() -> None:
    access = StoreAccess(lambda: None, lambda _event: None)
    settling = Settling(1, access, holder="me")
    running = asyncio.ensure_future(settling.run())
    settling.sent([1, 2, 3])
    access.hurry()
    async with asyncio.timeout(30):
        with pytest.raises(StoreUnreachable):
            await settling.drained()
        await asyncio.wait({running})
    assert settling.waiting == 3, "whoever has it next finds them as being sent"
