"""When somebody should know: each alert once, its recovery once, and never a flood. Pure; `now` is given.

An alert has a key (`depth:orders.dlq`) and is fed with observations: how bad it is now, or that it is not.
Bad news is told at once. Good news has to last: an alert eases or recovers only when it was better for the
whole settling time, so a value that goes up and down around its threshold is one alert, not a hundred. For
numbers, `level` adds a second guard of that kind: what was above a threshold must fall to 80 % of it.

When many things break at once, the first notices are told one by one and the rest is folded into one, the
worst of them with "and 37 more". What rises and recovers while it waits to be folded is not told at all.

No observation is no news: an alert whose queue cannot be asked stays as it is.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

SETTLE_S: Final = 30.0
FOLD_AFTER: Final = 20
FOLD_WINDOW_S: Final = 60.0
EASE_SHARE: Final = 0.8
MAX_ACTIVE: Final = 10_000
"""More alerts than this are not remembered, and therefore not told."""
OVERFLOW_KEY: Final = "alerts"
_KEYS_SHOWN: Final = 5


class AlertSeverity(StrEnum):
    WARNING = "warning"
    CRITICAL = "critical"


class AlertChange(StrEnum):
    RAISED = "raised"
    ESCALATED = "escalated"
    """It was a warning, and is critical now."""
    EASED = "eased"
    """It was critical, and is a warning now."""
    RECOVERED = "recovered"


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """What somebody is told. A recovered one has the severity it had."""

    change: AlertChange
    severity: AlertSeverity
    key: str
    text: str
    since: float
    """When the alert was raised."""
    folded: tuple[Notice, ...] = ()
    """Others that are told by this one, because there were too many."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alert:
    """One that is active. `text` is how things were when last seen."""

    key: str
    severity: AlertSeverity
    text: str
    since: float


@dataclass(slots=True)
class _Active:
    severity: AlertSeverity
    text: str
    since: float
    better_since: float | None = None
    """Since when it has been less bad than told."""
    gone_since: float | None = None
    """Since when there has been nothing at all."""


def level(
    value: float, *, warning: float | None, critical: float | None, before: AlertSeverity | None
) -> AlertSeverity | None:
    """How bad a number is. Bad is above a threshold; what was bad `before` is so until 80 % of it."""
    if critical is not None and value > critical * (EASE_SHARE if before is AlertSeverity.CRITICAL else 1):
        return AlertSeverity.CRITICAL
    if warning is not None and value > warning * (EASE_SHARE if before is not None else 1):
        return AlertSeverity.WARNING
    return None


class Alerts:
    """What is wrong now, and what has to be told about it."""

    def __init__(
        self,
        *,
        settle_s: float = SETTLE_S,
        fold_after: int = FOLD_AFTER,
        fold_window_s: float = FOLD_WINDOW_S,
        max_active: int = MAX_ACTIVE,
    ) -> None:
        self._settle_s = settle_s
        self._fold_window_s = fold_window_s
        self._max_active = max_active
        self._active: dict[str, _Active] = {}
        self._settling: set[str] = set()
        """Keys that are better than told: all that the time alone can change."""
        self._told_at: deque[float] = deque(maxlen=max(1, fold_after))
        self._told: dict[str, AlertSeverity] = {}
        """What whoever listens knows; without folding, the same as what is active."""
        self._folded: dict[str, Notice] = {}

    def observe(self, key: str, severity: AlertSeverity | None, text: str, now: float) -> list[Notice]:
        """How bad it is now; None: not at all. What is to be told, in order."""
        return self._fold([*self._settled(now), *self._observed(key, severity, text, now)], now)

    def due(self, now: float) -> list[Notice]:
        """What the time alone brings: recoveries that have lasted, and what was folded."""
        return self._fold(self._settled(now), now)

    def severity(self, key: str) -> AlertSeverity | None:
        """How bad this is, as told."""
        active = self._active.get(key)
        return active.severity if active else None

    def active(self) -> tuple[Alert, ...]:
        """Everything that is wrong, the worst and oldest first."""
        alerts = [
            Alert(key=key, severity=one.severity, text=one.text, since=one.since)
            for key, one in self._active.items()
        ]
        return tuple(sorted(alerts, key=lambda alert: (_rank(alert.severity) * -1, alert.since, alert.key)))

    # -- one alert ----------------------------------------------------------------------------------------

    def _observed(self, key: str, severity: AlertSeverity | None, text: str, now: float) -> list[Notice]:
        active = self._active.get(key)
        if active is None:
            return [] if severity is None else self._raised(key, severity, text, now)
        active.text = text
        if severity is None:
            active.gone_since = _earliest(active.gone_since, now)
        else:
            active.gone_since = None
        if _rank(severity) < _rank(active.severity):
            active.better_since = _earliest(active.better_since, now)
            self._settling.add(key)
            return self._settle(key, active, now)
        active.better_since = None
        self._settling.discard(key)
        if severity is None or severity is active.severity:
            return []
        active.severity = severity
        return [_notice(AlertChange.ESCALATED, key, active)]

    def _raised(self, key: str, severity: AlertSeverity, text: str, now: float) -> list[Notice]:
        if len(self._active) >= self._max_active:
            if OVERFLOW_KEY in self._active:
                return []
            key, severity = OVERFLOW_KEY, AlertSeverity.CRITICAL
            text = f"more than {self._max_active:,} alerts are active; further ones are not told"
        self._active[key] = active = _Active(severity=severity, text=text, since=now)
        return [_notice(AlertChange.RAISED, key, active)]

    def _settled(self, now: float) -> list[Notice]:
        if OVERFLOW_KEY in self._active and len(self._active) <= self._max_active * EASE_SHARE:
            overflow = self._active.pop(OVERFLOW_KEY)
            overflow.text = "alerts are told again"
            return [_notice(AlertChange.RECOVERED, OVERFLOW_KEY, overflow)]
        if not self._settling:
            return []
        return [
            notice for key in sorted(self._settling) for notice in self._settle(key, self._active[key], now)
        ]

    def _settle(self, key: str, active: _Active, now: float) -> list[Notice]:
        """Better for long enough? A clock that was set back starts the wait anew rather than for ever."""
        gone, better = active.gone_since, active.better_since
        if gone is not None:
            active.gone_since = gone = min(gone, now)
            if now - gone >= self._settle_s:
                del self._active[key]
                self._settling.discard(key)
                return [_notice(AlertChange.RECOVERED, key, active)]
        if better is not None and active.severity is AlertSeverity.CRITICAL:
            active.better_since = better = min(better, now)
            if gone is None and now - better >= self._settle_s:
                active.severity = AlertSeverity.WARNING
                active.better_since = None
                self._settling.discard(key)
                return [_notice(AlertChange.EASED, key, active)]
        return []

    # -- many of them -------------------------------------------------------------------------------------

    def _fold(self, notices: list[Notice], now: float) -> list[Notice]:
        told: list[Notice] = []
        if self._folded and self._may_tell(now):
            told.append(self._unfolded())
            self._told_at.append(now)
        for notice in notices:
            if not self._folded and self._may_tell(now):
                told.append(notice)
                self._told_at.append(now)
                self._remember(notice)
            else:
                self._put_aside(notice)
        return told

    def _may_tell(self, now: float) -> bool:
        told_at = self._told_at
        return len(told_at) < (told_at.maxlen or 1) or not 0 <= now - told_at[0] < self._fold_window_s

    def _put_aside(self, notice: Notice) -> None:
        """One notice per key, of what is new against what was told; perhaps nothing is by now."""
        self._folded.pop(notice.key, None)
        before = self._told.get(notice.key)
        if notice.change is AlertChange.RECOVERED:
            change = AlertChange.RECOVERED if before is not None else None
        else:
            change = _change(before, notice.severity)
        if change is not None:
            self._folded[notice.key] = replace(notice, change=change)

    def _remember(self, notice: Notice) -> None:
        if notice.change is AlertChange.RECOVERED:
            self._told.pop(notice.key, None)
        else:
            self._told[notice.key] = notice.severity

    def _unfolded(self) -> Notice:
        notices = sorted(self._folded.values(), key=_weight, reverse=True)
        self._folded.clear()
        for notice in notices:
            self._remember(notice)
        worst, *others = notices
        if not others:
            return worst
        keys = ", ".join(notice.key for notice in others[:_KEYS_SHOWN])
        more = ", …" if len(others) > _KEYS_SHOWN else ""
        text = f"{worst.text}; and {len(others)} more: {keys}{more}"
        return replace(worst, text=text, folded=tuple(others))


def _notice(change: AlertChange, key: str, active: _Active) -> Notice:
    return Notice(change=change, severity=active.severity, key=key, text=active.text, since=active.since)


def _rank(severity: AlertSeverity | None) -> int:
    return 0 if severity is None else 1 if severity is AlertSeverity.WARNING else 2


def _change(told: AlertSeverity | None, now: AlertSeverity) -> AlertChange | None:
    if told is now:
        return None
    if told is None:
        return AlertChange.RAISED
    return AlertChange.ESCALATED if _rank(now) > _rank(told) else AlertChange.EASED


def _weight(notice: Notice) -> tuple[bool, int, float]:
    """News before recoveries, critical before warnings, the newest first."""
    return notice.change is not AlertChange.RECOVERED, _rank(notice.severity), notice.since


def _earliest(since: float | None, now: float) -> float:
    return now if since is None else since
