"""pika's BlockingConnection: a decorator around a `basic_consume` callback.

    @retrying(queue="orders", retries=5, backoff=exponential(1, cap=60), on={ValueError: park})
    def on_message(channel, method, properties, body): ...

    on_message.prepare(url, api="http://…:15672")
    channel.basic_consume("orders", on_message)

Returning acks. Raising is judged by the rules: published again or aside, on a channel of its own in confirm
mode, mandatory, one at a time, then acked. Whoever settles the message in the callback does it through the
channel that was given to it; then nothing more is done with it.

`basic_consume` must not be told `auto_ack=True`: such a message is gone before the callback sees it. pika
does not tell the callback, but the broker closes the channel at the first ack (406): it does not stay hidden.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias, Unpack, assert_never

import pika
import pika.exceptions

from deadletter.adapters.framework_letters import letter_of, view_from
from deadletter.adapters.packing import Packed, pack
from deadletter.adapters.prepare import prepare_now
from deadletter.adapters.rulings import AdapterJudge, Finish, Parcel, Ruling
from deadletter.adapters.telling import not_taken, stays_in_hand, tell, tell_stuck
from deadletter.adapters.terms import PAUSES_S, AdapterTerms, AdapterWishes, agree, in_hand_pauses_s
from deadletter.consumer.events import Listener
from deadletter.consumer.handlers.callables import is_async, name_of, refuse_generators, refuse_unbegun
from deadletter.consumer.queues.declared_layouts import Laid
from deadletter.consumer.queues.layout_routes import Reject
from deadletter.core.letter.key_bytes import as_bytes
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.message import View
from deadletter.errors import DeadletterError, UsageError

PikaCallback: TypeAlias = Callable[[Any, Any, Any, bytes], object]
FRAME_MAX_BYTES: Final = 131_072
"""RabbitMQ's and pika's own; pika does not tell what was agreed."""
_LOOK_S: Final = 0.5
"""How soon a message in hand sees that it is to end."""


class BlockingChannel(Protocol):
    """As much of pika's as is used here."""

    @property
    def connection(self) -> Any: ...
    @property
    def is_open(self) -> bool: ...
    def basic_ack(self, delivery_tag: int) -> None: ...
    def basic_nack(self, delivery_tag: int, multiple: bool, requeue: bool) -> None: ...
    def basic_reject(self, delivery_tag: int, requeue: bool) -> None: ...


def retrying(
    *, queue: str, listener: Listener | None = None, **wishes: Unpack[AdapterWishes]
) -> Callable[[PikaCallback], PikaRetrying]:
    """Give the decorated callback retries. `queue` is the one it is consuming."""
    terms = agree(queue, **wishes)
    return lambda on_message: PikaRetrying(on_message, terms, listener)


class PikaRetrying:
    """What `basic_consume` takes. One connection, so one thread, at a time."""

    def __init__(self, on_message: PikaCallback, terms: AdapterTerms, listener: Listener | None) -> None:
        refuse_generators("callback", on_message)
        if is_async(on_message):
            raise UsageError(
                f"callback {name_of(on_message)}: expected a plain function, got an async one, which a "
                "BlockingConnection never runs"
            )
        self._on_message = on_message
        self._terms = terms
        self._judge = AdapterJudge(terms)
        self._listener = listener
        self._run = secrets.token_hex(8)
        self._published = 0
        self._channel: Any = None
        self._closed = threading.Event()

    def prepare(self, url: str, *, api: str | None = None) -> Laid:
        """Declare the layout. Before the first message."""
        return prepare_now(url, self._terms, api=api)

    def close(self) -> None:
        """Before the consumer is stopped, from any thread: pika stops nothing while a message is in hand.

        A message that no place takes is not settled then: the broker has it back with its channel.
        """
        self._closed.set()

    def __call__(self, channel: BlockingChannel, method: Any, properties: Any, body: bytes) -> None:
        view = view_from(properties)  # now: a callback may change its headers
        tag = int(method.delivery_tag)
        if method.redelivered:
            ruling = self._judge.before(self._letter(view, method, body), _now_ms())
            if ruling is not None:
                self._carry_out(ruling, channel, tag)
                return
        watched = _Watched(channel, tag)
        try:
            refuse_unbegun(name_of(self._on_message), self._on_message(watched, method, properties, body))
        except (SystemExit, KeyboardInterrupt):
            raise  # the process ends, and the broker puts the message back
        except BaseException as error:
            if watched.settled:  # the callback decided, and what it raised is its own affair
                raise
            letter = self._letter(view, method, body)
            self._carry_out(self._judge.after(letter, error, _now_ms()), channel, tag)
            return
        if not watched.settled and channel.is_open:
            channel.basic_ack(delivery_tag=tag)

    def _letter(self, view: View, method: Any, body: bytes) -> Letter:
        return letter_of(
            self._terms.queue,
            view,
            body,
            exchange=method.exchange,
            routing_key=method.routing_key,
            redelivered=bool(method.redelivered),
            circling=self._judge.circling,
        )

    # -- what was ruled ----------------------------------------------------------------------------------
    def _carry_out(self, ruling: Ruling, channel: BlockingChannel, tag: int) -> None:
        match ruling.step:
            case Parcel():
                if not self._sent_on(ruling.step, channel, tag):
                    return
            case Reject(requeue=requeue):
                channel.basic_reject(delivery_tag=tag, requeue=requeue)
            case Finish():
                channel.basic_ack(delivery_tag=tag)
            case _:
                assert_never(ruling.step)
        tell(ruling.fact, self._listener)

    def _sent_on(self, parcel: Parcel, channel: BlockingChannel, tag: int) -> bool:
        """Whether it is at its next place, and acked. Else it is in its own queue anew, or not settled.

        It stays inside the callback. pika calls no other callback meanwhile, so nothing is handed out that
        could not be placed either, and no `multiple` of a later message settles this one.
        """
        for pause_s in PAUSES_S:
            if self._placed(parcel, channel, tag):
                return True
            if self._ended(channel, pause_s):
                return False
        renewed = self._judge.renewed(parcel.letter)
        for pause_s in in_hand_pauses_s():
            if renewed is not None and self._placed(renewed, channel, tag):
                return False
            self._stuck(stays_in_hand(pause_s))
            if self._ended(channel, pause_s):
                return False
            if self._placed(parcel, channel, tag):
                return True
        raise AssertionError("the pauses do not end")

    def _ended(self, channel: BlockingChannel, pause_s: float) -> bool:
        """Wait; whether we were closed meanwhile, or its channel was. Raises what ends the connection."""
        until = time.monotonic() + pause_s
        while (left_s := until - time.monotonic()) > 0 and channel.is_open and not self._closed.is_set():
            channel.connection.sleep(
                min(left_s, _LOOK_S)
            )  # heartbeats go on, and no other callback is called
        return self._closed.is_set() or not channel.is_open

    def _placed(self, parcel: Parcel, channel: BlockingChannel, tag: int) -> bool:
        """Whether it is there, and acked. Raises what ends its channel: then the broker has put it back."""
        if not channel.is_open:
            raise pika.exceptions.ChannelWrongStateError("its channel is closed")
        try:
            self._publish(parcel, channel.connection)
        except (pika.exceptions.UnroutableError, pika.exceptions.NackError) as error:
            said = "unroutable" if isinstance(error, pika.exceptions.UnroutableError) else "refused"
            self._stuck(not_taken(parcel, said))
        except pika.exceptions.AMQPChannelError as error:
            self._stuck(f"it could not be published: {error}")
        except DeadletterError as error:
            self._stuck(f"it could not be packed: {error}")
        else:
            channel.basic_ack(delivery_tag=tag)
            return True
        return False

    def _publish(self, parcel: Parcel, connection: Any) -> None:
        packed = pack(
            parcel,
            run=self._run,
            number=self._published + 1,
            user="",  # pika does not tell it, so a user_id is always set aside
            frame_max_bytes=FRAME_MAX_BYTES,
            now_ms=_now_ms(),
        )
        self._published += 1
        self._confirming(connection).basic_publish(
            exchange=packed.exchange,
            routing_key=as_bytes(packed.routing_key),
            body=packed.message.body,
            properties=_AsBytes(packed),
            mandatory=True,
        )

    def _confirming(self, connection: Any) -> Any:
        known = self._channel
        if known is None or not known.is_open or known.connection is not connection:
            self._channel = known = connection.channel()
            known.confirm_delivery()
        return known

    def _stuck(self, why: str) -> None:
        tell_stuck(self._terms.queue, why, self._listener)


class _Watched:
    """The channel as the callback sees it: itself, and it notices when this message is settled."""

    def __init__(self, channel: BlockingChannel, tag: int) -> None:
        self._channel = channel
        self._tag = tag
        self.settled = False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._channel, name)
        if name not in ("basic_ack", "basic_nack", "basic_reject"):
            return found

        def settle(delivery_tag: int = 0, *rest: Any, **more: Any) -> Any:
            multiple = bool(more.get("multiple", rest[0] if rest and name != "basic_reject" else False))
            if delivery_tag == self._tag or (multiple and (not delivery_tag or delivery_tag >= self._tag)):
                self.settled = True
            return found(delivery_tag, *rest, **more)

        return settle


class _AsBytes(pika.BasicProperties):  # type: ignore[misc]  # pika ships no types
    """Properties that are already encoded: pika would write them another way."""

    def __init__(self, packed: Packed) -> None:
        super().__init__()
        self._encoded = packed.message.properties

    def encode(self) -> list[bytes]:
        return [self._encoded]


def _now_ms() -> int:
    return int(time.time() * 1000)
