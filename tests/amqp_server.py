"""A broker of a few lines that does what its script says: for what a real one does too rarely to test.

A script is a coroutine that gets a `Peer`, the broker's end of one real TCP connection, and says and hears
AMQP in the oracle's words. When it returns, the peer still answers a client that closes in good order.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeAlias

from tests import amqp_oracle as oracle

from deadletter.amqp.address import Address
from deadletter.amqp.connection import Connection
from deadletter.amqp.handshake import connect
from deadletter.errors import ConnectionLost

CLIENT_HEADER = b"AMQP\x00\x00\x09\x01"


class Peer:
    """The broker's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.heartbeats = 0
        """How many came from the client."""

    # -- saying ------------------------------------------------------------------------------------------
    def raw(self, data: bytes) -> None:
        self.writer.write(data)

    def say(self, channel: int, payload: bytes) -> None:
        self.raw(oracle.frame(oracle.METHOD, channel, payload))

    def beat(self) -> None:
        self.raw(oracle.frame(oracle.HEARTBEAT, 0, b""))

    # -- hearing -----------------------------------------------------------------------------------------
    async def frame(self) -> tuple[int, int, bytes]:
        """The next frame of any kind."""
        prefix = await self.reader.readexactly(7)
        payload = await self.reader.readexactly(int.from_bytes(prefix[3:7], "big"))
        end = await self.reader.readexactly(1)
        assert end == b"\xce", f"the client ended a frame with {end!r}"
        if prefix[0] == oracle.HEARTBEAT:
            self.heartbeats += 1
        return prefix[0], int.from_bytes(prefix[1:3], "big"), payload

    async def expect(self, class_id: int, method_id: int) -> tuple[int, bytes]:
        """Channel and arguments of the next method, which must be this one. Heartbeats are passed over."""
        while True:
            kind, channel, payload = await self.frame()
            if kind != oracle.HEARTBEAT:
                assert kind == oracle.METHOD, f"expected a method, got a frame of type {kind}"
                assert payload[:4] == oracle.method(class_id, method_id), f"got method {payload[:4].hex()}"
                return channel, payload[4:]

    async def greet(self, *, heartbeat_s: int = 0, channel_max: int = 2047, frame_max: int = 131072) -> None:
        """The whole handshake."""
        assert await self.reader.readexactly(8) == CLIENT_HEADER
        self.say(0, oracle.start())
        await self.expect(10, 11)
        self.say(0, oracle.tune(channel_max, frame_max, heartbeat_s))
        await self.expect(10, 31)
        await self.expect(10, 40)
        self.say(0, oracle.OPEN_OK)

    async def open_channel(self) -> int:
        channel, _ = await self.expect(20, 10)
        self.say(channel, oracle.OPEN_CHANNEL_OK)
        return channel

    async def goodbye(self) -> None:
        """Answer whatever closes, and nothing else, until the client has gone."""
        while True:
            _, channel, payload = await self.frame()
            if payload[:4] == oracle.method(20, 40):
                self.say(channel, oracle.CLOSE_CHANNEL_OK)
            elif payload[:4] == oracle.method(10, 50):
                self.say(0, oracle.CLOSE_CONNECTION_OK)
                await self.writer.drain()
                return


Script: TypeAlias = Callable[[Peer], Awaitable[None]]


@asynccontextmanager
async def serving(script: Script, *, tls: ssl.SSLContext | None = None, port: int = 0) -> AsyncIterator[int]:
    """A server on a loopback port, which it gives, running the script for each client."""
    peers: list[asyncio.Task[None]] = []
    failures: list[BaseException] = []

    async def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        peers.append(task)
        peer = Peer(reader, writer)
        try:
            await script(peer)
            await peer.goodbye()
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass  # the client has gone, or the test is over
        except BaseException as error:  # noqa: BLE001 -- told at the end, in the test's own task
            failures.append(error)
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(attend, "127.0.0.1", port, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for peer in peers:
            peer.cancel()
        await asyncio.gather(*peers, return_exceptions=True)
        await server.wait_closed()
        await asyncio.sleep(0)
    if failures:
        raise failures[0]


@asynccontextmanager
async def talking(script: Script, *, heartbeat_s: int = 0) -> AsyncIterator[Connection]:
    """A connection of ours to such a server."""
    async with serving(script) as port:
        connection = await connect(Address(port=port, heartbeat_s=heartbeat_s, connect_timeout_s=5.0))
        try:
            yield connection
        finally:
            connection.abort(ConnectionLost("the test is over"))
            await asyncio.sleep(0)
