"""Alerts: each once, recovery once and only when it lasts, never a flood; and which facts make one.

About `service.telling.alerting`, `service.telling.alerts`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from deadletter.config.settings import AlertSettings
from deadletter.core.guards.gate import GateState
from deadletter.core.letter.names import PARKED
from deadletter.service.telling.alerting import (
    MAX_ACTIVE,
    OVERFLOW_KEY,
    AlertChange,
    Alerts,
    AlertSeverity,
    Notice,
    level,
)
from deadletter.service.telling.alerts import AlertBook
from deadletter.service.telling.service_events import (
    GateChanged,
    GrowthFound,
    LeaseChanged,
    QueueGone,
    QueuesAlike,
    QueueSeen,
    Recovered,
    ServiceEvent,
    Trouble,
)

W, C = AlertSeverity.WARNING, AlertSeverity.CRITICAL


def changes(notices: list[Notice]) -> list[str]:
    return [str(notice.change) for notice in notices]


def test_an_alert_is_told_once() -> None:
    alerts = Alerts()
    assert alerts.observe("a", W, "12 letters", 0.0) == [
        Notice(change=AlertChange.RAISED, severity=W, key="a", text="12 letters", since=0.0)
    ]
    for second in range(1, 1_000):
        assert alerts.observe("a", W, f"{second} letters", float(second)) == []
    assert [(alert.text, alert.since) for alert in alerts.active()] == [("999 letters", 0.0)]


def test_a_warning_escalates_once_and_eases_when_that_lasts() -> None:
    alerts = Alerts()
    alerts.observe("a", W, "", 0.0)
    assert changes(alerts.observe("a", C, "", 1.0)) == ["escalated"]
    assert alerts.observe("a", C, "", 2.0) == []
    assert alerts.observe("a", W, "", 3.0) == []
    assert alerts.observe("a", W, "", 32.9) == []
    assert alerts.severity("a") is C
    assert changes(alerts.observe("a", W, "", 33.0)) == ["eased"]
    assert alerts.severity("a") is W


def test_recovery_is_told_once_and_only_when_it_lasts() -> None:
    alerts = Alerts()
    alerts.observe("a", C, "", 0.0)
    assert alerts.observe("a", None, "fine", 10.0) == []
    assert alerts.due(39.9) == []
    assert alerts.due(40.0) == [
        Notice(change=AlertChange.RECOVERED, severity=C, key="a", text="fine", since=0.0)
    ]
    assert alerts.due(100.0) == []
    assert alerts.active() == ()
    assert alerts.observe("a", None, "", 200.0) == []


def test_what_flaps_is_one_alert() -> None:
    alerts, told = Alerts(), []
    for second in range(600):
        told += alerts.observe("a", W if second % 20 < 2 else None, "", float(second))
        told += alerts.due(float(second))
    assert changes(told) == ["raised"]


def test_between_warning_and_critical_too() -> None:
    alerts, told = Alerts(), []
    for second in range(600):
        told += alerts.observe("a", C if second % 20 < 2 else W, "", float(second))
    assert changes(told) == ["raised"]


def test_a_clock_that_is_set_back_does_not_keep_an_alert_for_ever() -> None:
    alerts = Alerts()
    alerts.observe("a", W, "", 1_000_000.0)
    alerts.observe("a", None, "", 1_000_001.0)
    assert alerts.due(0.0) == []
    assert changes(alerts.due(30.0)) == ["recovered"]


def test_a_number_must_fall_well_below_its_threshold() -> None:
    def at(value: float, before: AlertSeverity | None) -> AlertSeverity | None:
        return level(value, warning=10, critical=50, before=before)

    assert [at(value, None) for value in (10, 11, 50, 51)] == [None, W, W, C]
    assert [at(value, W) for value in (8, 9, 50, 51)] == [None, W, W, C]
    assert [at(value, C) for value in (8, 9, 40, 41)] == [None, W, W, C]
    assert level(1_000, warning=None, critical=None, before=None) is None
    assert level(1_000, warning=None, critical=50, before=None) is C


def test_many_at_once_are_folded_into_one() -> None:
    alerts = Alerts(fold_after=3)
    told = [notice for n in range(40) for notice in alerts.observe(f"q{n}", W, f"q{n} is deep", n / 10)]
    told += alerts.observe("worst", C, "the worst", 4.0)
    assert [notice.key for notice in told] == ["q0", "q1", "q2"]
    assert alerts.due(59.0) == []
    (one,) = alerts.due(60.1)
    assert (one.key, one.severity, one.change) == ("worst", C, AlertChange.RAISED)
    assert one.text == "the worst; and 37 more: q39, q38, q37, q36, q35, …"
    assert len(one.folded) == 37
    assert alerts.due(200.0) == []
    assert len(alerts.active()) == 41


def test_what_rises_and_recovers_while_it_waits_is_not_told() -> None:
    alerts = Alerts(fold_after=1, settle_s=5)
    alerts.observe("first", W, "", 0.0)
    assert alerts.observe("short", W, "", 1.0) == []
    assert alerts.observe("short", None, "", 2.0) == []
    assert alerts.due(10.0) == []
    assert alerts.due(100.0) == []
    assert [alert.key for alert in alerts.active()] == ["first"]


def test_what_recovers_and_rises_again_while_it_waits_is_not_told_either() -> None:
    alerts = Alerts(fold_after=1, settle_s=0)
    assert changes(alerts.observe("a", W, "", 0.0)) == ["raised"]
    assert alerts.observe("a", None, "", 1.0) == []
    assert alerts.observe("a", W, "", 2.0) == []
    assert alerts.due(100.0) == []
    assert alerts.severity("a") is W


def test_more_alerts_than_can_be_remembered_are_said_to_be() -> None:
    alerts = Alerts(max_active=5, fold_after=100, settle_s=0)
    told = [notice for n in range(20) for notice in alerts.observe(f"q{n}", W, "", 0.0)]
    assert [notice.key for notice in told] == ["q0", "q1", "q2", "q3", "q4", "alerts"]
    for n in range(3):
        told += alerts.observe(f"q{n}", None, "", 1.0)
    assert ("alerts", "recovered") in [(n.key, str(n.change)) for n in [*told, *alerts.due(2.0)]]


# -- the book ---------------------------------------------------------------------------------------------


class Desk:
    """An alert book, a clock for it, and what it told."""

    def __init__(
        self,
        *,
        age_warning_ms: int | None = None,
        age_critical_ms: int | None = None,
        growth_per_minute: int | None = None,
        held: int | None = 100,
        breaker: bool = True,
        most: int = MAX_ACTIVE,
    ) -> None:
        self.now = 0.0
        self.told: list[Notice] = []
        self.settings = AlertSettings(
            depth_warning=10,
            depth_critical=50,
            age_warning_ms=age_warning_ms,
            age_critical_ms=age_critical_ms,
            growth_per_minute=growth_per_minute,
            held=held,
            breaker=breaker,
            channels=("log",),
        )
        alerts = Alerts(max_active=most)
        self.book = AlertBook(self.settings, "shop", self.told.extend, lambda: self.now, alerts)

    def hear(self, *events: ServiceEvent) -> list[tuple[str, str, str]]:
        """What was told then: change, severity, key."""
        before = len(self.told)
        for event in events:
            self.book.hear(event)
        return self.since(before)

    def after(self, seconds: float) -> list[tuple[str, str, str]]:
        before = len(self.told)
        self.now += seconds
        self.book.tick()
        return self.since(before)

    def since(self, before: int) -> list[tuple[str, str, str]]:
        return [(str(n.change), str(n.severity), n.key) for n in self.told[before:]]


def queue(
    depth: int,
    name: str = "orders.dlq",
    *,
    watched: bool = True,
    oldest_s: float | None = None,
    growth: float = 0,
) -> QueueSeen:
    return QueueSeen(
        queue=name, watched=watched, depth=depth, consumers=1, oldest_s=oldest_s, growth_per_s=growth
    )


def test_a_deep_queue_warns_escalates_and_recovers() -> None:
    desk = Desk()
    assert desk.hear(queue(10)) == []
    assert desk.hear(queue(11)) == [("raised", "warning", "depth:orders.dlq")]
    assert desk.told[0].text == "orders.dlq holds 11 letters (warning above 10)"
    assert desk.hear(queue(51)) == [("escalated", "critical", "depth:orders.dlq")]
    assert desk.told[1].text == "orders.dlq holds 51 letters (critical above 50)"
    assert desk.hear(queue(9)) == []
    assert desk.after(60) == [("eased", "warning", "depth:orders.dlq")], "9 is more than 80 % of 10"
    assert desk.hear(queue(8)) == []
    assert desk.after(30) == [("recovered", "warning", "depth:orders.dlq")]
    assert desk.told[-1].text == "orders.dlq holds 8 letters"
    assert desk.book.active() == ()


def test_queues_that_look_as_they_did_are_measured_only_where_something_is_wrong() -> None:
    desk = Desk()
    calm, deep = queue(1), queue(11, "bills.dlq")
    assert desk.hear(calm, deep) == [("raised", "warning", "depth:bills.dlq")]
    assert desk.hear(QueuesAlike(queues=(calm, deep))) == []
    assert [alert.key for alert in desk.book.active()] == ["depth:bills.dlq"]
    desk.hear(queue(8, "bills.dlq"))
    desk.now += 30
    assert desk.hear(QueuesAlike(queues=(queue(8, "bills.dlq"),))) == [
        ("recovered", "warning", "depth:bills.dlq")
    ]


def test_other_thresholds_are_for_queues_that_look_as_they_did_too() -> None:
    desk = Desk()
    assert desk.hear(queue(7)) == []
    desk.book.settle(replace(desk.settings, depth_warning=5))
    assert desk.hear(QueuesAlike(queues=(queue(7),))) == [("raised", "warning", "depth:orders.dlq")]


def test_one_alert_too_many_is_raised_when_there_is_room() -> None:
    desk = Desk(most=2)
    third = queue(11, "c.dlq")
    desk.hear(queue(11, "a.dlq"), queue(11, "b.dlq"), third)
    assert OVERFLOW_KEY in {alert.key for alert in desk.book.active()}
    desk.hear(queue(0, "a.dlq"), queue(0, "b.dlq"))
    desk.after(60)
    assert ("raised", "warning", "depth:c.dlq") in desk.hear(QueuesAlike(queues=(third,)))


def test_growth_fades_in_queues_that_look_as_they_did() -> None:
    desk = Desk(growth_per_minute=60)
    for _ in range(60):
        desk.hear(queue(0, growth=2))
        desk.now += 5
    still = QueuesAlike(queues=(queue(0),))
    told: list[tuple[str, str, str]] = []
    for _ in range(60):
        told += desk.hear(still)
        desk.now += 5
    assert told == [("recovered", "warning", "growth:orders.dlq")]


@pytest.mark.parametrize("name", [PARKED, "deadletter.due", "deadletter.delay.1000"])
def test_queues_of_ours_are_not_dead_letter_queues(name: str) -> None:
    assert Desk().hear(queue(10_000, name)) == []


def test_a_queue_nobody_watches_does_not_count() -> None:
    assert Desk().hear(queue(10_000, watched=False)) == []


def test_letters_a_guard_holds() -> None:
    desk = Desk()
    held = "deadletter.held.orders"
    assert desk.hear(queue(100, held, watched=False)) == []
    assert desk.hear(queue(101, held, watched=False)) == [("raised", "warning", f"held:{held}")]
    assert Desk(held=None).hear(queue(101, held)) == []


def test_the_age_of_the_oldest_letter() -> None:
    desk = Desk(age_warning_ms=60_000, age_critical_ms=3_600_000)
    assert desk.hear(queue(1, oldest_s=60)) == []
    assert desk.hear(queue(1, oldest_s=61)) == [("raised", "warning", "age:orders.dlq")]
    assert desk.told[0].text == "the oldest letter in orders.dlq is 1 min old (warning above 1 min)"
    assert desk.hear(queue(1)) == [], "nobody knows"
    assert desk.after(100) == []
    assert desk.hear(queue(1, oldest_s=3_601)) == [("escalated", "critical", "age:orders.dlq")]
    assert desk.hear(queue(0)) == []
    assert desk.after(30) == [("recovered", "critical", "age:orders.dlq")]
    assert Desk().hear(queue(1, oldest_s=1e6)) == []


def test_growth_is_looked_at_over_a_minute() -> None:
    desk = Desk(growth_per_minute=60)
    told: list[tuple[str, str, str]] = []
    for _ in range(3):
        told += desk.hear(queue(0, growth=2))  # 120 a minute, for ten seconds
        desk.now += 5
    assert told == []
    for _ in range(20):
        told += desk.hear(queue(0, growth=2))
        desk.now += 5
    assert told == [("raised", "warning", "growth:orders.dlq")]
    for _ in range(60):
        told += desk.hear(queue(0, growth=0))
        desk.now += 5
    assert told[1:] == [("recovered", "warning", "growth:orders.dlq")]


def test_a_queue_that_is_gone_is_no_alert() -> None:
    desk = Desk()
    desk.hear(queue(11))
    assert desk.hear(QueueGone(queue="orders.dlq")) == []
    assert desk.after(30) == [("recovered", "warning", "depth:orders.dlq")]


def gate(state: GateState, guard: str = "breaker") -> GateChanged:
    return GateChanged(
        gate="g1", origin="orders", state=state, guard=guard, why="20 of 20 letters died again"
    )


def test_a_breaker_is_one_alert_until_the_gate_is_open() -> None:
    desk = Desk()
    assert desk.hear(gate(GateState.CLOSED)) == [("raised", "critical", "breaker:g1")]
    assert "20 of 20" in desk.told[0].text
    assert desk.hear(gate(GateState.PROBING), gate(GateState.CLOSED), gate(GateState.PROBING)) == []
    assert desk.hear(gate(GateState.RAMPING)) == []
    assert desk.after(10) == []
    assert desk.hear(gate(GateState.CLOSED)) == [], "a relapse is the same alert"
    assert desk.after(100) == []
    assert desk.hear(gate(GateState.CLOSED, "consumers"), gate(GateState.OPEN, "consumers")) == []
    assert desk.after(30) == [("recovered", "critical", "breaker:g1")]


def test_other_guards_and_a_breaker_nobody_wants_to_hear_of() -> None:
    assert Desk().hear(gate(GateState.CLOSED, "consumers"), gate(GateState.RAMPING, "full")) == []
    assert Desk(breaker=False).hear(gate(GateState.CLOSED)) == []


def test_letters_that_become_more() -> None:
    desk = Desk()
    found = GrowthFound(origin="orders", letter_id="x", copies=5, why="is a fanout shared?")
    assert desk.hear(found, found) == [("raised", "critical", "copies:orders")]
    assert desk.hear(gate(GateState.CLOSED, "growth")) == []
    assert desk.after(100) == []
    assert desk.hear(gate(GateState.RAMPING, "growth")) == []
    assert desk.after(30) == [("recovered", "critical", "copies:orders")]


@pytest.mark.parametrize(
    ("what", "severity"),
    [("broker", "critical"), ("store", "critical"), ("management", "warning"), ("watch:a.dlq", "warning")],
)
def test_what_does_not_work(what: str, severity: str) -> None:
    desk = Desk()
    trouble = Trouble(what=what, why="connection refused", seconds=1)
    assert desk.hear(trouble, trouble) == [("raised", severity, f"trouble:{what}")]
    assert desk.hear(Recovered(what=what)) == []
    assert desk.hear(trouble) == [], "a broker that comes and goes is one alert"
    assert desk.hear(Recovered(what=what)) == []
    assert desk.after(30) == [("recovered", severity, f"trouble:{what}")]


def test_an_alert_about_alerts_would_go_round() -> None:
    desk = Desk()
    assert desk.hear(Trouble(what="alert:https://hooks.example/***", why="it answered 500")) == []
    assert desk.hear(LeaseChanged(name="x", held=True)) == []


def test_new_settings_count_from_the_next_look_on() -> None:
    desk = Desk()
    desk.hear(queue(11))
    desk.book.settle(
        AlertSettings(
            depth_warning=100, depth_critical=500, age_warning_ms=None, age_critical_ms=None, channels=()
        )
    )
    desk.hear(queue(11))
    assert desk.after(30) == [("recovered", "warning", "depth:orders.dlq")]
