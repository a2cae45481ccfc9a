"""The tables of the journal as queries name them. How they are created is told by `migrations/`."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Boolean, Double, Integer, LargeBinary, String, column, table

samples: Final = table(
    "deadletter_samples",
    column("vhost", BigInteger),
    column("queue", BigInteger),
    column("span", Integer),
    column("minute", BigInteger),
    column("depth", BigInteger),
    column("depth_most", BigInteger),
    column("consumers", Integer),
    column("oldest_s", Double),
    column("in_per_s", Double),
    column("out_per_s", Double),
)
instances: Final = table(
    "deadletter_instances",
    column("name", String),
    column("broker", String),
    column("broker_version", String),
    column("version", String),
    column("stage", String),
    column("started_ms", BigInteger),
    column("seen_ms", BigInteger),
)
answers: Final = table(
    "deadletter_answers",
    column("actor", String),
    column("key", String),
    column("digest", String),
    column("at_ms", BigInteger),
    column("status", Integer),
    column("kind", String),
    column("body", LargeBinary),
)
ended_sessions: Final = table(
    "deadletter_ended_sessions",
    column("id", String),
    column("until_ms", BigInteger),
)
keys: Final = table(
    "deadletter_keys",
    column("print", String),
    column("name", String),
    column("told", String),
)
views: Final = table(
    "deadletter_views",
    column("id", BigInteger),
    column("owner", String),
    column("name", String),
    column("address", String),
    column("shared", Boolean),
    column("at_ms", BigInteger),
)
