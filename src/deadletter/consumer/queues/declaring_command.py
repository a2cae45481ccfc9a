"""What somebody with the rights types so that a consumer without them finds its layout: the whole command.

A layout depends on retries and delays, and these are in the application's code; the command says them, so
that it declares what this consumer looks for and not what the defaults would be.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from deadletter.consumer.outcomes import Rules
from deadletter.consumer.queues.own_queue import OwnQueue
from deadletter.core.layouts.request import Plan
from deadletter.core.text.durations import duration_text


def declaring_command(plan: Plan, rules: Rules, own: OwnQueue, *, missing: str) -> str:
    """`missing`: what was looked for in vain; the application's own queue is declared where it is that."""
    schedule = rules.schedule
    words = ["dlq", "topology", "apply", "--layout", plan.layout, "--queue", plan.queue]
    words += ["--retries", str(schedule.retries)]
    if schedule.retries:
        words += ["--backoff", _typed(schedule.typical_delays_ms)]
    beside = {ms for one in rules.schedules for ms in one.levels_ms} - set(schedule.typical_delays_ms)
    if beside:
        words += ["--also", _typed(sorted(beside))]
    if missing == plan.queue:
        words += ["--declare-queue", "--queue-type", own.type or "quorum"]
    return shlex.join(words)


def _typed(delays_ms: Iterable[int]) -> str:
    return ",".join(duration_text(ms).replace(" ", "") for ms in delays_ms)
