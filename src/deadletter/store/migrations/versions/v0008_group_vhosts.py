"""In which vhost a group's letters failed: who sees some vhosts alone sees groups of these.

A group that is there gets its vhost where all that ever came into it were of one. Where they were of several,
or nobody knows, it stays empty, until letters are grouped anew. A note of such a group says so afterwards.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic.operations import Operations

revision = "0008"
down_revision = "0007"

_BIG = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def upgrade(op: Operations) -> None:
    op.add_column("deadletter_groups", sa.Column("vhost", _BIG))
    op.add_column("deadletter_notes", sa.Column("of_several", sa.Boolean))
    op.execute(
        "UPDATE deadletter_groups SET vhost = "
        "(SELECT min(t.vhost) FROM deadletter_tallies t WHERE t.group_id = deadletter_groups.id) "
        "WHERE id IN (SELECT t.group_id FROM deadletter_tallies t JOIN deadletter_names n ON n.id = t.vhost "
        "GROUP BY t.group_id HAVING count(DISTINCT t.vhost) = 1 AND min(n.name) <> '')"
    )
