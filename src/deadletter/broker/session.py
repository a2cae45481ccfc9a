"""A supervised conversation: it comes back by itself, and says so; what needs a person it never hides.

`supervise` opens a `Link` to one of several hosts, runs the given work on it, and when the link is lost runs
the work again on a new one, after a pause that grows and is jittered so that many clients do not come back
in step. The work starts its consumers itself, so they are resumed by running it again; whatever must
survive a loss lives outside it.

Worth another try: nobody answers, the connection was lost, the broker is shutting down. A refusal (login,
vhost, certificate) is raised at once where it never worked: it will be the same in a minute. Where it did
work somebody has changed something, and whoever `forgives` waits until it is mended. Everything else (a queue
that is not there) is raised.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias, TypeVar

from deadletter.amqp.address import Address
from deadletter.amqp.channel import Channel, ignore
from deadletter.amqp.connection import Connection
from deadletter.amqp.handshake import connect
from deadletter.errors import (
    CannotConnect,
    CertificateRefused,
    ConnectionLost,
    FrameRefused,
    Unreachable,
    UsageError,
    WireError,
)

_T = TypeVar("_T")

STABLE_S: Final = 2.0
"""A link that lived this long was a good one: the pauses begin small again."""
RETRYABLE: Final = (Unreachable, ConnectionLost)


@dataclass(frozen=True, slots=True, kw_only=True)
class Connected:
    """A link is open."""

    address: Address
    server_version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """The link is lost, or none came about; the next try is in `seconds`."""

    reason: Exception
    seconds: float
    tries: int


SessionEvent: TypeAlias = Connected | Waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class Persistence:
    """How long to try, and how often.

    `first_s` is how long to wait for the very first connection (0: it must be there), `again_s` for one
    that was there before; None means for ever.
    """

    first_s: float | None = 0.0
    again_s: float | None = 300.0
    pause_s: float = 0.2
    pause_max_s: float = 10.0
    forgives: bool = False
    """Whether a refusal is worth another try once it worked: a password that was changed here and not there,
    a vhost that is made anew."""
    refused_max_s: float = 30.0
    """The longest pause after a refusal: a broker may lock out who knocks too often."""

    def pause(self, tries: int, dice: float, *, refused: bool = False) -> float:
        """The pause before try number `tries` (from 1), between half and all of its doubling length."""
        most = self.refused_max_s if refused else self.pause_max_s
        longest = min(self.pause_s * 2.0 ** min(tries - 1, 30), most)
        return longest * (0.5 + dice / 2)


class Dial(Protocol):
    """Opens a connection; raises a CannotConnect."""

    async def __call__(self, address: Address, *, name: str) -> Connection: ...


async def to_its_end(work: Awaitable[_T]) -> _T:
    """Also where somebody cancels it: then that is raised when the work is done. A second time it is cut."""
    doing = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(doing)
    except asyncio.CancelledError:
        try:
            await asyncio.wait({doing})
        finally:
            doing.cancel()
        if not doing.cancelled():
            doing.exception()  # seen: nobody is left to be told
        raise


@dataclass(slots=True)
class Link:
    """Connections to one host, opened when first asked for, closed together."""

    address: Address
    name: str
    dial: Dial = connect
    """How a connection comes about; the memory broker has a way of its own."""
    _open: dict[str, Connection] = field(default_factory=dict)
    _opening: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def connection(self, purpose: str) -> Connection:
        """The connection for this purpose. Publishing and consuming want one each: a broker short of
        memory stops reading from whoever publishes, and would not see the acks either."""
        found = self._open.get(purpose)
        if found is None or found.closed.done():
            async with self._opening:  # several may ask at once, and the second needs none of its own
                found = self._open.get(purpose)
                if found is None or found.closed.done():
                    found = self._open[purpose] = await self.dial(
                        self.address, name=f"{self.name}: {purpose}"
                    )
        return found

    async def channel(self, purpose: str = "declare") -> Channel:
        """A new channel on the connection for this purpose: `async with await link.channel() as channel:`."""
        return await (await self.connection(purpose)).channel()

    async def close(self) -> None:
        """Say goodbye on all of them at once: one that hangs must not keep the others waiting. Who cancels
        it waits for that all the same: behind a goodbye are acks, and a line that is hung up may lose them.
        A second time it hangs up."""
        connections = list(self._open.values())
        try:
            await to_its_end(asyncio.gather(*(connection.close() for connection in connections)))
        finally:
            for connection in connections:
                connection.abort(ConnectionLost(f"the link to {self.address} was closed by us"))
            for connection in connections:
                await connection.gone()
            self._open.clear()

    def abort(self, error: WireError) -> None:
        """Hang up, now. Whatever waits for an answer gets this instead."""
        for connection in self._open.values():
            connection.abort(error)


async def supervise(
    addresses: Sequence[Address],
    work: Callable[[Link], Awaitable[_T]],
    *,
    name: str = "deadletter",
    persistence: Persistence = Persistence(),  # noqa: B008 -- frozen
    dice: Callable[[], float] = random.random,
    on_event: Callable[[SessionEvent], None] = ignore,
    dial: Dial = connect,
    been_there: bool = False,
) -> _T:
    """Run `work` on a link, again on a new one whenever the link is lost, until it returns or raises.

    `been_there`: it worked before, in an earlier life of whoever asks.
    """
    loop = asyncio.get_running_loop()
    hosts = list(addresses)
    lost_at, tries, patience_s = loop.time(), 0, persistence.again_s if been_there else persistence.first_s
    while True:
        try:
            link = await _open_any(hosts, name, dial, forgiving=been_there and persistence.forgives)
            opened_at = loop.time()
            if not been_there:
                been_there, lost_at, patience_s = True, opened_at, persistence.again_s
            try:
                connection = await link.connection("consume")
                on_event(Connected(address=link.address, server_version=connection.server_version))
                return await work(link)
            finally:
                # A link that is lost as soon as it is there does not start the count anew: else a broker
                # that accepts and hangs up would be asked for ever.
                if loop.time() - opened_at > STABLE_S:
                    lost_at, tries = loop.time(), 0
                await link.close()
        except (CannotConnect, ConnectionLost) as error:
            refused = not isinstance(error, RETRYABLE)
            if isinstance(error, FrameRefused):
                raise  # our own frame was wrong: it would be wrong again
            if refused and not (been_there and persistence.forgives):
                raise
            tries += 1
            pause_s = persistence.pause(tries, dice(), refused=refused)
            if patience_s is not None and loop.time() + pause_s - lost_at > patience_s:
                raise
            on_event(Waiting(reason=error, seconds=pause_s, tries=tries))
            await asyncio.sleep(pause_s)


async def _open_any(hosts: list[Address], name: str, dial: Dial, *, forgiving: bool) -> Link:
    """A link to the first host that answers; the one that did is asked first the next time."""
    failures: list[WireError] = []
    for place, address in enumerate(hosts):
        link = Link(address, name, dial)
        try:
            await link.connection("consume")
        except RETRYABLE as error:  # also a host that is just shutting down: it says so and hangs up
            failures.append(error)
            continue
        except (CannotConnect, UsageError) as error:
            if not forgiving:
                raise
            # Files of a certificate that is being exchanged are missing for a moment.
            failures.append(error if isinstance(error, CannotConnect) else CertificateRefused(str(error)))
            continue
        hosts.insert(0, hosts.pop(place))
        return link
    if len(failures) == 1:
        raise failures[0]
    raise Unreachable("none of the hosts answers: " + "; ".join(map(str, failures)))
