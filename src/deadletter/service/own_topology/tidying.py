"""Housekeeping in a service: the instance with the lease looks now and then, and tells what went."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from deadletter.broker.housekeeping import LEASE, Housekeeper
from deadletter.broker.management import Management
from deadletter.broker.session import Link
from deadletter.config.settings import ServeSettings
from deadletter.errors import ChannelClosed, ManagementRefused
from deadletter.service.telling.service_events import HousekeepingDone, LeaseChanged, ServiceEvent, Trouble


async def tidy(
    link: Link, asked: Management, settings: ServeSettings, emit: Callable[[ServiceEvent], None]
) -> None:
    """Until the connection is lost. On a connection of its own: a lease must be nobody else's."""
    housekeeper = Housekeeper(
        await link.connection("housekeeping"),
        asked,
        after_s=settings.tidy_after_ms / 1000,
        on_lease=lambda held: emit(LeaseChanged(name=LEASE, held=held)),
    )
    try:
        while True:
            await asyncio.sleep(settings.tidy_ms / 1000)
            try:
                found = await housekeeper.round()
            except (ManagementRefused, ChannelClosed):
                continue  # the survey tells that the management API is away
            if found.letters:
                emit(Trouble(what=LEASE, why=f"{found.letters} letters were deleted with an unused queue"))
            if found:
                emit(HousekeepingDone(delays=found.delays, held=found.held, ways=found.ways))
    finally:
        if housekeeper.leads:
            emit(LeaseChanged(name=LEASE, held=False))
