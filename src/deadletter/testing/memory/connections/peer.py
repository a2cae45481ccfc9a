"""One conversation, from the broker's side: frames in, to the channel they are for.

A client that publishes while the broker is blocked is no longer read: its acks neither, which is why our own
code publishes and consumes on two connections.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from deadletter.amqp.frames import (
    BODY,
    HEADER,
    HEARTBEAT,
    METHOD,
    OVERHEAD_BYTES,
    FrameReader,
    content_frames,
    method_frame,
)
from deadletter.errors import ChannelClosed, ClosedByBroker, connection_closed
from deadletter.testing.memory.connections import wire
from deadletter.testing.memory.connections.server_channel import ServerChannel
from deadletter.testing.memory.transport import MemoryTransport

if TYPE_CHECKING:
    from deadletter.testing.memory.broker import MemoryBroker

_CLOSE_CONNECTION: Final = b"\x00\x0a\x00\x32"
_OPEN_CHANNEL: Final = b"\x00\x14\x00\x0a"
_CLOSE_CHANNEL: Final = b"\x00\x14\x00\x28"
_CLOSE_CHANNEL_OK: Final = b"\x00\x14\x00\x29"


class Peer:
    """The broker's end of one connection."""

    def __init__(
        self, broker: MemoryBroker, transport: MemoryTransport, *, name: str, user: str, frame_max_bytes: int
    ) -> None:
        self.broker = broker
        self.name = name
        self.user = user
        self.blocked: bool = False
        self._transport = transport
        self._frame_max_bytes = frame_max_bytes
        self._reader = FrameReader()
        self._channels: dict[int, ServerChannel] = {}
        self._unread: deque[tuple[int, int, bytes]] = deque()
        self._closing = False
        self.over: bool = False

    # -- in ----------------------------------------------------------------------------------------------
    def feed(self, data: bytes) -> None:
        self._unread.extend(self._reader.feed(data))
        self._read()

    def _read(self) -> None:
        while self._unread and not self.blocked and not self.over:
            kind, number, payload = self._unread.popleft()
            try:
                self._on_frame(kind, number, payload)
            except ClosedByBroker as error:
                self._close(error)
        for channel in list(self._channels.values()):
            channel.flush()

    def _on_frame(self, kind: int, number: int, payload: bytes) -> None:
        if self._closing:
            return  # the last words of a client that has not heard yet
        if len(payload) + OVERHEAD_BYTES > self._frame_max_bytes:
            raise connection_closed(
                501,
                f"FRAME_ERROR - type {kind}, first 16 octets = {payload[:16]!r}: {{frame_too_large,"
                f"{len(payload)},{self._frame_max_bytes - OVERHEAD_BYTES}}}",
            )
        if number == 0:
            if kind == METHOD and payload[:4] == _CLOSE_CONNECTION:
                self._release()
                self.say(0, wire.CLOSE_CONNECTION_OK)
            elif kind != HEARTBEAT:
                raise connection_closed(503, "COMMAND_INVALID - a method the memory broker does not know")
            return
        if kind == METHOD and payload[:4] == _OPEN_CHANNEL:
            self._channels[number] = ServerChannel(self, number)
            self.say(number, wire.OPEN_CHANNEL_OK)
            return
        channel = self._channels.get(number)
        if channel is not None:
            self._on_channel(channel, kind, payload)

    def _on_channel(self, channel: ServerChannel, kind: int, payload: bytes) -> None:
        if kind == METHOD and payload[:4] in (_CLOSE_CHANNEL, _CLOSE_CHANNEL_OK):
            if payload[:4] == _CLOSE_CHANNEL:
                channel.flush()
                channel.end()
                self.say(channel.number, wire.CLOSE_CHANNEL_OK)
            del self._channels[channel.number]
            return
        if channel.closed:
            return
        try:
            if kind == METHOD:
                channel.on_method(payload)
            elif kind == HEADER:
                channel.on_header(payload)
            elif kind == BODY:
                channel.on_body(payload)
        except ChannelClosed as error:
            channel.flush()
            channel.end()
            self.say(channel.number, wire.close_channel(error.code, error.text))
        if channel.published_now and self.broker.blocked_reason is not None:
            self.blocked = True
            self.say(0, wire.blocked(self.broker.blocked_reason))

    def unblock(self) -> None:
        if self.blocked:
            self.blocked = False
            self.say(0, wire.UNBLOCKED)
            self._read()

    # -- out ---------------------------------------------------------------------------------------------
    def say(self, number: int, payload: bytes) -> None:
        self._transport.tell(method_frame(number, payload))

    def say_content(self, number: int, method: bytes, properties: bytes, body: bytes) -> None:
        """A method with its message. A header table that grew past the limit goes out all the same, as from
        a real broker."""
        content = content_frames(number, properties, body, self._frame_max_bytes)
        self._transport.tell(b"".join([method_frame(number, method), *content]))

    # -- the end -----------------------------------------------------------------------------------------
    def hung_up(self) -> None:
        """The client is gone."""
        self.over = True
        self._unread.clear()
        self._release()

    def cut(self, error: Exception | None) -> None:
        """The line is dead, without a word."""
        self._transport.cut(error)
        self.hung_up()

    def force(self, reason: str) -> None:
        """An operator, or a shutdown, ends the conversation in words."""
        self._close(connection_closed(320, f"CONNECTION_FORCED - {reason}"))

    def _close(self, error: ClosedByBroker) -> None:
        self.say(0, wire.close_connection(error.code, error.text))
        self._closing = True
        self.blocked = False
        self._release()

    def _release(self) -> None:
        """All it held goes back; its exclusive queues are gone."""
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            channel.end()
        self.broker.forget(self)
