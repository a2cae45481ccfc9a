"""Handlers that run, so that one that does not end can be named: queue, message, since when, and where."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Mapping, Sequence
from types import FrameType
from typing import Any, NamedTuple, TypeAlias

from deadletter.consumer.message import Message
from deadletter.consumer.queues.settling import InHand
from deadletter.errors import MessageError

NAMED_MAX = 3
"""The most messages of a batch that are named."""


class HandlerRun(NamedTuple):
    """One call of a handler."""

    begun: float
    """When it began, by the loop's clock."""
    batch: Sequence[InHand]
    messages: Sequence[Message]


Runs: TypeAlias = Mapping[asyncio.Task[Any], HandlerRun]


def told(queue: str, handler: str, runs: Runs, now: float) -> list[str]:
    """A line for each."""
    lines: list[str] = []
    for task, run in list(runs.items()):
        more = f" and {len(run.messages) - NAMED_MAX} more" if len(run.messages) > NAMED_MAX else ""
        ids = ", ".join(_id_of(message) for message in run.messages[:NAMED_MAX])
        lines.append(
            f"{handler} of queue {queue} has not ended after {now - run.begun:.1f} s: message {ids}{more}, "
            f"at {where(task)}"
        )
    return lines


def where(task: asyncio.Task[Any]) -> str:
    """The innermost line it waits at, before asyncio's own; of one that keeps the loop busy, of the loop."""
    waiting: Any = task.get_coro()
    frame: FrameType | None = None
    while waiting is not None:
        found = getattr(waiting, "cr_frame", None) or getattr(waiting, "gi_frame", None)
        if found is None or str(found.f_globals.get("__name__", "")).startswith("asyncio."):
            break
        frame = found
        waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "gi_yieldfrom", None)
    if getattr(task.get_coro(), "cr_running", False):
        frame = sys._current_frames().get(threading.main_thread().ident or 0)  # noqa: SLF001 -- the only way
    return "a place nobody knows" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"


def _id_of(message: Message) -> str:
    try:
        return f"{message.id} ({message.message_id})" if message.message_id else message.id
    except MessageError:
        return "unreadable"
