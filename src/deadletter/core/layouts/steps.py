"""The delays of a schedule as numbered steps, for the layouts that have one queue per step."""

from __future__ import annotations

from deadletter.core.layouts.request import MAX_QUEUES, Request
from deadletter.errors import UsageError


def steps(layout: str, request: Request) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """One delay per step, the last for all further retries, and what there is to say about them."""
    delays_ms = request.schedule.typical_delays_ms
    if len(delays_ms) > MAX_QUEUES:
        raise UsageError(
            f"layout {layout}: expected at most {MAX_QUEUES} different steps, each is a queue, got "
            f"{len(delays_ms)}; lower the retries or the cap, or take the layout return"
        )
    notes: tuple[str, ...] = ()
    if request.schedule.jitter:
        notes += (f"{layout} has one delay per retry: the middle one of each, without jitter.",)
    if request.more_levels_ms - set(delays_ms):
        notes += (f"{layout} has no delays of their own for error rules: they use those of the retries.",)
    return delays_ms, notes
