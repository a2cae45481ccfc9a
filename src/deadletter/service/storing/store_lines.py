"""The lines of one vhost that bring letters into the store: `deadletter.parked`, and the queues of `[desk]`.

A line is a queue loop like every other, so reconnects, delivery limits and kill -9 are what they are for
every move. It takes while the storekeeper works, and stops when it does not: letters then wait in their
queue. So it does while another instance stores letters of this vhost in a file of its own (`store_lease`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from deadletter.broker.management import Management
from deadletter.broker.session import Link
from deadletter.core.deciding.letter_fate import LetterFate
from deadletter.core.deciding.states import Step
from deadletter.core.grouping.retention import Retention
from deadletter.core.grouping.stored_letter import StoredLetter
from deadletter.core.letter import names
from deadletter.core.letter.letter import Letter
from deadletter.move.asked_limits import LimitSource
from deadletter.move.decision_runner import Judging
from deadletter.move.verdict import Later, Leave, Verdict
from deadletter.service.queue_loop import QueueLoop
from deadletter.service.storing.store_lease import StoreLease
from deadletter.service.storing.storekeeper import Storekeeper
from deadletter.service.survey import Sight, why_not
from deadletter.service.task_set import TaskSet
from deadletter.service.telling.fate_counter import FateCounter
from deadletter.service.telling.service_events import Recovered, ServiceEvent, Trouble
from deadletter.store.store_address import SqliteAddress

LAST_BATCH_S: Final = 3.0
"""How long a line that ends waits for letters that the store is taking at this moment; longer than such are
begun (`LAST_BEGIN_S`)."""
_FATES: Final = 10_000


class StoreLines:
    """`renew` it for each link; `take_up` what a look around found. Without a storekeeper it does nothing."""

    def __init__(
        self,
        queues: Mapping[str, Retention],
        keeper: Storekeeper | None,
        *,
        vhost: str,
        fates: FateCounter,
        limits: LimitSource,
        emit: Callable[[ServiceEvent], None],
    ) -> None:
        self.queues: frozenset[str] = frozenset(queues) if keeper is not None else frozenset()
        """Those that are asked for, whether they are there or not."""
        self._keeper = keeper
        self._vhost = vhost
        self._fates = fates
        self._limits = limits
        self._emit = emit
        self._link: Link | None = None
        self._task_set: TaskSet | None = None
        self._there: frozenset[str] = frozenset()
        self._lines: dict[str, QueueLoop] = {}
        self._tasks: dict[str, asyncio.Task[Any]] = {}
        self._refused: dict[str, str] = {}
        self._known: dict[tuple[str, ...], LetterFate] = {}
        self._stopping = False
        self._lease: StoreLease | None = None
        """Where the store is not shared;"""
        self._leasing: asyncio.Task[Any] | None = None
        """who asks for it on this connection."""
        self._asked: Management | None = None
        if keeper is not None:
            keeper.on_change.append(self._heed)
            if isinstance(keeper.address, SqliteAddress):
                self._lease = StoreLease(keeper.address, vhost=vhost, emit=emit, on_change=self._heed)

    def renew(self, link: Link, task_set: TaskSet, asked: Management) -> None:
        """Another connection; `task_set` runs the tasks on it."""
        self._link, self._task_set, self._asked = link, task_set, asked
        self._leasing = None
        self._lines.clear()
        self._tasks.clear()

    def take_up(self, sight: Sight) -> None:
        """A line for each of our queues that is there."""
        refused: dict[str, str] = {}
        for name in self.queues:
            queue = sight.shape.queues.get(name)
            why = "there is no such queue" if queue is None else why_not(queue)
            if why is not None and (queue is not None or not names.is_ours(name)):
                refused[name] = why
        for name in self._refused.keys() - refused.keys():
            self._emit(Recovered(what=f"desk:{name}"))
        for name, why in refused.items():
            if self._refused.get(name) != why:
                self._emit(Trouble(what=f"desk:{name}", why=f"{name!r} in vhost {self._vhost!r}: {why}"))
        self._refused = refused
        self._there = frozenset(self.queues & sight.shape.queues.keys()) - refused.keys()
        for name in self._lines.keys() - self._there:
            self._end(name)
        self._heed()

    def stop(self) -> list[asyncio.Task[Any]]:
        """Take no more; returns what is still at work."""
        self._stopping = True
        if self._keeper is not None:
            self._keeper.hurry()
        for name in list(self._lines):
            self._end(name)
        return list(self._tasks.values())

    def close(self) -> None:
        if self._keeper is not None:
            self._keeper.on_change.remove(self._heed)

    def _heed(self) -> None:
        """The store takes letters, or it does not; they are ours to store, or they are not."""
        assert self._keeper is not None or not self._there
        if self._keeper is None or not self._keeper.working or not self._ours():
            for name in list(self._lines):
                self._end(name)
            return
        for name in self._there - self._lines.keys():
            task = self._tasks.get(name)
            # One that still gives back what it held goes first; the next look around begins anew.
            if (task is None or task.done()) and not self._stopping and self._link is not None:
                assert self._task_set is not None
                line = self._lines[name] = self._line(name, self._keeper)
                self._tasks[name] = self._task_set.start(line.on(self._link))

    def _ours(self) -> bool:
        """The lease is asked for once the store works: one that never does keeps it from nobody."""
        if self._lease is None:
            return True
        if self._leasing is None and self._there and self._link is not None and not self._stopping:
            assert self._task_set is not None
            assert self._asked is not None
            self._leasing = self._task_set.start(self._lease.on(self._link, self._asked))
        return self._lease.held is not None

    def _end(self, name: str) -> None:
        line = self._lines.pop(name)
        line.stop()
        line.recover()

    def _line(self, queue: str, keeper: Storekeeper) -> QueueLoop:
        def decide(letter: Letter) -> Verdict:
            held = None if self._lease is None else self._lease.held
            if not keeper.working or (held is None and self._lease is not None):
                return Leave()
            sure = None if held is None else held.sure
            return Later(keeper.take(letter, self._vhost, self._fate, sure))

        judging = Judging(
            decide=decide, on_fate=self._fates.on_fate, on_failure=self._fates.failure_in(queue)
        )
        return QueueLoop(
            queue,
            judging,
            prefetch=keeper.prefetch,
            decision_patience_s=LAST_BATCH_S,
            limits=self._limits,
            emit=self._emit,
        )

    def _fate(self, stored: StoredLetter) -> LetterFate:
        """Letters of one kind share one."""
        key = (stored.queue, stored.origin, stored.reason, stored.cause)
        if (known := self._known.get(key)) is None:
            if len(self._known) >= _FATES:
                self._known.clear()
            known = self._known[key] = LetterFate(
                step=Step.STORED,
                source=stored.queue,
                origin=stored.origin,
                reason=stored.reason,
                cause=stored.cause,
            )
        return known
