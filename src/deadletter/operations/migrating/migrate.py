"""`dlq topology apply --migrate`: a queue gets the arguments it was planned with, and keeps its letters.

One migration of a queue at a time: whoever holds its lease. The steps (`operations.migrating.swap`) are taken
on the connection that holds it, so whoever has lost the lease cannot take another one. When that connection
is lost the work begins anew on the next, with a new lease and a new look: what is on the broker says where it
stopped. So does a second run after a kill.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeAlias

from deadletter.amqp.address import Address
from deadletter.broker.lease import Lease, holder_of
from deadletter.broker.management import management
from deadletter.broker.session import Link, Persistence, supervise
from deadletter.core.topology.migration import copies_name
from deadletter.core.topology.vhost import Queue
from deadletter.errors import ChannelClosed, ManagementRefused, MoveFailed, WireError
from deadletter.move.courier import Terms
from deadletter.operations.migrating.carry import Carried
from deadletter.operations.migrating.swap import NEED, Listen, Swap

ASK_S: Final = 3.0
"""So long a lease is asked for before it is somebody else's: a broker needs a moment to see that the
connection of a killed run is gone."""
AGAIN_S: Final = 150.0
"""The same after a loss of our own connection: without a heartbeat's end the broker takes it for alive."""
_PERSISTENCE: Final = Persistence(first_s=60.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Migrated:
    """The queue is as planned, and everything is in it."""

    queue: str
    moved: int
    set_aside: int
    """Letters in `copies`, which look like copies that an interrupted run left."""
    copies: str
    maybe_twice: int
    gone: int = 0
    """Letters that somebody published by name in the instant in which a quorum queue was deleted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotMigrated:
    """It stopped, or did not begin; nothing is lost, and the next run goes on from there."""

    queue: str
    why: str


Result: TypeAlias = Migrated | NotMigrated


async def migrate(
    addresses: Sequence[Address],
    api: str | None,
    planned: Queue,
    *,
    terms: Terms = Terms(),  # noqa: B008 -- frozen
    on_event: Listen = lambda _what, _event: None,
) -> Result:
    """Bring one queue to its planned arguments. Raises when the broker cannot be reached."""
    carried, gone, patience_s = Carried(), 0, ASK_S

    async def work(link: Link) -> Result:
        nonlocal carried, gone, patience_s
        connection = await link.connection("consume")
        async with management(link.address, api, need=NEED) as asked:
            what = f"migration.{planned.name}"
            lease = await Lease.wait(connection, what, patience_s)
            patience_s = AGAIN_S
            if lease is None:
                who = await holder_of(asked, what) or "another process"
                why = f"{who} is migrating it; wait until that has ended, and look again"
                return NotMigrated(queue=planned.name, why=why)
            swap = Swap(connection, asked, addresses, planned, terms=terms, on_event=on_event)
            try:
                await swap.run()
            except (ChannelClosed, ManagementRefused, MoveFailed) as error:
                return NotMigrated(queue=planned.name, why=f"{swap.doing}: {error}")
            finally:
                carried += swap.carried
                gone += swap.gone
                with suppress(WireError):
                    await lease.release()
        return Migrated(
            queue=planned.name,
            moved=carried.moved,
            set_aside=carried.set_aside,
            copies=copies_name(planned.name),
            maybe_twice=carried.maybe_twice,
            gone=gone,
        )

    who = f"dlq topology apply --migrate of {planned.name} on {socket.gethostname()}, process {os.getpid()}"
    return await supervise(addresses, work, name=who, persistence=_PERSISTENCE)
