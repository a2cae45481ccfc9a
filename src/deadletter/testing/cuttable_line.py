"""A line to a broker that can be cut: a small proxy on loopback, for demonstrations and for tests.

Cut by hand with `cut`, or by itself after so many bytes in one direction, which is how one finds the byte
at which a program breaks. A cut is abrupt, as in life: no goodbye, what was in the buffers is gone. The
next connection goes through again.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import Self

from deadletter.amqp.address import Address


class Plug:
    """``async with Plug(address) as plug: connect(plug.address)``."""

    def __init__(
        self,
        target: Address,
        *,
        cut_after_sent_bytes: int | None = None,
        cut_after_heard_bytes: int | None = None,
    ) -> None:
        self.cuts: int = 0
        """How often the line was cut."""
        self._target = target
        self._left = {"sent": cut_after_sent_bytes, "heard": cut_after_heard_bytes}
        self._lines: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    @property
    def address(self) -> Address:
        """The target's address with the plug's port."""
        assert self._server is not None
        return replace(self._target, host="127.0.0.1", port=self._server.sockets[0].getsockname()[1])

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._on_client, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_error: object) -> None:
        assert self._server is not None
        self._server.close()
        self._abort()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Every line that is open now is dead."""
        self.cuts += 1
        self._abort()

    def _abort(self) -> None:
        for line in self._lines:
            line.transport.abort()
        self._lines.clear()

    async def _on_client(self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> None:
        try:
            broker_in, broker_out = await asyncio.open_connection(self._target.host, self._target.port)
        except OSError:
            client_out.transport.abort()
            return
        self._lines |= {client_out, broker_out}
        for direction, source, sink in (("sent", client_in, broker_out), ("heard", broker_in, client_out)):
            task = asyncio.create_task(self._pump(direction, source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, direction: str, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await source.read(65536):
                left = self._left[direction]
                if left is not None and len(data) >= left:
                    sink.write(data[:left])
                    await sink.drain()
                    self._left[direction] = None
                    self.cut()
                    return
                if left is not None:
                    self._left[direction] = left - len(data)
                sink.write(data)
                await sink.drain()
        self._lines.discard(sink)
        sink.close()
