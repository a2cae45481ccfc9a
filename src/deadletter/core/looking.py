"""What it costs to look at a letter and leave it, by broker version.

To look at a letter one has to take it, and to leave it one has to give it back. On classic queues that is
free. On quorum queues RabbitMQ counts deliveries and destroys (or dead-letters) a letter that has used up
its limit, 20 by default from 4.0 on. Measured, a letter that is taken and given back with a nack:

- 3.x: never destroyed; there is no limit unless somebody set one.
- 4.0 to 4.2: every look spends a delivery, however it is given back; gone after 21.
- 4.3 and later: a nack spends nothing; a crash or a reject still does.

So on 4.0 to 4.2 whoever looks every minute destroys everything in twenty minutes. A letter that has not many
deliveries left is therefore not given back there but *renewed*: published to the same queue, confirmed, and
then acked. It gets a new place at the end and a new count, and it lives.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final

DEFAULT_LIMIT: Final = 20
"""The delivery limit of a quorum queue from RabbitMQ 4.0 on, where nobody set another."""
RENEW_AT: Final = 10
"""Half of it: a letter with so many deliveries spent is renewed rather than given back. The other half is
for what we cannot see: other consumers, other tools, a crash of ours."""


class LookCost(Enum):
    """What leaving a letter costs on a quorum queue."""

    FREE = "nothing"
    A_DELIVERY = "one of its deliveries"


def version_of(text: str) -> tuple[int, int]:
    """Major and minor of a version a broker tells; (0, 0) when it does not."""
    found = re.match(r"(\d{1,4})\.(\d{1,4})", text)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def look_cost(server_version: str) -> LookCost:
    """What a look costs on this broker; the worse where the version is not known."""
    version = version_of(server_version)
    return LookCost.FREE if (0, 0) < version < (4, 0) or version >= (4, 3) else LookCost.A_DELIVERY


def must_renew(cost: LookCost, delivery_count: int) -> bool:
    """Whether a letter that is to stay must be renewed instead of given back."""
    return cost is LookCost.A_DELIVERY and delivery_count >= RENEW_AT


def limits_deliveries(server_version: str) -> bool:
    """Whether a quorum queue on this broker has a limit by default."""
    return version_of(server_version) >= (4, 0)


def no_limit_arguments(server_version: str) -> dict[str, int]:
    """The argument that takes the limit off a quorum queue; on 3.x the same one destroys letters."""
    return {"x-delivery-limit": -1} if limits_deliveries(server_version) else {}


def advice(queue: str, vhost: str) -> str:
    """What to do about a queue on which looks are expensive."""
    name = re.sub(r"([.^$*+?()\[\]{}|\\])", r"\\\1", queue)
    return (
        f"take the limit off once: rabbitmqctl set_policy -p '{vhost}' --apply-to quorum_queues "
        f"'no-limit-{queue}' '^{name}$' '{{\"delivery-limit\": -1}}'"
    )
