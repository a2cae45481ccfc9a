"""Health gates, log lines, metrics, and what a queue may be asked for.

About `consumer.queues.health_wait`, `consumer.queues.queue_options`, `consumer.events`,
`consumer.log_events`, `consumer.consumer_metrics`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from deadletter.consumer.app import Consumer
from deadletter.consumer.backoffs import fixed
from deadletter.consumer.consumer_metrics import ERRORS_MAX, ConsumerMetrics
from deadletter.consumer.events import Audience, Event, Fate, Handled, Lost, Paused, Ready, Resumed, Stopping
from deadletter.consumer.idempotency import MemoryIds
from deadletter.consumer.log_events import log_events
from deadletter.consumer.outcomes import park
from deadletter.consumer.queues.health_wait import HealthWait
from deadletter.consumer.queues.queue_options import HELD_MINUTES
from deadletter.core.letter.envelope import ExchangeKey
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.message import RawMessage as Raw
from deadletter.core.letter.message import View, encode
from deadletter.errors import UsageError

LETTER = Letter(
    source="q", message=Raw(encode(View()), b"x"), came_by=ExchangeKey(b"", b"q"), redelivered=False
)


# -- the gate ------------------------------------------------------------------------------------------------
async def test_a_gate_opens_when_the_check_says_yes_and_pauses_grow() -> None:
    answers: list[object] = [False, RuntimeError("down"), False, True]
    heard: list[Event] = []
    emit = Audience()
    emit.add(heard.append)

    async def check() -> bool:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return bool(answer)

    await HealthWait("q", (check,), emit, pause_s=0.001).opened()
    assert answers == []
    paused = [event for event in heard if isinstance(event, Paused)]
    assert [event.seconds for event in paused] == [0.001, 0.002, 0.004]
    assert "RuntimeError: down" in paused[1].why
    assert heard[-1] == Resumed(queue="q")


async def test_a_gate_closes_when_any_check_says_no() -> None:
    second = [True, True, False]

    async def yes() -> bool:
        return True

    async def no_later() -> bool:
        return second.pop(0)

    await asyncio.wait_for(HealthWait("q", (yes, no_later), Audience(), every_s=0.001).closed(), 60)
    assert second == []


async def test_without_checks_a_gate_is_open_for_ever() -> None:
    gate = HealthWait("q", (), Audience())
    await gate.opened()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(gate.closed(), 0.05)


# -- logs ----------------------------------------------------------------------------------------------------
def test_a_line_per_retry_and_per_parked_letter(caplog: pytest.LogCaptureFixture) -> None:
    listen = log_events(logging.getLogger("shop"))
    caplog.set_level(logging.INFO, "shop")
    listen(Handled(queue="q", fate=Fate.DONE))
    listen(
        Handled(
            queue="q",
            fate=Fate.RETRIED,
            attempt=1,
            delay_ms=2000,
            cause="retries-left",
            why="ValueError: a\nb",
            error="ValueError",
            letter=LETTER,
        )
    )
    listen(Handled(queue="q", fate=Fate.PARKED, attempt=3, cause="handler", why="look", letter=LETTER))
    retried, parked = caplog.records
    assert retried.getMessage() == f"q retried in 2 s (attempt 1): ValueError: a\\nb [{LETTER.id}]"
    fields: dict[str, Any] = vars(retried)
    assert (fields["queue"], fields["attempt"], fields["delay_ms"], fields["error"], fields["letter_id"]) == (
        "q",
        1,
        2000,
        "ValueError",
        LETTER.id,
    )
    assert (retried.levelname, parked.levelname) == ("WARNING", "ERROR")


def test_every_event_has_a_line(caplog: pytest.LogCaptureFixture) -> None:
    listen = log_events()
    caplog.set_level(logging.DEBUG, "deadletter.consumer")
    events: list[Event] = [
        Ready(queues=("q",), layouts=("ladder",), notes=("n",)),
        Lost(what="broker", why="gone", seconds=1),
        Paused(queue="q", why="sick", seconds=1),
        Resumed(queue="q"),
        Stopping(why="asked"),
        *(Handled(queue="q", fate=fate) for fate in Fate),
    ]
    for event in events:
        listen(event)
    assert len(caplog.records) == len(events) + 1


def test_a_listener_that_fails_stops_nothing(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[Event] = []
    emit = Audience()
    assert not emit

    def broken(event: Event) -> None:
        raise RuntimeError(str(event))

    emit.add(broken)
    emit.add(heard.append)
    emit(Stopping(why="x"))
    assert heard == [Stopping(why="x")]
    assert "a listener failed" in caplog.text


# -- metrics -------------------------------------------------------------------------------------------------
def test_metrics_by_queue_delay_and_error() -> None:
    registry = CollectorRegistry()
    metrics = ConsumerMetrics(registry)
    metrics(Ready(queues=("q",), layouts=("ladder",)))
    metrics(Handled(queue="q", fate=Fate.DONE, seconds=0.02))
    for _ in range(2):
        metrics(Handled(queue="q", fate=Fate.RETRIED, delay_ms=1500, error="ValueError", seconds=0.2))
    metrics(Handled(queue="q", fate=Fate.PARKED, cause="permanent-error", error="KeyError"))
    metrics(Paused(queue="q", why="sick", seconds=1))

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"deadletter_consumer_{name}", labels)

    assert value("messages_total", queue="q", fate="done") == 1
    assert value("retries_total", queue="q", delay="1.5", error="ValueError") == 2
    assert value("parked_total", queue="q", cause="permanent-error", error="KeyError") == 1
    assert value("handler_seconds_count", queue="q") == 3
    assert value("paused", queue="q") == 1
    metrics(Resumed(queue="q"))
    assert value("paused", queue="q") == 0


def test_types_of_errors_are_bounded() -> None:
    registry = CollectorRegistry()
    metrics = ConsumerMetrics(registry)
    for n in range(ERRORS_MAX + 50):
        metrics(Handled(queue="q", fate=Fate.RETRIED, delay_ms=1000, error=f"E{n}"))
    found = registry.get_sample_value(
        "deadletter_consumer_retries_total", {"queue": "q", "delay": "1", "error": "other"}
    )
    assert found == 50


# -- what may be asked for -----------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("wishes", "why"),
    [
        ({"layout": "spiral"}, "layout: expected auto"),
        ({"prefetch": 0}, "prefetch: expected a number from 1"),
        ({"concurrency": 70_000}, "concurrency: expected"),
        ({"deliveries": 1}, "deliveries: expected a number from 2"),
        ({"timeout": 0}, "timeout: expected seconds"),
        ({"budget": 0}, "budget: expected retries a minute"),
        ({"key": lambda _: "x"}, "key: expected idempotent"),
        ({"retries": -1}, "retries: expected"),
        (
            {"layout": "loop", "backoff": fixed(1), "on": {KeyError: fixed(60)}},
            "no delays but the queue's own",
        ),
    ],
)
def test_wishes_that_cannot_be(wishes: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        Consumer("amqp://localhost").queue("q", **wishes)


def test_a_queue_has_one_handler() -> None:
    app = Consumer("amqp://localhost")

    @app.queue("q", layout="loop", backoff=fixed(1), on={KeyError: park}, idempotent=MemoryIds())
    async def handle(body: bytes) -> None: ...

    with pytest.raises(UsageError, match="expected one handler"):
        app.queue("q")(handle)
    with pytest.raises(UsageError, match="above"):
        app.watch_depth("q", above=-1, call=print)


def test_no_more_is_held_than_the_budget_lets_go_in_time() -> None:
    app = Consumer("amqp://localhost")

    @app.queue("q", budget=2, prefetch=100)
    async def handle(body: bytes) -> None: ...

    @app.batch("b", size=50, concurrency=2)
    async def batch(bodies: list[bytes]) -> None: ...

    assert app._queues["q"].plan.prefetch == 2 * HELD_MINUTES
    assert (app._queues["b"].plan.prefetch, app._queues["b"].plan.batch) == (200, 50)


async def test_a_consumer_without_handlers_says_so() -> None:
    with pytest.raises(UsageError, match="at least one"):
        await Consumer("amqp://localhost").serve()
