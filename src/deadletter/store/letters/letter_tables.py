"""The tables of letters as queries name them. How they are created is told by `migrations/`."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Integer,
    LargeBinary,
    SmallInteger,
    String,
    column,
    literal_column,
    table,
)


class Kept(IntEnum):
    """The state of a letter in the store, as its row has it."""

    OPEN = 0
    DISCARDED = 1


IS_DISCARDED: Final[ColumnElement[int]] = literal_column(str(Kept.DISCARDED.value))
"""Written out: a database finds the index of those only by a state that it sees."""

names: Final = table("deadletter_names", column("id", BigInteger), column("name", String))
groups: Final = table(
    "deadletter_groups",
    column("id", BigInteger),
    column("key", String),
    column("origin", BigInteger),
    column("title", String),
    column("culprit", String),
    column("error_type", String),
    column("parts", String),
    column("category", String),
    column("state", String),
    column("until_ms", BigInteger),
    column("first_ms", BigInteger),
    column("last_ms", BigInteger),
    column("total", BigInteger),
    column("resolved_ms", BigInteger),
    column("reopened_ms", BigInteger),
    column("reopened_release", String),
    column("merged_into", BigInteger),
)
letters: Final = table(
    "deadletter_letters",
    column("id", BigInteger),
    column("same", LargeBinary),
    column("message", LargeBinary),
    column("copy_of", BigInteger),
    column("queue", BigInteger),
    column("group_id", BigInteger),
    column("state", SmallInteger),
    column("cause", BigInteger),
    column("attempt", Integer),
    column("died_ms", BigInteger),
    column("stored_ms", BigInteger),
    column("changed_ms", BigInteger),
    column("bytes", Integer),
    column("message_id", String),
    column("type", BigInteger),
    column("routing_key", BigInteger),
    column("error", String),
)
dictionaries: Final = table(
    "deadletter_dictionaries",
    column("id", BigInteger),
    column("group_id", BigInteger),
    column("data", LargeBinary),
)
contents: Final = table(
    "deadletter_contents",
    column("id", BigInteger),
    column("dictionary", BigInteger),
    column("wording", SmallInteger),
    column("data", LargeBinary),
)
tallies: Final = table(
    "deadletter_tallies",
    column("group_id", BigInteger),
    column("queue", BigInteger),
    column("state", SmallInteger),
    column("letters", BigInteger),
    column("bytes", BigInteger),
)
counts: Final = table(
    "deadletter_counts",
    column("group_id", BigInteger),
    column("minute", BigInteger),
    column("letters", BigInteger),
)
tags: Final = table(
    "deadletter_tags",
    column("group_id", BigInteger),
    column("kind", String),
    column("value", String),
    column("letters", BigInteger),
    column("first_ms", BigInteger),
    column("last_ms", BigInteger),
)
notes: Final = table(
    "deadletter_notes",
    column("id", BigInteger),
    column("group_id", BigInteger),
    column("at_ms", BigInteger),
    column("author", String),
    column("text", String),
)
audit: Final = table(
    "deadletter_audit",
    column("id", BigInteger),
    column("at_ms", BigInteger),
    column("who", String),
    column("action", String),
    column("detail", String),
)
steps: Final = table(
    "deadletter_steps",
    column("id", BigInteger),
    column("letter", BigInteger),
    column("at_ms", BigInteger),
    column("step", String),
    column("who", String),
    column("why", String),
)
