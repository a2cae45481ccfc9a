"""What the store says of letters before they are sent again.

About `operations.replays.letter_history`, `store.replays.replay_list`.
"""

from __future__ import annotations

from tests.store.grounds import Ground
from tests.store.parked import MINUTE_MS, Clock, letters_at, parked, stored
from tests.store.replayed import frozen

from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.core.letter import names
from deadletter.core.replaying.preflight import Deployed
from deadletter.operations.replays.letter_history import LetterHistory, history_of
from deadletter.store.replays.deploy_table import DeployStore
from deadletter.store.replays.replay_store import ReplayStore


async def test_earlier_replays_releases_deploys_and_copies(ground: Ground) -> None:
    clock = Clock()
    async with letters_at(ground, clock) as store:
        assert await history_of(store, LetterQuery()) == LetterHistory()
        service = {names.ERROR_SERVICE: "shop"}
        await store.ingest(
            stored(
                parked(1, release="1.0", headers=dict(service)),
                parked(2, release="1.0", headers=dict(service)),
                parked(3, release="1.1", headers={**service, "CC": ["a"]}),
                parked(4, origin="bills", error=None, headers={names.BCC: ["b"]}),
            )
        )
        replays = ReplayStore(store)
        for times in (1, 2):
            replay = await frozen(replays)
            sent = await replays.next_portion(replay.id, 1)
            await replays.settled(replay.id, [sent[0].row], {}, at_ms=clock.now_ms)
            clock.now_ms += MINUTE_MS
            number = int(sent[0].letter_id, 16)
            back = parked(
                number,
                release="1.0",
                move=f"again-{times}",
                at_ms=clock.now_ms,
                headers={**service, names.REPLAY: str(replay.id)},
            )
            await store.ingest(stored(back, now_ms=clock.now_ms))
            await replays.cancel(replay.id, who="ann")
        failed_ms = clock.now_ms
        clock.now_ms += MINUTE_MS
        await DeployStore(store).tell("shop", "2.0", who="ci")
        await DeployStore(store).tell("elsewhere", "7", who="ci")
        found = await history_of(store, LetterQuery())
    assert (found.looked_at, found.copied, found.failing_releases) == (4, 2, ("1.0", "1.1"))
    assert found.deployed == (Deployed(service="shop", release="2.0", after_ms=clock.now_ms - failed_ms),)
    assert (found.replayed_before, found.most_replays) == (2, 1)
