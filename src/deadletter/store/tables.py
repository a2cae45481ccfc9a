"""Our tables as queries name them: the columns we use and no others, whatever else a table may have.

How they are created is told by `migrations/`. They are named without a schema, so `search_path` decides where
they are.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Integer, String, column, table

from deadletter.core.deciding.event_config import TABLE

VERSION_TABLE: Final = "deadletter_version"
"""Alembic's, under a name of ours: an application in the same database may use Alembic too."""
CHANNEL: Final = "deadletter_policies"
TRIGGER: Final = "deadletter_notify"
MIGRATION_LOCK: Final = 0x6465_6164_6C65_7401
EVENT_LOCK: Final = 0x6465_6164_6C65_7402
FORGET_LOCK: Final = 0x6465_6164_6C65_7403
"""PostgreSQL's advisory locks are numbers; these are "deadlet" and one more."""

event_config: Final = table(
    TABLE, column("id", Integer), column("name", String), column("max_retries", Integer)
)
handled: Final = table(
    "deadletter_handled",
    column("queue", String),
    column("key", String),
    column("state", String),
    column("at_ms", BigInteger),
    column("until_ms", BigInteger),
)
