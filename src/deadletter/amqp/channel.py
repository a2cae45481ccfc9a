"""One channel: requests and their answers, deliveries, publishes and what becomes of them.

Questions are answered in the order in which they were asked, so several may be under way; the answer to one
that was given up is dropped when it comes, and never taken for another's. Deliveries, confirms and returns
come as calls of the functions given for them, inside the event loop's turn that read them: they must not
wait.

When the broker closes the channel, or the connection ends, every waiter gets the typed error, `on_closed`
is called, and every later call raises that same error.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Self, TypeVar

from deadletter.amqp import replies, requests
from deadletter.amqp.deliveries import ChannelConsumer, Delivery, ReturnedMessage
from deadletter.amqp.frames import BODY, HEADER, METHOD, content_header, method_frame, publish_frames
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.message import RawMessage
from deadletter.core.text.safe_text import line
from deadletter.errors import ChannelClosed, ConnectionLost, FrameError, WireError, channel_closed

if TYPE_CHECKING:
    from deadletter.amqp.connection import Connection
    from deadletter.amqp.replies import Reply

__all__ = ["Channel", "ChannelConsumer", "Delivery", "ReturnedMessage", "ignore"]

BODY_MAX_BYTES: Final = 512 * 1024 * 1024
"""The most RabbitMQ can be configured to take in one message."""
ANSWER_TIMEOUT_S: Final = 60.0

_R = TypeVar("_R", bound="Reply")
_NO_ARGUMENTS: Final[Mapping[str, Value]] = {}


class Channel:
    """An open channel. Made by `Connection.channel`."""

    def __init__(self, connection: Connection, number: int) -> None:
        self.connection = connection
        self.number = number
        self.error: WireError | None = None
        self.on_confirm: Callable[[int, bool, bool], None] = ignore
        """tag, multiple, ok"""
        self.on_return: Callable[[ReturnedMessage], None] = ignore
        self.on_closed: Callable[[WireError], None] = ignore
        self.published: int = 0
        """How many messages were published since confirms were selected: the tag of the last one."""
        self._consumers: dict[bytes, ChannelConsumer] = {}
        self._consumer_count = 0
        self._answers: deque[asyncio.Future[Reply | Delivery]] = deque()
        self._said_goodbye = False
        self._content_of: replies.Deliver | replies.GetOk | replies.Return | None = None
        self._properties: bytes | None = None
        self._missing_bytes = 0
        self._parts: list[bytes] = []

    # -- frames in ---------------------------------------------------------------------------------------
    def on_frame(self, kind: int, payload: bytes) -> None:
        if self.error is not None:
            # Both sides closed at the same time: the number is free when our own close is answered.
            if kind == METHOD and payload.startswith(replies.CLOSE_CHANNEL_OK):
                self.connection.forget(self)
        elif kind == METHOD:
            if self._content_of is not None:
                raise FrameError("a method came where the content of a message was expected")
            if payload.startswith(replies.DELIVER):
                self._content_of = replies.deliver(payload)
            elif payload.startswith(replies.CONFIRM):
                tag, multiple = replies.confirm(payload)
                self.on_confirm(tag, multiple, True)
            else:
                self._on_reply(replies.parse(payload))
        elif kind == HEADER:
            if self._content_of is None or self._properties is not None:
                raise FrameError("a content header came that no method announced")
            size, self._properties = content_header(payload)
            if size > BODY_MAX_BYTES:
                raise FrameError(
                    f"a body of {size} bytes was announced; at most {BODY_MAX_BYTES} are accepted"
                )
            self._missing_bytes = size
            if not size:
                self._on_content(b"")
        elif kind == BODY:
            if self._properties is None or len(payload) > self._missing_bytes:
                raise FrameError("more body came than the content header announced")
            self._missing_bytes -= len(payload)
            if self._missing_bytes:
                if payload:
                    self._parts.append(payload)
            elif self._parts:
                self._parts.append(payload)
                body = b"".join(self._parts)
                self._parts.clear()
                self._on_content(body)
            else:
                self._on_content(payload)
        else:
            raise FrameError(f"a frame of type {kind} on channel {self.number}, where it does not belong")

    def on_delivery(self, consumer_tag: bytes, delivery: Delivery) -> None:
        """A delivery came whole: method, content header and body."""
        if self.error is not None:
            return
        if self._content_of is not None:
            raise FrameError("a method came where the content of a message was expected")
        consumer = self._consumers.get(consumer_tag)
        if consumer is not None:
            consumer.on_delivery(delivery)
        # else the broker ended it and this was on its way: it goes back to its queue when the channel closes

    def _on_content(self, body: bytes) -> None:
        method, properties = self._content_of, self._properties
        assert properties is not None
        self._content_of = self._properties = None
        message = RawMessage(properties, body)
        match method:
            case replies.Deliver(consumer, tag, redelivered, exchange, routing_key):
                self.on_delivery(consumer, Delivery(tag, redelivered, exchange, routing_key, message))
            case replies.GetOk(tag, redelivered, exchange, routing_key, _):
                self._resolve(Delivery(tag, redelivered, exchange, routing_key, message))
            case replies.Return(code, text, exchange, routing_key):
                self.on_return(ReturnedMessage(code, text, exchange, routing_key, message))
            case None:
                raise FrameError("a body came that no method announced")

    def _on_reply(self, reply: Reply) -> None:
        match reply:
            case replies.Deliver() | replies.GetOk() | replies.Return():
                self._content_of = reply
            case replies.Confirm(tag, multiple, ok):
                self.on_confirm(tag, multiple, ok)
            case replies.Cancel(tag):
                consumer = self._consumers.pop(tag.encode(), None)
                if consumer is not None:
                    consumer.on_cancel()
            case replies.ChannelFlow(active):
                self._send(requests.flow_ok(active=active))
            case replies.CloseChannel(code, text):
                self._send(requests.CLOSE_CHANNEL_OK)
                if not self._said_goodbye:
                    self.connection.forget(self)
                self._end(channel_closed(code, line(text)))
            case replies.CloseChannelOk():
                self.connection.forget(self)
                self._resolve(reply)
                self._end(ChannelClosed(200, "the channel was closed by us"))
            case _:
                self._resolve(reply)

    def on_connection_lost(self, error: WireError) -> None:
        self._end(error)

    def _resolve(self, answer: Reply | Delivery) -> None:
        if not self._answers:
            raise FrameError(f"the broker answered {type(answer).__name__} to a question nobody asked")
        question = self._answers.popleft()
        if not question.done():  # else it was given up
            question.set_result(answer)

    def _end(self, error: WireError) -> None:
        if self.error is not None:
            return
        self.error = error
        self._consumers.clear()
        for question in self._answers:
            if not question.done():
                question.set_exception(error)
        self._answers.clear()
        self.on_closed(error)

    # -- asking ------------------------------------------------------------------------------------------
    def _send(self, payload: bytes) -> None:
        self.connection.send(method_frame(self.number, payload))

    async def _ask(self, payload: bytes, *expected: type[_R]) -> _R:
        answer = await self._ask_any(payload)
        if not isinstance(answer, expected):
            raise self._confused(answer, *expected)
        return answer

    def _confused(self, answer: Reply | Delivery, *expected: type[object]) -> FrameError:
        error = FrameError(
            f"expected {' or '.join(kind.__name__ for kind in expected)}, got {type(answer).__name__}"
        )
        self.connection.abort(error)
        return error

    async def _ask_any(self, payload: bytes) -> Reply | Delivery:
        self._check()
        question: asyncio.Future[Reply | Delivery] = asyncio.get_running_loop().create_future()
        self._answers.append(question)
        self._send(payload)
        patience = asyncio.timeout(ANSWER_TIMEOUT_S)
        try:
            async with patience:
                return await question
        except TimeoutError:
            if not patience.expired():
                raise
            why = self.connection.blocked_reason
            error = ConnectionLost(
                f"{self.connection.address} did not answer within {ANSWER_TIMEOUT_S:.0f} s"
                + (f"; it blocks us: {why}" if why else "")
            )
            self.connection.abort(error)
            raise error from None

    def _tell(self, payload: bytes) -> None:
        """Ask, and let the answer go."""
        question: asyncio.Future[Reply | Delivery] = asyncio.get_running_loop().create_future()
        question.cancel()
        self._answers.append(question)
        self._send(payload)

    def _check(self) -> None:
        if self.error is not None:
            raise self.error

    # -- life --------------------------------------------------------------------------------------------
    async def open(self) -> None:
        await self._ask(requests.OPEN_CHANNEL, replies.OpenChannelOk)

    async def close(self) -> None:
        """Close the channel; unacked deliveries go back to their queues. Does nothing on a closed one."""
        if self.error is None:
            self._said_goodbye = True
            self._consumers.clear()  # what still comes goes back
            await self._ask(requests.close_channel(), replies.CloseChannelOk)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Close the channel, whatever happened on it; one that is lost already is as good."""
        with suppress(WireError):
            await self.close()

    def abandon(self) -> None:
        """Close the channel without waiting for it."""
        if self.error is None:
            self._said_goodbye = True
            self._tell(requests.close_channel())

    async def select_confirms(self) -> None:
        await self._ask(requests.SELECT_CONFIRMS, replies.MethodOk)

    async def select_transactions(self) -> None:
        """From here on acks and nacks count when they are committed, all of them together."""
        await self._ask(requests.SELECT_TRANSACTIONS, replies.MethodOk)

    def commit(self) -> None:
        """Make the acks and nacks since the last commit count, without waiting for the answer."""
        self._check()
        self._tell(requests.COMMIT)

    # -- shapes ------------------------------------------------------------------------------------------
    async def declare_queue(
        self,
        queue: str,
        *,
        passive: bool = False,
        durable: bool = True,
        exclusive: bool = False,
        auto_delete: bool = False,
        arguments: Mapping[str, Value] = _NO_ARGUMENTS,
    ) -> replies.DeclareQueueOk:
        payload = requests.declare_queue(
            queue,
            passive=passive,
            durable=durable,
            exclusive=exclusive,
            auto_delete=auto_delete,
            arguments=arguments,
        )
        return await self._ask(payload, replies.DeclareQueueOk)

    async def declare_exchange(
        self,
        exchange: str,
        kind: str,
        *,
        passive: bool = False,
        durable: bool = True,
        arguments: Mapping[str, Value] = _NO_ARGUMENTS,
    ) -> None:
        payload = requests.declare_exchange(
            exchange, kind, passive=passive, durable=durable, arguments=arguments
        )
        await self._ask(payload, replies.MethodOk)

    async def bind_queue(
        self, queue: str, exchange: str, routing_key: str = "", arguments: Mapping[str, Value] = _NO_ARGUMENTS
    ) -> None:
        await self._ask(requests.bind_queue(queue, exchange, routing_key, arguments), replies.MethodOk)

    async def unbind_queue(self, queue: str, exchange: str, routing_key: str = "") -> None:
        await self._ask(requests.unbind_queue(queue, exchange, routing_key), replies.MethodOk)

    async def bind_exchange(
        self, target: str, source: str, routing_key: str = "", arguments: Mapping[str, Value] = _NO_ARGUMENTS
    ) -> None:
        """What the exchange `source` would give to a queue that is bound so, it gives to `target`."""
        await self._ask(requests.bind_exchange(target, source, routing_key, arguments), replies.MethodOk)

    async def unbind_exchange(
        self, target: str, source: str, routing_key: str = "", arguments: Mapping[str, Value] = _NO_ARGUMENTS
    ) -> None:
        await self._ask(requests.unbind_exchange(target, source, routing_key, arguments), replies.MethodOk)

    async def delete_queue(self, queue: str, *, if_unused: bool = False, if_empty: bool = False) -> int:
        """How many letters went with it. A quorum queue knows no conditions (540 closes the connection)."""
        deletion = requests.delete_queue(queue, if_unused=if_unused, if_empty=if_empty)
        return (await self._ask(deletion, replies.Counted)).message_count

    async def purge_queue(self, queue: str) -> int:
        return (await self._ask(requests.purge_queue(queue), replies.Counted)).message_count

    async def delete_exchange(self, exchange: str, *, if_unused: bool = False) -> None:
        await self._ask(requests.delete_exchange(exchange, if_unused=if_unused), replies.MethodOk)

    # -- taking ------------------------------------------------------------------------------------------
    async def qos(self, prefetch: int) -> None:
        """How many unacked deliveries each consumer opened from now on may hold."""
        await self._ask(requests.qos(prefetch), replies.MethodOk)

    async def consume(
        self,
        queue: str,
        on_delivery: Callable[[Delivery], None],
        on_cancel: Callable[[], None],
        *,
        arguments: Mapping[str, Value] = _NO_ARGUMENTS,
    ) -> str:
        """Begin to consume; returns the consumer's tag. Deliveries may come before this returns."""
        self._consumer_count += 1
        tag = f"dlq-{self.number}-{self._consumer_count}"
        self._consumers[tag.encode()] = ChannelConsumer(queue, on_delivery, on_cancel)
        try:
            await self._ask(requests.consume(queue, tag, arguments=arguments), replies.ConsumeOk)
        except asyncio.CancelledError:
            self._consumers.pop(tag.encode(), None)
            if self.error is None:
                self._tell(requests.cancel(tag))
            raise
        return tag

    async def cancel(self, tag: str) -> None:
        """End a consumer. What it was already handed stays ours to ack or give back.

        Its last deliveries may follow the broker's answer, so the consumer goes on being told.
        """
        await self._ask(requests.cancel(tag), replies.CancelOk)

    async def get(self, queue: str) -> Delivery | None:
        answer = await self._ask_any(requests.get(queue))
        if isinstance(answer, Delivery):
            return answer
        if not isinstance(answer, replies.GetEmpty):
            raise self._confused(answer, replies.GetOk, replies.GetEmpty)
        return None

    def ack(self, tag: int, *, multiple: bool = False) -> None:
        self._check()
        self._send(requests.ack(tag, multiple=multiple))

    def nack(self, tag: int, *, multiple: bool = False, requeue: bool) -> None:
        self._check()
        self._send(requests.nack(tag, multiple=multiple, requeue=requeue))

    def reject(self, tag: int, *, requeue: bool) -> None:
        self._check()
        self._send(requests.reject(tag, requeue=requeue))

    # -- giving ------------------------------------------------------------------------------------------
    def publishing(self, exchange: str, routing_key: str, *, mandatory: bool) -> bytes:
        """The frame every publish to this address begins with."""
        return method_frame(self.number, requests.publish(exchange, routing_key, mandatory=mandatory))

    def publish(self, publishing: bytes, properties: bytes, body: bytes) -> int:
        """Publish, and return the tag its confirm will carry. `publishing` comes from the method above. Waits
        for nothing: look at `connection.congested` before, see `amqp.publisher` for one that waits."""
        if self.error is not None:
            raise self.error
        connection = self.connection
        most = connection.frame_max_bytes
        connection.send_much(publish_frames(self.number, publishing, properties, body, most))
        self.published += 1
        return self.published


def ignore(*_told: object) -> None:
    """A listener that has nothing to do about what it is told."""
