"""The edge between the synchronous command line and everything else."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar

GARBAGE: Final = 50_000
"""Python looks for garbage after so many new objects. Letters under way are thousands of objects, none of
them garbage: with Python's own 700 a replay spent a fifth of its time looking at them."""

_T = TypeVar("_T")


def run(main: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine to its end, on uvloop where there is one: a move costs a third less CPU on it.

    What was imported until now lives as long as the process. To look for garbage among it costs a service
    70 ms now and then, in which no letter moves.
    """
    gc.freeze()
    gc.set_threshold(GARBAGE)
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)


class StopAsked:
    """Whether somebody asked for an end: `stopping(stop)`, and `stop.asked` tells."""

    asked: bool = False

    def __call__(self) -> None:
        self.asked = True


@contextmanager
def stopping(stop: Callable[[], None]) -> Iterator[None]:
    """Within, the first Ctrl-C or SIGTERM asks for an orderly end; the second ends at once."""
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    asked = False

    def on_signal() -> None:
        nonlocal asked
        if asked and task is not None:
            task.cancel()
        asked = True
        stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
