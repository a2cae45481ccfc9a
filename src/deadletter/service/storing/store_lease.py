"""Who stores the letters of a vhost, where stores are files of one machine: one instance at a time.

Two services that each have a SQLite file would divide the parked letters between their files, and nobody
would find half of them. So whoever stores letters of a vhost in a file holds a lease of that vhost; the
others wait, say who stores them, and ask again until they get it. PostgreSQL is one store for all of them and
needs none.

The lease is held on the connection that letters come by. Who loses it has lost the letters in hand as well:
the broker gives both to another at the same moment. What is in a transaction then must not be committed, or
the letter is in two files; so before each commit the holder is sure of it (`HeldLease.sure`): by its
connection, and, when the last answer of the broker is not fresh, by asking. A process that was stopped for a
minute (SIGSTOP, a laptop's lid) finds out there. What is left is a connection that ends between a commit and
its acks.
"""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final

from deadletter.broker.lease import Lease, told_by_holder
from deadletter.broker.management import Management
from deadletter.broker.session import Link
from deadletter.core.letter.header_values import shown
from deadletter.errors import ChannelClosed, WireError
from deadletter.service.telling.service_events import LeaseChanged, Recovered, ServiceEvent, Trouble
from deadletter.store.store_address import SqliteAddress, address_text

LEASE: Final = "store"
ASK_S: Final = 2.0
"""Before asking again for a lease that another instance holds."""
LOOK_S: Final = 0.2
"""Between two looks at whether we still hold it: that its queue was deleted is told to nobody else."""
FRESH_S: Final = 0.5
"""An answer of the broker is good for so long: it hangs up on nobody who is silent for less than two
seconds."""
ANSWER_S: Final = 3.0
"""So long the broker may take to say that we hold it."""


class HeldLease:
    """One lease, from the moment it was taken."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease
        self._asked_at = asyncio.get_running_loop().time()

    @property
    def held(self) -> bool:
        return self._lease.held

    async def sure(self) -> bool:
        """Whether nobody else can have it, nor the letters that came while it was held."""
        if not self.held:
            return False
        asked_at = asyncio.get_running_loop().time()
        if asked_at - self._asked_at > FRESH_S:
            try:
                async with asyncio.timeout(ANSWER_S):
                    await self._lease.prove()
            except (WireError, TimeoutError):
                return False
            self._asked_at = asked_at
        return self.held


class StoreLease:
    """Of one vhost. `on` it for each link; `on_change` hears that it was taken, or lost."""

    def __init__(
        self,
        store: SqliteAddress,
        *,
        vhost: str,
        emit: Callable[[ServiceEvent], None],
        on_change: Callable[[], None],
    ) -> None:
        self.held: HeldLease | None = None
        self._where = address_text(store)
        self._vhost = vhost
        self._emit = emit
        self._on_change = on_change
        self._trouble = f"store:lease@{vhost}"
        self._in_trouble = False

    async def on(self, link: Link, asked: Management) -> None:
        """Ends only by being cancelled, or when the connection is lost."""
        connection = await link.connection("consume")
        while True:
            try:
                lease = await Lease.take(connection, LEASE, self._told(link.name))
            except ChannelClosed as error:
                self._refused(str(error))
                await asyncio.sleep(ASK_S)
                continue
            if lease is None:
                self._elsewhere(await told_by_holder(asked, LEASE))
                await asyncio.sleep(ASK_S)
                continue
            self._take(HeldLease(lease))
            try:
                while lease.held:  # noqa: ASYNC110 -- a channel that ends tells only who waits for it
                    await asyncio.sleep(LOOK_S)
            finally:
                self._lose()

    def _told(self, name: str) -> Mapping[str, str]:
        return {
            "holder": name,
            "host": socket.gethostname(),
            "store": self._where,
            "since": str(int(time.time())),
        }

    def _take(self, held: HeldLease) -> None:
        self.held = held
        self._emit(LeaseChanged(name=f"{LEASE}@{self._vhost}", held=True))
        if self._in_trouble:
            self._in_trouble = False
            self._emit(
                Recovered(
                    what=self._trouble, why=f"letters of vhost {self._vhost!r} are stored here from now on"
                )
            )
        self._on_change()

    def _lose(self) -> None:
        self.held = None
        self._emit(LeaseChanged(name=f"{LEASE}@{self._vhost}", held=False))
        self._on_change()

    def _refused(self, why: str) -> None:
        self._in_trouble = True
        said = f"letters of vhost {self._vhost!r} are not stored here: the lease for it was refused: {why}"
        self._emit(Trouble(what=self._trouble, why=said, seconds=ASK_S))

    def _elsewhere(self, told: Mapping[str, str]) -> None:
        self._in_trouble = True
        who = shown(told.get("holder") or "another instance", 100)
        why = (
            f"letters of vhost {self._vhost!r} are stored by {who} in {self._place(told)}"
            f"{_since(told.get('since', ''))}; we take over when it ends"
        )
        self._emit(Trouble(what=self._trouble, why=why, seconds=ASK_S))

    def _place(self, told: Mapping[str, str]) -> str:
        host, store = told.get("host", ""), told.get("store", "")
        if not store:
            return "a store of its own"
        if (host, store) == (socket.gethostname(), self._where):
            return "the same store as ours"
        return f"another store than ours ({shown(store, 200)} on {shown(host, 100)})"


def _since(told: str) -> str:
    """Whatever a broker tells may have been written by anybody."""
    if not (told.isascii() and told.isdecimal() and len(told) <= 11):
        return ""
    return f", since {datetime.fromtimestamp(int(told), UTC):%Y-%m-%d %H:%M:%S} UTC"
