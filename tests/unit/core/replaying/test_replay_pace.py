"""How fast a replay goes: canaries that stop, queues within their room, consumers that fail, hang, are slow.

About `core.replaying.replay_pace`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import count

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deadletter.core.replaying.replay_pace import (
    AllAtOnce,
    Auto,
    Canary,
    FinishReplay,
    NextStep,
    ReplayPace,
    ReplaySeen,
    ReplayStage,
    SendUpTo,
    StopReplay,
    WaitFor,
    allowed_back,
    next_step,
    pace_from,
    pace_json,
)
from deadletter.errors import UsageError

TICK_MS = 100
NOON_MS = 1_790_812_800_000


@dataclass
class Simulated:
    """A replay, its queue and its consumer, tick by tick. `fails`: which letters, by their number;
    `per_tick`: so many the consumer does; `speaks`: whether it says what it is done with."""

    pace: ReplayPace
    letters: int
    per_tick: int = 1_000
    fails: frozenset[int] = frozenset()
    fails_all: bool = False
    speaks: bool = True
    others: int = 0
    """Letters of others that are in the queue all the time."""
    outcome_ms: int = 60_000
    now_ms: int = NOON_MS
    stage: ReplayStage = field(default_factory=ReplayStage)
    gone: int = 0
    queue: list[int] = field(default_factory=list)
    outcome: dict[int, str] = field(default_factory=dict)
    sent_at: dict[int, int] = field(default_factory=dict)
    deepest: int = 0
    waited: list[str] = field(default_factory=list)

    states: Counter[str] = field(default_factory=Counter)
    old: int = 0
    """Letters up to this one were sent longer ago than an outcome is waited for."""

    def put(self, number: int, state: str) -> None:
        if number in self.outcome:
            self.states[self.outcome[number]] -= 1
        self.states[state] += 1
        self.outcome[number] = state

    def seen(self) -> ReplaySeen:
        window = range(self.old, self.gone) if isinstance(self.pace, Auto) else ()
        return ReplaySeen(
            waiting=self.letters - self.gone,
            sent=self.states["sent"],
            returned=self.states["returned"],
            done=self.states["done"],
            quiet=self.states["quiet"],
            stage=self.stage,
            last_sent_ms=self.sent_at[self.gone - 1] if self.gone else None,
            depth=len(self.queue) + self.others,
            consumers=1,
            window_sent=len(window),
            window_returned=sum(self.outcome[n] == "returned" for n in window),
        )

    def tick(self) -> NextStep:
        step = next_step(self.pace, self.seen(), self.now_ms)
        match step:
            case SendUpTo(letters=letters, stage=stage):
                assert letters >= 1
                self.stage = stage
                for number in range(self.gone, self.gone + letters):
                    self.queue.append(number)
                    self.put(number, "sent")
                    self.sent_at[number] = self.now_ms
                self.gone += letters
                assert self.gone <= self.letters
            case WaitFor(why=why):
                self.waited.append(why)
            case StopReplay() | FinishReplay():
                return step
        self.deepest = max(self.deepest, len(self.queue) + self.others)
        for number in self.queue[: self.per_tick]:
            fails = self.fails_all or number in self.fails
            self.put(number, "returned" if fails else "done" if self.speaks else "sent")
        del self.queue[: self.per_tick]
        self.now_ms += TICK_MS
        while self.old < self.gone and self.sent_at[self.old] <= self.now_ms - self.outcome_ms:
            if self.outcome[self.old] == "sent":
                self.put(self.old, "quiet")
            self.old += 1
        return step

    def run(self, ticks: int = 20_000) -> NextStep:
        step = self.tick()
        for _ in range(ticks):
            if isinstance(step, StopReplay | FinishReplay):
                break
            step = self.tick()
        return step


def test_a_consumer_that_still_fails_gets_one_letter() -> None:
    replay = Simulated(Canary(), 5_000, fails_all=True)
    step = replay.run()
    assert isinstance(step, StopReplay)
    assert "1 of 1 came back" in step.why
    assert replay.gone == 1


def test_one_that_fails_but_for_the_first_gets_eleven() -> None:
    replay = Simulated(Canary(), 5_000, fails=frozenset(range(1, 5_000)))
    assert isinstance(replay.run(), StopReplay)
    assert replay.gone == 11


@settings(deadline=None)
@given(fails=st.sets(st.integers(0, 10)), share=st.floats(0, 0.5))
def test_at_most_one_and_ten_whatever_the_first_ones_did(fails: set[int], share: float) -> None:
    """Everything after the second step fails: it is never reached unless the first two went well."""
    replay = Simulated(Canary(share=share), 3_000, fails=frozenset(fails) | frozenset(range(11, 3_000)))
    assert isinstance(replay.run(), StopReplay)
    back = len(fails & set(range(1, 11)))
    if 0 in fails:
        assert replay.gone == 1
    elif back > allowed_back(share, 10):
        assert replay.gone == 11
    else:
        assert replay.gone == 111


@settings(deadline=None)
@given(first=st.integers(1, 49), letters=st.integers(50, 3_000))
def test_two_in_a_hundred_go_through(first: int, letters: int) -> None:
    replay = Simulated(Canary(), letters, fails=frozenset(range(first, letters, 50)))
    assert isinstance(replay.run(), FinishReplay)
    assert replay.gone == letters
    assert sorted(replay.outcome) == list(range(letters))


@pytest.mark.parametrize("per_tick", [0, 1])
def test_a_canary_waits_for_a_consumer_that_hangs(per_tick: int) -> None:
    """It took the first letters, or none, and says nothing."""
    replay = Simulated(Canary(wait_s=1), 1_000, per_tick=per_tick, speaks=False, outcome_ms=10**9)
    for _ in range(5):
        replay.tick()
    replay.per_tick = 0
    replay.run(1_000)
    assert replay.gone <= 11
    assert "not drained" in replay.waited[-1] or "not known" in replay.waited[-1]
    replay.per_tick = 100  # and goes on when that one works again
    replay.run()
    assert replay.gone == 1_000


def test_a_canary_without_a_consumer_that_speaks_goes_on_after_its_time() -> None:
    replay = Simulated(Canary(wait_s=5), 200, speaks=False, outcome_ms=20_000)
    assert isinstance(replay.run(), FinishReplay)
    assert set(replay.outcome.values()) == {"quiet"}
    first, second, third = (replay.sent_at[number] for number in (0, 1, 11))
    assert second - first >= 5_000
    assert third - second >= 5_000


paces = st.one_of(
    st.builds(
        Canary,
        steps=st.lists(st.integers(1, 500), min_size=1, max_size=5).map(tuple),
        room=st.integers(1, 300),
        wait_s=st.just(1.0),
    ),
    st.builds(Auto, room=st.integers(1, 300), floor=st.integers(1, 50), ceiling=st.integers(1, 500)),
)


@settings(deadline=None)
@given(pace=paces, letters=st.integers(0, 1_500), per_tick=st.integers(1, 80), others=st.integers(0, 50))
def test_never_more_in_the_queue_than_its_room_and_all_arrive(
    pace: Canary | Auto, letters: int, per_tick: int, others: int
) -> None:
    replay = Simulated(pace, letters, per_tick=per_tick, others=min(others, pace.room - 1), outcome_ms=1_000)
    assert isinstance(replay.run(), FinishReplay)
    assert replay.deepest <= pace.room or not letters
    assert sorted(replay.outcome) == list(range(letters))


@settings(deadline=None)
@given(pace=paces, letters=st.integers(1, 1_500), per_tick=st.integers(1, 80), fail=st.integers(1, 5))
def test_whatever_happens_sent_and_home_are_all(
    pace: Canary | Auto, letters: int, per_tick: int, fail: int
) -> None:
    replay = Simulated(pace, letters, per_tick=per_tick, fails=frozenset(range(0, letters, fail)))
    assert isinstance(replay.run(), StopReplay | FinishReplay)
    seen = replay.seen()
    assert seen.waiting + seen.gone == letters
    assert replay.deepest <= pace.room


def test_auto_follows_a_slow_consumer_and_stops_when_it_fails() -> None:
    slow = Simulated(Auto(room=100), 5_000, per_tick=7)
    assert isinstance(slow.run(), FinishReplay)
    assert slow.deepest <= 100
    busy = sum(at > NOON_MS + 2_000 for at in slow.sent_at.values())
    assert busy > 3_000  # it was kept busy all the time, not in bursts
    broken = Simulated(Auto(room=100), 100_000, per_tick=50, fails=frozenset(range(1_000, 100_000)))
    step = broken.run()
    assert isinstance(step, StopReplay)
    assert broken.gone < 1_500


def test_auto_waits_where_nobody_consumes() -> None:
    seen = ReplaySeen(waiting=100, depth=0, consumers=0)
    assert next_step(Auto(), seen, NOON_MS) == WaitFor(why="the queue has no consumer")
    full = ReplaySeen(waiting=100, depth=1_000, consumers=1)
    assert next_step(Auto(room=1_000), full, NOON_MS) == WaitFor(
        why="the queue has 1000 letters, and there is room for 1000"
    )


@pytest.mark.parametrize("pace", [Canary(room=10), Auto(room=10)])
def test_where_nobody_knows_the_depth_what_is_out_counts(pace: Canary | Auto) -> None:
    stage = ReplayStage(number=2, began_ms=NOON_MS, gone=11)
    seen = ReplaySeen(waiting=100, sent=6, done=11, sending=2, depth=None, stage=stage)
    step = next_step(pace, seen, NOON_MS)
    assert isinstance(step, SendUpTo)
    assert step.letters <= 2


def test_rates() -> None:
    unheld = next_step(AllAtOnce(), ReplaySeen(waiting=10**6), NOON_MS)
    assert isinstance(unheld, SendUpTo)
    assert unheld.letters == 10**6
    ten = AllAtOnce(rate_per_s=10)
    some = next_step(ten, ReplaySeen(waiting=50, released_lately=4, sending=1), NOON_MS)
    assert isinstance(some, SendUpTo)
    assert some.letters == 5
    assert isinstance(next_step(ten, ReplaySeen(waiting=50, released_lately=10), NOON_MS), WaitFor)
    slow = AllAtOnce(rate_per_s=0.1)
    seen = ReplaySeen(waiting=5, last_sent_ms=NOON_MS)
    waits = next_step(slow, seen, NOON_MS + 9_999)
    assert isinstance(waits, WaitFor)
    assert waits.until_ms == NOON_MS + 10_000
    one = next_step(slow, seen, NOON_MS + 10_000)
    assert isinstance(one, SendUpTo)
    assert one.letters == 1


def test_the_end() -> None:
    for pace in (AllAtOnce(), Canary(), Auto()):
        assert next_step(pace, ReplaySeen(waiting=0, done=3), NOON_MS) == FinishReplay()
        assert isinstance(next_step(pace, ReplaySeen(waiting=0, sent=1), NOON_MS), WaitFor)
        # nothing is left to keep home
        last = ReplaySeen(waiting=0, returned=100, window_sent=100, window_returned=100)
        assert next_step(pace, last, NOON_MS) == FinishReplay()


def test_as_the_store_keeps_them() -> None:
    for pace in (AllAtOnce(), AllAtOnce(rate_per_s=2.5), Canary(steps=(3, 4), share=0.1), Auto(room=7)):
        assert pace_from(pace_json(pace)) == pace


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"pace": "fast"},
        {"pace": "all", "room": 3},
        {"pace": "all", "rate_per_s": 0},
        {"pace": "canary", "steps": []},
        {"pace": "canary", "steps": [1, 0]},
        {"pace": "canary", "wait_s": -1},
        {"pace": "canary", "share": 1.5},
        {"pace": "auto", "room": 0},
        {"pace": "auto", "floor": 0},
    ],
)
def test_what_is_no_pace(told: dict[str, object]) -> None:
    with pytest.raises(UsageError, match=r"expected|pace"):
        pace_from(told)


def test_a_share_is_rounded_up_except_of_one() -> None:
    assert [allowed_back(0.05, n) for n in (0, 1, 2, 10, 20, 21, 100, 1_000)] == [0, 0, 1, 1, 1, 2, 5, 50]
    assert [allowed_back(0, n) for n in (1, 10, 1_000)] == [0, 0, 0]
    assert next(n for n in count(1) if allowed_back(0.01, n) == 2) == 101


def test_a_step_waits_for_a_count_that_is_younger_than_its_letters() -> None:
    """A consumer that took all of them and hangs: the queue is empty, and who counts is late."""
    sent = ReplaySeen(
        waiting=989,
        sent=11,
        stage=ReplayStage(number=1, began_ms=NOON_MS - 5_000, gone=1),
        last_sent_ms=NOON_MS - 4_000,
        depth=0,
        consumers=1,
    )
    pace = Canary(wait_s=1.0)
    assert isinstance(next_step(pace, sent, NOON_MS), SendUpTo), "nobody counts: the wait alone"
    old = replace(sent, unacked_ms=NOON_MS - 4_000)
    waits = next_step(pace, old, NOON_MS)
    assert isinstance(waits, WaitFor)
    assert "in hand" in waits.why
    young = replace(old, unacked=11, unacked_ms=NOON_MS - 3_999)
    waits = next_step(pace, young, NOON_MS)
    assert isinstance(waits, WaitFor)
    assert "not drained" in waits.why
    assert isinstance(next_step(pace, replace(young, unacked=0), NOON_MS), SendUpTo)
    told = replace(old, sent=0, done=11)
    assert isinstance(next_step(pace, told, NOON_MS), SendUpTo), (
        "its consumer has said of each that it is done"
    )
