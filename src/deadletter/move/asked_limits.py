"""How a queue counts deliveries, asked before letters are taken from it; who does not ask gets the default.

What the management API tells: `broker.delivery_limits`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from deadletter.broker.session import Link
from deadletter.core.topology import look_cost
from deadletter.core.topology.look_cost import Deliveries

LimitSource: TypeAlias = Callable[[Link, str], Awaitable[Deliveries]]
"""Asked on a link, of a queue."""


async def by_default(link: Link, queue: str) -> Deliveries:  # noqa: ARG001 -- the version alone says it
    """Nobody is asked."""
    return look_cost.deliveries_by_default((await link.connection("consume")).server_version)
