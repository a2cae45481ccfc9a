"""The tables of letters as queries name them. How they are created is told by `migrations/`."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    ColumnElement,
    Integer,
    LargeBinary,
    SmallInteger,
    String,
    column,
    literal_column,
    table,
)


class RowState(IntEnum):
    """The state of a letter in the store, as its row has it."""

    OPEN = 0
    DISCARDED = 1
    CLAIMED = 2
    """A replay has it, and nobody else may touch it."""
    REPLAYED = 3
    """A replay sent it: it is in a queue again, and this row is its history."""


NOT_CLAIMED: Final[ColumnElement[bool]] = literal_column(f"state <> {RowState.CLAIMED.value}", Boolean)

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
    column("category_by", String),
    column("category_why", String),
    column("guess", String),
    column("guess_why", String),
    column("judged_ms", BigInteger),
    column("state", String),
    column("until_ms", BigInteger),
    column("first_ms", BigInteger),
    column("last_ms", BigInteger),
    column("total", BigInteger),
    column("resolved_ms", BigInteger),
    column("reopened_ms", BigInteger),
    column("reopened_release", String),
    column("merged_into", BigInteger),
    column("vhost", BigInteger),
)
"""`vhost`: in which all its letters failed; empty where they are of several, or nobody knows."""
letters: Final = table(
    "deadletter_letters",
    column("id", BigInteger),
    column("same", LargeBinary),
    column("message", LargeBinary),
    column("copy_of", BigInteger),
    column("vhost", BigInteger),
    column("queue", BigInteger),
    column("group_id", BigInteger),
    column("state", SmallInteger),
    column("cause", BigInteger),
    column("attempt", Integer),
    column("died_ms", BigInteger),
    column("stored_ms", BigInteger),
    column("discarded_ms", BigInteger),
    column("bytes", Integer),
    column("message_id", String),
    column("type", BigInteger),
    column("routing_key", BigInteger),
    column("error", String),
)
"""`discarded_ms` is empty of what is not discarded: a database finds the index of those by it."""
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
    column("vhost", BigInteger),
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
    column("of_several", Boolean),
)
"""`of_several`: written of a group that had letters of several vhosts, and was parted since."""
groupings: Final = table(
    "deadletter_groupings",
    column("id", BigInteger),
    column("digest", String),
    column("since_ms", BigInteger),
    column("stage", String),
    column("reached", BigInteger),
    column("last_letter", BigInteger),
    column("looked_at", BigInteger),
    column("moved", BigInteger),
    column("groups_before", BigInteger),
)
regrouped: Final = table(
    "deadletter_regrouped",
    column("before", BigInteger),
    column("after", BigInteger),
    column("letters", BigInteger),
)
splits: Final = table(
    "deadletter_splits", column("group_id", BigInteger), column("other", BigInteger), column("token", String)
)
"""Pairs that a person took apart. `token`: by what the letters of the first are told from the others'."""
apart: Final = table(
    "deadletter_apart", column("group_id", BigInteger), column("of", BigInteger), column("key", String)
)
"""Groups of letters that would be in the group of `key` if no person had taken group `of` out."""
seen: Final = table(
    "deadletter_regroup_seen",
    column("group_id", BigInteger),
    column("kind", String),
    column("value", String),
    column("letters", BigInteger),
    column("first_ms", BigInteger),
    column("last_ms", BigInteger),
)
"""Like tags, of the letters that were looked at while they are grouped anew."""
audit: Final = table(
    "deadletter_audit",
    column("id", BigInteger),
    column("at_ms", BigInteger),
    column("who", String),
    column("action", String),
    column("detail", String),
    column("letter", BigInteger),
    column("group_id", BigInteger),
    column("replay", BigInteger),
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
