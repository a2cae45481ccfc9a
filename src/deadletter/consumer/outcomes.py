"""What may become of a message in a handler: what it raises, and what a rule says about an error.

A handler that returns has succeeded. One that raises has failed, and the queue's rules say what then; the
exceptions here say it themselves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Any, Final, TypeAlias

from deadletter.consumer.backoffs import Delays, compiled, milliseconds
from deadletter.core.deciding.backoff import Schedule
from deadletter.errors import UsageError


class RetryLater(Exception):
    """Raise it to have the message again: `after` seconds, or when the queue's back-off says."""

    def __init__(self, after: float | timedelta | None = None, why: str = "") -> None:
        seconds = after.total_seconds() if isinstance(after, timedelta) else after
        self.delay_ms: int | None = None if seconds is None else milliseconds("RetryLater(after=…)", seconds)
        super().__init__(why or "the handler asked for it later")


class Park(Exception):
    """Raise it to put the message aside for a person."""

    def __init__(self, why: str) -> None:
        super().__init__(why)


class Discard(Exception):
    """Raise it to throw the message away, said in the log."""

    def __init__(self, why: str = "") -> None:
        super().__init__(why or "the handler discarded it")


class HandlerTimeout(Exception):
    """The handler took longer than the queue allows."""


class HandlerCancelled(Exception):
    """The handler awaited something that somebody else cancelled."""


class BatchFailed(Exception):
    """Raise it in a batch handler: these messages failed, by their place in the list; the others are done."""

    def __init__(self, errors: Mapping[int, Exception]) -> None:
        self.errors: dict[int, Exception] = dict(errors)
        super().__init__(f"{len(self.errors)} of the batch failed")


class Undecodable(Exception):
    """The body is not what the handler's annotation says."""


class Finally(Enum):
    """Rules that end it."""

    PARK = "park"
    DISCARD = "discard"


park: Final = Finally.PARK
discard: Final = Finally.DISCARD


@dataclass(frozen=True, slots=True, kw_only=True)
class Retrying:
    """A rule that retries: other delays, another number of retries; None: the queue's."""

    backoff: Delays | None = None
    retries: int | None = None


def retry(backoff: Delays | None = None, *, retries: int | None = None) -> Retrying:
    """For `on={…}`: such errors are retried, with these delays, so often."""
    return Retrying(backoff=backoff, retries=retries)


OnErrorRule: TypeAlias = Delays | Retrying | Finally
ErrorTreatment: TypeAlias = Schedule | Finally


class Rules:
    """What each error means for one queue."""

    def __init__(
        self, *, retries: int, backoff: Delays, on: Mapping[type[BaseException], OnErrorRule] | None = None
    ) -> None:
        self.schedule: Schedule = compiled(backoff, retries)
        self._by_error: dict[type[BaseException], ErrorTreatment] = {}
        told: Mapping[Any, OnErrorRule] = on or {}  # not everybody has a type checker
        for error, rule in told.items():
            if not (isinstance(error, type) and issubclass(error, BaseException)):
                raise UsageError(f"on: expected classes of errors, got {error!r}: no handler can raise that")
            self._by_error[error] = self._treatment(rule, retries, backoff)

    def _treatment(self, rule: OnErrorRule, retries: int, backoff: Delays) -> ErrorTreatment:
        match rule:
            case Finally():
                return rule
            case Retrying():
                often = retries if rule.retries is None else rule.retries
                return compiled(rule.backoff or backoff, often)
            case _:
                if not isinstance(rule, Delays):
                    raise UsageError(f"on: expected park, discard, retry(…) or a back-off, got {rule!r}")
                return compiled(rule, retries)

    def of(self, error: BaseException) -> ErrorTreatment:
        """By the nearest class of the error that has a rule; else the queue's own retries."""
        for kind in type(error).__mro__:
            found = self._by_error.get(kind)
            if found is not None:
                return found
        return self.schedule

    @property
    def schedules(self) -> Sequence[Schedule]:
        """All of them, the queue's own first."""
        return [self.schedule, *(one for one in self._by_error.values() if isinstance(one, Schedule))]
