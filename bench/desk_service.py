"""Ingest as it is in `dlq serve`, from the broker's queue to the commit, while intake goes on.

`deadletter.parked` holds letters as a busy shop has them (`desk_letters`), and a dead-letter queue holds
others that intake delays, as in `intake`. The service starts; a look at both queues from outside every 10 ms
tells how fast each empties. Ingest counts from the first look that sees fewer parked letters until all are
gone: what was acked is committed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from bench.desk_letters import letters
from bench.errors import BenchError
from bench.ground import SOURCE, Ground
from bench.intake import SETTINGS
from bench.management import Vhost, fresh_vhost
from bench.serving import Serving, serving
from bench.sites import Site
from deadletter.amqp.address import parse_addresses
from deadletter.amqp.channel import Channel
from deadletter.amqp.handshake import connect
from deadletter.amqp.publisher import publish_all
from deadletter.core.letter.message import RawMessage
from deadletter.core.letter.names import PARKED

_DESK: Final = "[desk]\ningest = true\n"
_LOOK_S: Final = 0.01
_STALLED_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """One run."""

    stored_per_s: float
    intake_per_s: float
    """In the same time."""
    cpu_us: float
    """Of the service, for a letter of either kind."""
    rss_mb: tuple[float, float]
    """When a tenth was stored, and at the end."""


async def take_in(site: Site, store: str, *, count: int, groups: int, beside: int) -> Taken:
    """`count` parked letters stored, with `beside` others in the dead-letter queue."""
    with fresh_vhost(site.url, site.api) as vhost:
        async with serving(vhost, SETTINGS):
            pass  # its queues are there now
        async with Ground.open(vhost) as ground:
            await ground.lay("quorum", beside, body_bytes=1_000)
        connection = await connect(parse_addresses(vhost.url)[0], name="bench: stopwatch")
        try:
            channel = await connection.channel()
            await _park(vhost, (one.message for one in letters(count, groups=groups)), count)
            async with serving(vhost, SETTINGS + _DESK, store=store) as service:
                return await _watch(channel, service, count)
        finally:
            await connection.close()


async def _park(vhost: Vhost, some: Iterator[RawMessage], count: int) -> None:
    connection = await connect(parse_addresses(vhost.url)[0], name="bench: parking")
    try:
        channel = await connection.channel()
        await channel.select_confirms()
        told = await publish_all(channel, "", PARKED, some)
    finally:
        await connection.close()
    if told.confirmed != count:
        raise BenchError(f"the broker took {told.confirmed:,} of {count:,} letters")


async def _watch(channel: Channel, service: Serving, count: int) -> Taken:
    began = 0.0
    parked = count
    died = await _depth(channel, SOURCE)
    first_parked, first_died, first_cpu = parked, died, service.cpu_s
    early_mb, changed_at = 0.0, time.monotonic()
    while parked:
        await asyncio.sleep(_LOOK_S)
        service.check()
        now, left = time.perf_counter(), await _depth(channel, PARKED)
        died = await _depth(channel, SOURCE)
        if left != parked:
            changed_at = time.monotonic()
        elif time.monotonic() - changed_at > _STALLED_S:
            raise BenchError(f"{left:,} of {count:,} parked letters stay in their queue")
        parked = left
        if not began and parked < count:
            began, first_parked, first_died, first_cpu = now, parked, died, service.cpu_s
        if not early_mb and parked < count * 0.9:
            early_mb = service.rss_bytes / 1e6
    seconds = time.perf_counter() - began
    both = first_parked + first_died - died
    return Taken(
        stored_per_s=first_parked / seconds,
        intake_per_s=(first_died - died) / seconds,
        cpu_us=(service.cpu_s - first_cpu) / both * 1e6,
        rss_mb=(early_mb, service.rss_bytes / 1e6),
    )


async def _depth(channel: Channel, queue: str) -> int:
    """Those that are ready; what the service has in hand is at most its prefetch."""
    return (await channel.declare_queue(queue, passive=True)).message_count
