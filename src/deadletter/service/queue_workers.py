"""The workers of one vhost: a loop per queue, a sweeper per clock, and one for each queue of held letters.

Loops and sweepers outlive a connection: what they know of letters that the broker does not accept, and of
sweeps that were made, goes on with the next one. Their tasks do not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any

from deadletter.broker.return_exchanges import WaysBack
from deadletter.broker.session import Link
from deadletter.config.settings import Mode, Settings, Watch
from deadletter.core.deciding.event_config import Row, in_force
from deadletter.core.deciding.place import Place
from deadletter.core.deciding.policy import Policies
from deadletter.core.layouts import levels
from deadletter.core.layouts.naming import DUE, HELD
from deadletter.core.text.glob import glob
from deadletter.core.topology.descent import Descent
from deadletter.core.topology.fanout import NO_FANOUTS, Fanouts
from deadletter.core.topology.layout_names import ServedLayout
from deadletter.core.topology.rabbitmq_versions import traits_of
from deadletter.core.topology.vhost import Topology
from deadletter.errors import ServiceRefused
from deadletter.move.asked_limits import LimitSource
from deadletter.move.courier import Judging, Leave, Letter, Send, Verdict
from deadletter.move.verdict import Setback, Wrap
from deadletter.service.guarding.gates import Gates
from deadletter.service.guarding.guarded_release import GuardedRelease
from deadletter.service.guarding.held_letters import Holding
from deadletter.service.intake import copying
from deadletter.service.intake.condition_batches import Asker
from deadletter.service.intake.copying import FANOUT_RULE
from deadletter.service.intake.sorting import Sorter, WatchedQueue
from deadletter.service.own_topology.custody import SAFE, Safety
from deadletter.service.policies_in_force import PolicySource
from deadletter.service.queue_loop import QueueLoop
from deadletter.service.survey import Sight, Watched
from deadletter.service.sweeps import Halted, Sweeper
from deadletter.service.task_set import TaskSet
from deadletter.service.telling.fate_counter import FateCounter
from deadletter.service.telling.service_events import (
    FindingGone,
    FindingNamed,
    Recovered,
    ServiceEvent,
    Trouble,
)


class QueueWorkers:
    """`renew` it for each link; `take_up` what a look around found."""

    def __init__(
        self,
        settings: Settings,
        watches: Sequence[Watch],
        source: PolicySource,
        *,
        gates: Gates,
        ways: WaysBack,
        fates: FateCounter,
        asker: Asker,
        limits: LimitSource,
        emit: Callable[[ServiceEvent], None],
        each: bool,
        look_afresh: Callable[[], Awaitable[bool]],
    ) -> None:
        self.sweepers: dict[str, Sweeper] = {}
        self._settings = settings
        self._watches = watches
        self._source = source
        self._gates = gates
        self._ways = ways
        self._fates = fates
        self._asker = asker
        self._limits = limits
        self._emit = emit
        self._each = each
        """Whether each decision is told."""
        self._look_afresh = look_afresh
        self._descent = Descent(Topology())
        self._lines: dict[str, QueueLoop] = {}
        self._sorters: dict[str, Sorter] = {}
        self._releasers: dict[str, GuardedRelease] = {}
        self._safety = SAFE
        self._tasks: dict[str, asyncio.Task[Any]] = {}
        self._ending: dict[str, asyncio.Task[Any]] = {}
        """Those of lines that were told to stop: another of that queue begins when they have."""
        self._watched: dict[str, Watched] = {}
        self._fanouts: Fanouts = NO_FANOUTS
        self._policies: dict[Watch, tuple[Sequence[Row], Policies]] = {}
        """With the rows they were made of."""
        self._link: Link | None = None
        self._task_set: TaskSet | None = None
        self._version = ""
        self._named: dict[str, str] = {}

    def renew(self, link: Link, task_set: TaskSet, version: str) -> None:
        """Another connection; `task_set` runs the tasks on it."""
        self._link, self._task_set, self._version = link, task_set, version
        self._tasks.clear()
        self._ending.clear()
        self._sorters.clear()

    def takes(self, queue: str) -> bool:
        """Whether letters of this queue are taken at once."""
        return queue in self._lines or (queue in self._watched and queue not in self.sweepers)

    def heed(self, safety: Safety) -> None:
        """Letters are safe in our queues, or they are not: then none is brought into danger."""
        self._safety = safety
        due = {queue for queue, _ in self._due()}
        for name in list(self._lines):
            if safety.anew or not (safety.releases if name in due else safety.takes):
                self._lines.pop(name).stop()
                if name in self._tasks:
                    self._ending[name] = self._tasks.pop(name)

    def stop(self) -> list[asyncio.Task[Any]]:
        """Take no more; returns what is still at work. Held letters simply stay held."""
        everybody: list[QueueLoop | Sweeper] = [*self._lines.values(), *self.sweepers.values()]
        for one in everybody:
            one.stop()
        working = [*self._tasks.items(), *self._ending.items()]
        return [task for name, task in working if not name.startswith(HELD)]

    # -- what a look around found ------------------------------------------------------------------------
    def take_up(self, sight: Sight) -> None:
        """A line or a sweeper for each watched queue; somebody for each queue of held letters."""
        self._name_findings(sight)
        watched = {one.queue: one for one in sight.watched}
        for name in self._watched.keys() - watched.keys():
            self._dismiss(name)
        self._watched = watched
        alike = self._fanouts is sight.fanouts and self._descent.same_as(sight.descent)
        self._fanouts, self._descent = sight.fanouts, sight.descent
        if not alike:
            for sorter in self._sorters.values():
                sorter.forget()
        for one in watched.values():
            if one.queue not in self._sorters:
                self._sorters[one.queue] = self._sorter(one)
            if one.watch.mode is Mode.CONSUME:
                if self._safety.takes:
                    self._start(one.queue, self._line(one.queue).on)
            else:
                sweeper = self._sweeper(one)
                self._start(one.queue, sweeper.on)
                self._start(f"{one.queue}: what was held", sweeper.go_on)
        for name, queue in sight.shape.queues.items():
            if name.startswith(HELD) and queue.state is not None and queue.state.messages:
                self.hold(name)

    def release(self) -> None:
        """Begin to send home what is due."""
        if not self._safety.releases:
            return
        for queue, shape in self._due():
            if queue not in self._lines:
                releaser = self._releaser(queue, shape)
                judging = Judging(
                    decide=self._while_safe(releaser.decide),
                    again=releaser.again,
                    on_fate=self._fates.on_fate,
                    on_failure=self._fates.failure_in(queue),
                    on_missing=self._ways.forget,
                )
                self._lines[queue] = self._new_line(queue, judging)
            self._start(queue, self._lines[queue].on)

    def _due(self) -> list[tuple[str, ServedLayout]]:
        """The queues of letters that are due."""
        numbered = self.numbered_ms() or ()
        return [
            (DUE, ServedLayout.RETURN),
            *((levels.due_queue_name(n + 1), ServedLayout.LEVELS) for n in range(len(numbered))),
        ]

    def _releaser(self, queue: str, shape: ServedLayout) -> GuardedRelease:
        if queue not in self._releasers:
            proof = self if shape is ServedLayout.LEVELS else None
            releaser = GuardedRelease(queue, shape, keeper=self._gates, ways=self._ways, proof=proof)
            self._releasers[queue] = releaser
            self._fates.follow(releaser.late_s)
        return self._releasers[queue]

    def _while_safe(self, decide: Callable[[Letter], Verdict]) -> Callable[[Letter], Verdict]:
        """What was handed out already when that ended stays in its queue."""
        return lambda letter: decide(letter) if self._safety.releases else Leave()

    def instruct(self) -> None:
        """Other policies are in force."""
        for one in self._watched.values():
            self._sorters[one.queue] = self._sorter(one)

    def _name_findings(self, sight: Sight) -> None:
        for origin in self._fanouts.homes.keys() - sight.fanouts.homes.keys():
            self._emit(FindingGone(rule=FANOUT_RULE, subject=origin))
        watched = {one.queue for one in sight.watched}
        for origin, home in sight.fanouts.homes.items():
            if self._fanouts.homes.get(origin) != home:
                why = copying.finding(origin, home, watched=home in watched)
                self._emit(FindingNamed(rule=FANOUT_RULE, subject=origin, why=why))
        for queue, why in sight.refused.items():
            if self._named.get(queue) != why:
                self._emit(Trouble(what=f"watch:{queue}", why=why))
        for queue in self._named.keys() - sight.refused.keys():
            self._emit(Recovered(what=f"watch:{queue}"))
        self._named = dict(sight.refused)

    def _dismiss(self, queue: str) -> None:
        """The queue is gone, or no longer watched."""
        if (line := self._lines.pop(queue, None)) is not None:
            line.stop()
            line.recover()
        if (sweeper := self.sweepers.pop(queue, None)) is not None:
            sweeper.stop()

    # -- starting ----------------------------------------------------------------------------------------
    def _start(self, name: str, work: Callable[[Link], Coroutine[Any, Any, None]]) -> None:
        task = self._tasks.get(name)
        if task is None or task.done():
            assert self._link is not None
            assert self._task_set is not None
            earlier = self._ending.pop(name, None)
            self._tasks[name] = self._task_set.start(_in_turn(earlier, work, self._link))

    def _line(self, queue: str) -> QueueLoop:
        if queue not in self._lines:
            line = self._new_line(queue, self._intake_judging(queue))
            line.on_begin = lambda: self._gates.begin(queue)
            self._lines[queue] = line
        return self._lines[queue]

    def _new_line(self, queue: str, judging: Judging) -> QueueLoop:
        prefetch = self._settings.serve.prefetch
        return QueueLoop(queue, judging, prefetch=prefetch, limits=self._limits, emit=self._emit)

    def _sweeper(self, one: Watched) -> Sweeper:
        if one.queue not in self.sweepers:
            self.sweepers[one.queue] = Sweeper(
                one.queue,
                one.watch,
                lambda: self._sweep_judging(one.queue),
                gates=self._gates,
                prefetch=self._settings.serve.prefetch,
                limits=self._limits,
                emit=self._emit,
            )
        return self.sweepers[one.queue]

    def hold(self, queue: str) -> None:
        """Somebody lets the letters of this queue through, when they may go."""
        holding = Holding(
            queue,
            gates=self._gates,
            ways=self._ways,
            fates=self._fates,
            emit=self._emit,
            prefetch=self._settings.serve.prefetch,
            limits=self._limits,
            halted=lambda: not self._safety.releases,
        )
        self._start(queue, holding.on)

    # -- deciding ----------------------------------------------------------------------------------------
    def _sweep_judging(self, queue: str) -> Judging:
        if not self._safety.takes:
            raise ServiceRefused(self._unsafe())
        return self._intake_judging(queue)

    def _intake_judging(self, queue: str) -> Judging:
        self._gates.begin(queue)

        def decide(letter: Letter) -> Verdict:  # through the table: policies change while a line runs
            if not self._safety.takes:
                return Leave(fate=Halted(self._unsafe()))
            return self._sorters[queue].decide(letter)

        def again(letter: Letter, verdict: Send | Wrap, setback: Setback, why: str) -> Verdict:
            return self._sorters[queue].again(letter, verdict, setback, why)

        return Judging(
            decide=decide,
            again=again,
            on_fate=self._fates.on_fate,
            on_failure=self._fates.failure_in(queue),
            on_missing=self._ways.forget,
        )

    def _unsafe(self) -> str:
        return f"letters are not safe in our queues: {self._safety.why}"

    def _sorter(self, one: Watched) -> Sorter:
        intake = WatchedQueue(
            dlq=one.queue,
            shape=ServedLayout(one.watch.layout),
            policies=self.policies_of(one.watch),
            continuous=one.watch.mode is Mode.CONSUME,
            keeps_client_deaths=traits_of(self._version).believes_clients,
            numbered_ms=one.watch.delays_ms,
            fanouts=lambda: self._fanouts,
            origin_by=one.watch.origin_by,
            place=lambda: Place(queue=one.queue, ways=self._descent, named=one.watch.origins),
            look_afresh=self._look_afresh,
        )
        return Sorter(
            intake,
            keeper=self._gates,
            ways=self._ways,
            asker=self._asker,
            emit=self._emit,
            each=self._each,
        )

    def believes(self, origin: str) -> bool:
        """Whether letters that die in this queue can come to the numbered levels, as far as one can see."""
        levelled = [one for one in self._watched.values() if one.watch.layout == ServedLayout.LEVELS]
        return (
            not levelled
            or not self._descent.knows(origin)
            or any(glob(pattern, origin) for one in levelled for pattern in one.watch.origins)
            or self._descent.reaches(origin, {one.queue for one in levelled})
        )

    async def look_afresh(self) -> bool:
        return await self._look_afresh()

    def policies_of(self, watch: Watch) -> Policies:
        """The table before the file; with numbered levels what nobody configured is parked at once."""
        rows = self._source.rows
        known = self._policies.get(watch)
        if known is None or known[0] is not rows:
            known = self._policies[watch] = (rows, self._compiled(watch, rows))
        return known[1]

    def study(self) -> None:
        """Make the policies of all watches. A thousand rows take seconds: not in the event loop."""
        for watch in self._watches:
            self.policies_of(watch)

    def _compiled(self, watch: Watch, rows: Sequence[Row]) -> Policies:
        file = self._settings.policies_of(watch)
        return in_force(rows, file=file, backoff=file.default.backoff).policies

    def levels_ms(self) -> frozenset[int]:
        """The delays that must be there."""
        returning = [watch for watch in self._watches if watch.layout == ServedLayout.RETURN]
        return frozenset(level for watch in returning for level in self.policies_of(watch).levels_ms)

    def numbered_ms(self) -> Sequence[int] | None:
        """The delays of numbered levels; None when no watch has them."""
        return next((watch.delays_ms for watch in self._watches if watch.layout == ServedLayout.LEVELS), None)


async def _in_turn(
    earlier: asyncio.Task[Any] | None, work: Callable[[Link], Coroutine[Any, Any, None]], link: Link
) -> None:
    if earlier is not None:
        await asyncio.wait({earlier})
    await work(link)
