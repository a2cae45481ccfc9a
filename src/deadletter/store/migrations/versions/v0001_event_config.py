"""`dlq_event_config`, and on PostgreSQL a trigger that tells of changes.

A table that is there already belongs to somebody: it is used as it is, without a trigger. A trigger would run
in the transactions of others, and one that notifies makes their two-phase commits fail.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic.operations import Operations

revision = "0001"
down_revision = None


def upgrade(op: Operations) -> None:
    connection = op.get_bind()
    if sa.inspect(connection).has_table("dlq_event_config"):
        return
    op.create_table(
        "dlq_event_config",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("name", sa.String(100), nullable=True),
        sa.Column("max_retries", sa.Integer, nullable=True),
    )
    if connection.dialect.name == "postgresql":
        op.execute(
            "CREATE OR REPLACE FUNCTION deadletter_notify() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN PERFORM pg_catalog.pg_notify('deadletter_policies', ''); RETURN NULL; END $$"
        )
        op.execute(
            "CREATE TRIGGER deadletter_notify AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE "
            "ON dlq_event_config FOR EACH STATEMENT EXECUTE FUNCTION deadletter_notify()"
        )
