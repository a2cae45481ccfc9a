"""Replays asked of a running `dlq serve`: looked at beforehand, edited, sent, and told of afterwards.

About `operations.replays.service_replays`, `operations.replays.before_replay`,
`operations.replays.store_replays`, `desk.api.replay_api`.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from tests.brokers import Vhost
from tests.letters import headers_of
from tests.replaying import parked_letter, stock
from tests.serving import Application, served
from tests.storekeeping import settings

from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.core.letter import names
from deadletter.core.replaying.preflight import RemarkLevel, worst
from deadletter.core.replaying.replay_pace import AllAtOnce, Canary
from deadletter.core.replaying.replay_states import ReplayState
from deadletter.core.replaying.replay_target import ToExchange, ToQueue
from deadletter.operations.records.service_wire import service_wire
from deadletter.operations.replays.replay_told import EditWish, OutcomeState, ReplayWish
from deadletter.operations.replays.service_replays import ServiceReplays

LETTERS = 12


async def test_from_the_look_before_to_the_outcome_of_each(vhost: Vhost, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'letters.db'}"
    await stock(url, vhost.name, [parked_letter(number) for number in range(LETTERS)])
    wish = ReplayWish(
        selection=LetterQuery(origin="orders"),
        edit=EditWish(program='if .body == 3 then error("not this one") else .body += 100 end'),
        pace=AllAtOnce(rate_per_s=1),
        outcome_ms=1_000,
    )
    async with Application(vhost.url) as app:
        await app.with_dlq("orders")
        await app.consume("orders", lambda _delivery, _times: True, keep=True)
        with served(vhost, tmp_path, settings(url)) as (one,):
            async with service_wire(f"127.0.0.1:{one.port}", one.token) as wire:
                replays = ServiceReplays(wire)
                told = await replays.preflight(wish)
                assert (told.letters, told.vhost) == (LETTERS, vhost.name)
                assert {"target", "consumers"} <= {
                    remark.about for remark in told.remarks if remark.level is RemarkLevel.OK
                }
                for target in (ToQueue(queue="nowhere"), ToExchange(exchange="nowhere")):
                    lost = ReplayWish(selection=wish.selection, target=target)
                    assert worst((await replays.preflight(lost)).remarks) is RemarkLevel.STOP, target
                begun = await replays.start(wish, who="anna", why="the bank is back", careful=True)
                await app.until(lambda: bool(app.deliveries), 120, "the first of them")
                assert (await replays.pause(begun.id, who="anna")).state is ReplayState.PAUSED
                assert (await replays.resume(begun.id, who="anna")).state is ReplayState.RUNNING
                await replays.set_pace(begun.id, Canary(steps=(5,), wait_s=0), who="anna")
                until = time.monotonic() + 120
                while (detail := await replays.replay(begun.id)).replay.ended_ms is None:
                    assert time.monotonic() < until, detail
                    await asyncio.sleep(0.1)
                page = await replays.outcomes(begun.id, OutcomeState.REFUSED)
    counts = detail.replay.counts
    assert (detail.replay.state, counts.quiet, counts.refused) == (ReplayState.DONE, LETTERS - 1, 1)
    assert (detail.origins, detail.newcomers) == (("orders",), 0)
    assert [("not this one" in outcome.why, outcome.letter) for outcome in page.outcomes] == [(True, 4)]
    bodies = {delivery.message.body for _, delivery, _ in app.deliveries}
    assert bodies == {b"%d" % (100 + number) for number in range(LETTERS) if number != 3}
    assert all(headers_of(delivery)[names.EDITED] for _, delivery, _ in app.deliveries)
