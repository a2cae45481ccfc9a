"""Layouts: named shapes of exchanges and queues in which letters are retried and parked.

A layout is a pure function of a queue, a schedule and a broker's version; its result is a `Plan`, which
somebody else compares with what is there, draws, or declares. One module per layout, and each tells its own
story. Where a layout follows a known document, it keeps the document's names and corrects its mistakes, and
`corrections` says which and why.

    return   ours: shared delays, one way back per queue           every version
    levels   one retry queue for all, a numbered delay per retry   every version
    sweep    a dead-letter queue per queue, drained now and then   every version
    ladder   for each queue a rung per retry, straight back        every version
    loop     the queue and its retry queue, round and round        every version
    native   RabbitMQ's own delayed retries                        from 4.3.1 on
    auto     return: the one that works everywhere and counts nothing but failures
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, Protocol

from deadletter.core.deciding.backoff import Schedule
from deadletter.core.layouts import ladder, levels, looping, native, returning, sweeping
from deadletter.core.layouts.request import Correction, Plan, Request
from deadletter.core.topology.vhost import Topology
from deadletter.errors import UsageError

__all__ = ["AUTO", "LAYOUTS", "correction_text", "corrections", "plan"]


class Layout(Protocol):
    """What a layout's module has."""

    @property
    def NAME(self) -> str: ...  # noqa: N802 -- a constant there

    @property
    def CORRECTIONS(self) -> tuple[Correction, ...]: ...  # noqa: N802

    def design(self, request: Request) -> Plan: ...


_LAYOUTS: Final[tuple[Layout, ...]] = (returning, levels, sweeping, ladder, looping, native)
AUTO: Final = "auto"
LAYOUTS: Final = tuple(layout.NAME for layout in _LAYOUTS)
"""Their names, without `auto`, which is a choice among them."""


def plan(
    layout: str,
    queue: str,
    *,
    schedule: Schedule,
    version: str,
    queue_type: str = "quorum",
    declare_queue: bool = False,
    more_levels_ms: Iterable[int] = (),
    there: Topology | None = None,
    delivery_limit: int | None = None,
) -> Plan:
    """What this layout declares for a queue; see `Request` for what each argument means.

    Raises UsageError, which says what was expected, what came and what to do, where the layout cannot be.
    """
    request = Request(
        queue=queue,
        schedule=schedule,
        version=version,
        queue_type=queue_type,
        declare_queue=declare_queue,
        more_levels_ms=frozenset(more_levels_ms),
        there=there,
        delivery_limit=delivery_limit,
    )
    return _auto(request) if layout == AUTO else _named(layout).design(request)


def corrections(layout: str) -> tuple[Correction, ...]:
    """Where a layout differs from the document it follows; empty for those that are ours."""
    return _named(layout).CORRECTIONS


def correction_text(correction: Correction) -> str:
    """A correction as one sentence a person reads."""
    return (
        f"The document says: {correction.document_says}. "
        f"We declare: {correction.we_declare}. Because {correction.why}."
    )


def _named(layout: str) -> Layout:
    for known in _LAYOUTS:
        if layout == known.NAME:
            return known
    raise UsageError(f"layout: expected {', '.join(LAYOUTS)} or {AUTO}, got {layout!r}; take one of these")


def _auto(request: Request) -> Plan:
    """Never `native`: a queue counts failures and lost connections as one, and parks what is healthy."""
    note = f"auto chose return, not native: {native.PRICE}"
    plan = returning.design(request)
    return replace(plan, notes=(note, *plan.notes))
