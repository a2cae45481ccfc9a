"""Deleting a queue that is empty and unused, and no other. The only place where we delete a queue of others.

A classic queue is deleted by the broker under these two conditions, in one step. Quorum queues know no such
conditions (540 closes the connection), so for them we ask, and delete right afterwards on the same channel. A
letter that somebody publishes by the queue's name in between is gone, as it would be right afterwards, when
there is no such queue: whoever calls this has made sure that nobody does.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Final
from urllib.parse import quote

import httpx

from deadletter.amqp.address import Address
from deadletter.amqp.connection import Connection
from deadletter.broker.management import TIMEOUT_S, api_of
from deadletter.errors import ManagementRefused, MoveFailed, NotFound, WireError

_GONE: Final = (httpx.codes.NO_CONTENT, httpx.codes.NOT_FOUND)


async def delete_classic(address: Address, api: str | None, queue: str) -> None:
    """Raises MoveFailed when the queue is not empty or has consumers; nothing has happened then."""
    base, user, password = api_of(address, api)
    verify = address.tls.verify if address.tls is not None else True
    ca_file = address.tls.ca_file if address.tls is not None else None
    try:
        async with httpx.AsyncClient(
            auth=(user, password),
            timeout=TIMEOUT_S,
            verify=str(ca_file) if ca_file is not None and verify else verify,
        ) as client:
            answer = await client.delete(
                f"{base}/queues/{quote(address.vhost, safe='')}/{quote(queue, safe='')}",
                params={"if-empty": "true", "if-unused": "true"},
            )
    except httpx.HTTPError as error:
        raise ManagementRefused(
            f"the management API at {base} did not delete {queue!r} ({type(error).__name__}: {error})"
        ) from error
    if answer.status_code in (401, 403):
        raise ManagementRefused(
            f"the management API at {base} does not let user {user!r} delete {queue!r} "
            f"({answer.status_code}); it needs configure on it"
        )
    if answer.status_code not in _GONE:
        raise MoveFailed(f"the broker does not delete {queue!r}: {answer.status_code} {answer.text[:300]}")


async def delete_quorum(connection: Connection, queue: str) -> None:
    """Raises MoveFailed when the queue is not empty or has consumers; nothing has happened then."""
    channel = await connection.channel()
    try:
        found = await channel.declare_queue(queue, passive=True)
        if found.message_count or found.consumer_count:
            raise MoveFailed(
                f"{queue!r} is not deleted: it has {found.message_count} letters and "
                f"{found.consumer_count} consumers"
            )
        await channel.delete_queue(queue)
    except NotFound:
        return
    finally:
        with suppress(WireError):
            await channel.close()
