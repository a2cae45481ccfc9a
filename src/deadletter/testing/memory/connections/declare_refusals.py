"""What a broker refuses, in its words: declarations it does not accept, and those that differ from before.

What the memory broker does not play is refused as well (540): to take it and ignore it would make a test
pass that fails on a real broker.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from deadletter.core.letter.field_table import Value
from deadletter.core.topology.queue_arguments import (
    X_CONSUMER_TIMEOUT,
    X_DEAD_LETTER_EXCHANGE,
    X_DEAD_LETTER_ROUTING_KEY,
    X_DEAD_LETTER_STRATEGY,
    X_DELAYED_RETRY_MAX,
    X_DELAYED_RETRY_MIN,
    X_DELAYED_RETRY_TYPE,
    X_DELIVERY_LIMIT,
    X_EXPIRES,
    X_MAX_LENGTH,
    X_MAX_LENGTH_BYTES,
    X_MAX_PRIORITY,
    X_MESSAGE_TTL,
    X_OVERFLOW,
    X_QUEUE_LEADER_LOCATOR,
    X_QUEUE_MASTER_LOCATOR,
    X_QUEUE_MODE,
    X_QUEUE_TYPE,
    X_QUEUE_VERSION,
    X_SINGLE_ACTIVE_CONSUMER,
)
from deadletter.core.topology.rabbitmq_versions import Traits
from deadletter.errors import ChannelClosed, ClosedByBroker, channel_closed, connection_closed
from deadletter.testing.memory.contents.queue_rules import CLASSIC, QUORUM

_NUMBERS: Final = (
    X_MESSAGE_TTL,
    X_EXPIRES,
    X_MAX_LENGTH,
    X_MAX_LENGTH_BYTES,
    X_MAX_PRIORITY,
    X_DELAYED_RETRY_MIN,
    X_DELAYED_RETRY_MAX,
)
_RETRY: Final = (X_DELAYED_RETRY_TYPE, X_DELAYED_RETRY_MIN, X_DELAYED_RETRY_MAX)
_COMPARED: Final = (
    *_NUMBERS,
    X_DEAD_LETTER_EXCHANGE,
    X_DEAD_LETTER_ROUTING_KEY,
    X_DEAD_LETTER_STRATEGY,
    X_OVERFLOW,
    X_DELIVERY_LIMIT,
    X_SINGLE_ACTIVE_CONSUMER,
    X_DELAYED_RETRY_TYPE,
)
_UNPLAYED: Final = (X_CONSUMER_TIMEOUT,)
_TEXTS: Final = (X_DEAD_LETTER_EXCHANGE, X_DEAD_LETTER_ROUTING_KEY)
_WORDS: Final[Mapping[str, tuple[frozenset[str], str]]] = {
    X_OVERFLOW: (frozenset({"drop-head", "reject-publish", "reject-publish-dlx"}), "invalid_overflow"),
    X_DEAD_LETTER_STRATEGY: (frozenset({"at-most-once", "at-least-once"}), "invalid_dlx_strategy"),
    X_QUEUE_LEADER_LOCATOR: (
        frozenset({"client-local", "balanced", "random", "least-leaders"}),
        "invalid_queue_locator_arg",
    ),
}
_PRIORITY_MAX: Final = 255


def precondition_failed(text: str) -> ChannelClosed:
    return channel_closed(406, f"PRECONDITION_FAILED - {text}")


def not_played(what: str) -> ClosedByBroker:
    """The memory broker's own answer to what it does not do."""
    return connection_closed(540, f"NOT_IMPLEMENTED - the memory broker does not play {what}")


def check_queue(
    where: str,
    arguments: Mapping[str, Value],
    traits: Traits,
    *,
    durable: bool,
    exclusive: bool,
    auto_delete: bool,
) -> str:
    """The queue's type; raises what a broker answers to a declaration it does not accept. `where` names
    the queue in its words."""
    kind = arguments.get(X_QUEUE_TYPE, CLASSIC)
    if kind == "stream":
        raise not_played(f"streams ({where})")
    if kind not in (CLASSIC, QUORUM):
        raise precondition_failed(
            f"invalid arg 'x-queue-type' for {where}: \"unsupported queue type '{kind}'\""
        )
    if kind == QUORUM:
        for given, name in (
            (exclusive, "exclusive-owner"),
            (auto_delete, "auto-delete"),
            (not durable, "non-durable"),
        ):
            if given:
                raise precondition_failed(f"invalid property '{name}' for {where}")
    for name in traits.foreign_to_quorum if kind == QUORUM else traits.foreign_to_classic:
        if name in arguments:
            raise precondition_failed(f"invalid arg '{name}' for {where} of queue type rabbit_{kind}_queue")
    if unplayed := [name for name in _UNPLAYED if name in arguments]:
        raise not_played(f"{unplayed[0]} ({where})")
    for name, value in arguments.items():
        _check_argument(where, name, value, traits)
    if X_DEAD_LETTER_ROUTING_KEY in arguments and X_DEAD_LETTER_EXCHANGE not in arguments:
        raise precondition_failed(
            f"invalid arg 'x-dead-letter-routing-key' for {where}: routing_key_but_no_dlx_defined"
        )
    return str(kind)


def _check_argument(where: str, name: str, value: Value, traits: Traits) -> None:
    why = None
    if name in _NUMBERS and (name not in _RETRY or traits.native_retry):
        why = _no_number(name, value)
    elif name == X_SINGLE_ACTIVE_CONSUMER and not isinstance(value, bool):
        why = f"{{unacceptable_type,{_erl_type(value)}}}"
    elif name in _WORDS and value not in _WORDS[name][0]:
        why = _WORDS[name][1]
    elif name == X_QUEUE_MODE and value not in ("default", "lazy") and traits.checks_queue_mode:
        why = f"\"unsupported queue mode '{_erl(value)}'\""
    elif name == X_QUEUE_VERSION and value not in traits.queue_versions:
        why = f"\"unsupported queue version '{_erl(value)}'\""
    elif name == X_QUEUE_MASTER_LOCATOR and traits.no_master_locator:
        raise connection_closed(541, "INTERNAL_ERROR - Feature `queue_master_locator` is deprecated.")
    elif name in _TEXTS and not isinstance(value, str):
        raise precondition_failed(f"invalid type '{_erl_type(value)}' for arg '{name}' in {where}")
    if why is not None:
        raise precondition_failed(f"invalid arg '{name}' for {where}: {why}")


def _no_number(name: str, value: Value) -> str | None:
    if not isinstance(value, int) or isinstance(value, bool):
        return f'"expected integer, got {value!r}"'
    if value < 0:
        return f"{{value_negative,{value}}}"
    if value == 0 and name == X_EXPIRES:
        return "{value_zero,0}"
    if value > _PRIORITY_MAX and name == X_MAX_PRIORITY:
        return f"{{max_value_exceeded,{value}}}"
    return None


def check_same(where: str, name: str, received: object, current: object) -> None:
    """Raises what a broker answers when something is declared again and differs."""
    if received != current:
        raise precondition_failed(
            f"inequivalent arg '{name}' for {where}: "
            f"received '{_erl(received)}' but current is '{_erl(current)}'"
        )


def check_same_arguments(where: str, received: Mapping[str, Value], current: Mapping[str, Value]) -> None:
    check_same(where, X_QUEUE_TYPE, received.get(X_QUEUE_TYPE, CLASSIC), current.get(X_QUEUE_TYPE, CLASSIC))
    for name in _COMPARED:
        if received.get(name) != current.get(name):
            raise precondition_failed(
                f"inequivalent arg '{name}' for {where}: received {_told(received.get(name))} "
                f"but current is {_told(current.get(name))}"
            )


def _erl(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _erl_type(value: Value) -> str:
    return {str: "longstr", int: "long", bool: "bool"}.get(type(value), type(value).__name__)


def _told(value: Value) -> str:
    return "none" if value is None else f"the value '{_erl(value)}' of type '{_erl_type(value)}'"
