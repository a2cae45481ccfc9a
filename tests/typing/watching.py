"""Looking on: health checks, listeners, metrics, statistics, and a life inside another program's loop."""

from __future__ import annotations

import asyncio
import logging
from typing import assert_never, assert_type

from prometheus_client import CollectorRegistry

import deadletter
from deadletter import Consumer, ConsumerMetrics, DepthAlert, log_events
from deadletter.consumer.events import Event, Fate, Handled, Listener, Lost, Paused, Ready, Resumed, Stopping
from deadletter.consumer.statistics import LevelStatistics, QueueStatistics
from deadletter.move.courier import MoveTally

log = logging.getLogger("shop")


async def is_up() -> bool:
    return True


app = Consumer("amqp://host", health=is_up)


@app.queue("orders", health=is_up)
async def handle(body: bytes) -> None: ...


def told(event: Event) -> str:
    """Every event there is, and no other."""
    match event:
        case Handled():
            return f"{event.queue} {event.fate} {event.attempt} {event.delay_ms} {event.cause} {event.error}"
        case Ready():
            return ", ".join(event.queues + event.layouts + event.notes)
        case Lost():
            return f"{event.what} {event.why} {event.seconds}"
        case Paused():
            return f"{event.queue} {event.why} {event.seconds}"
        case Resumed():
            return event.queue
        case Stopping():
            return event.why
        case _:
            assert_never(event)


def listen(event: Event) -> None:
    if isinstance(event, Handled) and event.fate is Fate.PARKED and event.letter is not None:
        assert_type(event.letter.body, bytes)
    log.info(told(event))


LISTENERS: list[Listener] = [listen, log_events(), log_events(log)]
METRICS: list[Listener] = [ConsumerMetrics(), ConsumerMetrics(CollectorRegistry())]
for one in LISTENERS + METRICS:
    app.listen(one)


async def alarm(alert: DepthAlert) -> None:
    log.warning("%s has %d of %d", alert.queue, alert.depth, alert.above)


app.watch_depth("orders__dlq", above=100, call=alarm)
app.watch_depth("orders", above=10_000, call=lambda alert: print(alert.depth), every=5)


async def main() -> None:
    serving = asyncio.create_task(app.serve())
    await asyncio.sleep(1)
    if app.ready is not None:
        await app.ready.wait()
    statistics = await app.statistics()
    assert_type(statistics, dict[str, QueueStatistics])
    orders = statistics["orders"]
    assert_type(orders.levels, tuple[LevelStatistics, ...])
    assert_type(orders.parked, int | None)
    assert_type(orders.parked_in, str | None)
    drained = await app.drain("orders", 60, 0.5)
    assert_type(drained, dict[str, MoveTally])
    await app.drain("orders")
    app.stop("it is late")
    app.stop()
    await serving


assert_type(deadletter.__version__, str)
