"""Letters the broker did not accept: when each may go again.

About `move.refused_letters`.
"""

from __future__ import annotations

from deadletter.move.refused_letters import PAUSE_MAX_S, PAUSE_S, RefusedLetters


def test_what_was_refused_is_tried_again_later_and_later() -> None:
    refusals, now = RefusedLetters(), 0.0
    pauses: list[float] = []
    for _ in range(12):
        refusals.add("a", "no right", now)
        assert refusals.now(now) == {"a": "no right"}
        again_at = refusals.again_at(now)
        assert again_at is not None
        pauses.append(again_at - now)
        now = again_at
        assert refusals.now(now) == {}
    assert pauses[:3] == [PAUSE_S, 2 * PAUSE_S, 4 * PAUSE_S]
    assert pauses[-1] == PAUSE_MAX_S
    assert refusals.fresh == 12
    refusals.begin(now)
    assert refusals.fresh == 0
    refusals.begin(now + 10_000)
    refusals.add("a", "no right", now + 10_000)
    assert refusals.again_at(now + 10_000) == now + 10_000 + PAUSE_S, "it was forgotten meanwhile"
