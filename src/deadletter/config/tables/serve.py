"""The tables of the service: which queues it looks after, what holds it back, how it runs, when it calls."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Final, Literal

from pydantic import Field

from deadletter.config.tables.base import (
    Age,
    AllOrNames,
    Delay,
    Grace,
    Heartbeat,
    Layout,
    Listen,
    Mode,
    Name,
    Names,
    OriginBy,
    Pattern,
    Survey,
    Table,
    TableFinding,
    Tidying,
    as_written,
)
from deadletter.config.tables.policies import BackoffTable
from deadletter.core.deciding.policy import MAX_BUDGET_PER_MINUTE
from deadletter.core.letter.names import PREFIX
from deadletter.core.text.durations import duration_text

RETRY_QUEUE: Final = "retry-queue"
"""As in `core.layouts.levels`, which is not loaded for the sake of one name."""
MAX_LEVELS: Final = 20
_MAX_LETTERS: Final = 2**31
"""More than any queue is counted to."""


class WatchTable(Table):
    dlq: Pattern | None = Field(
        default=None,
        description="The dead-letter queue to look after; * for any run of characters. Only with layout = "
        f"levels it may be left out: {RETRY_QUEUE}.",
    )
    vhost: Name | None = Field(default=None, description="Its vhost. Without it: that of broker.url.")
    mode: Mode = Field(
        default="consume",
        description="When: consume (at once), sweep (now and then), startup (once), manual (when asked).",
    )
    layout: Layout | None = Field(
        default=None,
        description="The way back: return (through delays of ours), levels (through the numbered delays "
        "queue.delay.1, 2, 3, …), sweep (straight to the origin, at each sweep). Without it: return with "
        "mode = consume, else sweep.",
    )
    delays_ms: Annotated[list[Delay], Field(min_length=1, max_length=MAX_LEVELS)] | None = Field(
        default=None,
        alias="delays",
        description="levels: how long queue.delay.1, 2, 3, … hold a letter; further retries use the last. "
        "Without it: 10s, 15s, 20s.",
    )
    every_ms: Delay | None = Field(
        default=None, alias="every", description="sweep: how often. Without it and without backoff: 15min."
    )
    backoff: BackoffTable | None = Field(
        default=None, description="sweep: growing pauses between sweeps instead of `every`."
    )
    limit_per_boot: int | None = Field(
        default=None,
        ge=1,
        description="sweep: at most so many sweeps from one start of the service to the next.",
    )
    policies: AllOrNames = Field(
        default=as_written("all"),
        description="Which policies decide, by name, in the file's order; the default after them.",
    )

    origins: Names | None = Field(
        default=None,
        description="Queues that are believed to be an origin although the bindings do not lead from there "
        "to the dead-letter queue; * for any run of characters. Without it: only those from which they lead.",
    )
    origin_by: OriginBy = Field(
        default="failure",
        description="Which death names the origin: failure (the newest by rejected or delivery_limit, else "
        "the oldest), first (the oldest), last (the newest).",
    )

    @property
    def takes(self) -> str:
        """The queue or queues, also where nobody named them."""
        return self.dlq or RETRY_QUEUE

    @property
    def way(self) -> Layout:
        """The layout, also where nobody named one."""
        return self.layout or ("return" if self.mode == "consume" else "sweep")

    def contradictions(self) -> Iterator[TableFinding]:
        if self.dlq is None and self.layout != "levels":
            yield TableFinding(
                ("dlq",), f'a value (only with layout = "levels" is it {RETRY_QUEUE} without one)'
            )
        if self.takes.startswith(PREFIX):
            yield TableFinding(("dlq",), "a queue of yours; those of deadletter.* are our own")
        if self.every_ms is not None and self.backoff is not None:
            yield TableFinding(("every",), "every or backoff, not both")
        if self.mode != "sweep":
            for key, value in (
                ("every", self.every_ms), ("backoff", self.backoff), ("limit_per_boot", self.limit_per_boot)
            ):  # fmt: skip
                if value is not None:
                    yield TableFinding(
                        (key,), f'nothing with mode = "{self.mode}"; it belongs to mode = "sweep"'
                    )
        if self.layout == "sweep" and self.mode == "consume":
            yield TableFinding(
                ("layout",),
                'return or levels with mode = "consume": sweep has no delay, so a letter that keeps failing '
                "would go round as fast as the broker can carry it",
            )
        if self.delays_ms is not None and self.way != "levels":
            yield TableFinding(
                ("delays",), f'nothing with layout = "{self.way}"; it belongs to layout = "levels"'
            )
        for place, origin in enumerate(self.origins or ()):
            if origin.startswith(PREFIX):
                yield TableFinding(("origins", place), "a queue of yours; those of deadletter.* are our own")
        named = self.policies or []
        for place, name in enumerate(named):
            if name in named[:place]:
                yield TableFinding(("policies", place), "each policy once")


class BreakerTable(Table):
    enabled: bool = Field(
        default=True, description="Hold an origin's letters when what returns to it dies again."
    )
    letters: int = Field(
        default=20, ge=1, le=100_000, description="Not before so many have died again within the window."
    )
    share: float = Field(
        default=0.9,
        gt=0,
        le=1,
        description="And only when they are this share of what went back: 0.9 is 90 %.",
    )
    window_ms: Delay = Field(
        default=as_written("1min"), alias="window", description="How far back deaths and returns are counted."
    )
    pause_ms: Delay = Field(
        default=as_written("5s"),
        alias="pause",
        description="How long to hold before one letter is sent as a probe; doubled by each that fails.",
    )
    pause_max_ms: Delay = Field(
        default=as_written("5min"), alias="pause_max", description="But never longer than this."
    )
    probe_ms: Delay = Field(
        default=as_written("5s"),
        alias="probe",
        description="A probe that has not died again after this time is taken for a success.",
    )

    def contradictions(self) -> Iterator[TableFinding]:
        if self.pause_ms > self.pause_max_ms:
            yield TableFinding(("pause",), f"at most pause_max, which is {duration_text(self.pause_max_ms)}")


class Guards(Table):
    require_consumers: bool = Field(
        default=True, description="Nothing goes back to an origin that nobody consumes; it waits."
    )
    max_depth: int | None = Field(
        default=None,
        ge=1,
        le=_MAX_LETTERS,
        description="Nothing goes back to an origin that holds more than this. Without it: no such limit.",
    )
    budget_per_minute: int | None = Field(
        default=None,
        ge=1,
        le=MAX_BUDGET_PER_MINUTE,
        description="At most so many letters go back in a minute, all together; the others wait.",
    )
    budget_share: float | None = Field(
        default=None,
        ge=0,
        le=10,
        description="What goes back to an origin is at most this share of what else is published to it: 0.2 "
        "is 20 %.",
    )
    budget_floor_per_minute: int = Field(
        default=60,
        ge=1,
        le=MAX_BUDGET_PER_MINUTE,
        description="With budget_share: so many may go back in any case, as a quiet origin has no traffic to "
        "take a share of.",
    )
    copies: int = Field(
        default=4,
        ge=1,
        le=_MAX_LETTERS,
        description="More letters of one id and attempt than this stop the way back to their origin.",
    )
    breaker: BreakerTable = Field(
        default=as_written({}), description="When everything that returns dies again."
    )

    def contradictions(self) -> Iterator[TableFinding]:
        if "budget_floor_per_minute" not in self.model_fields_set:
            return
        if self.budget_share is None:
            yield TableFinding(
                ("budget_floor_per_minute",), "nothing without budget_share, whose floor it is"
            )
        elif self.budget_per_minute is not None and self.budget_floor_per_minute > self.budget_per_minute:
            yield TableFinding(
                ("budget_floor_per_minute",), f"at most budget_per_minute, which is {self.budget_per_minute}"
            )


class Serve(Table):
    listen: Listen = Field(
        default=as_written("127.0.0.1:8025"),
        description="Where it answers HTTP (metrics, health), as host:port; off: nowhere.",
    )
    name: Name | None = Field(
        default=None, description="What this instance is called. Without it: its host and process."
    )
    log_format: Literal["text", "json"] = Field(
        default="text", description="Log lines for people (text) or for machines (json)."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="info has a line per batch, debug one per decision."
    )
    grace_ms: Grace = Field(
        default=as_written("30s"), alias="grace", description="How long an orderly end may take."
    )
    prefetch: int = Field(
        default=500, ge=1, le=65_535, description="How many letters of one queue are in hand at once."
    )
    heartbeat_ms: Heartbeat = Field(
        default=as_written("10s"),
        alias="heartbeat",
        description="How often broker and service hear of each other, at least. What a frozen instance holds "
        "goes to the others after two to three times this.",
    )
    survey_ms: Survey = Field(
        default=as_written("5s"),
        alias="survey",
        description="How often queues are looked at: new ones, depths, consumers.",
    )
    tidy_ms: Survey = Field(
        default=as_written("1min"),
        alias="tidy",
        description="How often to look for queues and ways back of ours that nobody uses any more.",
    )
    tidy_after_ms: Tidying = Field(
        default=as_written("1h"),
        alias="tidy_after",
        description="Delete those that were empty and unused all that time.",
    )
    adjust_dlqs: bool = Field(
        default=True,
        description="Take the delivery limit off watched dead-letter queues, by a RabbitMQ policy; a crash "
        "could spend a letter's last delivery.",
    )


class DepthAlertTable(Table):
    warning: int = Field(default=10, ge=0, description="Warn above so many letters in a dead-letter queue.")
    critical: int = Field(default=50, ge=0, description="Critical above so many.")

    def contradictions(self) -> Iterator[TableFinding]:
        if self.warning >= self.critical:
            yield TableFinding(("warning",), f"less than critical, which is {self.critical}")


class AgeAlert(Table):
    warning_ms: Age | None = Field(
        default=None, alias="warning", description="Warn when the oldest letter is older than this."
    )
    critical_ms: Age | None = Field(default=None, alias="critical", description="Critical above this age.")

    def contradictions(self) -> Iterator[TableFinding]:
        if (
            self.warning_ms is not None
            and self.critical_ms is not None
            and self.warning_ms >= self.critical_ms
        ):
            yield TableFinding(
                ("warning",), f"less than critical, which is {duration_text(self.critical_ms)}"
            )


class AlertsTable(Table):
    depth: DepthAlertTable = Field(default=as_written({}), description="How many letters are too many.")
    age: AgeAlert = Field(
        default=as_written({}), description="How old is too old. Without a value: no such alert."
    )
    growth_per_minute: int | None = Field(
        default=None,
        ge=0,
        le=_MAX_LETTERS,
        description="Warn when more letters a minute than this come into a dead-letter queue. Without a "
        "value: no such alert.",
    )
    held: int = Field(
        default=100,
        ge=0,
        le=_MAX_LETTERS,
        description="Warn when more letters than this wait because a guard holds them.",
    )
    breaker: bool = Field(default=True, description="Warn when the breaker holds an origin's letters.")
    channels: list[str] = Field(
        default=["log"],
        description="Where alerts go: log, the http(s) URL of a webhook, or any apprise URL.",
    )

    def contradictions(self) -> Iterator[TableFinding]:
        for place, channel in enumerate(self.channels):
            scheme, separator, rest = channel.partition("://")
            if channel != "log" and not (separator and rest and scheme.isascii() and scheme.isalnum()):
                yield TableFinding(
                    ("channels", place), "log, the http(s) URL of a webhook, or an apprise URL"
                )
            if channel in self.channels[:place]:
                yield TableFinding(("channels", place), "each channel once")
