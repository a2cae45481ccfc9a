"""The service in words: one line for each fact that is worth one.

Levels: each decision at debug; what became of letters at info, merged to one line a second for each queue and
outcome; what is rare once, at the level that it deserves. Numbers that come with every survey (depths,
budgets, lateness) are metrics and get no line. A trouble that lasts is said when it begins, when its reason
changes, and then once a minute.

How a line is written, that it holds no password, and that nobody waits for it: `log_lines`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal, TextIO, TypeAlias, assert_never

import structlog

from deadletter.core.deciding.letter_fate import LetterFate
from deadletter.core.deciding.states import Step
from deadletter.core.guards.gate import GateState
from deadletter.service.telling import service_events as events
from deadletter.service.telling.log_lines import (
    FIELD_CHARS,
    Lines,
    as_json,
    as_text,
    safe,
    shown,
    told_value,
)

Format: TypeAlias = Literal["text", "json"]
Level: TypeAlias = Literal["debug", "info", "warning", "error"]

MERGE_S: Final = 1.0
AGAIN_S: Final = 60.0
"""A trouble that lasts is said again after this time;"""
CHANGED_S: Final = 5.0
"""one whose reason changes after this."""
_REMEMBERED: Final = 10_000
_MERGED_LINES: Final = 1_000
_TOLD: Final = 5
"""The most names that are listed in one value."""
_PROBLEMS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Logs:
    """What `configure` made: the listener for the hub, what the hub calls on a broken listener, the end."""

    listener: LogListener
    lines: Lines
    _root: _Bridge

    def broken(self, listener: events.ServiceListener, error: Exception) -> None:
        """A line about a listener that raised; for `Hub(on_broken=…)`."""
        self.listener.log.error(
            "a part of the service that listens failed; letters go on", part=repr(listener), error=repr(error)
        )

    def close(self) -> None:
        self.listener.flush()
        logging.getLogger().removeHandler(self._root)
        self.lines.close()


def configure(*, format: Format, level: Level, stream: TextIO, instance: str, broker: str) -> Logs:  # noqa: A002
    """Log to this stream; what libraries log through `logging` goes the same way, from warnings on."""
    render = as_json if format == "json" else as_text
    constants = {"instance": safe(instance), "broker": safe(broker)}

    def told(_logger: object, method: str, fields: MutableMapping[str, Any]) -> str:
        at = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        event = told_value(fields.pop("event"))
        rest = {name: told_value(value) for name, value in fields.items() if value not in (None, "", {}, ())}
        return render({"at": at, "level": method, "event": event, **rest, **constants})

    def on_drop(number: int) -> str:
        return told(None, "warning", {"event": "log lines were dropped: nobody took them", "lines": number})

    lines = Lines(stream, on_drop=on_drop)
    log = structlog.wrap_logger(
        _Out(lines),
        processors=[told],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        cache_logger_on_first_use=False,
    )
    bridge = _Bridge(log)
    root = logging.getLogger()
    root.addHandler(bridge)
    root.setLevel(logging.WARNING)
    return Logs(listener=LogListener(log, level=level), lines=lines, _root=bridge)


class _Out:
    """What structlog calls with a finished line."""

    def __init__(self, lines: Lines) -> None:
        self.debug = self.info = self.warning = self.error = lines.write


class _Bridge(logging.Handler):
    """What libraries say."""

    def __init__(self, log: Any) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        try:
            say = self._log.error if record.levelno >= logging.ERROR else self._log.warning
            trace = logging.Formatter().formatException(record.exc_info) if record.exc_info else ""
            # of a long trace the end is what tells
            say(record.getMessage(), library=record.name, trace=trace[-FIELD_CHARS:])
        except Exception:  # noqa: BLE001 -- logging's own way: a log call never raises into a library
            self.handleError(record)


@dataclass(slots=True)
class _Merged:
    """Letters of one queue with one outcome, since the last line."""

    letters: int = 0
    origins: Counter[str] = field(default_factory=Counter)
    policies: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    causes: Counter[str] = field(default_factory=Counter)

    def add(self, fate: LetterFate, number: int) -> None:
        self.letters += number
        self.origins[fate.origin] += number
        self.policies[fate.policy] += number
        self.reasons[fate.reason] += number
        self.causes[fate.cause] += number


class LogListener:
    """Says each fact. `later` runs something after a while; by default on the running event loop."""

    def __init__(
        self,
        log: Any,
        *,
        level: Level,
        clock: Callable[[], float] = time.monotonic,
        later: Callable[[float, Callable[[], None]], object] | None = None,
    ) -> None:
        self.log = log
        self.wants_decisions: bool = level == "debug"
        self._wants_letters = level in ("debug", "info")
        self._clock = clock
        self._later = later or _on_the_loop
        self._merged: dict[tuple[str, Step], _Merged] = {}
        self._flush_asked = False
        self._named: set[tuple[str, str]] = set()
        self._troubles: dict[str, tuple[str, float]] = {}

    def __call__(self, event: events.ServiceEvent) -> None:
        log = self.log
        match event:
            case events.Confirmed(fates=fates):
                self._merge(fates)
            case events.Decided():
                self._decided(event)
            case (
                events.Late()
                | events.QueueSeen()
                | events.QueuesAlike()
                | events.BudgetSeen()
                | events.ReplayCounted()
                | events.ReplaysSeen()
            ):
                pass  # numbers: they are metrics
            case events.LettersStored(copies=copies, again=again, new_groups=groups, reopened=reopened):
                if copies or again or reopened:
                    log.info("letters known in the store", copies=copies, again=again, reopened=reopened)
                if groups:
                    log.info("new groups of letters", groups=groups)
            case events.GroupingSeen(digest=digest, behind=behind):
                if behind:
                    log.info(
                        "stored letters are grouped by other rules", rules=digest, why=events.GROUPS_BEHIND
                    )
                else:
                    log.info("stored letters are grouped by the rules in force", rules=digest)
            case events.ReplayChanged(replay=replay, state=state, why=why):
                say = log.warning if state == "stopped" else log.info
                say(f"replay {state}", replay=replay, why=why)
            case events.QueueGone(queue=queue):
                log.info("a queue is gone", queue=queue)
            case events.GateChanged(gate=gate, origin=origin, state=state, guard=guard, why=why):
                say = log.warning if state is GateState.CLOSED else log.info
                say(f"gate {state.value}", gate=gate, origin=origin, guard=guard, why=why)
            case events.LeaseChanged(name=name, held=held):
                log.info("lease taken" if held else "lease given up", lease=name)
            case events.HousekeepingDone(delays=delays, held=queues, ways=ways):
                log.info("deleted what nobody uses", delays=delays, held_queues=queues, ways_back=ways)
            case events.SweepEnded():
                self._swept(event)
            case events.GrowthFound(origin=origin, letter_id=letter, copies=copies, why=why):
                log.error(
                    "a letter multiplies: its path is stopped",
                    origin=origin,
                    letter=letter,
                    copies=copies,
                    why=why,
                )
            case events.FindingNamed(rule=rule, subject=subject, why=why):
                if (rule, subject) not in self._named:
                    if len(self._named) >= _REMEMBERED:
                        self._named.clear()
                    self._named.add((rule, subject))
                    log.warning("finding", rule=rule, subject=subject, why=why)
            case events.FindingGone(rule=rule, subject=subject):
                self._named.discard((rule, subject))
                log.info("finding gone", rule=rule, subject=subject)
            case events.Trouble():
                self._trouble(event)
            case events.Recovered(what=what, why=why):
                self._troubles.pop(what, None)
                what, why = shown(what, why)
                log.info("works again", what=what, why=why)
            case events.PoliciesChanged(count=count, where=where, problems=problems):
                log.info("policies in force", count=count, where=where)
                for problem in problems[:_PROBLEMS]:
                    log.warning("a policy is ignored", why=problem)
                if len(problems) > _PROBLEMS:
                    log.warning("more policies are ignored", count=len(problems) - _PROBLEMS)
            case events.LifeChanged(stage=stage, why=why):
                if stage in (events.Stage.STOPPING, events.Stage.STOPPED):
                    self.flush()
                log.info(stage.value, why=why)
            case _:
                assert_never(event)

    def flush(self) -> None:
        """Say what has been merged so far."""
        self._flush_asked = False
        merged, self._merged = self._merged, {}
        for (source, kind), found in merged.items():
            say = self.log.warning if kind is Step.FAILED else self.log.info
            say(
                f"letters {kind.value}",
                queue=source,
                letters=found.letters,
                origins=_most(found.origins),
                policies=_most(found.policies),
                reasons=_most(found.reasons),
                causes=_most(found.causes),
            )

    def _merge(self, fates: Mapping[LetterFate, int]) -> None:
        for fate, number in fates.items():
            if not self._wants_letters and fate.step is not Step.FAILED:
                continue
            key = (fate.source, fate.step)
            if key not in self._merged:
                if len(self._merged) >= _MERGED_LINES:
                    key = ("(others)", fate.step)
                self._merged.setdefault(key, _Merged())
            self._merged[key].add(fate, number)
        if self._merged and not self._flush_asked:
            self._flush_asked = True
            self._later(MERGE_S, self.flush)

    def _decided(self, event: events.Decided) -> None:
        fate = event.fate
        self.log.debug(
            f"decided: {fate.step.value}",
            letter=event.letter_id,
            queue=fate.source,
            origin=fate.origin,
            attempt=fate.attempt,
            delay_ms=fate.delay_ms,
            policy=fate.policy,
            reason=fate.reason,
            cause=fate.cause,
            why=event.why,
        )

    def _swept(self, event: events.SweepEnded) -> None:
        say = self.log.warning if event.failed or event.kept else self.log.info
        say(
            "swept",
            queue=event.dlq,
            seen=event.seen,
            moved=event.moved,
            left=event.left,
            failed=event.failed,
            seconds=event.seconds,
            asked_by=event.why,
            why="; ".join(one.why for one in event.kept[:_TOLD]),
        )

    def _trouble(self, event: events.Trouble) -> None:
        now = self._clock()
        why, said_at = self._troubles.get(event.what, (None, 0.0))
        if why is not None and now - said_at < (AGAIN_S if why == event.why else CHANGED_S):
            return
        if len(self._troubles) >= _REMEMBERED:
            self._troubles.clear()
        self._troubles[event.what] = (event.why, now)
        what, hidden = shown(event.what, event.why)
        self.log.warning("does not work", what=what, why=hidden, next_try_s=event.seconds)


def _on_the_loop(seconds: float, work: Callable[[], None]) -> None:
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # before the loop or after it: there is nobody to wait for
        work()
    else:
        loop.call_later(seconds, work)


def _most(counted: Counter[str]) -> str | Mapping[str, int]:
    """The one name, or the most frequent ones with their numbers."""
    names = counted.most_common(_TOLD)
    if len(names) == 1:
        return names[0][0]
    told = {name or "-": number for name, number in names}
    rest = counted.total() - sum(told.values())
    return {**told, "…": rest} if rest else told
