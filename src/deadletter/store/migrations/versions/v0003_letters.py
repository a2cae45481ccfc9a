"""Letters, their contents, groups, notes, counts, and what people did."""

from __future__ import annotations

import sqlalchemy as sa
from alembic.operations import Operations

revision = "0003"
down_revision = "0002"

_BIG = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade(op: Operations) -> None:
    postgres = op.get_bind().dialect.name == "postgresql"
    op.create_table(
        "deadletter_names",
        sa.Column("id", _BIG, primary_key=True),
        sa.Column("name", sa.Text, nullable=False, unique=True),
    )
    op.create_table(
        "deadletter_groups",
        sa.Column("id", _BIG, primary_key=True),
        sa.Column("key", sa.Text, nullable=False, unique=True),
        sa.Column("origin", _BIG, nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("culprit", sa.Text, nullable=False),
        sa.Column("error_type", sa.Text, nullable=False),
        sa.Column("parts", sa.Text, nullable=False),
        sa.Column("category", sa.Text, nullable=False),
        sa.Column("category_by", sa.Text, nullable=False),
        sa.Column("category_why", sa.Text, nullable=False),
        sa.Column("guess", sa.Text, nullable=False),
        sa.Column("guess_why", sa.Text, nullable=False),
        sa.Column("judged_ms", sa.BigInteger),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("until_ms", sa.BigInteger),
        sa.Column("first_ms", sa.BigInteger, nullable=False),
        sa.Column("last_ms", sa.BigInteger, nullable=False),
        sa.Column("total", sa.BigInteger, nullable=False),
        sa.Column("resolved_ms", sa.BigInteger),
        sa.Column("reopened_ms", sa.BigInteger),
        sa.Column("reopened_release", sa.Text),
        sa.Column("merged_into", _BIG),
        sqlite_autoincrement=True,  # who remembers a number that is gone must not meet another group
    )
    op.create_index("deadletter_groups_last", "deadletter_groups", ["last_ms"])
    op.create_table(
        "deadletter_letters",
        sa.Column("id", _BIG, primary_key=True),
        sa.Column("same", sa.LargeBinary, nullable=False),
        sa.Column("message", sa.LargeBinary, nullable=False),
        sa.Column("copy_of", _BIG),
        sa.Column("vhost", _BIG, nullable=False),
        sa.Column("queue", _BIG, nullable=False),
        sa.Column("group_id", _BIG, nullable=False),
        sa.Column("state", sa.SmallInteger, nullable=False),
        sa.Column("cause", _BIG, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("died_ms", sa.BigInteger, nullable=False),
        sa.Column("stored_ms", sa.BigInteger, nullable=False),
        sa.Column("discarded_ms", sa.BigInteger),
        sa.Column("bytes", sa.Integer, nullable=False),
        sa.Column("message_id", sa.Text, nullable=False),
        sa.Column("type", _BIG, nullable=False),
        sa.Column("routing_key", _BIG, nullable=False),
        sa.Column("error", sa.Text, nullable=False),
        # half of a page stays free, so that the next state of a letter finds room beside it; SQLAlchemy 2.0
        # has no word of its own for it
        postgresql_using="heap WITH (fillfactor = 50)",
    )
    op.create_index("deadletter_letters_same", "deadletter_letters", ["same", "message"], unique=True)
    op.create_index("deadletter_letters_group", "deadletter_letters", ["group_id", "id"])
    op.create_index("deadletter_letters_queue", "deadletter_letters", ["queue", "vhost", "id"])
    op.create_index("deadletter_letters_died", "deadletter_letters", ["died_ms"])
    # No index names the state: a letter that is claimed and replayed changes it twice, and PostgreSQL writes
    # to every index of a row where one of them has to know, or where there is no room for it on its page.
    copies, discarded = sa.text("copy_of IS NOT NULL"), sa.text("discarded_ms IS NOT NULL")
    op.create_index(
        "deadletter_letters_copies",
        "deadletter_letters",
        ["copy_of"],
        sqlite_where=copies,
        postgresql_where=copies,
    )
    op.create_index(
        "deadletter_letters_discarded",
        "deadletter_letters",
        ["queue", "vhost", "discarded_ms"],
        sqlite_where=discarded,
        postgresql_where=discarded,
    )
    op.create_table(
        "deadletter_dictionaries",
        sa.Column("id", _BIG, primary_key=True),
        sa.Column("group_id", _BIG, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
    op.create_index("deadletter_dictionaries_group", "deadletter_dictionaries", ["group_id"])
    op.create_table(
        "deadletter_contents",
        sa.Column("id", _BIG, primary_key=True),
        sa.Column("dictionary", _BIG),
        sa.Column("wording", sa.SmallInteger, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "deadletter_tallies",
        sa.Column("group_id", _BIG, primary_key=True),
        sa.Column("vhost", _BIG, primary_key=True),
        sa.Column("queue", _BIG, primary_key=True),
        sa.Column("state", sa.SmallInteger, primary_key=True),
        sa.Column("letters", sa.BigInteger, nullable=False),
        sa.Column("bytes", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "deadletter_counts",
        sa.Column("group_id", _BIG, primary_key=True),
        sa.Column("minute", sa.BigInteger, primary_key=True),
        sa.Column("letters", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("deadletter_counts_minute", "deadletter_counts", ["minute"])
    op.create_table(
        "deadletter_tags",
        sa.Column("group_id", _BIG, primary_key=True),
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, primary_key=True),
        sa.Column("letters", sa.BigInteger, nullable=False),
        sa.Column("first_ms", sa.BigInteger, nullable=False),
        sa.Column("last_ms", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "deadletter_notes",
        sa.Column("id", _BIG, primary_key=True),
        sa.Column("group_id", _BIG, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("author", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
    )
    op.create_index("deadletter_notes_group", "deadletter_notes", ["group_id"])
    op.create_table(
        "deadletter_groupings",
        sa.Column("id", _BIG, primary_key=True),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("since_ms", sa.BigInteger, nullable=False),
        sa.Column("stage", sa.Text, nullable=False),
        sa.Column("reached", _BIG, nullable=False),
        sa.Column("last_letter", _BIG, nullable=False),
        sa.Column("looked_at", sa.BigInteger, nullable=False),
        sa.Column("moved", sa.BigInteger, nullable=False),
        sa.Column("groups_before", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "deadletter_regrouped",
        sa.Column("before", _BIG, primary_key=True),
        sa.Column("after", _BIG, primary_key=True),
        sa.Column("letters", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "deadletter_splits",
        sa.Column("group_id", _BIG, primary_key=True),
        sa.Column("other", _BIG, primary_key=True),
        sa.Column("token", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "deadletter_apart",
        sa.Column("group_id", _BIG, primary_key=True),
        sa.Column("of", _BIG, nullable=False),
        sa.Column("key", sa.Text, nullable=False),
    )
    op.create_table(
        "deadletter_regroup_seen",
        sa.Column("group_id", _BIG, primary_key=True),
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, primary_key=True),
        sa.Column("letters", sa.BigInteger, nullable=False),
        sa.Column("first_ms", sa.BigInteger, nullable=False),
        sa.Column("last_ms", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "deadletter_audit",
        sa.Column("id", _BIG, primary_key=True),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("who", sa.Text, nullable=False),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
    )
    op.create_table(
        "deadletter_steps",
        sa.Column("id", _BIG, primary_key=True),
        sa.Column("letter", _BIG, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("step", sa.Text, nullable=False),
        sa.Column("who", sa.Text, nullable=False),
        sa.Column("why", sa.Text, nullable=False),
    )
    op.create_index("deadletter_steps_letter", "deadletter_steps", ["letter"])
    if postgres:
        op.execute("CREATE TABLE deadletter_words (id bigint PRIMARY KEY, words tsvector NOT NULL)")
        # New words wait in a list, and whoever makes it full pays for all of them: so it is large, and
        # emptied beside the writing (`word_index.PendingWords`).
        op.execute(
            "CREATE INDEX deadletter_words_words ON deadletter_words USING gin (words) "
            "WITH (gin_pending_list_limit = 65536)"
        )
        # two writers at once: one of them stores the letter, the other a copy of it
        op.execute(
            "CREATE UNIQUE INDEX deadletter_letters_first ON deadletter_letters (same) WHERE copy_of IS NULL"
        )
        op.execute("CREATE SEQUENCE deadletter_letter_ids")
    else:
        op.execute("CREATE TABLE deadletter_ids (last integer NOT NULL)")
        op.execute("INSERT INTO deadletter_ids VALUES (0)")
        op.execute(
            "CREATE VIRTUAL TABLE deadletter_words USING fts5"
            "(words, content='', detail=none, columnsize=0, tokenize='ascii')"
        )
