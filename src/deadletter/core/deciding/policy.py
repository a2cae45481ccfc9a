"""Policies: which letters, how often, how long, and then what.

Policies stand in order and the first that matches decides; the default matches everything, so one always
does. A policy's match is a list of conditions that must all hold; a condition that is not given holds.

One kind of condition is not answered here: a `jq` program on the body. jq is a language with loops, its
Python binding holds the interpreter lock while it runs, and `env` in it reads the process's environment.
Bounding it in time, size and sight takes a process of its own, which is I/O, and core has none. So a
condition is a value, and its answer is one too: `decide.questions` says which programs a letter needs
answered, whoever has a worker answers them, and `decide` takes the answers. A question nobody could
answer in bounds parks the letter: taking it for a "no" could hand the letter to a later policy that
discards.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from deadletter.core.deciding.backoff import MAX_DELAY_MS, Backoff, Exponential, Schedule, compile_schedule
from deadletter.core.deciding.deaths import REASONS, CountBy, OwnAttempt
from deadletter.core.deciding.letter_view import LetterView
from deadletter.core.letter import header_values
from deadletter.core.text.glob import glob
from deadletter.core.topology.routing_keys import topic_matches
from deadletter.errors import UsageError

MAX_POLICIES: Final = 1_000
MAX_LEVELS_TOGETHER: Final = 200
MAX_BUDGET_PER_MINUTE: Final = 10_000_000
MAX_PROGRAM_CHARS: Final = 4_000
_MAX_MATCHED_CHARS: Final = 4_000
_HEADER: Final = "header "


class Then(StrEnum):
    """What happens when there are no more retries."""

    PARK = "park"
    DISCARD = "discard"
    LEAVE = "leave"


@dataclass(frozen=True, slots=True, kw_only=True)
class JqCondition:
    """A jq program that says true or false of a JSON body."""

    program: str

    def __post_init__(self) -> None:
        if not 0 < len(self.program) <= MAX_PROGRAM_CHARS:
            raise UsageError(
                f"match.body: expected a jq program of 1 to {MAX_PROGRAM_CHARS} characters, "
                f"got {len(self.program)}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderMatch:
    """A header that is there, with a value like this: `*` for any run of characters, numbers as text."""

    header: str
    value: str = "*"


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """All conditions that are given must hold."""

    queue: str | None = None
    routing_key: str | None = None
    reasons: frozenset[str] = frozenset()
    error_types: tuple[str, ...] = ()
    headers: tuple[HeaderMatch, ...] = ()
    content_type: str | None = None
    body: JqCondition | None = None

    def __post_init__(self) -> None:
        if unknown := sorted(self.reasons.difference(REASONS)):
            raise UsageError(
                f"match.reasons: expected {', '.join(REASONS)}, got {', '.join(map(repr, unknown))}"
            )
        for key, pattern in (("queue", self.queue), ("routing_key", self.routing_key)):
            if pattern is not None and len(pattern) > header_values.MAX_NAME_BYTES:
                raise UsageError(
                    f"match.{key}: expected at most {header_values.MAX_NAME_BYTES} characters, "
                    f"got {len(pattern)}"
                )

    @property
    def everything(self) -> bool:
        return self == _EVERYTHING

    def holds(self, letter: LetterView) -> bool:
        """Whether every condition holds, the body's left open."""
        return self._failing(letter) is None

    def refusal(self, letter: LetterView, *, unquoted: Container[str] = ()) -> str | None:
        """The first condition that does not hold, in words; None when all hold, the body's left open.
        `unquoted`: headers whose values are not told."""
        failing = self._failing(letter)
        if failing is None:
            return None
        what, value, wanted = failing
        is_told = what.removeprefix(_HEADER) not in unquoted if what.startswith(_HEADER) else True
        return f"{what} {_said(value)} is not {wanted}" if is_told else f"{what} is not {wanted}"

    def _failing(self, letter: LetterView) -> tuple[str, str | None, str] | None:
        """What was looked at, what it is, what was wanted."""
        origin = letter.origin
        if self.queue is not None and (origin is None or not glob(self.queue, origin.queue)):
            return "origin", origin.queue if origin else None, f"like {self.queue!r}"
        if self.routing_key is not None:
            keys = origin.routing_keys if origin else ()
            if not any(topic_matches(self.routing_key, key) for key in keys):
                return "routing key", keys[0] if keys else None, f"like {self.routing_key!r}"
        if self.reasons and letter.reason not in self.reasons:
            return "death reason", letter.reason, " or ".join(sorted(self.reasons))
        if self.error_types:
            error_type = letter.failure.error_type if letter.failure else None
            if not any(error_type_matches(pattern, error_type) for pattern in self.error_types):
                return "error", error_type, f"like {' or '.join(self.error_types)}"
        for wanted in self.headers:
            value = header_values.text(letter.headers.get(wanted.header), _MAX_MATCHED_CHARS)
            if value is None or not glob(wanted.value, value):
                return f"{_HEADER}{wanted.header}", value, f"like {wanted.value!r}"
        if self.content_type is not None and not glob(self.content_type, _media_type(letter.content_type)):
            return "content type", letter.content_type, f"like {self.content_type!r}"
        return None


_EVERYTHING: Final = Match()


def _said(value: str | None) -> str:
    return "(none)" if value is None else repr(header_values.shown(value, 100))


def _media_type(content_type: str | None) -> str:
    """`application/json; charset=utf-8` is application/json to whoever writes a policy."""
    return (content_type or "")[:_MAX_MATCHED_CHARS].partition(";")[0].strip().lower()


def error_type_matches(pattern: str, error_type: str | None) -> bool:
    """By the full name or by its last part, so `TimeoutError` finds `asyncio.exceptions.TimeoutError`."""
    if error_type is None:
        return False
    last = error_type
    for separator in ("::", ".", "+", "$", "\\"):
        last = last.rpartition(separator)[2]
    return glob(pattern, error_type) or glob(pattern, last)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorRule:
    """For errors like these another back-off or number of retries, or none and straight to `then`."""

    error_types: tuple[str, ...]
    backoff: Backoff | None = None
    retries: int | None = None
    then: Then | None = None

    def __post_init__(self) -> None:
        if not self.error_types:
            raise UsageError("errors.types: expected at least one error type, got none")
        if self.backoff is None and self.retries is None and self.then is None:
            raise UsageError(
                f"errors {list(self.error_types)}: expected backoff, retries or then, got none of them"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Treatment:
    """How one kind of failure is handled under a policy: its schedule, and what comes after it."""

    schedule: Schedule
    then: Then
    error_types: tuple[str, ...] = ()

    def text(self) -> str:
        return self.schedule.text(self.then.value)


_OWN_ATTEMPT: Final = OwnAttempt()
DEFAULT_BACKOFF: Final = Exponential(first_ms=1_000, factor=2.0, cap_ms=600_000, jitter=0.2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """`deadline_ms`: give up when the letter would come back later than this after its first death.

    `budget_per_minute`: at most so many of its letters go back in a minute; the others wait in the broker.
    """

    name: str
    match: Match = _EVERYTHING
    retries: int = 5
    backoff: Backoff = DEFAULT_BACKOFF
    deadline_ms: int | None = None
    then: Then = Then.PARK
    count_by: CountBy = _OWN_ATTEMPT
    errors: tuple[ErrorRule, ...] = ()
    budget_per_minute: int | None = None
    treatments: tuple[Treatment, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.name:
            raise UsageError("policy.name: expected a name, got an empty one")
        if self.deadline_ms is not None and not 0 < self.deadline_ms <= 1_000 * MAX_DELAY_MS:
            raise UsageError(
                f"policy {self.name}: deadline: expected more than 0 ms, got {self.deadline_ms} ms"
            )
        if self.budget_per_minute is not None and not 1 <= self.budget_per_minute <= MAX_BUDGET_PER_MINUTE:
            raise UsageError(
                f"policy {self.name}: budget_per_minute: expected 1 to {MAX_BUDGET_PER_MINUTE} letters, "
                f"got {self.budget_per_minute}"
            )
        try:
            treatments = (*map(self._compiled, self.errors), self._plain())
        except UsageError as error:
            raise UsageError(f"policy {self.name}: {error}") from error
        object.__setattr__(self, "treatments", treatments)

    def _plain(self) -> Treatment:
        return Treatment(schedule=compile_schedule(self.backoff, self.retries), then=self.then)

    def _compiled(self, rule: ErrorRule) -> Treatment:
        # "ValidationError: park" means at once; only a rule that says how to retry retries
        at_once = rule.backoff is None and rule.retries is None
        retries = 0 if at_once else self.retries if rule.retries is None else rule.retries
        return Treatment(
            schedule=compile_schedule(rule.backoff or self.backoff, retries),
            then=rule.then or self.then,
            error_types=rule.error_types,
        )

    def treatment(self, error_type: str | None) -> Treatment:
        """By the first error rule that fits; else the policy's own."""
        for treatment in self.treatments[:-1]:
            if any(error_type_matches(pattern, error_type) for pattern in treatment.error_types):
                return treatment
        return self.treatments[-1]

    @property
    def levels_ms(self) -> frozenset[int]:
        return frozenset(level for t in self.treatments for level in t.schedule.levels_ms)

    def text(self) -> str:
        """Its schedules as a person reads them, the policy's own first."""
        own = self.treatments[-1].text()
        return "; ".join([own, *(f"{' or '.join(t.error_types)}: {t.text()}" for t in self.treatments[:-1])])


DEFAULT_POLICY: Final = Policy(name="default")


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """In order, with a default that takes whatever is left."""

    rules: tuple[Policy, ...] = ()
    default: Policy = DEFAULT_POLICY

    def __post_init__(self) -> None:
        if not self.default.match.everything:
            raise UsageError(
                f"default policy {self.default.name}: expected no match, got {self.default.match}"
            )
        if len(self.rules) > MAX_POLICIES:
            raise UsageError(f"policies: expected at most {MAX_POLICIES}, got {len(self.rules)}")
        names = [policy.name for policy in self]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise UsageError(f"policies: expected different names, got twice: {', '.join(twice)}")
        if len(self.levels_ms) > MAX_LEVELS_TOGETHER:
            raise UsageError(
                f"policies: expected at most {MAX_LEVELS_TOGETHER} different delays together, "
                f"got {len(self.levels_ms)}; each is a queue on the broker"
            )

    def __iter__(self) -> Iterator[Policy]:
        yield from self.rules
        yield self.default

    @property
    def levels_ms(self) -> frozenset[int]:
        """The delay queues this set needs, and all it can ever need."""
        return frozenset(level for policy in self for level in policy.levels_ms)
