"""Replays, their letters and what became of each; recipes, drafts, deploys, rules."""

from __future__ import annotations

import sqlalchemy as sa
from alembic.operations import Operations

revision = "0004"
down_revision = "0003"

_BIG = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade(op: Operations) -> None:
    op.create_table(
        "deadletter_replays",
        sa.Column("id", _BIG, primary_key=True),
        sa.Column("vhost", _BIG, nullable=False),
        sa.Column("made_ms", sa.BigInteger, nullable=False),
        # who asks twice, because no answer came, names the same run: it is one replay
        sa.Column("run", sa.Text, unique=True),
        sa.Column("who", sa.Text, nullable=False),
        sa.Column("why", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("selection", sa.Text, nullable=False),
        sa.Column("target", sa.Text, nullable=False),
        sa.Column("edit", sa.Text, nullable=False),
        sa.Column("recipe", sa.Text, nullable=False),
        sa.Column("pace", sa.Text, nullable=False),
        sa.Column("up_to", _BIG, nullable=False),
        sa.Column("frozen_to", _BIG, nullable=False),
        sa.Column("frozen_ms", sa.BigInteger),
        # a letter of it that waits, up to this one, is being sent: one number instead of a row for each
        sa.Column("marked_to", _BIG, nullable=False),
        sa.Column("letters", sa.BigInteger, nullable=False),
        sa.Column("stage", sa.Text, nullable=False),
        sa.Column("outcome_ms", sa.BigInteger, nullable=False),
        sa.Column("resolves", sa.Boolean, nullable=False),
        sa.Column("overrules_guards", sa.Boolean, nullable=False),
        sa.Column("told", sa.Text, nullable=False),
        sa.Column("began_ms", sa.BigInteger),
        sa.Column("last_sent_ms", sa.BigInteger),
        sa.Column("ended_ms", sa.BigInteger),
        sa.Column("holder", sa.Text, nullable=False),
        sa.Column("held_until_ms", sa.BigInteger, nullable=False),
        # a number that was told to people, and is on letters, means one replay for ever
        sqlite_autoincrement=True,
    )
    at_work = sa.text("ended_ms IS NULL")
    op.create_index(
        "deadletter_replays_at_work",
        "deadletter_replays",
        ["id"],
        sqlite_where=at_work,
        postgresql_where=at_work,
    )
    op.create_table(
        "deadletter_replay_letters",
        sa.Column("replay", _BIG, primary_key=True),
        sa.Column("letter", _BIG, primary_key=True),
        sa.Column("state", sa.SmallInteger, nullable=False),
        sa.Column("sent_ms", sa.BigInteger, nullable=False),
        sa.Column("ended_ms", sa.BigInteger),
        sa.Column("doubtful", sa.Boolean, nullable=False),
        sa.Column("why", sa.Text),
        sa.Column("returned_letter", _BIG),
        sa.Column("returned_group", _BIG),
        sqlite_with_rowid=False,
    )
    # what waits has not been sent: by letter; what was sent: by when
    op.create_index(
        "deadletter_replay_letters_state",
        "deadletter_replay_letters",
        ["replay", "state", "sent_ms", "letter"],
    )
    op.create_index("deadletter_replay_letters_letter", "deadletter_replay_letters", ["letter"])
    doubtful = sa.text("doubtful")
    op.create_index(
        "deadletter_replay_letters_doubtful",
        "deadletter_replay_letters",
        ["replay", "letter"],
        sqlite_where=doubtful,
        postgresql_where=doubtful,
    )
    op.create_table(
        "deadletter_replay_counts",
        sa.Column("replay", _BIG, primary_key=True),
        sa.Column("state", sa.SmallInteger, primary_key=True),
        sa.Column("letters", sa.BigInteger, nullable=False),
        sa.Column("doubtful", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "deadletter_recipes",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("program", sa.Text, nullable=False),
        sa.Column("who", sa.Text, nullable=False),
        sa.Column("made_ms", sa.BigInteger, nullable=False),
        sa.Column("note", sa.Text, nullable=False),
        sa.Column("origin", sa.Text, nullable=False),
        sa.Column("group_key", sa.Text, nullable=False),
    )
    op.create_table(
        "deadletter_drafts",
        sa.Column("letter", _BIG, primary_key=True),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sa.Column("who", sa.Text, nullable=False),
        sa.Column("made_ms", sa.BigInteger, nullable=False),
        sa.Column("note", sa.Text, nullable=False),
    )
    op.create_table(
        "deadletter_deploys",
        sa.Column("id", _BIG, primary_key=True),
        sa.Column("service", sa.Text, nullable=False),
        sa.Column("release", sa.Text, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("who", sa.Text, nullable=False),
    )
    op.create_index("deadletter_deploys_service", "deadletter_deploys", ["service", "at_ms"])
    op.create_table(
        "deadletter_replay_rules",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("rule", sa.Text, nullable=False),
        sa.Column("enabled", sa.Boolean, nullable=False),
        sa.Column("runs", sa.BigInteger, nullable=False),
        sa.Column("last_ms", sa.BigInteger),
        sa.Column("last_replay", _BIG),
        sa.Column("gave_up", sa.Boolean, nullable=False),
        sa.Column("healthy_since_ms", sa.BigInteger),
    )
