"""What others may import, pinned: a name that goes or comes is a decision, not an accident.

About `broker.courier`, `broker.memory`.
"""

from __future__ import annotations

import inspect
import re
from importlib import import_module

import pytest
from tests.paths import ROOT

import deadletter
from deadletter.broker import courier
from deadletter.testing.node import private

LIBRARY = {
    "deadletter": [name for name in deadletter.__all__ if name != "__version__"],
    "deadletter.adapters.aio_pika": ["retrying"],
    "deadletter.adapters.faststream": ["with_retries"],
    "deadletter.adapters.pika": ["retrying"],
    "deadletter.testing.memory": ["MemoryBroker", "VirtualClock", "virtual_time"],
    "deadletter.consumer.events": ["Lost", "Paused", "Ready", "Resumed", "Stopping"],
    "deadletter.consumer.idempotency": ["Seen", "TransactedIds"],
    "deadletter.consumer.outcomes": ["HandlerCancelled", "Undecodable"],
    "deadletter.consumer.statistics": ["LevelStatistics", "QueueStatistics"],
}
"""What an application may import, and from where, as the pages say."""
LEFT_TO_THE_CODE = {"HandlerCancelled", "LevelStatistics", "Seen", "TransactedIds", "Undecodable"}
"""What few need to name: their docstrings say it."""
PUBLIC = [(module, name) for module, names in LIBRARY.items() for name in names]


@pytest.mark.parametrize(("module", "name"), PUBLIC)
def test_the_library(module: str, name: str) -> None:
    value = getattr(import_module(module), name)
    if inspect.isclass(value) or inspect.isfunction(value):
        assert inspect.getdoc(value), "it has no docstring"
    used = "".join(page.read_text() for page in (ROOT / "tests/typing").glob("*.py"))
    assert re.search(rf"\b{name}\b", used), "tests/typing does not use it: do the type checkers know it?"
    pages = "".join(
        (ROOT / "docs" / page).read_text() for page in ("consumer.md", "testing.md", "adapters.md")
    )
    assert name in LEFT_TO_THE_CODE or re.search(rf"\b{name}\b", pages), "no page says what it is"


def test_the_package() -> None:
    assert deadletter.__all__ == [
        "BatchFailed", "Consumer", "ConsumerMetrics", "Depends", "DepthAlert", "Discard", "Event", "Fate",
        "Handled", "HandlerTimeout", "Ids", "MemoryIds", "Message", "Park", "Proceed", "RetryLater",
        "StoreIds", "Transaction", "__version__", "discard", "exponential", "fixed", "linear", "log_events",
        "own", "park", "retry",
    ]  # fmt: skip
    for name in deadletter.__all__:
        assert getattr(deadletter, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        deadletter.nothing  # type: ignore[attr-defined]  # noqa: B018 -- the look itself is what is tested
    consumer = deadletter.Consumer
    assert [name for name in vars(consumer) if not name.startswith("_")] == [
        "queue", "batch", "exchange", "listen", "has_listener", "watch_depth", "publish", "publishing",
        "statistics", "drain", "run", "serve", "stop",
    ]  # fmt: skip
    asked = [
        "layout", "retries", "backoff", "on", "prefetch", "concurrency", "timeout", "deliveries", "budget",
        "health", "idempotent", "key", "bind", "queue_type", "arguments", "delivery_limit",
    ]  # fmt: skip
    assert list(inspect.signature(consumer).parameters) == [
        "url", "api", "service", "release", "redact", "health", "grace", "persistence", "lifespan",
        "middleware",
    ]  # fmt: skip
    assert list(inspect.signature(consumer.queue).parameters) == ["self", "name", *asked, "middleware"]
    assert list(inspect.signature(consumer.batch).parameters) == ["self", "name", "size", "wait", *asked]


def test_the_courier() -> None:
    assert sorted(courier.__all__) == [
        "Blocked", "Bounds", "Courier", "Deaths", "Ended", "Event", "Failure", "Judging", "Leave", "Letter",
        "Progress", "Send", "Tally", "Terms", "Verdict", "move",
    ]  # fmt: skip
    assert list(inspect.signature(courier.move).parameters) == [
        "addresses", "source", "decide", "bounds", "terms", "persistence", "on_event",
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["MemoryBroker", "VirtualClock", "virtual_time"])
def test_the_memory_broker_by_its_first_name(name: str) -> None:
    first, now = import_module("deadletter.broker.memory"), import_module("deadletter.testing.memory")
    assert getattr(first, name) is getattr(now, name)


def test_the_private_broker() -> None:
    assert sorted(private.__all__) == ["PrivateBroker", "TlsFiles", "private_broker", "start_private_broker"]


def test_everything_public_is_documented() -> None:
    for module in (courier, private):
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                assert inspect.getdoc(value), f"{module.__name__}.{name}"
