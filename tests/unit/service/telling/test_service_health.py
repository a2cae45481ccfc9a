"""Alive and ready: what makes them so, and what does not.

About `service.telling.service_health`.
"""

from __future__ import annotations

import asyncio

from deadletter.service.telling.service_events import (
    GroupingSeen,
    LifeChanged,
    QueueGone,
    Recovered,
    ServiceEvent,
    Stage,
    Trouble,
)
from deadletter.service.telling.service_health import SILENT_S, Condition, ServiceHealth

READY = LifeChanged(stage=Stage.READY)
BROKER_AWAY = Trouble(what="broker", why="nobody answers at rabbit:5672")


def ready(*events: ServiceEvent) -> Condition:
    health = ServiceHealth(lambda: 0.0)
    for event in events:
        health(event)
    return health.ready()


def test_it_is_not_ready_before_the_watches_have_started() -> None:
    assert ready() == Condition(ok=False, reasons=("the watches have not started yet",))
    assert not ready(LifeChanged(stage=Stage.STARTING)).ok


def test_it_is_ready_when_the_watches_have_started() -> None:
    assert ready(LifeChanged(stage=Stage.STARTING), READY) == Condition(ok=True)
    assert ready(READY, LifeChanged(stage=Stage.RELOADED), QueueGone(queue="q")).ok


def test_without_its_broker_it_is_not_ready_and_says_why() -> None:
    reason = "the broker cannot be used: nobody answers at rabbit:5672"
    assert ready(READY, BROKER_AWAY) == Condition(ok=False, reasons=(reason,))
    assert ready(READY, BROKER_AWAY, Recovered(what="broker")) == Condition(ok=True)
    assert len(ready(BROKER_AWAY).reasons) == 2, "each reason is told"


def test_other_trouble_is_told_and_changes_nothing() -> None:
    troubled = ready(READY, Trouble(what="store", why="down"), Trouble(what="alert:log", why="no"))
    assert troubled == Condition(ok=True, notes=("alert:log: no", "store: down"))
    assert ready(READY, Trouble(what="store", why="down"), Recovered(what="store")).notes == ()


def test_letters_in_groups_of_other_rules_are_a_note() -> None:
    behind = GroupingSeen(digest="d", behind=True)
    found = ready(READY, behind)
    assert found.ok
    assert [note.partition(":")[0] for note in found.notes] == ["groups"]
    assert ready(READY, behind, GroupingSeen(digest="d", behind=False)).notes == ()


def test_who_stops_is_not_ready() -> None:
    for stage in (Stage.STOPPING, Stage.STOPPED):
        assert ready(READY, LifeChanged(stage=stage)) == Condition(
            ok=False, reasons=("the service is stopping",)
        )


def test_troubles_are_bounded_but_the_broker_is_always_among_them() -> None:
    many = ready(READY, *(Trouble(what=f"watch:{n}", why="w") for n in range(5000)), BROKER_AWAY)
    assert not many.ok
    assert len(many.notes) == 1000


def test_it_lives_while_the_loop_turns() -> None:
    now = 0.0
    health = ServiceHealth(lambda: now)
    health(BROKER_AWAY)
    now = SILENT_S
    assert health.live().ok, "a broker that is away is no reason to be restarted"
    now += 1
    assert health.live() == Condition(ok=False, reasons=("the event loop has not turned for 31 s",))
    health.beat()
    assert health.live().ok


async def test_its_own_beat_keeps_it_alive() -> None:
    now = 0.0
    health = ServiceHealth(lambda: now)
    now = SILENT_S + 1
    assert not health.live().ok
    beating = asyncio.create_task(health.run())
    await asyncio.sleep(0)
    assert health.live().ok
    beating.cancel()


def test_no_password_is_told() -> None:
    told = ready(
        Trouble(what="broker", why="amqp://u:hunter2@h: refused"),
        Trouble(what="alert:https://hooks.example/hunter2", why="https://hooks.example/hunter2: 404"),
    )
    assert len(told.reasons + told.notes) == 3
    assert "hunter2" not in repr(told)
    recovered = ready(
        Trouble(what="alert:slack://hunter2", why="no"), Recovered(what="alert:slack://hunter2"), READY
    )
    assert recovered == Condition(ok=True)
