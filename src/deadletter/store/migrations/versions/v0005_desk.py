"""What the desk keeps: samples of queues, answers to requests that may come twice, which instances there are,
whom an audit is about."""

from __future__ import annotations

import sqlalchemy as sa
from alembic.operations import Operations

revision = "0005"
down_revision = "0004"

_BIG = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_ABOUT = {"letter": "letter", "group_id": "group", "replay": "replay"}


def upgrade(op: Operations) -> None:
    op.create_table(
        "deadletter_samples",
        sa.Column("vhost", _BIG, primary_key=True),
        sa.Column("queue", _BIG, primary_key=True),
        sa.Column("span", sa.Integer, primary_key=True),  # minutes: 1 or 60
        sa.Column("minute", sa.BigInteger, primary_key=True),  # the first one of the span, since 1970
        sa.Column("depth", sa.BigInteger, nullable=False),
        sa.Column("depth_most", sa.BigInteger, nullable=False),
        sa.Column("consumers", sa.Integer, nullable=False),
        sa.Column("oldest_s", sa.Double),
        sa.Column("in_per_s", sa.Double, nullable=False),
        sa.Column("out_per_s", sa.Double, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("deadletter_samples_old", "deadletter_samples", ["span", "minute"])
    op.create_table(
        "deadletter_answers",
        sa.Column("actor", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("at_ms", sa.BigInteger, nullable=False),
        sa.Column("status", sa.Integer),
        sa.Column("kind", sa.Text),
        sa.Column("body", sa.LargeBinary),
    )
    op.create_index("deadletter_answers_old", "deadletter_answers", ["at_ms"])
    op.create_table(
        "deadletter_instances",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("broker", sa.Text, nullable=False),
        sa.Column("broker_version", sa.Text, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("stage", sa.Text, nullable=False),
        sa.Column("started_ms", sa.BigInteger, nullable=False),
        sa.Column("seen_ms", sa.BigInteger, nullable=False),
    )
    postgres = op.get_bind().dialect.name == "postgresql"
    for column, key in _ABOUT.items():
        op.add_column("deadletter_audit", sa.Column(column, _BIG))
        value = f"(detail::jsonb->>'{key}')::bigint" if postgres else f"json_extract(detail, '$.{key}')"
        op.execute(
            f"UPDATE deadletter_audit SET {column} = {value} "  # noqa: S608 -- names of ours
            f"""WHERE detail LIKE '%"{key}": %' AND detail LIKE '{{%'"""
        )
        told = sa.text(f"{column} IS NOT NULL")
        op.create_index(
            f"deadletter_audit_{column}",
            "deadletter_audit",
            [column, "id"],
            sqlite_where=told,
            postgresql_where=told,
        )
    op.create_index("deadletter_audit_who", "deadletter_audit", ["who", "id"])
    op.create_index("deadletter_audit_action", "deadletter_audit", ["action", "id"])
    op.create_index("deadletter_audit_at", "deadletter_audit", ["at_ms"])
