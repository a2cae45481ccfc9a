"""Who comes to the desk: sessions that were ended, tokens that were known, views that people saved."""

from __future__ import annotations

import sqlalchemy as sa
from alembic.operations import Operations

revision = "0006"
down_revision = "0005"

_BIG = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade(op: Operations) -> None:
    op.create_table(
        "deadletter_ended_sessions",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("until_ms", sa.BigInteger, nullable=False),
    )
    op.create_index("deadletter_ended_sessions_old", "deadletter_ended_sessions", ["until_ms"])
    op.create_table(
        "deadletter_keys",
        sa.Column("print", sa.Text, primary_key=True),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("told", sa.Text, nullable=False),  # JSON: role, vhosts, queues, what is masked
    )
    op.create_table(
        "deadletter_views",
        sa.Column("id", _BIG, primary_key=True, autoincrement=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("shared", sa.Boolean, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
    )
    op.create_index("deadletter_views_name", "deadletter_views", ["owner", "name"], unique=True)
