"""The headers that every letter of ours carries on its way: where it belongs, which attempt, whose policy.

They are the same in every layout, so a letter may pass from one to another, and from the service to the
consumer library and back.
"""

from __future__ import annotations

from deadletter.core.letter import names
from deadletter.core.letter.field_table import Value


def carried(
    *,
    queue: str,
    exchange: str | None,
    routing_key: str | None,
    attempt: int,
    policy: str,
    parent_id: str = "",
) -> dict[str, Value]:
    """`parent_id`: of the letter whose headers an application copied into this one."""
    headers: dict[str, Value] = {
        names.ORIGIN_QUEUE: queue,
        names.ORIGIN_EXCHANGE: exchange or "",
        names.ORIGIN_ROUTING_KEY: routing_key or "",
        names.ATTEMPT: attempt,
        names.POLICY: policy,
    }
    if parent_id:
        headers[names.PARENT_ID] = parent_id
    return headers
