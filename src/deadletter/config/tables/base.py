"""What the tables of a configuration file are made of: the strict base, and the types of their values."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from deadletter.config.tables.counting import COUNT_BY_PATTERN, count_by
from deadletter.core.deciding.backoff import MAX_DELAY_MS
from deadletter.core.deciding.deaths import CountBy
from deadletter.core.letter.header_values import MAX_NAME_BYTES
from deadletter.core.text.durations import DURATION_PATTERN, duration_text, whole_duration_ms
from deadletter.core.topology.layout_names import ServedLayoutName

LISTEN_PATTERN: Final = r"^(off|(\[[0-9A-Fa-f:.%]+\]|[^\s:/@\[\]]+):\d{1,5})$"
_LISTEN: Final = re.compile(LISTEN_PATTERN)


def listen(value: object) -> str | None:
    """`host:port`, an IPv6 address in brackets; port 0 is any free one. None for `off`: nowhere."""
    if value == "off" or value is False:  # YAML reads a bare off as false
        return None
    text = value.strip() if isinstance(value, str) else ""
    if _LISTEN.fullmatch(text) and int(text.rpartition(":")[2]) <= 65_535:
        return text
    hint = f"; 0.0.0.0{text} for every address" if re.fullmatch(r":\d{1,5}", text) else ""
    raise ValueError(f"host:port such as 127.0.0.1:8025 or [::1]:8025, or off{hint}")


FINDINGS: Final = "findings"


class TableFinding(NamedTuple):
    """What one key of a table cannot be, given the others."""

    key: tuple[str | int, ...]
    expected: str


class Table(BaseModel):
    """Strict: nothing unknown, nothing converted, nothing changed afterwards.

    Built when the first one is read: a table inside others is built with them, and not once more for itself.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(
        extra="forbid", strict=True, frozen=True, validate_default=True, defer_build=True
    )

    def contradictions(self) -> Iterator[TableFinding]:
        """What this table cannot be in itself."""
        yield from ()

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if findings := list(self.contradictions()):
            raise PydanticCustomError(FINDINGS, "it contradicts itself", {"findings": findings})
        return self


def _time(least_ms: int, most_ms: int = MAX_DELAY_MS) -> PlainValidator:
    most = "49.7 d, the longest RabbitMQ takes" if most_ms == MAX_DELAY_MS else duration_text(most_ms)

    def read(value: object) -> int:
        time_ms = whole_duration_ms(value)
        if not least_ms <= time_ms <= most_ms:
            raise ValueError(f"a time from {duration_text(least_ms)} to {most}")
        return time_ms

    return PlainValidator(read)


_TIME_SCHEMA: Final = WithJsonSchema(
    {
        "type": ["string", "number"],
        "pattern": DURATION_PATTERN,
        "minimum": 0,
        "examples": ["500ms", "90s", "15min", "1h30m", "1d", 90],
    }
)
Delay = Annotated[int, _time(1), _TIME_SCHEMA]
Floor = Annotated[int, _time(0), _TIME_SCHEMA]
Age = Annotated[int, _time(1), _TIME_SCHEMA]
# the broker takes back what is held for half an hour, so nobody may take longer to put it down
Grace = Annotated[int, _time(0, 1_800_000), _TIME_SCHEMA]
# whole seconds on the wire; a broker that checks more often would take a busy moment for a death
Heartbeat = Annotated[int, _time(2_000, 600_000), _TIME_SCHEMA]
Survey = Annotated[int, _time(1_000, 3_600_000), _TIME_SCHEMA]
# longer than a publisher knows a way back without looking, and than figures are old
Tidying = Annotated[int, _time(300_000), _TIME_SCHEMA]
# in a store of ours RabbitMQ's longest time means nothing; ten years are for ever
Keeping = Annotated[int, _time(1_000, 3_650 * 86_400_000), _TIME_SCHEMA]
# a rule that looks more often would send letters back before anybody can have cured anything
Seldom = Annotated[int, _time(60_000, 3_650 * 86_400_000), _TIME_SCHEMA]
Session = Annotated[int, _time(60_000, 366 * 86_400_000), _TIME_SCHEMA]
Listen = Annotated[
    str | None, PlainValidator(listen), WithJsonSchema({"type": "string", "pattern": LISTEN_PATTERN})
]

Counted = Annotated[
    CountBy, PlainValidator(count_by), WithJsonSchema({"type": "string", "pattern": COUNT_BY_PATTERN})
]
Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME_BYTES)]
Pattern = Annotated[str, Field(min_length=1, max_length=MAX_NAME_BYTES)]
Reason = Literal["rejected", "expired", "maxlen", "delivery_limit"]
ThenWord = Literal["park", "discard", "leave"]
Mode = Literal["consume", "sweep", "startup", "manual"]
Layout = ServedLayoutName
OriginBy = Literal["failure", "first", "last"]


def _listed(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _all_or_listed(value: object) -> object:
    return None if value == "all" else _listed(value)


Names = Annotated[
    list[Name], Field(min_length=1), BeforeValidator(_listed, json_schema_input_type=Name | list[Name])
]
Reasons = Annotated[
    list[Reason], Field(min_length=1), BeforeValidator(_listed, json_schema_input_type=Reason | list[Reason])
]
Urls = Annotated[
    list[str], Field(min_length=1), BeforeValidator(_listed, json_schema_input_type=str | list[str])
]
AllOrNames = Annotated[
    Annotated[list[Name], Field(min_length=1)] | None,
    BeforeValidator(_all_or_listed, json_schema_input_type=Literal["all"] | list[Name]),
]


def as_written(default: object) -> Any:
    """A default in a user's words, read like any other value: so it can be shown as one."""
    return default
