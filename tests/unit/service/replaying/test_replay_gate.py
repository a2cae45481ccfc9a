"""Guards that hold retries hold replays too, and letters of replays count for them.

About `service.replaying.replay_gate`, `service.guarding.gates`.
"""

from __future__ import annotations

from deadletter.config.settings import GuardSettings
from deadletter.core.deciding.policy import Policies
from deadletter.core.guards.breaker import BreakerTerms
from deadletter.core.guards.health import OriginState
from deadletter.service.guarding.gates import Gates
from deadletter.service.guarding.origins import DiedAgain
from deadletter.service.replaying.replay_gate import FREE_TO_GO, held_by

QUICK = BreakerTerms(letters=3, share=0.5, window_ms=60_000, pause_ms=5_000, probe_ms=2_000)


def gates(**settings: object) -> Gates:
    return Gates(GuardSettings(**settings), Policies(), lambda _event: None, clock=lambda: 1_000.0)  # type: ignore[arg-type]


def test_an_open_gate_lets_any_number_go() -> None:
    assert held_by(gates(), ("orders", "bills")) == FREE_TO_GO
    assert held_by(gates(), ()) == FREE_TO_GO


def test_an_origin_without_consumers_holds_it_and_says_which() -> None:
    guarded = gates(breaker=BreakerTerms(enabled=False))
    guarded.observe("bills", OriginState(exists=True, consumers=0, ready=0))
    held = held_by(guarded, ("orders", "bills"))
    assert held.letters == 0
    assert "consumers" in held.why
    assert "bills" in held.why


def test_letters_of_replays_that_die_again_close_the_breaker() -> None:
    guarded = gates(breaker=QUICK)
    for number in range(3):
        guarded.replayed("orders", f"{number:032x}")
        dead = DiedAgain(
            dlq="orders.dlq",
            origin="orders",
            group="",
            letter_id=f"{number:032x}",
            attempt=0,
            released_s=0.0,
        )
        guarded.died_again(dead)
    held = held_by(guarded, ("orders",))
    assert held.letters == 0
    assert "breaker" in held.why


def test_the_budget_over_all_holds_it() -> None:
    guarded = gates(budget_per_minute=2, breaker=BreakerTerms(enabled=False))
    for number in range(10):
        guarded.replayed("orders", f"{number:032x}")
    assert "budget" in held_by(guarded, ("orders",)).why


def test_a_budget_lets_go_what_is_left_of_it() -> None:
    """Not a portion of thousands, whenever there is room for one."""
    now = [1_000.0]
    terms = GuardSettings(budget_per_minute=600, breaker=BreakerTerms(enabled=False))
    guarded = Gates(terms, Policies(), lambda _event: None, clock=lambda: now[0])
    assert held_by(guarded, ("orders",)).letters == 1
    now[0] += 60
    assert held_by(guarded, ("orders",)).letters == 60
    assert held_by(guarded, ("orders",), sending=59).letters == 1
    assert held_by(guarded, ("orders",), sending=70).letters == 0


def test_a_full_queue_holds_it_tries_one_and_then_faster_and_faster() -> None:
    now = [1_000.0]
    terms = GuardSettings(breaker=BreakerTerms(enabled=False))
    guarded = Gates(terms, Policies(), lambda _event: None, clock=lambda: now[0])
    for _ in range(500):
        guarded.refused("orders", by_replay=True)
    for pause_s in (1.0, 2.0, 4.0):
        assert held_by(guarded, ("orders",)).letters == 0
        now[0] += pause_s
        assert held_by(guarded, ("orders",)).letters == 1
        assert held_by(guarded, ("orders",), sending=1).letters == 0, "one, until the broker has answered"
        guarded.refused("orders", by_replay=True)
    now[0] += 8.0
    assert held_by(guarded, ("orders",)).letters == 1
    guarded.replayed("orders", "1" * 32)
    assert held_by(guarded, ("orders",)).letters == 1
    assert held_by(guarded, ("orders",), lately=1).letters == 0
    now[0] += 3.0
    assert held_by(guarded, ("orders",), lately=5).letters == 3
    now[0] += 10.0
    assert held_by(guarded, ("orders",)) == FREE_TO_GO


def test_one_letter_that_is_replayed_again_and_again_is_no_growth() -> None:
    guarded = gates(copies=2, breaker=BreakerTerms(enabled=False))
    guarded.begin("orders.dlq")
    for _ in range(10):
        guarded.replayed("orders", "1" * 32)
        guarded.died_again(
            DiedAgain(
                dlq="orders.dlq",
                origin="orders",
                group="",
                letter_id="1" * 32,
                attempt=0,
                released_s=0.0,
            )
        )
    assert held_by(guarded, ("orders",)) == FREE_TO_GO
