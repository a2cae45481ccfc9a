"""The store, as a page asks for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from deadletter.desk.api.sources import NO_MORE, MoreSources, RecordsSource, ReplaysSource
from deadletter.errors import StoreUnreachable
from deadletter.operations.records.records import Records
from deadletter.operations.replays.replays import Replays

NO_STORE: Final = (
    "there is no store, so no letters are kept here; in deadletter.toml: [desk] with ingest = true, and "
    "[store] with a url"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSources:
    """StoreUnreachable, of both: there is none, or it does not answer."""

    records_source: RecordsSource | None
    replays_source: ReplaysSource | None
    more: MoreSources = NO_MORE

    async def records(self) -> Records:
        if self.records_source is None:
            raise StoreUnreachable(NO_STORE)
        return await self.records_source()

    async def replays(self) -> Replays:
        if self.replays_source is None:
            raise StoreUnreachable(NO_STORE)
        return await self.replays_source()
