"""`deadletter_handled`: which messages a consumer has begun and done, by queue and key."""

from __future__ import annotations

import sqlalchemy as sa
from alembic.operations import Operations

revision = "0002"
down_revision = "0001"


def upgrade(op: Operations) -> None:
    if sa.inspect(op.get_bind()).has_table("deadletter_handled"):
        return
    op.create_table(
        "deadletter_handled",
        sa.Column("queue", sa.String(255), primary_key=True),
        sa.Column("key", sa.String(255), primary_key=True),
        sa.Column("state", sa.String(10), nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("until_ms", sa.BigInteger, nullable=False),
    )
    op.create_index("deadletter_handled_until", "deadletter_handled", ["until_ms"])
