"""The tables of replays as queries name them. How they are created is told by `migrations/`."""

from __future__ import annotations

from typing import Final

from sqlalchemy import BigInteger, Boolean, LargeBinary, SmallInteger, String, column, table

replays: Final = table(
    "deadletter_replays",
    column("id", BigInteger),
    column("vhost", BigInteger),
    column("made_ms", BigInteger),
    column("run", String),
    column("who", String),
    column("why", String),
    column("state", String),
    column("selection", String),
    column("target", String),
    column("edit", String),
    column("recipe", String),
    column("pace", String),
    column("up_to", BigInteger),
    column("frozen_to", BigInteger),
    column("frozen_ms", BigInteger),
    column("marked_to", BigInteger),
    column("letters", BigInteger),
    column("stage", String),
    column("outcome_ms", BigInteger),
    column("resolves", Boolean),
    column("overrules_guards", Boolean),
    column("told", String),
    column("began_ms", BigInteger),
    column("last_sent_ms", BigInteger),
    column("ended_ms", BigInteger),
    column("holder", String),
    column("held_until_ms", BigInteger),
)
replay_letters: Final = table(
    "deadletter_replay_letters",
    column("replay", BigInteger),
    column("letter", BigInteger),
    column("state", SmallInteger),
    column("sent_ms", BigInteger),
    column("ended_ms", BigInteger),
    column("doubtful", Boolean),
    column("why", String),
    column("returned_letter", BigInteger),
    column("returned_group", BigInteger),
)
"""`sent_ms` is 0 of what was not sent. No `state` is SENDING: that is what waits up to `marked_to`."""
replay_counts: Final = table(
    "deadletter_replay_counts",
    column("replay", BigInteger),
    column("state", SmallInteger),
    column("letters", BigInteger),
    column("doubtful", BigInteger),
)
recipes: Final = table(
    "deadletter_recipes",
    column("name", String),
    column("program", String),
    column("who", String),
    column("made_ms", BigInteger),
    column("note", String),
    column("origin", String),
    column("group_key", String),
)
drafts: Final = table(
    "deadletter_drafts",
    column("letter", BigInteger),
    column("data", LargeBinary),
    column("who", String),
    column("made_ms", BigInteger),
    column("note", String),
)
deploys: Final = table(
    "deadletter_deploys",
    column("id", BigInteger),
    column("service", String),
    column("release", String),
    column("at_ms", BigInteger),
    column("who", String),
)
replay_rules: Final = table(
    "deadletter_replay_rules",
    column("name", String),
    column("rule", String),
    column("enabled", Boolean),
    column("runs", BigInteger),
    column("last_ms", BigInteger),
    column("last_replay", BigInteger),
    column("gave_up", Boolean),
    column("healthy_since_ms", BigInteger),
)
"""`runs`: so many in a row cured nothing. `last_replay`: the last run, until it is known what came of it."""
