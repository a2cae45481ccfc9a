"""Exchanges of the memory broker: which queues a message goes to.

As RabbitMQ routes: by each key of the message (the routing key and those of `CC` and `BCC`), through
exchanges that are bound to exchanges, into each queue once; what no binding of an exchange takes goes on to
its alternate exchange, if there is one and it exists.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from deadletter.core.letter.field_table import Value
from deadletter.core.topology import vhost
from deadletter.core.topology.routing_keys import topic_matches

TYPES: Final = frozenset({"direct", "fanout", "topic", "headers"})
X_MATCH: Final = "x-match"
MATCHES: Final = frozenset({"all", "any", "all-with-x", "any-with-x"})
PREDECLARED: Final = dict(vhost.PREDECLARED)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoundKey:
    """One binding of a queue, or of an exchange."""

    to: str
    key: str
    arguments: Mapping[str, Value]
    to_exchange: bool = False


@dataclass(slots=True, kw_only=True)
class MemoryExchange:
    name: str
    kind: str
    durable: bool = True
    arguments: Mapping[str, Value] = field(default_factory=dict)
    alternate: str | None = None
    """The alternate exchange, by argument or policy."""
    bindings: list[BoundKey] = field(default_factory=list)


Headers = Callable[[], Mapping[str, Value]]
"""Decoded only when an exchange asks for them."""


def route(
    exchanges: Mapping[str, MemoryExchange],
    queues: Iterable[str],
    *,
    exchange: str,
    keys: tuple[str, ...],
    headers: Headers,
    exact: bool,
) -> list[str]:
    """The queues a message published there comes to, each once. `exact`: 1 and 1.0 are two values."""
    found: dict[str, None] = {}
    seen: set[str] = set()
    waiting = [exchange]
    while waiting:
        at = waiting.pop()
        if at in seen or at not in exchanges:
            continue
        seen.add(at)
        taking = exchanges[at]
        if at == "":
            taken = [BoundKey(to=key, key=key, arguments={}) for key in keys if key in queues]
        else:
            taken = [b for b in taking.bindings if _takes(taking.kind, b, keys, headers, exact)]
        found.update((b.to, None) for b in taken if not b.to_exchange)
        waiting += [b.to for b in taken if b.to_exchange]
        if not taken and taking.alternate is not None:
            waiting.append(taking.alternate)
    return list(found)


def _takes(kind: str, bound: BoundKey, keys: tuple[str, ...], headers: Headers, exact: bool) -> bool:
    match kind:
        case "fanout":
            return True
        case "topic":
            return any(topic_matches(bound.key, key) for key in keys)
        case "headers":
            return headers_match(bound.arguments, headers(), exact=exact)
        case _:
            return bound.key in keys


def headers_match(wanted: Mapping[str, Value], headers: Mapping[str, Value], *, exact: bool) -> bool:
    """Whether a binding of a headers exchange takes these headers."""
    how = wanted.get(X_MATCH, "all")
    with_x = how in ("all-with-x", "any-with-x")
    asked = [
        name in headers and _same(value, headers[name], exact=exact)
        for name, value in wanted.items()
        if name != X_MATCH and (with_x or not name.startswith("x-"))
    ]
    return any(asked) if how in ("any", "any-with-x") else all(asked)


def _same(wanted: Value, value: Value, *, exact: bool) -> bool:
    if wanted is None:
        return True  # it is enough that the header is there
    numbers = isinstance(wanted, int | float) and isinstance(value, int | float)
    if isinstance(wanted, bool) or isinstance(value, bool) or exact or not numbers:
        return type(wanted) is type(value) and wanted == value
    return wanted == value
