"""All gates and budgets of an instance: who may go, what keeps the others, and how they get through later.

About `service.guarding.gates`, `service.guarding.origins`,
`service.telling.instance_news`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from deadletter.config.settings import GuardSettings
from deadletter.core.deciding.policy import Policies, Policy
from deadletter.core.guards.breaker import BreakerTerms
from deadletter.core.guards.flow import Ramp
from deadletter.core.guards.gate import GateState
from deadletter.core.guards.health import OriginState
from deadletter.service.guarding import gates as module
from deadletter.service.guarding.allowance import Allowance
from deadletter.service.guarding.gates import BUDGET, FORGET_S, Gates
from deadletter.service.guarding.origins import DiedAgain
from deadletter.service.telling.instance_news import NewsItem, What
from deadletter.service.telling.service_events import BudgetSeen, GateChanged, GrowthFound, ServiceEvent

CLOSED: Final = OriginState(exists=True, consumers=0, ready=0)
OPEN: Final = OriginState(exists=True, consumers=1, ready=0)
CALM: Final = GuardSettings(breaker=BreakerTerms(enabled=False))
QUICK: Final = BreakerTerms(letters=3, share=0.5, window_ms=60_000, pause_ms=5_000, probe_ms=2_000)
NONE: Final = Policies()


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now

    def pass_(self, seconds: float) -> None:
        self.now += seconds


class Guarded:
    def __init__(self, settings: GuardSettings = CALM, policies: Policies = NONE) -> None:
        self.clock = Clock()
        self.events: list[ServiceEvent] = []
        self.news: list[NewsItem] = []
        self.gates = Gates(settings, policies, self.events.append, clock=self.clock)
        self.gates.on_news = self.news.append

    def went(self, count: int, *, origin: str = "orders", policy: str = "p") -> int:
        """How many of so many letters may go at once."""
        return sum(self.gates.passes(origin, "", policy) is None for _ in range(count))

    def over(self, seconds: int, *, policy: str = "p") -> int:
        """How many go when ten come each second."""
        gone = 0
        for _ in range(seconds):
            gone += self.went(10, policy=policy)
            self.clock.pass_(1.0)
        return gone

    def fail(self, count: int, group: str = "", *, origin: str = "orders") -> None:
        """So many letters go and die again."""
        for number in range(count):
            self.gates.passes(origin, group, "p")
            self.died(f"letter-{number}", origin=origin, group=group)

    def died(
        self,
        letter_id: str,
        *,
        origin: str = "orders",
        group: str = "",
        attempt: int = 1,
        released_s: float | None = 0.0,
    ) -> None:
        dead = DiedAgain(
            dlq=f"{origin}.dlq",
            origin=origin,
            group=group,
            letter_id=letter_id,
            attempt=attempt,
            released_s=released_s,
        )
        self.gates.died_again(dead)


def budget(**per_minute: int) -> Policies:
    return Policies(
        rules=tuple(Policy(name=name, budget_per_minute=limit) for name, limit in per_minute.items())
    )


# -- budgets ----------------------------------------------------------------------------------------------
def test_without_guards_everything_goes() -> None:
    assert Guarded().went(10_000) == 10_000


def test_the_budget_over_all_counts_every_policy() -> None:
    guarded = Guarded(replace(CALM, budget_per_minute=60))
    gone = guarded.over(30, policy="p") + guarded.over(30, policy="q")
    assert 55 <= gone <= 67
    while guarded.gates.passes("orders", "", "r") is None:
        pass
    assert guarded.gates.passes("orders", "", "r") == BUDGET


def test_the_budget_of_a_policy_is_its_own() -> None:
    guarded = Guarded(CALM, budget(p=60))
    assert 55 <= guarded.over(60) <= 67
    assert guarded.went(100, policy="q") == 100
    guarded.went(100)
    assert guarded.gates.passes("orders", "", "p") == f"{BUDGET}/p"


def test_what_one_budget_keeps_costs_the_others_nothing() -> None:
    guarded = Guarded(replace(CALM, budget_per_minute=60), budget(p=6_000))
    guarded.over(10)
    used = {seen.policy: seen.used for seen in guarded.gates.budgets()}
    assert used["p"] == used[""]
    assert used[""] < 20


def test_several_instances_keep_to_a_budget_together() -> None:
    alone, one_of_three = Guarded(CALM, budget(p=180)), Guarded(CALM, budget(p=180))
    one_of_three.gates.share_among(3)
    assert 170 <= alone.over(60) <= 200
    assert 55 <= one_of_three.over(60) <= 67
    one_of_three.gates.use(CALM, budget(p=180, q=180))
    assert 55 <= one_of_three.over(60) <= 67
    assert 55 <= one_of_three.over(60, policy="q") <= 67
    one_of_three.gates.share_among(1)
    assert 170 <= one_of_three.over(60) <= 200
    one_of_three.gates.share_among(0)  # nobody was counted: as before
    assert 170 <= one_of_three.over(60) <= 200


def test_a_share_of_the_traffic_and_never_less_than_the_floor() -> None:
    guarded = Guarded(replace(CALM, budget_share=0.1, budget_floor_per_minute=60))
    assert guarded.went(100) == 100  # nobody knows the traffic yet
    guarded.gates.traffic("orders", 40.0)  # 10 % of 2,400 a minute
    assert 220 <= guarded.over(60) <= 270
    guarded.gates.traffic("orders", 0.0)
    assert 55 <= guarded.over(60) <= 90
    guarded.went(100)
    assert guarded.gates.passes("orders", "", "p") == "orders"
    assert guarded.gates.passes("invoices", "", "p") is None
    guarded.gates.traffic("nobody.asked", 40.0)
    assert "nobody.asked" not in guarded.gates.origins


def test_other_limits_take_effect_while_it_runs() -> None:
    guarded = Guarded(CALM, budget(p=60))
    guarded.over(10)
    guarded.gates.use(CALM, budget(p=600))
    assert guarded.over(60) > 500
    guarded.gates.use(CALM, NONE)
    assert guarded.went(5_000) == 5_000
    assert guarded.gates.budgets() == []


def test_budgets_are_told_with_what_was_used() -> None:
    guarded = Guarded(replace(CALM, budget_per_minute=600), budget(p=60))
    guarded.over(5)
    seen = {one.policy: one for one in guarded.gates.budgets()}
    assert seen[""] == BudgetSeen(policy="", used=seen["p"].used, limit=600)
    assert seen["p"].limit == 60
    assert 4 <= seen["p"].used <= 11


# -- health -----------------------------------------------------------------------------------------------
def test_an_origin_nobody_consumes_gets_nothing_and_then_faster_and_faster() -> None:
    guarded = Guarded()
    guarded.gates.observe("orders", CLOSED)
    assert guarded.gates.passes("orders", "", "p") == "orders"
    assert guarded.gates.passes("invoices", "", "p") is None
    guarded.gates.observe("orders", OPEN)
    assert guarded.gates.passes("orders", "", "p") == "orders"  # first those that waited
    admitted: list[int] = []
    for _ in range(5):
        count = 0
        for _ in range(100):
            count += guarded.gates.admit("orders", "", "p", "id") is None
            guarded.clock.pass_(0.01)
        admitted.append(count)
    assert admitted[0] <= 2
    assert admitted == sorted(admitted)
    assert admitted[-1] >= 8
    guarded.clock.pass_(60)
    assert guarded.gates.passes("orders", "", "p") is None


def test_letters_on_their_way_count_as_depth_until_it_is_looked_at_again() -> None:
    guarded = Guarded(replace(CALM, max_depth=10))
    guarded.gates.observe("orders", replace(OPEN, ready=5))
    assert guarded.went(5) == 5
    guarded.gates.observe("orders", replace(OPEN, ready=5))
    assert guarded.gates.passes("orders", "", "p") == "orders"
    guarded.gates.observe("orders", replace(OPEN, ready=5))
    assert isinstance(guarded.gates.flow("orders"), Ramp)


def test_only_origins_that_letters_go_to_are_looked_at() -> None:
    guarded = Guarded()
    guarded.went(1)
    guarded.gates.passes("invoices", "TimeoutError", "p")
    assert sorted(guarded.gates.origins) == ["invoices", "orders"]
    guarded.gates.observe("orders", CLOSED)
    guarded.clock.pass_(FORGET_S / 2)
    guarded.gates.observe("orders", CLOSED)
    assert guarded.gates.origins == ["orders"]


# -- the breaker ------------------------------------------------------------------------------------------
def test_when_everything_dies_again_letters_are_held_and_one_probe_goes() -> None:
    guarded = Guarded(GuardSettings(breaker=QUICK))
    guarded.fail(3)
    assert guarded.gates.passes("orders", "", "p") == "orders"
    assert guarded.gates.admit("orders", "", "p", "a") == "orders"
    guarded.clock.pass_(5.0)
    assert guarded.gates.passes("orders", "", "p") == "orders"  # what is due waits behind what was held
    assert guarded.gates.admit("orders", "", "p", "probe") is None
    assert guarded.gates.admit("orders", "", "p", "second") == "orders"
    guarded.died("probe", attempt=2)
    guarded.clock.pass_(5.0)
    assert guarded.gates.admit("orders", "", "p", "third") == "orders"  # twice the pause
    guarded.clock.pass_(5.0)
    assert guarded.gates.admit("orders", "", "p", "third") is None


def test_one_kind_of_error_does_not_hold_the_others() -> None:
    guarded = Guarded(GuardSettings(breaker=QUICK))
    for _ in range(10):
        guarded.gates.passes("orders", "", "p")
    guarded.fail(3, "TimeoutError")
    assert guarded.gates.passes("orders", "TimeoutError", "p") == "orders/TimeoutError"
    assert guarded.gates.passes("orders", "ValueError", "p") is None
    assert guarded.gates.passes("orders", "", "p") is None


def test_one_letter_probes_an_origin_and_its_group_together() -> None:
    guarded = Guarded(GuardSettings(breaker=QUICK))
    guarded.fail(3, "TimeoutError")
    guarded.clock.pass_(5.0)
    assert guarded.gates.admit("orders", "TimeoutError", "p", "probe") is None
    assert guarded.gates.admit("orders", "ValueError", "p", "second") == "orders"
    assert guarded.gates.allowance("orders/TimeoutError").count == 0


def test_a_letter_that_is_taken_again_did_not_die_again() -> None:
    """A connection that is lost again and again shows the same two letters again and again."""
    guarded = Guarded(GuardSettings(breaker=QUICK))
    for _ in range(20):
        guarded.gates.begin("orders.dlq")
        guarded.died("a")
        guarded.died("b")
    assert guarded.gates.passes("orders", "", "p") is None
    guarded.died("c")
    assert guarded.gates.passes("orders", "", "p") == "orders"


def test_what_a_sweep_finds_closes_nothing_unless_it_is_the_probe() -> None:
    guarded = Guarded(GuardSettings(breaker=QUICK))
    for number in range(100):
        guarded.died(f"{number}", released_s=None)
    assert guarded.gates.passes("orders", "", "p") is None
    guarded.fail(3, origin="mails")
    guarded.clock.pass_(5.0)
    assert guarded.gates.admit("mails", "", "p", "probe") is None
    guarded.died("probe", origin="mails", released_s=None)
    guarded.clock.pass_(3.0)
    assert guarded.gates.admit("mails", "", "p", "next") == "mails"


def test_while_letters_are_held_one_that_failed_more_often_may_try() -> None:
    guarded = Guarded(GuardSettings(breaker=QUICK))
    guarded.fail(3)
    assert guarded.gates.passes("orders", "", "p", "a", 1) == "orders"
    assert guarded.gates.passes("orders", "", "p", "pioneer", 2) is None
    assert guarded.gates.passes("orders", "", "p", "b", 2) == "orders", "one of them is enough"
    guarded.clock.pass_(2.5)
    assert guarded.gates.allowance("orders").rate_per_s == 1.0, "it lives: letters go again"


def test_nobody_tries_where_nobody_consumes() -> None:
    guarded = Guarded(GuardSettings(breaker=QUICK))
    guarded.fail(3)
    guarded.gates.observe("orders", CLOSED)
    assert guarded.gates.passes("orders", "", "p", "pioneer", 2) == "orders"
    assert guarded.gates.reason("orders") == ("consumers", "nobody consumes the origin")


def test_what_keeps_letters_is_said_for_each_kind_of_gate() -> None:
    guarded = Guarded(replace(CALM, budget_per_minute=60, max_depth=5))
    guarded.went(100)
    assert guarded.gates.reason(BUDGET)[0] == "budget"
    assert guarded.gates.reason("orders")[0] == "budget"
    guarded.gates.observe("orders", OriginState(exists=True, consumers=1, ready=5))
    assert guarded.gates.reason("orders")[0] == "depth"


def test_a_probe_the_budget_keeps_was_not_sent() -> None:
    guarded = Guarded(GuardSettings(breaker=QUICK, budget_per_minute=60))
    guarded.fail(3)
    while guarded.gates.passes("invoices", "", "p") is None:
        pass
    guarded.clock.pass_(5.0)
    while guarded.gates.passes("invoices", "", "p") is None:
        pass
    assert guarded.gates.admit("orders", "", "p", "probe") == BUDGET
    guarded.clock.pass_(1.0)
    assert guarded.gates.admit("orders", "", "p", "probe") is None


def test_an_origin_that_refuses_is_tried_with_one_letter_after_a_pause() -> None:
    guarded = Guarded()
    guarded.went(1)
    guarded.gates.refused("orders")
    assert guarded.gates.passes("orders", "", "p") == "orders"
    guarded.clock.pass_(1.1)
    assert guarded.gates.admit("orders", "", "p", "a") is None
    assert guarded.gates.admit("orders", "", "p", "b") == "orders"
    guarded.gates.accepted("orders")
    assert guarded.gates.admit("orders", "", "p", "b") is None
    guarded.gates.accepted("unheard.of")
    assert "unheard.of" not in guarded.gates.origins


# -- growth -----------------------------------------------------------------------------------------------
def test_copies_stop_the_way_until_a_person_says_go_on() -> None:
    guarded = Guarded(replace(CALM, copies=2))
    for _ in range(5):
        guarded.died("twin")
    (found,) = guarded.events
    assert isinstance(found, GrowthFound)
    assert (found.origin, found.letter_id, found.copies) == ("orders", "twin", 3)
    assert guarded.gates.passes("orders", "", "p") == "orders"
    guarded.clock.pass_(1e6)
    assert guarded.gates.passes("orders", "", "p") == "orders"
    guarded.gates.resume()
    guarded.clock.pass_(60)
    assert guarded.gates.passes("orders", "", "p") is None


# -- held letters -----------------------------------------------------------------------------------------
def test_of_a_gate_nobody_knows_one_letter_is_tried() -> None:
    assert Guarded().gates.allowance("orders") == Allowance(count=1)


def test_at_an_open_gate_all_may_go() -> None:
    guarded = Guarded()
    guarded.went(1)
    assert guarded.gates.allowance("orders") == Allowance(count=None)


def test_at_a_closed_gate_none_until_it_is_time_to_ask_again() -> None:
    guarded = Guarded()
    guarded.gates.observe("orders", CLOSED)
    allowed = guarded.gates.allowance("orders")
    assert allowed.count == 0
    assert 0 < allowed.wait_s <= 10


def test_when_a_probe_is_due_one() -> None:
    guarded = Guarded(GuardSettings(breaker=QUICK))
    guarded.fail(3, "E")
    guarded.clock.pass_(5.0)
    assert guarded.gates.allowance("orders") == Allowance(count=1)
    assert guarded.gates.allowance("orders/E") == Allowance(count=1)
    guarded.gates.admit("orders", "E", "p", "probe")
    assert guarded.gates.allowance("orders").count == 0


def test_on_a_ramp_as_many_as_its_rate() -> None:
    guarded = Guarded()
    guarded.gates.observe("orders", CLOSED)
    guarded.gates.observe("orders", OPEN)
    guarded.clock.pass_(4.5)
    allowed = guarded.gates.allowance("orders")
    assert allowed.rate_per_s is not None
    assert allowed.rate_per_s > 1
    assert allowed.count == int(allowed.rate_per_s)


def test_of_a_budget_what_it_has_and_then_the_time_to_wait() -> None:
    guarded = Guarded(replace(CALM, budget_per_minute=120), budget(p=60))
    assert guarded.gates.allowance(BUDGET) == Allowance(count=2)
    assert guarded.gates.allowance(f"{BUDGET}/p") == Allowance(count=1)
    guarded.over(5)
    while guarded.gates.passes("orders", "", "q") is None:
        pass
    assert 0 < guarded.gates.allowance(BUDGET).wait_s <= 0.5
    guarded.gates.use(CALM, NONE)
    assert guarded.gates.allowance(f"{BUDGET}/p") == Allowance(count=None)  # no such budget any more


def test_of_a_share_what_it_has() -> None:
    guarded = Guarded(replace(CALM, budget_share=0.5))
    guarded.went(1)
    guarded.gates.traffic("orders", 10.0)
    assert guarded.gates.allowance("orders") == Allowance(count=30)
    guarded.went(100)
    assert guarded.gates.allowance("orders").wait_s > 0


# -- telling and forgetting -------------------------------------------------------------------------------
def test_a_gate_that_closes_and_opens_is_told_once_each() -> None:
    guarded = Guarded()
    guarded.gates.observe("orders", CLOSED)
    guarded.gates.tick()
    guarded.gates.tick()
    (told,) = guarded.events
    assert isinstance(told, GateChanged)
    assert (told.gate, told.origin, told.state, told.guard) == (
        "orders",
        "orders",
        GateState.CLOSED,
        "consumers",
    )
    guarded.gates.observe("orders", OPEN)
    for _ in range(100):
        guarded.clock.pass_(1.0)
        guarded.gates.tick()
    states = [event.state for event in guarded.events if isinstance(event, GateChanged)]
    assert states == [GateState.CLOSED, GateState.RAMPING, GateState.OPEN]


def test_what_nobody_asked_for_is_forgotten_unless_it_is_closed() -> None:
    guarded = Guarded(replace(CALM, copies=1))
    guarded.went(1, origin="quiet")
    for _ in range(2):
        guarded.died("twin", origin="copied")
    guarded.clock.pass_(FORGET_S + 1)
    guarded.gates.tick()
    assert guarded.gates.allowance("quiet") == Allowance(count=1)
    assert guarded.gates.allowance("copied").count == 0


def test_there_are_never_too_many_gates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GATES_MAX", 5)
    guarded = Guarded()
    guarded.gates.observe("closed", CLOSED)
    for number in range(50):
        guarded.clock.pass_(0.02)
        assert guarded.gates.passes(f"q{number}", f"Error{number}", "p") is None
        assert len(guarded.gates._gates) <= 5
    # the one that matters was not among those that went
    assert guarded.gates.passes("closed", "", "p") == "closed"


# -- several instances ------------------------------------------------------------------------------------
def test_a_breaker_that_closes_is_told_and_what_was_heard_is_not_told_again() -> None:
    one, other = Guarded(GuardSettings(breaker=QUICK)), Guarded(GuardSettings(breaker=QUICK))
    one.fail(3, "E")
    one.gates.tick()
    closed = [item for item in one.news if item.what is What.CLOSED]
    assert {(item.origin, item.group) for item in closed} == {("orders", ""), ("orders", "E")}
    for item in closed:
        other.gates.hear(item)
    assert other.gates.passes("orders", "E", "p") == "orders"
    other.gates.tick()
    assert not other.news
    other.gates.hear(NewsItem(what=What.OPENED, origin="orders"))
    other.gates.hear(NewsItem(what=What.OPENED, origin="orders", group="E"))
    other.clock.pass_(30)
    assert other.gates.passes("orders", "E", "p") is None


def test_while_a_gate_is_closed_each_death_is_told_and_closes_the_others_probe() -> None:
    one, prober = Guarded(GuardSettings(breaker=QUICK)), Guarded(GuardSettings(breaker=QUICK))
    for guarded in (one, prober):
        guarded.fail(3)
        guarded.news.clear()
        guarded.clock.pass_(5.0)
    assert prober.gates.admit("orders", "", "p", "probe") is None
    one.died("probe")
    (item,) = one.news
    assert (item.what, item.letter_id) == (What.DIED, "probe")
    prober.gates.hear(item)
    prober.clock.pass_(3.0)
    assert prober.gates.allowance("orders").count == 0  # it would be ramping now
