"""Our topic matching is the broker's: random patterns bound on a real exchange, random keys published.

About `core.topology.routing_keys`.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Protocol

import pika
import pika.adapters.blocking_connection
import pytest

from deadletter.core.topology.routing_keys import topic_matches

PATTERNS = 400
KEYS = 400
END = b"that was all"
WORDS = ("a", "b", "c", "", "a*", "#b", "é")
CORNERS = (
    "",
    "#",
    "*",
    ".",
    "..",
    "*.*",
    "#.#",
    "a",
    "a.",
    ".a",
    "a..b",
    "a.#",
    "#.a",
    "a.*",
    "#.*",
    "*.#",
    "a.#.b",
)


class Vhost(Protocol):
    """What the fixture gives us of a fresh vhost on a broker."""

    url: str


def _random_keys(dice: random.Random, words: tuple[str, ...], count: int) -> list[str]:
    keys = {".".join(dice.choices(words, k=dice.randint(1, 6))) for _ in range(count)}
    return sorted(keys | set(CORNERS))


@pytest.mark.parametrize("seed", [1, 2])
def test_agrees_with_the_broker(vhost: Vhost, seed: int) -> None:
    dice = random.Random(seed)
    # a key may hold the wildcards' signs as words, and the broker then takes them literally
    keys = _random_keys(dice, (*WORDS, "*", "#"), KEYS)
    connection = pika.BlockingConnection(pika.URLParameters(vhost.url))
    try:
        most = _most_runs(connection)
        patterns = _random_keys(dice, (*WORDS, "*", "#", "#", "*"), PATTERNS)
        patterns = [pattern for pattern in patterns if pattern.split(".").count("#") <= most]
        routed = _routed_by_broker(connection.channel(), patterns, keys)
    finally:
        connection.close()
    ours = {(pattern, key) for pattern in patterns for key in keys if topic_matches(pattern, key)}
    assert sorted(ours - routed) == []
    assert sorted(routed - ours) == []
    assert len(routed) > len(patterns)  # the sample says something


def _most_runs(connection: pika.BlockingConnection) -> int:
    """4.3 refuses a binding with more than two `#` (406); older brokers take any number."""
    version = connection._impl.server_properties["version"]
    return 2 if tuple(map(int, version.split(".")[:2])) >= (4, 3) else 6


def _routed_by_broker(
    channel: pika.adapters.blocking_connection.BlockingChannel, patterns: list[str], keys: list[str]
) -> set[tuple[str, str]]:
    """Every pair that the broker routes: one queue per pattern, every key published once."""
    routed: set[tuple[str, str]] = set()
    pending = set()
    channel.exchange_declare("topics", "topic", durable=True)
    for number, pattern in enumerate(patterns):
        queue = f"pattern-{number}"
        channel.queue_declare(queue, exclusive=True)
        channel.queue_bind(queue, "topics", pattern)
        pending.add(queue)
        channel.basic_consume(queue, _collector(pattern, routed, pending), auto_ack=True)
    for key in keys:
        channel.basic_publish("topics", key, b"")
    for queue in sorted(
        pending
    ):  # behind every key in its queue: once it arrives, that queue has said everything
        channel.basic_publish("", queue, END)
    while pending:
        channel.connection.process_data_events(time_limit=None)
    return routed


def _collector(
    pattern: str, routed: set[tuple[str, str]], pending: set[str]
) -> Callable[[object, pika.spec.Basic.Deliver, object, bytes], None]:
    def collect(_: object, method: pika.spec.Basic.Deliver, __: object, body: bytes) -> None:
        if body == END:
            pending.discard(method.routing_key)
        else:
            routed.add((pattern, method.routing_key))

    return collect
