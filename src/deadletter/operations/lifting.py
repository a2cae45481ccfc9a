"""Before a command takes letters from a queue: which delivery limit holds there, and whether to take it off.

`--lift-limit` sets a RabbitMQ policy for as long as the command runs: what holds now, with the limit taken
off. It is put back however the command ends. A command that is killed leaves it behind; it is known
by its name, and the next command on the same queue puts the limit back. Two commands must not do this to one
queue at once, so whoever does holds a lease, and a policy whose lease is free was left behind.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from deadletter.amqp.address import Address
from deadletter.amqp.handshake import connect
from deadletter.broker import delivery_limits
from deadletter.broker.delivery_limits import KnownLimit
from deadletter.broker.lease import Lease
from deadletter.broker.management import management
from deadletter.broker.session import Link, supervise
from deadletter.core.layouts.naming import lifting_policy_name
from deadletter.core.topology import look_cost, rabbitmq_commands
from deadletter.core.topology.look_cost import Deliveries
from deadletter.core.topology.rabbitmq_versions import traits_of
from deadletter.errors import DeadletterError, ManagementRefused, UsageError, WireError
from deadletter.move.asked_limits import LimitSource


def renewed_words(number: int, queue: str, limit: int | None) -> str:
    """What is said of letters that were renewed."""
    return (
        f"{number} letters had spent so many of their deliveries (limit {limit}) that giving them back might "
        f"have destroyed them, now or soon; they were renewed, and are at the end of {queue} now"
    )


_NEED: Final = "the limit is a policy, and policies are set there: give its address (DLQ_API, --api)"


@dataclass(slots=True, kw_only=True)
class Taking:
    """What a command knows of the queue it takes from."""

    queue: str
    vhost: str
    server_version: str
    deliveries: Deliveries
    known: KnownLimit | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def limits(self) -> LimitSource:
        """Where the courier learns how the queue counts deliveries."""

        async def told(_link: Link, _queue: str) -> Deliveries:
            return self.deliveries

        return told

    @property
    def advice(self) -> str:
        """How to take the limit off: with the policy that holds now, where we know it."""
        traits = traits_of(self.server_version)
        if traits.is_known and not traits.unlimited_by_minus_one:
            return "change the policy or the argument that sets its limit: before 4.0 no policy takes it off"
        if self.known is not None and self.known.limit is not None:
            policy = self.known.limit.policy
            if policy is None:
                return "its limit is an argument of its declaration, which no policy can take off"
            command = rabbitmq_commands.set_policy(policy, self.vhost)
            return f"take the limit off for this run with --lift-limit, or for good: {command}"
        return look_cost.advice(self.queue, self.vhost)


@asynccontextmanager
async def taking(
    addresses: Sequence[Address], queue: str, *, api: str | None, lift: bool
) -> AsyncIterator[Taking]:
    """Learn about the queue; within, its limit is lifted, if that is wished. Raises when it cannot be."""
    address, found = await supervise(addresses, lambda link: _look(link, queue, api, must=lift))
    async with AsyncExitStack() as stack:
        if found.known is not None and found.known.left_over and not lift:
            await _clean_up(address, found, api)
        if lift and _may_lift(found):
            await stack.enter_async_context(_lifted(address, found, api))
        yield found


async def _look(link: Link, queue: str, api: str | None, *, must: bool) -> tuple[Address, Taking]:
    version = (await link.connection("consume")).server_version
    found = Taking(
        queue=queue,
        vhost=link.address.vhost,
        server_version=version,
        deliveries=look_cost.deliveries_by_default(version),
    )
    try:
        found.known = await delivery_limits.ask(link, api, queue)
    except ManagementRefused:
        if must:
            raise
    else:
        found.deliveries = found.known.deliveries
    return link.address, found


def _may_lift(found: Taking) -> bool:
    """Whether there is something to lift. Raises UsageError where there is, and no policy can."""
    known = found.known
    assert known is not None
    if known.limit is None:
        found.notes.append(f"--lift-limit was not needed: {found.queue} has no delivery limit")
        return False
    if not traits_of(found.server_version).unlimited_by_minus_one:
        raise UsageError(
            f"RabbitMQ {found.server_version} takes no policy that lifts a limit (4.0 does); {found.queue} "
            f"has one of {known.limit.limit}: change the policy or the argument that sets it"
        )
    if known.lifting is None:
        raise UsageError(
            f"the delivery limit of {found.queue} ({known.limit.limit}) is an argument of its declaration "
            "or an operator policy's: no policy of ours can lift it"
        )
    return True


@asynccontextmanager
async def _lifted(address: Address, found: Taking, api: str | None) -> AsyncIterator[None]:
    known, name = found.known, lifting_policy_name(found.queue)
    assert known is not None
    assert known.lifting is not None
    from deadletter.broker.declare import put_policy  # few commands lift a limit, all would wait for it

    connection = await connect(address, name=f"dlq: {name}")
    try:
        lease = await Lease.take(connection, name)
        if lease is None:
            raise DeadletterError(
                f"another command has lifted the delivery limit of {found.queue} and will put it back when "
                "it ends; wait for it"
            )
        async with management(address, api, need=_NEED) as asked:
            try:
                await put_policy(asked, known.lifting)
                found.deliveries = replace(known.deliveries, lifted=True)
                yield
            finally:
                await asyncio.shield(_put_back(address, found, api))
    finally:
        try:
            await connection.close()
        except WireError as error:
            found.notes.append(f"the connection that held the lease {name} was lost: {error}")


async def _put_back(address: Address, found: Taking, api: str | None) -> None:
    """Remove the policy. What could not be put back is said, with the command that does it."""
    name = lifting_policy_name(found.queue)
    try:
        async with management(address, api, need=_NEED) as asked:
            await asked.delete("policies", name)
    except ManagementRefused as error:
        found.notes.append(
            f"the delivery limit of {found.queue} could not be put back ({error}): "
            f"{rabbitmq_commands.clear_policy(name, found.vhost)}"
        )


async def _clean_up(address: Address, found: Taking, api: str | None) -> None:
    """A command that was killed left its policy behind; one that runs did not."""
    connection = await connect(address, name="dlq: clean up")
    try:
        lease = await Lease.take(connection, lifting_policy_name(found.queue))
        if lease is None:
            found.notes.append(f"another command has lifted the delivery limit of {found.queue} for now")
            return
        await _put_back(address, found, api)
        found.notes.append(
            f"the delivery limit of {found.queue} was lifted by a command that was killed; it holds again"
        )
    finally:
        await connection.close()
