"""What others may import, pinned: a name that goes or comes is a decision, not an accident."""

from __future__ import annotations

import inspect

import pytest

import deadletter
from deadletter.broker import courier, private


def test_the_package() -> None:
    assert deadletter.__all__ == [
        "Consumer", "Discard", "Message", "Park", "RetryLater", "__version__", "discard", "exponential",
        "fixed", "linear", "own", "park", "retry",
    ]  # fmt: skip
    for name in deadletter.__all__:
        assert getattr(deadletter, name) is not None
    with pytest.raises(AttributeError, match="nothing"):
        deadletter.nothing  # noqa: B018 -- the look itself is what is tested
    assert list(inspect.signature(deadletter.Consumer.queue).parameters)[:8] == [
        "self", "name", "layout", "retries", "backoff", "on", "prefetch", "concurrency",
    ]  # fmt: skip


def test_the_courier() -> None:
    assert sorted(courier.__all__) == [
        "Blocked", "Bounds", "Courier", "Deaths", "Ended", "Event", "Failure", "Judging", "Leave", "Letter",
        "Progress", "Send", "Tally", "Terms", "Verdict", "move",
    ]  # fmt: skip
    assert list(inspect.signature(courier.move).parameters) == [
        "addresses", "source", "decide", "bounds", "terms", "persistence", "on_event",
    ]  # fmt: skip


def test_the_private_broker() -> None:
    assert sorted(private.__all__) == ["PrivateBroker", "TlsFiles", "private_broker", "start_private_broker"]


def test_everything_public_is_documented() -> None:
    for module in (courier, private):
        for name in module.__all__:
            value = getattr(module, name)
            if inspect.isclass(value) or inspect.isfunction(value):
                assert inspect.getdoc(value), f"{module.__name__}.{name}"
