"""The tables of policies: which letters, how often, how long, and then what."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Final, Literal

from pydantic import Discriminator, Field

from deadletter.config.tables.base import (
    Age,
    Counted,
    Delay,
    Floor,
    Name,
    Names,
    Pattern,
    Reasons,
    Table,
    TableFinding,
    ThenWord,
    as_written,
)
from deadletter.core.deciding.backoff import (
    DEFAULT_CAP_MS,
    MAX_DELAY_MS,
    MAX_JITTERED_RUNGS,
    MAX_RETRIES,
    MAX_RUNGS,
    Backoff,
    Exponential,
    Fixed,
    Linear,
)
from deadletter.core.deciding.policy import MAX_BUDGET_PER_MINUTE, MAX_PROGRAM_CHARS
from deadletter.core.letter.header_values import MAX_NAME_BYTES
from deadletter.core.letter.names import PREFIX
from deadletter.core.text.durations import duration_text

_CAP: Final = "No delay is longer than this. With kind = fixed: only if given."


class _Limited(Table):
    jitter: float = Field(
        default=0.0, ge=0, lt=1, description="Delays vary by this share of themselves: 0.2 is ± 20 %."
    )
    floor_ms: Floor = Field(
        default=as_written("0ms"), alias="floor", description="No delay is shorter than this."
    )

    def _values(self) -> dict[str, Any]:
        """The keys of the table by the names of the value that is built of them."""
        return {key: value for key, value in self if key != "kind" and value is not None}

    def _between(
        self, first_key: tuple[str | int, ...], delay_ms: int, cap_ms: int
    ) -> Iterator[TableFinding]:
        """That a delay lies within floor and cap, where these two leave room for one."""
        if self.floor_ms > cap_ms:
            return
        if delay_ms > cap_ms:
            yield TableFinding(first_key, f"at most the cap of {duration_text(cap_ms)}")
        if delay_ms < self.floor_ms:
            yield TableFinding(first_key, f"at least the floor of {duration_text(self.floor_ms)}")

    def _ordered(self, cap_ms: int) -> Iterator[TableFinding]:
        if self.floor_ms > cap_ms:
            yield TableFinding(("cap",), f"at least the floor of {duration_text(self.floor_ms)}")


class FixedBackoff(_Limited):
    kind: Literal["fixed"] = Field(description="How delays grow: fixed, linear or exponential.")
    delays_ms: Annotated[list[Delay], Field(min_length=1)] = Field(
        alias="delays",
        description="fixed: these delays, one per retry; the last one for every further retry.",
    )
    cap_ms: Delay | None = Field(default=None, alias="cap", description=_CAP)

    def built(self) -> Backoff:
        return Fixed(**self._values() | {"delays_ms": tuple(self.delays_ms)})

    def contradictions(self) -> Iterator[TableFinding]:
        cap_ms = MAX_DELAY_MS if self.cap_ms is None else self.cap_ms
        yield from self._ordered(cap_ms)
        most = MAX_JITTERED_RUNGS if self.jitter else MAX_RUNGS
        if len(set(self.delays_ms)) > most:
            yield TableFinding(
                ("delays",), f"at most {most} different delays, as each is a queue on the broker"
            )
        for place, delay_ms in enumerate(self.delays_ms):
            yield from self._between(("delays", place), delay_ms, cap_ms)


class LinearBackoff(_Limited):
    kind: Literal["linear"] = Field(description="How delays grow: fixed, linear or exponential.")
    step_ms: Delay = Field(alias="step", description="linear: each delay is so much longer than the last.")
    first_ms: Delay | None = Field(
        default=None, alias="first", description="The first delay. linear without it: one step."
    )
    cap_ms: Delay = Field(
        default=as_written(f"{DEFAULT_CAP_MS // 86_400_000}d"),
        alias="cap",
        description=_CAP,
    )

    def built(self) -> Backoff:
        return Linear(**self._values())

    def contradictions(self) -> Iterator[TableFinding]:
        yield from self._ordered(self.cap_ms)
        key, first_ms = ("step", self.step_ms) if self.first_ms is None else ("first", self.first_ms)
        yield from self._between((key,), first_ms, self.cap_ms)


class ExponentialBackoff(_Limited):
    kind: Literal["exponential"] = Field(description="How delays grow: fixed, linear or exponential.")
    first_ms: Delay = Field(alias="first", description="The first delay. linear without it: one step.")
    factor: float = Field(
        default=2.0, ge=1, le=1000, description="exponential: each delay is so many times the last."
    )
    cap_ms: Delay = Field(
        default=as_written(f"{DEFAULT_CAP_MS // 86_400_000}d"),
        alias="cap",
        description=_CAP,
    )

    def built(self) -> Backoff:
        return Exponential(**self._values())

    def contradictions(self) -> Iterator[TableFinding]:
        yield from self._ordered(self.cap_ms)
        yield from self._between(("first",), self.first_ms, self.cap_ms)


BackoffTable = Annotated[FixedBackoff | LinearBackoff | ExponentialBackoff, Discriminator("kind")]


class MatchTable(Table):
    queue: Pattern | None = Field(
        default=None, description="The queue it died in; * stands for any run of characters."
    )
    routing_key: Annotated[str, Field(max_length=MAX_NAME_BYTES)] | None = Field(
        default=None,
        description="The routing key it first came by, as a topic pattern: * is one word, # any number.",
    )
    reason: Reasons | None = Field(
        default=None, description="Why it died: rejected, expired, maxlen, delivery_limit; one or several."
    )
    error_type: Names | None = Field(
        default=None,
        description="The error a framework left in the headers, by full name or last part; * for any run.",
    )
    header: Annotated[dict[Name, str], Field(min_length=1)] | None = Field(
        default=None, description="Headers that are there with such values; * for any run, numbers as text."
    )
    content_type: Annotated[str, Field(max_length=MAX_NAME_BYTES)] | None = Field(
        default=None, description="The content type, without its parameters, in lower case; * for any run."
    )
    body: Annotated[str, Field(min_length=1, max_length=MAX_PROGRAM_CHARS)] | None = Field(
        default=None, description="A jq program that says true of a JSON body."
    )

    def contradictions(self) -> Iterator[TableFinding]:
        if self.queue is not None and self.queue.startswith(PREFIX):
            yield TableFinding(
                ("queue",),
                "a queue a letter can die in; those of deadletter.* are our own, so this matches nothing",
            )
        for word in (self.routing_key or "").split("."):
            if word not in ("*", "#") and ("*" in word or "#" in word):
                yield TableFinding(
                    ("routing_key",),
                    f"* and # as whole words between dots; in {word!r} they stand for themselves, and no key "
                    "has them",
                )
        if self.content_type is not None and (
            self.content_type != self.content_type.lower().strip() or ";" in self.content_type
        ):
            yield TableFinding(
                ("content_type",),
                "a media type in lower case without parameters; this matches nothing, since "
                "'Application/JSON; charset=utf-8' is compared as 'application/json'",
            )


class ErrorTable(Table):
    error_type: Names = Field(description="Errors like these: by full name or last part; * for any run.")
    retries: int | None = Field(
        default=None, ge=0, le=MAX_RETRIES, description="So many retries; without it the policy's."
    )
    backoff: BackoffTable | None = Field(default=None, description="With these delays; else the policy's.")
    then: ThenWord | None = Field(
        default=None, description="And then this. With neither retries nor backoff: at once."
    )

    def contradictions(self) -> Iterator[TableFinding]:
        if self.backoff is None and self.retries is None and self.then is None:
            yield TableFinding((), "retries, backoff or then beside error_type")


class HandlingTable(Table):
    retries: int = Field(default=5, ge=0, le=MAX_RETRIES, description="How often it is sent back.")
    backoff: BackoffTable = Field(
        default=as_written(
            {"kind": "exponential", "first": "1s", "factor": 2.0, "cap": "10min", "jitter": 0.2}
        ),
        description="The delays before it goes back.",
    )
    deadline_ms: Age | None = Field(
        default=None,
        alias="deadline",
        description="Give up when it would come back later than this after its first death.",
    )
    then: ThenWord = Field(
        default="park", description="When there are no more retries: park, discard or leave."
    )
    count_by: Counted = Field(
        default=as_written("own"),
        description="How its attempts are counted: own (deadletter-attempt), first (the x-death entry "
        "that decides), sum (of all), reason:REASON, queue:NAME, header:NAME.",
    )
    budget_per_minute: int | None = Field(
        default=None,
        ge=1,
        le=MAX_BUDGET_PER_MINUTE,
        description="At most so many of its letters go back in a minute; the others wait in the broker.",
    )
    errors: list[ErrorTable] = Field(default=[], description="Other retries or delays for some errors.")


class PolicyTable(HandlingTable):
    name: Name | None = Field(
        default=None,
        description="Its name, in decisions, metrics and watches. Without it: what it matches (the queue, "
        "the routing key, the error), else policy-1, policy-2, … by its place.",
    )
    match: MatchTable = Field(
        default=as_written({}), description="Which letters: all conditions must hold; without any, all."
    )


class DefaultPolicy(HandlingTable):
    pass
