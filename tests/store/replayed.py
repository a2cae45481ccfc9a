"""Replays for the store's tests: begun, frozen, and what must hold of them whatever happened."""

from __future__ import annotations

from tests.store.grounds import Ground

from deadletter.core.grouping.letter_query import LetterQuery
from deadletter.core.replaying.replay_plan import ReplayPlan
from deadletter.store.replays.replay_store import ReplayStore
from deadletter.store.replays.replay_views import ReplayView

EVERYTHING = ReplayPlan(selection=LetterQuery())
RECOUNTED = (
    "SELECT r.replay, CASE WHEN r.state = 0 AND r.letter <= p.marked_to THEN 1 ELSE r.state END, count(*), "
    "sum(CASE WHEN r.doubtful THEN 1 ELSE 0 END) FROM deadletter_replay_letters r "
    "JOIN deadletter_replays p ON p.id = r.replay GROUP BY 1, 2 ORDER BY 1, 2"
)
COUNTED = "SELECT * FROM deadletter_replay_counts WHERE letters <> 0 OR doubtful <> 0 ORDER BY replay, state"
FROZEN = (
    "SELECT count(*) FROM deadletter_replays p WHERE letters <> "
    "(SELECT count(*) FROM deadletter_replay_letters r WHERE r.replay = p.id)"
)
TALLIED = (
    "SELECT state, sum(letters), sum(bytes) FROM deadletter_tallies GROUP BY state HAVING sum(letters) <> 0 "
    "ORDER BY 1"
)
TALLIES_RECOUNTED = (
    "SELECT state, count(*), sum(bytes) FROM deadletter_letters WHERE copy_of IS NULL "
    "GROUP BY state ORDER BY 1"
)
HELD_TWICE = (
    "SELECT count(*) FROM (SELECT letter FROM deadletter_replay_letters WHERE state IN (0, 1) "
    "GROUP BY letter HAVING count(*) > 1) t"
)
UNCLAIMED = (
    "SELECT count(*) FROM deadletter_replay_letters r JOIN deadletter_letters l ON l.id = r.letter "
    "WHERE r.state IN (0, 1) AND l.state <> 2"
)
ORPHANED = (
    "SELECT count(*) FROM deadletter_letters l WHERE l.state = 2 AND l.copy_of IS NULL AND NOT EXISTS "
    "(SELECT 1 FROM deadletter_replay_letters r WHERE r.letter = l.id "
    "AND (r.state IN (0, 1) OR (r.state IN (4, 5) AND r.sent_ms = 0)))"
)


def books_agree(ground: Ground) -> None:
    """Counts equal a recount, every claimed letter is in one replay, and none is claimed by nobody."""
    assert ground.sql(COUNTED) == ground.sql(RECOUNTED)
    assert ground.sql(TALLIED) == ground.sql(TALLIES_RECOUNTED)
    for broken in (FROZEN, HELD_TWICE, UNCLAIMED, ORPHANED):
        assert ground.sql(broken) == "0", broken


async def frozen(store: ReplayStore, plan: ReplayPlan = EVERYTHING, *, who: str = "ann") -> ReplayView:
    """A replay that runs."""
    begun = await store.begin(plan, who=who, why="the ledger is back")
    while await store.freeze_some(begun.id):
        pass
    return await store.view(begun.id)
