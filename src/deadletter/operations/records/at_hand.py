"""The records at hand: the running service's where it answers, else the store's own.

* `--at` was said: that service, and nobody else.
* `--store` was said: that store.
* Else the service of the settings (`[serve] listen`) is asked which store it has. If that is the one of the
  settings, it answers everything: one owner of the file. If nobody answers, or somebody with another store,
  the store is opened here; SQLite's log lets both read and write.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from deadletter.config.settings import Settings
from deadletter.errors import DeadletterError, StoreUnreachable, UsageError
from deadletter.operations.records.records import Records
from deadletter.operations.records.service_records import ServiceRecords, service_records
from deadletter.operations.service_address import home
from deadletter.store.finding.quick_look import is_foreign
from deadletter.store.store_address import SqliteAddress, address_text, parse

LOOK_CONNECT_S: Final = 0.5
LOOK_S: Final = 2.0
"""So long a service may take to say which store it has; then the store is asked itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Whereabouts:
    """What was said of where the records are."""

    settings: Settings
    at: str | None = None
    token: str | None = None
    store_said: bool = False
    """`--store` was given, so the store itself is meant."""
    prepare: bool = True
    """Whether a store of an older version is brought up to ours."""
    create: bool = False
    """Whether a store that is not there is made."""


@asynccontextmanager
async def records_at_hand(place: Whereabouts) -> AsyncIterator[Records]:
    if place.at is not None:
        if place.store_said:
            raise UsageError("expected --at or --store, got both: the service has a store of its own")
        async with service_records(place.at, place.token) as records:
            yield records
        return
    url = store_url(place.settings)
    listen = None if place.store_said else place.settings.serve.listen
    if listen is not None and await _has(home(listen), place.token, url):
        async with service_records(home(listen), place.token) as records:
            yield records
        return
    address = parse(url)
    if isinstance(address, SqliteAddress) and not place.create and not address.path.exists():
        raise StoreUnreachable(
            f"no letters are stored yet: {address} is not there; dlq serve makes it, or name another one "
            "with --store"
        )
    if isinstance(address, SqliteAddress) and is_foreign(address):
        raise StoreUnreachable(
            f"{address} is a database, but none of ours, and nothing was written into it; name a store with "
            "--store"
        )
    from deadletter.operations.records.store_records import opened_records  # slow to load

    async with opened_records(
        url, prepare=place.prepare, grouping=lambda: place.settings.desk.grouping
    ) as records:
        yield records


def store_url(settings: Settings) -> str:
    """The store of these settings."""
    url = settings.store.in_force(os.environ, Path.home())
    if url is None:
        raise UsageError(
            "expected a store with letters, got store.url = none; name one with --store, or --at"
        )
    return url


async def _has(at: str, token: str | None, url: str) -> bool:
    """Whether the service there has this very store."""
    try:
        async with service_records(at, token, connect_s=LOOK_CONNECT_S, answer_s=LOOK_S) as records:
            return await same_store(records, url)
    except DeadletterError:
        return False  # nobody there, or somebody else, or closed to us: the store is


async def same_store(records: ServiceRecords, url: str) -> bool:
    return (await records.store()).address == address_text(parse(url))
