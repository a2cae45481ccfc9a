"""`deadletter_outbox`: what handlers of done messages publish, until it is known to be published."""

from __future__ import annotations

import sqlalchemy as sa
from alembic.operations import Operations

revision = "0007"
down_revision = "0006"


def upgrade(op: Operations) -> None:
    op.create_table(
        "deadletter_outbox",
        sa.Column("queue", sa.String(255), primary_key=True),
        sa.Column("key", sa.String(255), primary_key=True),
        sa.Column("place", sa.Integer, primary_key=True),
        sa.Column("exchange", sa.Text, nullable=False),
        sa.Column("routing_key", sa.LargeBinary, nullable=False),
        sa.Column("message_id", sa.Text, nullable=False),
        sa.Column("properties", sa.LargeBinary, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("mandatory", sa.Boolean, nullable=False),
        sa.Column("until_ms", sa.BigInteger, nullable=False),
    )
    op.create_index("deadletter_outbox_until", "deadletter_outbox", ["until_ms"])
