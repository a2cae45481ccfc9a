"""A lease: what only one instance may do, it does while it holds an exclusive queue of this name.

An exclusive queue belongs to the connection that declared it and is gone with it: whoever loses the
connection on which it works has lost the lease too, and nobody has to agree on a time. A second holder gets
405 RESOURCE_LOCKED. (An exclusive *consumer* would not do: a quorum queue accepts two.)

The holder consumes from it, though nothing should ever come: a policy that lets queues expire deletes those
that nobody uses, and the lease with them. Who may not read from it holds it all the same.

What others shall know of the holder it says in arguments of the queue: the management API tells them, and
they are gone with the lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final
from urllib.parse import quote

from deadletter.amqp.channel import Channel, ignore
from deadletter.amqp.connection import Connection
from deadletter.broker.management import Management
from deadletter.core.layouts.naming import around
from deadletter.core.letter.names import PREFIX
from deadletter.errors import AccessRefused, ManagementRefused, ResourceLocked

LEASE: Final = f"{PREFIX}lease."
_TOLD: Final = "x-deadletter-"
"""Before what a holder tells of itself."""
_NOTHING: Final[Mapping[str, str]] = {}
ASK_S: Final = 0.1
"""Between two askings for a lease that somebody else holds."""


def lease_name(what: str) -> str:
    return around(LEASE, what)


class Lease:
    """Made by `take`. Held until `release`, or until the connection ends."""

    def __init__(self, what: str, channel: Channel) -> None:
        self.what = what
        self._channel = channel
        self._using: Channel | None = None
        self._gone = False

    @classmethod
    async def take(
        cls, connection: Connection, what: str, told: Mapping[str, str] = _NOTHING
    ) -> Lease | None:
        """The lease, or None: somebody else holds it. `told`: what others may know of the holder."""
        channel = await connection.channel()
        arguments = {f"{_TOLD}{name}": value for name, value in told.items()}
        try:
            await channel.declare_queue(lease_name(what), durable=False, exclusive=True, arguments=arguments)
        except ResourceLocked:
            return None
        lease = cls(what, channel)
        await lease._use(await connection.channel())
        return lease

    async def _use(self, channel: Channel) -> None:
        """On a channel of its own: a right that is missing closes it, and not the lease."""
        try:
            await channel.qos(1)  # whatever somebody sends here stays where it is
            await channel.consume(lease_name(self.what), ignore, self._on_cancel)
        except AccessRefused:
            return
        self._using = channel

    @classmethod
    async def wait(cls, connection: Connection, what: str, seconds: float) -> Lease | None:
        """The same, asked for until patience ends: a broker tells nobody that a lease is free."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while True:
            lease = await cls.take(connection, what)
            if lease is not None or loop.time() >= until:
                return lease
            await asyncio.sleep(ASK_S)

    @property
    def held(self) -> bool:
        return self._channel.error is None and not self._gone

    async def prove(self) -> None:
        """Ask the broker whether we hold it, which is the answer: raises a WireError when not."""
        await self._channel.declare_queue(lease_name(self.what), passive=True)

    def _on_cancel(self) -> None:
        """The queue is gone although we use it."""
        self._gone = True

    async def release(self) -> None:
        """Let another have it. Nothing to do when the connection is gone."""
        if self._channel.error is None:
            await self._channel.delete_queue(lease_name(self.what))
            await self._channel.close()
            if self._using is not None:
                await self._using.close()


async def told_by_holder(asked: Management, what: str) -> Mapping[str, str]:
    """What the holder says of itself; nothing where nobody tells."""
    try:
        found = await asked.get_if_allowed("queues", below=quote(lease_name(what), safe="")) or {}
    except ManagementRefused:
        return _NOTHING  # it has just been let go, or we may not know
    arguments: Mapping[str, object] = found.get("arguments") or {}
    return {
        name.removeprefix(_TOLD): str(value) for name, value in arguments.items() if name.startswith(_TOLD)
    }


async def holder_of(asked: Management, what: str) -> str:
    """Who holds it: the connection as its client named it, else its address; empty where nobody tells."""
    try:
        found = await asked.get_if_allowed("queues", below=quote(lease_name(what), safe="")) or {}
        owner = str((found.get("owner_pid_details") or {}).get("name", ""))
        for connection in await asked.get_if_allowed("vhosts", below="connections") or ():
            if owner and connection.get("name") == owner:
                return str(connection.get("user_provided_name") or owner)
    except ManagementRefused:
        return ""  # it has just been let go, or we may not know
    return owner
