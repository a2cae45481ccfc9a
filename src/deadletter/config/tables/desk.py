"""The tables of the desk: which letters come into the store, how long they stay, how they are grouped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from deadletter.config.tables.base import Keeping, Name, Pattern, Table, TableFinding, as_written
from deadletter.core.grouping.grouping_rules import unknown_slots
from deadletter.core.letter.header_values import MAX_NAME_BYTES
from deadletter.core.letter.names import PARKED, is_ours

_MAX_LETTERS = 2**53
"""More than any store holds, and every reader of JSON can count to it."""


CategoryName: TypeAlias = Literal["transient", "overload", "data", "permanent", "bug", "unknown"]


class RetentionTable(Table):
    age_ms: Keeping | None = Field(
        default=None,
        alias="age",
        description="Letters that came into the store longer ago than this are forgotten. Without it: never.",
    )
    letters: int | None = Field(
        default=None,
        ge=0,
        le=_MAX_LETTERS,
        description="Of more letters than this the oldest are forgotten. Without it: any number is kept.",
    )
    bytes: int | None = Field(
        default=None,
        ge=0,
        le=_MAX_LETTERS,
        description="Of more bytes than this, counted in their bodies, the oldest letters are forgotten. "
        "Without it: any number is kept.",
    )
    discarded_ms: Keeping | None = Field(
        default=None,
        alias="discarded",
        description="How long a discarded letter can be taken back. Without it: 7d.",
    )


class DeskQueueTable(Table):
    name: Name = Field(description="A dead-letter queue whose letters come into the store as well.")
    vhost: Name | None = Field(default=None, description="Its vhost. Without it: that of broker.url.")
    retention: RetentionTable = Field(
        default=as_written({}), description="How long its letters stay; what is not said is as in [desk]."
    )

    def contradictions(self) -> Iterator[TableFinding]:
        if is_ours(self.name) and self.name != PARKED:
            yield TableFinding(
                ("name",), f"a queue of yours, or {PARKED}; the letters of our other queues are under way"
            )


class GroupRuleTable(Table):
    group: Annotated[str, Field(min_length=1, max_length=MAX_NAME_BYTES)] | None = Field(
        default=None,
        description="The name of the group. {default}, {origin}, {error}, {culprit} and {header:NAME} stand "
        "for what the letter says; {default} is its group without this rule. Without it: as it is.",
    )
    category: CategoryName | None = Field(
        default=None, description="What kind of failure it is. Without it: by the group's past, or a guess."
    )
    origin: Pattern | None = Field(default=None, description="Of letters of this origin; * for any run.")
    error: Pattern | None = Field(
        default=None, description="Whose error is of this type, without its module; * for any run."
    )
    message: Annotated[str, Field(min_length=1, max_length=1_000)] | None = Field(
        default=None, description="Whose error says this; * for any run."
    )
    header: Annotated[dict[Name, str], Field(min_length=1)] | None = Field(
        default=None, description="With such headers; * for any run."
    )

    def contradictions(self) -> Iterator[TableFinding]:
        if self.group is None and self.category is None:
            yield TableFinding(("group",), "a name, or a category")
        if wrong := unknown_slots(self.group or ""):
            yield TableFinding(
                ("group",),
                "{default}, {origin}, {error}, {culprit} or {header:NAME}, and not " + ", ".join(wrong),
            )


class Desk(Table):
    ingest: bool = Field(
        default=False,
        description=f"Whether dlq serve takes the letters of {PARKED} and of desk.queues into the store, "
        "where they are grouped and found.",
    )
    batch: int = Field(
        default=500, ge=1, le=5_000, description="At most so many letters come into the store at once."
    )
    retention: RetentionTable = Field(
        default=as_written({}), description="How long letters stay in the store."
    )
    queues: list[DeskQueueTable] = Field(
        default=[], description=f"Further queues, beside {PARKED}, whose letters come into the store."
    )
    groups: list[GroupRuleTable] = Field(
        default=[], description="Own rules for what is one group; the first that fits decides."
    )
    own_code: list[Pattern] = Field(
        default=[], description="Frames of a stack that are the application's: path or module; * for any run."
    )
    foreign_code: list[Pattern] = Field(default=[], description="Frames of a stack that are not.")

    def contradictions(self) -> Iterator[TableFinding]:
        seen: set[tuple[str, str | None]] = set()
        for place, queue in enumerate(self.queues):
            if (queue.name, queue.vhost) in seen:
                yield TableFinding(("queues", place, "name"), "each queue once")
            seen.add((queue.name, queue.vhost))
        if self.queues and "ingest" not in self.model_fields_set:
            yield TableFinding(("ingest",), "true or false, as desk.queues names queues for it")
