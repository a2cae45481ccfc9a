"""Replays at hand, with the records they are about: the running service's where it answers, else the store's
own. Who that is, is decided as for records."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from deadletter.operations.records.at_hand import Whereabouts, records_at_hand
from deadletter.operations.records.records import Records
from deadletter.operations.records.service_records import ServiceRecords
from deadletter.operations.replays.replays import Replays
from deadletter.operations.replays.service_replays import ServiceReplays


@dataclass(frozen=True, slots=True, kw_only=True)
class DeskAtHand:
    """`by_service`: a running service answers, and works on replays."""

    records: Records
    replays: Replays
    by_service: bool


@asynccontextmanager
async def replays_at_hand(place: Whereabouts) -> AsyncIterator[DeskAtHand]:
    async with records_at_hand(place) as records:
        if isinstance(records, ServiceRecords):
            yield DeskAtHand(records=records, replays=ServiceReplays(records.wire), by_service=True)
            return
        from deadletter.operations.records.store_records import StoreRecords  # slow to load
        from deadletter.operations.repairs.body_schemas import read_schemas
        from deadletter.operations.replays.before_replay import broker_look
        from deadletter.operations.replays.store_replays import StoreReplays

        assert isinstance(records, StoreRecords)
        settings = place.settings
        replays = StoreReplays(
            records.opened,
            records.programs,
            look_at=broker_look(lambda: settings),
            schemas=lambda: read_schemas(settings.desk.schemas),
        )
        yield DeskAtHand(records=records, replays=replays, by_service=False)
