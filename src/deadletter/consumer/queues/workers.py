"""The workers of one queue: they take messages one by one or in batches, and end however a handler ends.

However a handler ends is an outcome: also with an exception that is no `Exception`, with the cancellation of
its own task, or with its time being over and no end in sight. A worker that ends for another reason ends the
consumer of its queue, with a line in the log, and whoever runs it begins anew: none is missing in silence. A
handler that does not end although it was cancelled is left behind, and named in the log: it holds up neither
the end nor the next connection.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final, NamedTuple, TypeAlias

from deadletter.consumer.handlers.batching import BatchHandler
from deadletter.consumer.handlers.handler_end import DONE, HandlerEnd
from deadletter.consumer.handlers.routing import AnyHandler
from deadletter.consumer.message import Message
from deadletter.consumer.publishing.mailing import AppMail
from deadletter.consumer.queues.settling import InHand, Settler
from deadletter.errors import DeadletterError, MessageError, MoveFailed

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


POLL_S: Final = 0.01
LEAVE_S: Final = 5.0
"""How long a handler that was cancelled may take to come to its end."""
_log: Final = logging.getLogger("deadletter.consumer")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumePlan:
    """How one queue is consumed."""

    queue: str
    prefetch: int
    concurrency: int
    deliveries_max: int
    """A message whose consumer died this often is put aside."""
    batch: int = 1
    """At most so many messages in one call."""
    wait_s: float = 0.0
    """How long a batch waits for more."""


class Workers:
    """Of one queue. `on_fail` hears that it must end; `leave` that a handler wants the process to end."""

    def __init__(
        self,
        plan: ConsumePlan,
        handler: AnyHandler,
        settler: Settler,
        *,
        on_fail: Callable[[], None],
        leave: Callable[[SystemExit | KeyboardInterrupt], None],
        mail: AppMail | None = None,
    ) -> None:
        self._plan = plan
        self._mail = mail
        self._handler = handler
        self._settler = settler
        self._on_fail = on_fail
        self._leave = leave
        self._loop = asyncio.get_running_loop()
        self.inbox: deque[InHand] = deque()
        self.error: Exception | None = None
        """What ended the consumer of the queue."""
        self.closing: bool = False
        """Whether no more is begun."""
        self._dismissed = False
        """Whether we have cancelled them: else whoever is cancelled was so by somebody else."""
        self._idle: deque[asyncio.Future[None]] = deque()
        self._runs: dict[asyncio.Task[Any], HandlerRun] = {}
        self._adrift: dict[asyncio.Task[Any], asyncio.Future[None]] = {}
        """Runs whose end nobody waits for any more, their message being settled."""
        self._tasks: list[asyncio.Task[None]] = []

    # -- life --------------------------------------------------------------------------------------------
    def start(self) -> None:
        """As many as may be at work at once."""
        self._handler.open(self._give_up, self._mail)
        work = self._work_in_batches if isinstance(self._handler, BatchHandler) else self._work_one_by_one
        for _ in range(min(self._plan.concurrency, self._plan.prefetch)):
            self.task(work)

    def task(self, work: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """One more, for this work."""
        made = self._loop.create_task(self._working(work))
        self._tasks.append(made)
        made.add_done_callback(self._gone)
        return made

    def _gone(self, task: asyncio.Task[None]) -> None:
        self._tasks.remove(task)
        if task.cancelled() and not self._dismissed and self.error is None:
            why = f"a worker of queue {self._plan.queue} was cancelled by somebody else"
            _log.error("%s; they begin anew", why)
            self.fail(MoveFailed(why))

    def put(self, held: InHand) -> None:
        """For whoever is free."""
        self.inbox.append(held)
        while self._idle:
            waiting = self._idle.popleft()
            if not waiting.done():  # else it was for a batch that waits no more
                waiting.set_result(None)
                break

    def fail(self, error: Exception) -> None:
        """The consumer of the queue ends."""
        if self.error is None:
            self.error = error
        self.inbox.clear()  # nothing can be settled any more, so nothing is begun
        self._on_fail()

    async def call_off(self, task: asyncio.Task[None]) -> None:
        """End one whose handler has not begun."""
        self._dismissed = True
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        self._dismissed = False

    async def dismiss(self) -> None:
        """Cancel them, and wait for those that heed it."""
        self.closing = self._dismissed = True
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            _, staying = await asyncio.wait(tasks, timeout=LEAVE_S)
            for line in self.running(staying):
                _log.error("%s; it does not heed that it was cancelled, and is left behind", line)
            for task in staying & self._runs.keys():
                self._handler.given_up(self._runs[task].messages, task, late=False)

    @property
    def busy(self) -> bool:
        """Whether a handler runs."""
        return bool(self._runs)

    @property
    def hanging(self) -> bool:
        """After `dismiss`: whether a handler goes on all the same."""
        return bool(self._tasks)

    def running(self, tasks: Collection[asyncio.Task[Any]] | None = None) -> list[str]:
        """A line for each handler that has not ended; `tasks`: only of these."""
        runs = {task: run for task, run in self._runs.items() if tasks is None or task in tasks}
        return told(self._plan.queue, self._handler.name, runs, self._loop.time())

    async def quiet(self, busy: Callable[[], bool]) -> None:
        """Until it is, with everything that may be acked on its way. Raises what ended it all."""
        while busy() and self.error is None:
            self._settler.settle(at_once=True)
            await asyncio.sleep(POLL_S)
        if self.error is not None:
            raise self.error

    # -- work --------------------------------------------------------------------------------------------
    async def _working(self, work: Callable[[], Awaitable[None]]) -> None:
        """A worker must not die unseen: its slot would be gone, and its message in hand for ever."""
        try:
            await work()
        except asyncio.CancelledError:
            raise
        except (SystemExit, KeyboardInterrupt) as error:  # of a listener, or Ctrl-C between two handlers
            self._leave(error)
        except BaseException as error:  # noqa: BLE001 -- told by whoever runs the queue
            self.fail(error if isinstance(error, DeadletterError) else _broken(error))

    async def _work_one_by_one(self) -> None:
        inbox, settler, loop, runs = self.inbox, self._settler, self._loop, self._runs
        handler, mail, me = self._handler, self._mail, asyncio.current_task()
        assert not isinstance(handler, BatchHandler)
        assert me is not None
        while not self._dismissed:
            while not inbox or self.closing:
                await self._more()
            held = inbox.popleft()
            message = Message(held.letter, held.past.attempt, mail)
            begun = loop.time()
            runs[me] = HandlerRun(begun, (held,), (message,))
            try:
                if held.past.deliveries:
                    await self._originals_gone()
                outcome = await handler(message)
            except asyncio.CancelledError as cancelled:
                (outcome,) = self._cancelled(me, cancelled)
            except BaseException:
                self._ended(me)
                raise
            if me.cancelling() or handler.leaving is not None or self._adrift:
                await self._odd_end(me)
            if runs.pop(me, None) is not None and self.error is None:
                settler.conclude(held, outcome, loop.time() - begun)

    async def _work_in_batches(self) -> None:
        inbox = self.inbox
        while not self._dismissed:
            while not inbox or self.closing:
                await self._more()
            until = self._loop.time() + self._plan.wait_s
            while len(inbox) < self._plan.batch and (left_s := until - self._loop.time()) > 0:
                # What waits for company is in the inbox, not begun: at a halt it is given back.
                await self._more(left_s)
            if inbox and not self.closing:
                await self.handle([inbox.popleft() for _ in range(min(len(inbox), self._plan.batch))])

    async def _more(self, wait_s: float | None = None) -> None:
        """Until another message comes."""
        waiting: asyncio.Future[None] = self._loop.create_future()
        self._idle.append(waiting)
        if wait_s is None:
            await waiting
            return
        await asyncio.wait({waiting}, timeout=wait_s)
        waiting.cancel()

    async def handle(self, batch: list[InHand]) -> None:
        """These, in one call."""
        me = asyncio.current_task()
        assert me is not None
        messages = [Message(held.letter, held.past.attempt, self._mail) for held in batch]
        begun = self._loop.time()
        self._runs[me] = HandlerRun(begun, batch, messages)
        try:
            if any(held.past.deliveries for held in batch):
                await self._originals_gone()
            if isinstance(self._handler, BatchHandler):
                outcomes = await self._handler(messages)
            else:
                outcomes = [await self._handler(messages[0])]
        except asyncio.CancelledError as cancelled:
            outcomes = self._cancelled(me, cancelled)
        except BaseException:
            self._ended(me)
            raise
        if me.cancelling() or self._handler.leaving is not None or self._adrift:
            await self._odd_end(me)
        if self._runs.pop(me, None) is not None:
            self._conclude(batch, outcomes, self._loop.time() - begun)

    def _conclude(self, batch: Sequence[InHand], outcomes: Sequence[HandlerEnd], seconds: float) -> None:
        for held, outcome in zip(batch, outcomes, strict=True):
            if self.error is None:
                self._settler.conclude(held, outcome, seconds)

    # -- ends that are none ------------------------------------------------------------------------------
    def _cancelled(self, me: asyncio.Task[Any], cancelled: asyncio.CancelledError) -> list[HandlerEnd]:
        """A handler's task was cancelled: by us, and then it ends; else that is how the handler has ended."""
        run = self._runs.get(me)
        if self._dismissed or run is None:
            self._ended(me)
            raise cancelled
        return self._handler.cancelled(run.messages, cancelled)

    def _ended(self, me: asyncio.Task[Any]) -> None:
        """Without an outcome. A handler that is cancelled may have said before that its message is done, and
        have nothing to commit."""
        run = self._runs.pop(me, None)
        if run is None:
            self._landed(me)
            return
        for held, message in zip(run.batch, run.messages, strict=True):
            if message.close() is True and self.error is None:
                self._settler.conclude(held, DONE)

    async def _odd_end(self, me: asyncio.Task[Any]) -> None:
        """A handler that cancelled its own task, that wants the process to end, or that was given up."""
        self._landed(me)
        if me.cancelling() and not self._dismissed:
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)  # else it would be the next message's handler that is cancelled
            while me.cancelling():
                me.uncancel()
        if self._handler.leaving is not None:
            self._leave(self._handler.leaving)

    def _landed(self, me: asyncio.Task[Any]) -> None:
        """The end of a run that was given up."""
        adrift = self._adrift.pop(me, None)
        if adrift is not None:
            adrift.set_result(None)

    def _give_up(self, task: asyncio.Task[Any]) -> None:
        """Its handler's time is over, and it goes on although it was cancelled: its message has failed."""
        run = self._runs.get(task)
        if run is None or self._dismissed:
            return
        for line in self.running({task}):
            _log.error("%s; its time is over and it does not heed that it was cancelled", line)
        del self._runs[task]
        self._adrift[task] = self._loop.create_future()
        outcomes = self._handler.given_up(run.messages, self._adrift[task], late=True)
        self._conclude(run.batch, outcomes, self._loop.time() - run.begun)

    async def _originals_gone(self) -> None:
        """What was put back with a count comes again before its original is acked. A handler that ends the
        process then would leave both, and with each death another, each with a count of its own: so the acks
        must be on the wire first."""
        await self.quiet(lambda: self._settler.flying)
        self._settler.settle(at_once=True)
        await asyncio.sleep(POLL_S)


def _broken(error: BaseException) -> MoveFailed:
    failed = MoveFailed(
        f"a message could not be settled, it is back in its queue: {type(error).__name__}: {error}"
    )
    failed.__cause__ = error
    _log.error("a worker came to an end that was not foreseen; it begins anew", exc_info=error)
    return failed
