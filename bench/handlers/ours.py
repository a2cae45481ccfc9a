"""Ours, as the README has it, in the layout `return`: details on what failed, published, confirmed, acked."""

from __future__ import annotations

from typing import Any

from bench.handlers.task import DELAY_S, QUEUE, Clock, Task
from deadletter import Consumer, fixed


def consume(task: Task, clock: Clock) -> None:
    app = Consumer(task.url, api=task.api, service="bench")

    @app.queue(QUEUE, layout="return", retries=3, backoff=fixed(DELAY_S), prefetch=task.prefetch)
    async def handle(order: dict[str, Any]) -> None:
        if clock.tick():
            app.stop("that was the last")
        if task.is_bad(order):
            raise ValueError("the warehouse does not answer")

    app.run()
