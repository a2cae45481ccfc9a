"""Looks at the origins to which letters go now: the guards need to know how they are."""

from __future__ import annotations

import asyncio
from typing import Final

from deadletter.broker.return_exchanges import WaysBack
from deadletter.service.guarding.gates import HEALTH_S, Gates

AT_ONCE: Final = 200
"""Origins that are looked at in one second."""


async def look_at_origins(gates: Gates, ways: WaysBack) -> None:
    """For ever; of many origins some, and the others the next time."""
    place = 0
    while True:
        await asyncio.sleep(HEALTH_S)
        origins = gates.origins
        some = [origins[(place + n) % len(origins)] for n in range(min(AT_ONCE, len(origins)))]
        place += len(some)
        for origin in some:
            await ways.look(origin)
        gates.tick()
