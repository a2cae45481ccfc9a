"""The edge between the synchronous command line and everything else."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

_T = TypeVar("_T")


def run(main: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine to its end, on uvloop where there is one: a move costs a third less CPU on it.

    What was imported until now lives as long as the process. To look for garbage among it costs a service
    70 ms now and then, in which no letter moves.
    """
    gc.freeze()
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)


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
