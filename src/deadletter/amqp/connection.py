"""One conversation with one broker: bytes in, frames to their channels; bytes out, in bounded batches.

Everything runs on one event loop and nothing here waits: `data_received` hands each frame to its channel,
whose callbacks may answer at once with `send`. What was sent during one turn of the loop leaves in one
write at its end.

Pressure is felt in two ways and shown as one flag, `congested`: the socket does not take what we write, or
the broker said `connection.blocked`. Who publishes waits for `ready()`; who publishes inside a callback
looks at the flag, and stops its own source (`pause_reading` there) until `on_pressure` says it is over. So
a slow broker fills the network's buffers, not ours.

Heartbeats go both ways. Our own go out while nothing else does. The broker's silence for two intervals
ends the conversation, except while it is we who do not listen. The same silence ends it when we were away
ourselves (frozen, or stuck): the broker has given our letters to others, and what still lies in the socket
must not be acted on.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Generator, Mapping
from typing import TYPE_CHECKING, Final, cast

from deadletter.amqp import replies, requests
from deadletter.amqp.address import Address
from deadletter.amqp.channel import Channel
from deadletter.amqp.frames import HEARTBEAT, HEARTBEAT_FRAME, METHOD, FrameReader, method_frame
from deadletter.core.letter.field_table import Value
from deadletter.core.text.safe_text import line
from deadletter.errors import (
    ChannelsExhausted,
    ConnectionLost,
    FrameError,
    HeartbeatMissed,
    WireError,
    connection_closed,
)

if TYPE_CHECKING:
    from deadletter.amqp.replies import Reply

FLUSH_BYTES: Final = 256 * 1024
BREATH_S: Final = 0.001
BREATH_LEAST_BYTES: Final = 4 * 1024
BREATH_MOST_BYTES: Final = 64 * 1024
"""What a read brings that is worth a breath before the next one: less is no stream, more is a large read
already."""
WRITE_BUFFER_BYTES: Final = 1024 * 1024
"""Above this the connection counts as congested."""
CLOSE_TIMEOUT_S: Final = 5.0
GONE_TIMEOUT_S: Final = 1.0
UNHEARD_MAX: Final = 4
"""Words of the broker's on channel 0 that may wait for somebody to hear them."""


class ConnectionEnding:
    """How a conversation ended, to be awaited by anybody; who gives up waiting disturbs nobody."""

    __slots__ = ("_came", "_error")

    def __init__(self) -> None:
        self._came = asyncio.Event()
        self._error: WireError | None = None

    def come(self, error: WireError) -> None:
        self._error = error
        self._came.set()

    def done(self) -> bool:
        return self._error is not None

    def result(self) -> WireError:
        assert self._error is not None
        return self._error

    def __await__(self) -> Generator[object, object, WireError]:
        yield from self._came.wait().__await__()
        return self.result()


class Connection(asyncio.Protocol):
    """An open connection. Made by `deadletter.amqp.handshake.connect`."""

    def __init__(self, address: Address, loop: asyncio.AbstractEventLoop) -> None:
        self.address = address
        self.server_properties: Mapping[str, Value] = {}
        self.frame_max_bytes = 131072
        self.channel_max = 2047
        self.blocked_reason: str | None = None
        self.congested: bool = False
        """Whether what is sent now would only wait."""
        self.on_pressure: list[Callable[[], None]] = []
        """Called whenever `congested` may have changed."""
        self.unhurried: bool = False
        """Whether a stream is read in large pieces, a millisecond apart, and not as soon as a byte is there.
        A broker writes letter by letter, and to wake for six of them costs more than to read them."""
        self.closed: ConnectionEnding = ConnectionEnding()
        """Done when the conversation is over, with the reason."""
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._reader = FrameReader()
        self._channels: dict[int, Channel] = {}
        self._numbers_back: list[int] = []
        """Numbers of channels that have ended, the lowest first; the others below `_numbers` are in use."""
        self._numbers = 0
        self._replies: asyncio.Queue[Reply | WireError] = asyncio.Queue()
        self._out: list[bytes] = []
        self._out_bytes = 0
        self._flushing = False
        self._gone = asyncio.Event()
        self._writable = True
        self._reading = True
        self._breathing = False
        self._ready = asyncio.Event()
        self._ready.set()
        self._heartbeat_s = 0
        self._heard_at = loop.time()
        self._spoke_at = loop.time()
        self._ticker: asyncio.TimerHandle | None = None

    # -- what the broker is ------------------------------------------------------------------------------
    @property
    def server_version(self) -> str:
        """As the broker says, such as `3.10.8`; empty when it does not say."""
        version = self.server_properties.get("version")
        return version if isinstance(version, str) else ""

    # -- bytes in ----------------------------------------------------------------------------------------
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)

    def data_received(self, data: bytes) -> None:
        now = self._loop.time()
        if self._silent_too_long(now):
            self._miss()
            return
        self._heard_at = now
        channels = self._channels
        try:
            for kind, number, payload in self._reader.feed_client(data):
                if number:
                    channel = channels.get(number)
                    if channel is not None:
                        if isinstance(payload, bytes):
                            channel.on_frame(kind, payload)
                        else:
                            channel.on_delivery(*payload)
                    # else: the last words on a channel that is closed already
                elif isinstance(payload, bytes):
                    self._on_zero(kind, payload)
        except FrameError as error:
            self.abort(error)
        if self.unhurried and BREATH_LEAST_BYTES < len(data) < BREATH_MOST_BYTES:
            self._breathe()

    def _breathe(self) -> None:
        """Leave what comes next in the network for a moment, so that the next read is a larger one."""
        if self._reading and not self._breathing and self._transport is not None and not self.closed.done():
            self._breathing = True
            self._transport.pause_reading()
            self._loop.call_later(BREATH_S, self._breathed)

    def _breathed(self) -> None:
        self._breathing = False
        if self._reading and self._transport is not None and not self.closed.done():
            self._transport.resume_reading()

    def _on_zero(self, kind: int, payload: bytes) -> None:
        if kind == HEARTBEAT:
            return
        if kind != METHOD:
            raise FrameError(f"a frame of type {kind} on channel 0, where only methods belong")
        match replies.parse(payload):
            case replies.Blocked(reason):
                self.blocked_reason = line(reason)
                self._pressure_changed()
            case replies.Unblocked():
                self.blocked_reason = None
                self._pressure_changed()
            case replies.CloseConnection(code, text):
                self._write_now(method_frame(0, requests.CLOSE_CONNECTION_OK))
                self.abort(connection_closed(code, line(text)))
            case reply:
                if self._replies.qsize() >= UNHEARD_MAX:
                    raise FrameError(f"the broker said {type(reply).__name__} that nobody asked for")
                self._replies.put_nowait(reply)

    async def reply(self) -> Reply:
        """The next word of the broker's on channel 0: for the handshake and for closing."""
        found = await self._replies.get()
        if isinstance(found, WireError):
            self._replies.put_nowait(found)
            raise found
        return found

    # -- bytes out ---------------------------------------------------------------------------------------
    def send(self, data: bytes) -> None:
        """Send soon: what is sent in one turn of the loop leaves together. Look at `congested` before."""
        self._out.append(data)
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def send_much(self, pieces: tuple[bytes, ...]) -> None:
        """Send what may be large, or many."""
        self._out += pieces
        self._out_bytes += len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces))
        if self._out_bytes > FLUSH_BYTES:
            # At once, so that a loop which publishes without a pause feels the pressure too.
            self._flush()
        elif not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def send_method(self, channel: int, payload: bytes) -> None:
        self.send(method_frame(channel, payload))

    def _flush(self) -> None:
        self._flushing = False
        self._out_bytes = 0
        if self._transport is not None and self._out and not self.closed.done():
            self._spoke_at = self._loop.time()
            self._transport.write(b"".join(self._out))
        self._out.clear()

    def _write_now(self, data: bytes) -> None:
        self._out.append(data)
        self._flush()

    # -- pressure ----------------------------------------------------------------------------------------
    async def ready(self) -> None:
        """Wait until the connection takes more; raises when it ends instead."""
        while self.congested and not self.closed.done():
            await self._ready.wait()
        if self.closed.done():
            raise self.closed.result()

    def pause_writing(self) -> None:
        self._writable = False
        self._pressure_changed()

    def resume_writing(self) -> None:
        self._writable = True
        self._pressure_changed()

    def _pressure_changed(self) -> None:
        self.congested = not self._writable or self.blocked_reason is not None
        if self.congested and not self.closed.done():
            self._ready.clear()
        else:
            self._ready.set()
        for listener in self.on_pressure:
            listener()

    def pause_reading(self) -> None:
        """Listen no more until `resume_reading`: the broker's deliveries wait in the network."""
        if self._reading and self._transport is not None and not self.closed.done():
            self._reading = False
            if not self._breathing:
                self._transport.pause_reading()

    def resume_reading(self) -> None:
        if not self._reading and self._transport is not None and not self.closed.done():
            self._reading = True
            self._heard_at = self._loop.time()
            if not self._breathing:
                self._transport.resume_reading()

    # -- heartbeats --------------------------------------------------------------------------------------
    def start_heartbeats(self, interval_s: int) -> None:
        """Begin to send and to expect heartbeats; 0 means neither."""
        self._heartbeat_s = interval_s
        if interval_s:
            self._ticker = self._loop.call_later(interval_s / 4, self._tick)

    def _tick(self) -> None:
        now = self._loop.time()
        if self._silent_too_long(now):
            self._miss()
            return
        if self._writable and now - self._spoke_at >= self._heartbeat_s / 2:
            self._write_now(HEARTBEAT_FRAME)
        self._ticker = self._loop.call_later(self._heartbeat_s / 4, self._tick)

    def _silent_too_long(self, now: float) -> bool:
        return bool(self._heartbeat_s) and self._reading and now - self._heard_at > 2 * self._heartbeat_s

    def _miss(self) -> None:
        self.abort(HeartbeatMissed(f"nothing heard from {self.address} for {2 * self._heartbeat_s} s"))

    # -- channels ----------------------------------------------------------------------------------------
    async def channel(self) -> Channel:
        """Open a channel."""
        if self.closed.done():
            raise self.closed.result()
        if not self._numbers_back and self._numbers >= self.channel_max:
            raise ChannelsExhausted(
                f"all {self.channel_max} channels of the connection to {self.address} are open; "
                "close some, or raise channel_max on the broker"
            )
        if self._numbers_back:
            number = heapq.heappop(self._numbers_back)
        else:
            number = self._numbers = self._numbers + 1
        channel = Channel(self, number)
        self._channels[number] = channel
        try:
            await channel.open()
        except asyncio.CancelledError:
            channel.abandon()  # its number is free when the broker has answered
            raise
        return channel

    def forget(self, channel: Channel) -> None:
        """A channel has ended; its number may be used again."""
        if self._channels.get(channel.number) is channel:
            del self._channels[channel.number]
            heapq.heappush(self._numbers_back, channel.number)

    # -- the end -----------------------------------------------------------------------------------------
    async def close(self) -> None:
        """Say goodbye and wait for the answer, but not for long. Never raises; cancelled it hangs up."""
        try:
            if not self.closed.done() and self._transport is not None:
                self.resume_reading()
                self.send_method(0, requests.close_connection())
                async with asyncio.timeout(CLOSE_TIMEOUT_S):
                    while not isinstance(await self.reply(), replies.CloseConnectionOk):
                        pass
        except (TimeoutError, WireError):
            pass  # the conversation is over either way; what mattered was confirmed before
        finally:
            self.abort(ConnectionLost(f"the connection to {self.address} was closed by us"))
            await self.gone()

    async def gone(self) -> None:
        """Wait until the socket is closed after an end; TLS says a goodbye of its own, but not for ever."""
        if self._transport is None:
            return
        try:
            async with asyncio.timeout(GONE_TIMEOUT_S):
                await self._gone.wait()
        except TimeoutError:
            self._transport.abort()
            await asyncio.sleep(0)

    def abort(self, error: WireError) -> None:
        """End the conversation now, for this reason."""
        if self.closed.done():
            return
        self.closed.come(error)
        if self._ticker is not None:
            self._ticker.cancel()
        if self._transport is not None:
            if self._breathing or not self._reading:
                self._transport.resume_reading()
            # What is still buffered is not worth waiting for: a confirm can no longer come.
            if self._transport.get_write_buffer_size():
                self._transport.abort()
            else:
                self._transport.close()
        self._replies.put_nowait(error)
        for channel in list(self._channels.values()):
            channel.on_connection_lost(error)
        self._channels.clear()
        self._pressure_changed()

    def connection_lost(self, exc: Exception | None) -> None:
        error = ConnectionLost(f"the connection to {self.address} was lost: {exc or 'the broker hung up'}")
        error.__cause__ = exc
        self.abort(error)
        self._gone.set()
