"""Waiting while a health check fails.

While the check says no, nothing is consumed: the consumer is cancelled and what no handler has begun goes
back into its queue. Nothing is held (a broker takes it away after its consumer timeout), and nothing is sent
round. The check is asked every CHECK_S; once it has said no, after pauses that grow.

A check that raises, or takes longer than ANSWER_S, says no.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from deadletter.consumer.events import Audience, Paused, Resumed
from deadletter.consumer.handlers.callables import is_async
from deadletter.consumer.handlers.handler_end import told

HealthCheck: TypeAlias = Callable[[], Awaitable[bool] | bool]
"""Async, or plain: that is asked in a thread, because it may wait for an answer of somebody's."""
CHECK_S: Final = 5.0
ANSWER_S: Final = 10.0
PAUSE_S: Final = 0.5
PAUSE_MAX_S: Final = 30.0
_NO_LOOP: Final = ("no running event loop", "There is no current event loop")
"""What asyncio says to whoever asks for the loop in a thread."""


@dataclass(frozen=True, slots=True)
class HealthWait:
    """Of one queue; open while all of its checks say yes."""

    queue: str
    checks: tuple[HealthCheck, ...]
    emit: Audience
    every_s: float = CHECK_S
    pause_s: float = PAUSE_S

    async def opened(self) -> None:
        """Until the checks say yes."""
        pause_s, paused = self.pause_s, False
        while (why := await self._why_not()) is not None:
            paused = True
            self.emit(Paused(queue=self.queue, why=why, seconds=pause_s))
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, PAUSE_MAX_S)
        if paused:
            self.emit(Resumed(queue=self.queue))

    async def closed(self) -> None:
        """Until one of the checks says no; for ever where there are none."""
        if not self.checks:
            await asyncio.Event().wait()
        while await self._why_not() is None:  # noqa: ASYNC110 -- nobody tells of it, it must be asked
            await asyncio.sleep(self.every_s)

    async def _why_not(self) -> str | None:
        for check in self.checks:
            try:
                async with asyncio.timeout(ANSWER_S):
                    if not await _answer(check):
                        return "the health check says no"
            except TimeoutError:
                return f"the health check did not answer within {ANSWER_S:g} s"
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:  # an application's check; one that fails is a no
                task = asyncio.current_task()
                if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                    raise
                return f"the health check failed with {told(error)}"
        return None


async def _answer(check: HealthCheck) -> bool:
    if is_async(check):
        answer = check()
    else:
        asking = asyncio.ensure_future(asyncio.to_thread(check))
        try:
            answer = await asyncio.shield(asking)
        except asyncio.CancelledError:
            asking.add_done_callback(_let_go)
            raise
        except RuntimeError as error:
            if not str(error).startswith(_NO_LOOP):
                raise
            answer = check()  # one that makes its answer of the running loop, which is here
    return await answer if inspect.isawaitable(answer) else bool(answer)


def _let_go(asking: asyncio.Future[Awaitable[bool] | bool]) -> None:
    """Nobody waits for the answer any more."""
    if not asking.cancelled() and asking.exception() is None and inspect.iscoroutine(told := asking.result()):
        told.close()
