"""The line between our own client and the memory broker: bytes both ways, in order, a turn of the loop later.

The client is the real one, `deadletter.amqp.connection.Connection`, on this transport instead of a socket. So
a test on the memory broker runs every line of it, and the two can never drift apart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol


class FarEnd(Protocol):
    """Who listens at the broker's end."""

    def feed(self, data: bytes) -> None: ...

    def hung_up(self) -> None: ...


class MemoryTransport(asyncio.Transport):
    """The client's end of the line."""

    def __init__(self, protocol: asyncio.Protocol, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._protocol = protocol
        self._loop = loop
        self._far_end: FarEnd | None = None
        self._to_broker: list[bytes] = []
        self._to_client: list[bytes] = []
        self._listening = True
        self._closing = False
        self._over = False
        self._flushing: set[Callable[[], None]] = set()

    def join(self, far_end: FarEnd) -> None:
        self._far_end = far_end

    def _soon(self, flush: Callable[[], None]) -> None:
        if flush not in self._flushing:
            self._flushing.add(flush)
            self._loop.call_soon(flush)

    # -- the client's side -------------------------------------------------------------------------------
    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._closing:
            self._to_broker.append(bytes(data))
            self._soon(self._carry)

    def _carry(self) -> None:
        self._flushing.discard(self._carry)
        data, self._to_broker = b"".join(self._to_broker), []
        if data and not self._over and self._far_end is not None:
            self._far_end.feed(data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is no buffer that could fill: what is written is there a turn later."""

    def get_write_buffer_size(self) -> int:
        return 0

    def is_reading(self) -> bool:
        return self._listening

    def pause_reading(self) -> None:
        self._listening = False

    def resume_reading(self) -> None:
        self._listening = True
        if self._to_client:
            self._soon(self._hear)

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        """Hang up; what was written before still arrives."""
        if not self._closing:
            self._closing = True
            self._loop.call_soon(self._hang_up)

    def abort(self) -> None:
        self._to_broker.clear()
        self.close()

    def _hang_up(self) -> None:
        if not self._over:
            self._over = True
            if self._far_end is not None:
                self._far_end.hung_up()
            self._protocol.connection_lost(None)

    # -- the broker's side -------------------------------------------------------------------------------
    def tell(self, data: bytes) -> None:
        """Bytes for the client."""
        if not self._over:
            self._to_client.append(data)
            self._soon(self._hear)

    def _hear(self) -> None:
        self._flushing.discard(self._hear)
        if self._listening and not self._closing and self._to_client:
            data, self._to_client = b"".join(self._to_client), []
            self._protocol.data_received(data)

    def cut(self, error: Exception | None) -> None:
        """The line is dead: what is under way in either direction is lost."""
        if not self._over:
            self._closing = self._over = True
            self._to_broker.clear()
            self._to_client.clear()
            self._loop.call_soon(self._protocol.connection_lost, error)
