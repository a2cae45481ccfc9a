"""The alert book: facts of the service in, alerts out.

It listens like logs and metrics do, knows what is too much (`AlertSettings`), and leaves to
`service.telling.alerting` what is told of it. Dead-letter queues that are watched count; of our own queues
only those that hold letters back. Keys name the alert for whoever takes notices apart:

    depth:QUEUE  age:QUEUE  growth:QUEUE  held:QUEUE  breaker:GATE  copies:ORIGIN  finding:RULE:SUBJECT
    trouble:WHAT
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp
from time import time
from typing import Final

from deadletter.config.settings import AlertSettings
from deadletter.core.guards.gate import GateState
from deadletter.core.layouts.naming import HELD
from deadletter.core.letter.names import is_ours
from deadletter.core.text.durations import rough_duration_text
from deadletter.service.telling import service_events as events
from deadletter.service.telling.alerting import Alert, Alerts, AlertSeverity, Notice, level
from deadletter.service.telling.service_health import POLICY

GROWTH_SPAN_S: Final = 60.0
"""Growth is looked at over about a minute: one letter in a survey of five seconds is not twelve a minute."""
MAX_QUEUES: Final = 10_000
_TROUBLES: Final = {
    "broker": AlertSeverity.CRITICAL,
    "store": AlertSeverity.CRITICAL,
    events.STORE_LETTERS: AlertSeverity.CRITICAL,
    "management": AlertSeverity.WARNING,
}
_WATCH: Final = "watch:"


@dataclass(slots=True)
class _Growth:
    per_minute: float
    at: float


class AlertBook:
    """A listener. `deliver` gets what is to be told; `tick` is called every second or so."""

    def __init__(
        self,
        settings: AlertSettings,
        broker_name: str,
        deliver: Callable[[list[Notice]], None],
        clock: Callable[[], float] = time,
        alerts: Alerts | None = None,
    ) -> None:
        self._settings = settings
        self._broker = broker_name
        self._deliver = deliver
        self._clock = clock
        self._alerts = alerts or Alerts()
        self._growth: dict[str, _Growth] = {}
        self._calm: set[tuple[str, str]] = set()
        """Queues, by vhost and name, of which nothing is wrong until they are seen otherwise."""

    def hear(self, event: events.ServiceEvent) -> None:
        """One fact. Most are not about alerts."""
        match event:
            case events.QueueSeen():
                self._queue_seen(event)
            case events.QueuesAlike(queues=queues):
                for seen in queues:
                    if (seen.vhost, seen.queue) not in self._calm:
                        self._queue_seen(seen)
            case events.QueueGone(queue=queue, vhost=vhost):
                self._calm.discard((vhost, queue))
                self._queue_gone(queue)
            case events.GateChanged():
                self._gate_changed(event)
            case events.GrowthFound(origin=origin, copies=copies, why=why):
                text = f"{origin}: {copies} letters of one id, its letters are held; {why}"
                self._observe(f"copies:{origin}", AlertSeverity.CRITICAL, text)
            case events.FindingNamed(rule=rule, subject=subject, why=why):
                self._observe(f"finding:{rule}:{subject}", AlertSeverity.WARNING, why)
            case events.FindingGone(rule=rule, subject=subject):
                self._observe(f"finding:{rule}:{subject}", None, f"{subject}: {rule} is mended")
            case events.Trouble(what=what, why=why):
                if (severity := _severity_of(what)) is not None:
                    self._observe(f"trouble:{what}", severity, f"{self._named(what)}: {why}")
            case events.Recovered(what=what):
                if _severity_of(what) is not None:
                    self._observe(f"trouble:{what}", None, f"{self._named(what)} works again")
            case _:
                pass

    def tick(self) -> None:
        """Time passed: recoveries that have lasted are told."""
        self._tell(self._alerts.due(self._clock()))

    def active(self) -> tuple[Alert, ...]:
        return self._alerts.active()

    def settle(self, settings: AlertSettings) -> None:
        """Other thresholds from now on. What is active is measured with them when it is seen next."""
        if settings != self._settings:
            self._settings = settings
            self._calm.clear()

    # -- queues -------------------------------------------------------------------------------------------

    def _queue_seen(self, seen: events.QueueSeen) -> None:
        calm = True
        if seen.queue.startswith(HELD):
            calm = self._held(seen)
        elif seen.watched and not is_ours(seen.queue):
            well = self._depth(seen), self._age(seen)
            self._growing(seen)
            calm = all(well) and self._settings.growth_per_minute is None
        if calm and len(self._calm) < MAX_QUEUES:
            self._calm.add((seen.vhost, seen.queue))
        else:
            self._calm.discard((seen.vhost, seen.queue))

    def _depth(self, seen: events.QueueSeen) -> bool:
        settings = self._settings
        return self._measure(
            f"depth:{seen.queue}",
            seen.depth,
            settings.depth_warning,
            settings.depth_critical,
            f"{seen.queue} holds {seen.depth:,} letters",
            "{:,.0f}".format,
        )

    def _age(self, seen: events.QueueSeen) -> bool:
        settings = self._settings
        if seen.oldest_s is None and seen.depth:
            return True  # nobody knows; that is no news
        age_ms = round((seen.oldest_s or 0) * 1000)
        return self._measure(
            f"age:{seen.queue}",
            age_ms,
            settings.age_warning_ms,
            settings.age_critical_ms,
            f"the oldest letter in {seen.queue} is {rough_duration_text(age_ms)} old"
            if seen.depth
            else f"{seen.queue} is empty",
            lambda limit_ms: rough_duration_text(round(limit_ms)),
        )

    def _growing(self, seen: events.QueueSeen) -> None:
        limit = self._settings.growth_per_minute
        key = f"growth:{seen.queue}"
        if limit is None:
            return
        now = self._clock()
        smooth = self._growth.get(seen.queue)
        if smooth is None:
            if len(self._growth) < MAX_QUEUES:
                self._growth[seen.queue] = _Growth(0.0, now)
            return
        # the last minute counts most, older ones less and less
        weight = 1 - exp(-max(0.0, now - smooth.at) / GROWTH_SPAN_S)
        smooth.per_minute += (seen.growth_per_s * 60 - smooth.per_minute) * weight
        smooth.at = now
        text = f"{seen.queue} grows by {smooth.per_minute:,.0f} letters a minute"
        self._measure(key, smooth.per_minute, limit, None, text, "{:,.0f}".format)

    def _held(self, seen: events.QueueSeen) -> bool:
        text = f"{seen.queue}: a guard holds {seen.depth:,} letters"
        limit = self._settings.held
        return self._measure(f"held:{seen.queue}", seen.depth, limit, None, text, "{:,.0f}".format)

    def _queue_gone(self, queue: str) -> None:
        self._growth.pop(queue, None)
        for kind in ("depth", "age", "growth", "held"):
            self._observe(f"{kind}:{queue}", None, f"{queue} is gone")

    # -- gates --------------------------------------------------------------------------------------------

    def _gate_changed(self, changed: events.GateChanged) -> None:
        breaker, copies = f"breaker:{changed.gate}", f"copies:{changed.origin}"
        match changed.state:
            case GateState.OPEN:
                # also where another guard closed it last: open is open for every guard
                self._observe(breaker, None, f"{changed.origin}: letters go back again")
                self._observe(copies, None, f"{changed.origin}: letters go back again")
            case GateState.RAMPING if changed.guard == "breaker":
                self._observe(breaker, None, f"{changed.origin}: letters go back again, slowly at first")
            case GateState.RAMPING if changed.guard == "growth":
                self._observe(copies, None, f"{changed.origin}: letters go back again, slowly at first")
            case GateState.CLOSED | GateState.PROBING if (
                changed.guard == "breaker" and self._settings.breaker
            ):
                text = f"{changed.origin}: letters that go back die again, so they are held; {changed.why}"
                self._observe(breaker, AlertSeverity.CRITICAL, text)
            case _:
                pass

    # -- telling ------------------------------------------------------------------------------------------

    def _measure(
        self,
        key: str,
        value: float,
        warning: float | None,
        critical: float | None,
        text: str,
        shown: Callable[[float], str],
    ) -> bool:
        """Whether nothing is wrong, and nothing was."""
        severity = level(value, warning=warning, critical=critical, before=self._alerts.severity(key))
        limit = critical if severity is AlertSeverity.CRITICAL else warning
        if severity is not None and limit is not None:
            text = f"{text} ({severity} above {shown(limit)})"
        self._observe(key, severity, text)
        return severity is None and self._alerts.severity(key) is None

    def _observe(self, key: str, severity: AlertSeverity | None, text: str) -> None:
        self._tell(self._alerts.observe(key, severity, text, self._clock()))

    def _tell(self, notices: list[Notice]) -> None:
        if notices:
            self._deliver(notices)

    def _named(self, what: str) -> str:
        return f"broker {self._broker}" if what == "broker" else what.replace(_WATCH, "the watch of ", 1)


def _severity_of(what: str) -> AlertSeverity | None:
    """None for what is no alert; an alert about an alert channel would go round."""
    if what.startswith(POLICY):
        return AlertSeverity.CRITICAL
    return AlertSeverity.WARNING if what.startswith(_WATCH) else _TROUBLES.get(what)
