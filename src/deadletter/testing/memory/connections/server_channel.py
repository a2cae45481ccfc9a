"""One channel, from the broker's side: methods in, answers, deliveries, returns and confirms out.

What a broker refuses is raised as the error our client will see, a `ChannelClosed` for the channel or a
`ClosedByBroker` for the whole connection; the peer puts it into words on the wire.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING, Final

from deadletter.errors import connection_closed
from deadletter.testing.memory.connections import wire
from deadletter.testing.memory.connections.consuming import (
    Consuming,
    Settlement,
    UnsettledDelivery,
    by_consumer,
)
from deadletter.testing.memory.connections.declare_refusals import not_played, precondition_failed
from deadletter.testing.memory.connections.publishing import Publish, addressed, check
from deadletter.testing.memory.connections.wire import MethodReader
from deadletter.testing.memory.contents.items import QueuedCopy
from deadletter.testing.memory.contents.queues import QUORUM_PREFETCH, MemoryQueue, Return

if TYPE_CHECKING:
    from deadletter.testing.memory.connections.peer import Peer

_KEY: Final = Struct(">HH")
_SIZE: Final = Struct(">Q")


class ServerChannel:
    def __init__(self, peer: Peer, number: int) -> None:
        self.number = number
        self.closed: bool = False
        self.published_now: bool = False
        """Whether the last frame completed a publish."""
        self._peer = peer
        self._broker = peer.broker
        self._prefetch = 0
        self._last_tag = 0
        self._held: dict[int, UnsettledDelivery] = {}
        self._consumers: dict[str, Consuming] = {}
        self._confirming = False
        self._published = 0
        self._confirms: list[tuple[int, bool]] = []
        self._uncommitted: list[Settlement | tuple[Publish, bytes, bytes]] | None = None
        self._publish: Publish | None = None
        self._properties = b""
        self._missing_bytes = 0
        self._parts: list[bytes] = []

    # -- frames in ---------------------------------------------------------------------------------------
    def on_method(self, payload: bytes) -> None:
        self.published_now = False
        key = _KEY.unpack_from(payload)
        handler = HANDLERS.get(key)
        if handler is None:
            raise connection_closed(540, f"NOT_IMPLEMENTED - {payload[:4].hex()} in the memory broker")
        method = MethodReader(payload)
        if key[0] in (40, 50) or key in ((60, 20), (60, 40), (60, 70)):
            method.u16()  # reserved; they all begin with it
        handler(self, method)

    def on_header(self, payload: bytes) -> None:
        self._missing_bytes = int(_SIZE.unpack_from(payload, 4)[0])
        self._properties = payload[12:]
        if self._missing_bytes == 0:
            self._on_content()

    def on_body(self, payload: bytes) -> None:
        self._parts.append(payload)
        self._missing_bytes -= len(payload)
        if self._missing_bytes <= 0:
            self._on_content()

    def _on_content(self) -> None:
        publish, body = self._publish, b"".join(self._parts)
        self._publish = None
        self._parts.clear()
        if publish is None:
            raise connection_closed(505, "UNEXPECTED_FRAME - a message that no publish announced")
        self.published_now = True
        if self._uncommitted is not None:
            self._uncommitted.append((publish, self._properties, body))
        else:
            self._take(publish, self._properties, body)

    # -- publishing --------------------------------------------------------------------------------------
    def on_publish(self, method: MethodReader) -> None:
        exchange, key = method.short(), method.short()
        mandatory, immediate = method.bits(2)
        if immediate:
            raise connection_closed(540, "NOT_IMPLEMENTED - immediate=true")
        self._publish = Publish(exchange, key, mandatory)

    def _take(self, publish: Publish, properties: bytes, body: bytes) -> None:
        self._broker.shapes.exchange(publish.exchange)
        check(properties, body, user=self._peer.user, body_max_bytes=self._broker.traits.body_max_bytes)
        item = addressed(publish, properties, body)
        queues = self._broker.route(item) or []
        if not queues and publish.mandatory:
            method = wire.returned(publish.exchange, publish.key)
            self._peer.say_content(self.number, method, item.properties, body)
        accepted = [queue.publish(item.copy(), self) for queue in queues]
        if self._confirming:
            self._published += 1
            self._confirms.append((self._published, all(accepted)))

    def flush(self) -> None:
        """Send the confirms of what was read together."""
        confirms, self._confirms = self._confirms, []
        if self._broker.dice is not None:
            self._broker.dice.shuffle(confirms)
        for tag, ok in confirms:
            self._say(wire.confirmed(tag, ok=ok))

    # -- delivering --------------------------------------------------------------------------------------
    def deliver(self, consumer: Consuming, item: QueuedCopy, properties: bytes, *, redelivered: bool) -> None:
        tag = self._hold(item, consumer.queue, consumer)
        method = wire.deliver(
            consumer.tag, tag, redelivered=redelivered, exchange=item.exchange, key=item.keys[0]
        )
        self._peer.say_content(self.number, method, properties, item.body)

    def _hold(self, item: QueuedCopy, queue: MemoryQueue, consumer: Consuming | None) -> int:
        self._last_tag += 1
        self._held[self._last_tag] = UnsettledDelivery(item, queue, consumer)
        return self._last_tag

    def cancelled(self, consumer: Consuming) -> None:
        """The queue is gone: the client is told."""
        if self._consumers.pop(consumer.tag, None) is not None:
            self._say(wire.cancel(consumer.tag))

    def on_get(self, method: MethodReader) -> None:
        queue = self._queue(method.short())
        (no_ack,) = method.bits(1)
        if no_ack:
            raise not_played("gets without acks")
        if queue.quorum and queue.subscribers.single_active:
            raise self._broker.shapes.no_get(queue.name)
        queue.use()
        found = queue.get()
        if found is None:
            self._say(wire.GET_EMPTY)
            return
        item, properties, redelivered = found
        tag = self._hold(item, queue, None)
        answer = wire.get_ok(
            tag, redelivered=redelivered, exchange=item.exchange, key=item.keys[0], messages=queue.depth
        )
        self._peer.say_content(self.number, answer, properties, item.body)

    def on_consume(self, method: MethodReader) -> None:
        queue, tag = self._queue(method.short()), method.short()
        _, no_ack, exclusive, _ = method.bits(4)
        if no_ack:
            raise not_played("consumers without acks")
        arguments = method.table()
        if "x-stream-offset" in arguments:
            raise precondition_failed(f"invalid arg 'x-stream-offset' for queue '{queue.name}'")
        priority = arguments.get("x-priority")
        if tag in self._consumers:
            raise connection_closed(530, f"NOT_ALLOWED - attempt to reuse consumer tag '{tag}'")
        self._broker.shapes.check_consumer(queue, exclusive=exclusive)
        prefetch = self._prefetch or (QUORUM_PREFETCH if queue.quorum else 0)
        consumer = Consuming(
            self, tag, queue, prefetch, priority if isinstance(priority, int) else 0, exclusive
        )
        self._consumers[tag] = consumer
        self._say(wire.consume_ok(tag))
        queue.subscribers.add(consumer)
        queue.run()

    def on_cancel(self, method: MethodReader) -> None:
        tag = method.short()
        consumer = self._consumers.pop(tag, None)
        if consumer is not None:
            self._leave(consumer)
        self._say(wire.cancel_ok(tag))
        if consumer is not None:
            consumer.queue.run()  # another may be the active one now

    def _leave(self, consumer: Consuming) -> None:
        queue = consumer.queue
        queue.leave(consumer)
        if queue.auto_delete and not queue.subscribers:
            self._broker.shapes.remove_queue(queue.name)

    def on_qos(self, method: MethodReader) -> None:
        method.u32()
        self._prefetch = method.u16()
        (everybody,) = method.bits(1)
        if everybody:
            raise not_played("one prefetch for all consumers of a channel")
        self._say(wire.QOS_OK)

    # -- settling ----------------------------------------------------------------------------------------
    def on_ack(self, method: MethodReader) -> None:
        tag = method.u64()
        (multiple,) = method.bits(1)
        self._settle(Settlement("ack", tag, multiple, requeue=False))

    def on_nack(self, method: MethodReader) -> None:
        tag = method.u64()
        multiple, requeue = method.bits(2)
        self._settle(Settlement("nack", tag, multiple, requeue))

    def on_reject(self, method: MethodReader) -> None:
        tag = method.u64()
        (requeue,) = method.bits(1)
        self._settle(Settlement("reject", tag, multiple=False, requeue=requeue))

    def _settle(self, word: Settlement) -> None:
        if self._uncommitted is not None:
            if word.tag not in self._held and not (word.multiple and word.tag == 0):
                raise precondition_failed(f"unknown delivery tag {word.tag}")
            self._uncommitted.append(word)
        else:
            self._apply(word)

    def _apply(self, word: Settlement) -> None:
        if word.multiple and word.tag == 0:
            tags = list(self._held)
        elif word.tag in self._held:
            tags = [tag for tag in self._held if tag <= word.tag] if word.multiple else [word.tag]
        else:
            raise precondition_failed(f"unknown delivery tag {word.tag}")
        settled = [self._held.pop(tag) for tag in sorted(tags)]
        # Consumer by consumer, in the order of their tags, and each is served again before the next.
        groups: dict[tuple[MemoryQueue, Consuming | None], list[UnsettledDelivery]] = {}
        for held in settled:
            groups.setdefault((held.queue, held.consumer), []).append(held)
        for (queue, consumer), group in sorted(groups.items(), key=by_consumer):
            if consumer is not None:
                consumer.held -= len(group)
            how: Return = "reject" if word.kind == "reject" else "nack"
            for held in group:
                if word.kind == "ack":
                    queue.acked(held.item)
                elif word.requeue:
                    queue.returned(held.item, how)
                else:
                    queue.discarded(held.item, how)
            queue.run()

    # -- modes -------------------------------------------------------------------------------------------
    def on_select_confirms(self, _method: MethodReader) -> None:
        if self._uncommitted is not None:
            raise precondition_failed("cannot switch from tx to confirm mode")
        self._confirming = True
        self._say(wire.CONFIRMS_OK)

    def on_select_transactions(self, _method: MethodReader) -> None:
        if self._confirming:
            raise precondition_failed("cannot switch from confirm to tx mode")
        self._uncommitted = self._uncommitted or []
        self._say(wire.TRANSACTIONS_OK)

    def on_commit(self, _method: MethodReader) -> None:
        if self._uncommitted is None:
            raise precondition_failed("channel is not transactional")
        work, self._uncommitted = self._uncommitted, []
        for each in work:
            if isinstance(each, Settlement):
                self._apply(each)
            else:
                self._take(*each)
        self._say(wire.COMMIT_OK)

    # -- shapes ------------------------------------------------------------------------------------------
    def _queue(self, name: str) -> MemoryQueue:
        return self._broker.shapes.queue(name, self._peer)

    def on_declare_queue(self, method: MethodReader) -> None:
        name = method.short()
        passive, durable, exclusive, auto_delete, _ = method.bits(5)
        arguments = method.table()
        if passive:
            queue = self._queue(name)
        else:
            queue = self._broker.shapes.declare_queue(
                name,
                self._peer,
                durable=durable,
                exclusive=exclusive,
                auto_delete=auto_delete,
                arguments=arguments,
            )
        if not queue.quorum:
            queue.use()
        queue.run()
        self._say(wire.declare_queue_ok(queue.name, queue.depth, queue.consumer_count))

    def on_declare_exchange(self, method: MethodReader) -> None:
        name, kind = method.short(), method.short()
        passive, durable, auto_delete, internal, _ = method.bits(5)
        if auto_delete or internal:
            raise not_played("exchanges that are internal or delete themselves")
        if passive:
            self._broker.shapes.exchange(name)
        else:
            self._broker.shapes.declare_exchange(name, kind, durable=durable, arguments=method.table())
        self._say(wire.DECLARE_EXCHANGE_OK)

    def on_delete_exchange(self, method: MethodReader) -> None:
        name = method.short()
        if_unused, _ = method.bits(2)
        self._broker.shapes.delete_exchange(name, if_unused=if_unused)
        self._say(wire.DELETE_EXCHANGE_OK)

    def on_bind(self, method: MethodReader) -> None:
        queue, exchange, key = method.short(), method.short(), method.short()
        method.octet()
        self._broker.shapes.bind(queue, exchange, key, method.table(), self._peer)
        self._say(wire.BIND_OK)

    def on_unbind(self, method: MethodReader) -> None:
        queue, exchange, key = method.short(), method.short(), method.short()
        self._broker.shapes.unbind(queue, exchange, key, method.table())
        self._say(wire.UNBIND_OK)

    def on_bind_exchange(self, method: MethodReader) -> None:
        to, exchange, key = method.short(), method.short(), method.short()
        method.octet()
        self._broker.shapes.bind_exchange(to, exchange, key, method.table())
        self._say(wire.BIND_EXCHANGE_OK)

    def on_unbind_exchange(self, method: MethodReader) -> None:
        to, exchange, key = method.short(), method.short(), method.short()
        method.octet()
        self._broker.shapes.unbind(to, exchange, key, method.table(), to_exchange=True)
        self._say(wire.UNBIND_EXCHANGE_OK)

    def on_purge(self, method: MethodReader) -> None:
        self._say(wire.purge_ok(self._queue(method.short()).purge()))

    def on_delete_queue(self, method: MethodReader) -> None:
        name = method.short()
        if_unused, if_empty, _ = method.bits(3)
        if name in self._broker.shapes.queues:
            self._broker.shapes.check_delete(self._queue(name), if_unused=if_unused, if_empty=if_empty)
        self._say(wire.delete_queue_ok(self._broker.shapes.remove_queue(name)))

    def _say(self, payload: bytes) -> None:
        self._peer.say(self.number, payload)

    # -- the end -----------------------------------------------------------------------------------------
    def end(self) -> None:
        """Nobody is there any more: consumers leave, and all that was held goes back."""
        if self.closed:
            return
        self.closed = True
        consumers, self._consumers = list(self._consumers.values()), {}
        for consumer in consumers:
            self._leave(consumer)
        held, self._held = sorted(self._held.items()), {}
        for _, each in held:
            each.queue.returned(each.item, "lost")
        left = [consumer.queue for consumer in consumers]
        for queue in dict.fromkeys([*(each.queue for _, each in held), *left]):
            queue.run()


HANDLERS: Final[dict[tuple[int, ...], Callable[[ServerChannel, MethodReader], None]]] = {
    (40, 10): ServerChannel.on_declare_exchange,
    (40, 20): ServerChannel.on_delete_exchange,
    (40, 30): ServerChannel.on_bind_exchange,
    (40, 40): ServerChannel.on_unbind_exchange,
    (50, 10): ServerChannel.on_declare_queue,
    (50, 20): ServerChannel.on_bind,
    (50, 30): ServerChannel.on_purge,
    (50, 40): ServerChannel.on_delete_queue,
    (50, 50): ServerChannel.on_unbind,
    (60, 10): ServerChannel.on_qos,
    (60, 20): ServerChannel.on_consume,
    (60, 30): ServerChannel.on_cancel,
    (60, 40): ServerChannel.on_publish,
    (60, 70): ServerChannel.on_get,
    (60, 80): ServerChannel.on_ack,
    (60, 90): ServerChannel.on_reject,
    (60, 120): ServerChannel.on_nack,
    (85, 10): ServerChannel.on_select_confirms,
    (90, 10): ServerChannel.on_select_transactions,
    (90, 20): ServerChannel.on_commit,
}
