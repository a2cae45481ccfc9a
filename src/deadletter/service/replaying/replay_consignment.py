"""The letters of one replay as the sending takes them: at its pace, packed, and what became of each noted.

A letter is marked as being sent, and that is committed, before it is published (`ReplayStore.next_portion`);
it is noted as sent or refused when the broker has answered (`settling`). The next portion is marked while the
last one is under way.

It waits where it has to, and says why: for its pace, for a guard that holds the retries of that queue, for
the store, for the broker.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, assert_never

from deadletter.broker.session import Link
from deadletter.core.deciding.letter_fate import LetterFate
from deadletter.core.deciding.states import Step
from deadletter.core.grouping.stored_letter import UNKNOWN_ORIGIN
from deadletter.core.letter.header_values import shown
from deadletter.core.letter.message import RawMessage
from deadletter.core.replaying.replay_pace import (
    AllAtOnce,
    Canary,
    FinishReplay,
    NextStep,
    ReplaySeen,
    ReplayStage,
    SendUpTo,
    StopReplay,
    WaitFor,
    next_step,
)
from deadletter.core.replaying.replay_states import ReplayState
from deadletter.core.replaying.replay_target import ToExchange, ToOrigin, ToQueue, queue_to
from deadletter.errors import JqUnavailable, NotFound, StoreError, TargetMissing, UsageError, WireError
from deadletter.move.sending import PackedLetter, Stayed
from deadletter.service.replaying.origin_counts import NOTHING_SEEN, OriginCounts, QueuesSeen
from deadletter.service.replaying.replay_gate import held_by
from deadletter.service.replaying.replay_ground import ReplayGround
from deadletter.service.replaying.replay_packing import ReplayPacking
from deadletter.service.replaying.replay_ways import ReplayWays
from deadletter.service.replaying.settling import Settling
from deadletter.service.replaying.store_access import StoreAccess
from deadletter.service.replaying.vain_sends import IN_VAIN_MOST, IN_VAIN_OF_CANARY, VainSends
from deadletter.service.telling.service_events import (
    Confirmed,
    ReplayChanged,
    ReplayCounted,
)
from deadletter.store.replays.replay_views import ClaimedLetter, ReplayView

PORTION: Final = 3_000
"""Marked at once. To ask for the next ones takes a dozen questions, however many these are."""
UNSETTLED_MOST: Final = 10_000
"""While the store has to be told of more, no more are sent."""
EDITED_AT_ONCE: Final = 1_000
"""A jq program that hangs takes a quarter of a second for each letter: so many are marked meanwhile."""
EDIT_AGAIN_S: Final = 5.0
LOOK_S: Final = 0.25
"""How often it looks whether it may go on."""
QUIET_S: Final = 1.0
LATELY_S: Final = 1.0


class ReplayConsignment:
    """Of one replay, for as long as this instance has its lease."""

    def __init__(
        self, view: ReplayView, access: StoreAccess, ground: ReplayGround, settling: Settling
    ) -> None:
        self.id: Final = view.id
        self.view: ReplayView = view
        self._holder = view.holder
        """This instance, as the lease names it."""
        self.waits: str = ""
        """Why nothing is sent now; empty: it goes on."""
        self.end: FinishReplay | StopReplay | None = None
        """Why there are no more letters; None: somebody stopped it, or it is not over."""
        self.under_way: Callable[[], bool] = lambda: False
        """Whether letters are given and not answered."""
        self.stop_sending: Callable[[], None] = lambda: None
        """Publish no more of the letters that are given."""
        self.held_back: bool = False
        """They are to be handed back."""
        self._access = access
        self._ground = ground
        self._settling = settling
        self._packing = ReplayPacking(view.id, view.target, run=f"replay-{view.id}-{secrets.token_hex(4)}")
        self.ways: Final = ReplayWays(ground.ways, view.target, self._packing.homes)
        self._counts = OriginCounts()
        self._origins: tuple[str, ...] | None = None
        self._lost_track = True
        """Letters may be marked as being sent of which nobody here knows: at the start, and when the store
        was lost while it marked some."""
        self._lately: deque[tuple[float, int]] = deque()
        self._vain = VainSends()
        self._quiet_at = 0.0
        self._stopping = False
        self._wake = asyncio.Event()

    def stop(self) -> None:
        """Mark no more."""
        self._stopping = True
        self._wake.set()

    def follow(self, view: ReplayView) -> None:
        """As the store has it now: another pace, paused, cancelled."""
        if view.state is not self.view.state:
            self._ground.emit(ReplayChanged(replay=self.id, state=view.state.value, why=view.told))
        if (view.state, view.pace) != (self.view.state, self.view.pace):
            self._wake.set()
        self.view = view

    def give_up(self, why: str) -> None:
        """It cannot go on; the rest stays home."""
        self.end = self.end or StopReplay(why=why)
        self.stop()

    # -- the next letters --------------------------------------------------------------------------------
    async def on(self, link: Link) -> None:
        self._counts.renew(link)
        target = self.view.target
        if isinstance(target, ToExchange) and target.exchange:
            try:
                async with await link.channel() as channel:
                    await channel.declare_exchange(target.exchange, "direct", passive=True)
            except NotFound as error:
                raise TargetMissing(f"there is no exchange {shown(target.exchange)}") from error

    async def more(self) -> Sequence[ClaimedLetter] | None:
        while not (self._stopping or self.held_back):
            if self._lost_track and not await self._on_track():
                continue
            step = await self._step()
            match step:
                case SendUpTo(letters=letters, stage=stage):
                    if some := await self._marked(min(letters, PORTION), stage):
                        self.waits = ""  # the store has forgotten with the mark why it waited
                        return some
                case WaitFor(why=why, until_ms=until_ms):
                    await self._say(why)
                    pause_s = LOOK_S if until_ms is None else (until_ms - _now_ms()) / 1000
                    await self._rest(min(max(pause_s, 0.01), 1.0))
                case StopReplay() | FinishReplay():
                    self.end = step
                    return None
                case None:
                    return None
                case _:
                    assert_never(step)
        return None

    async def take_stock(self) -> None:
        """It is paused or over: letters of which nobody knows whether they went are called so. Else they
        would be under way for as long as this instance lives."""
        if self._lost_track:
            await self._on_track()

    async def _on_track(self) -> bool:
        """Take over what was being sent by somebody who is gone. Only when nothing of ours is under way."""
        if self.under_way() or self._settling.waiting:
            await self._rest(LOOK_S)
            return False
        found = await self._access.ask(lambda store: store.taken_over(self.id, holder=self._holder))
        if found:
            self._ground.emit(ReplayCounted(what="doubtful", letters=found))
        self._lost_track = False
        return True

    async def _step(self) -> NextStep | None:
        """What it does now; None: it does not run any more."""
        await self.mark_quiet()
        if self._settling.waiting > UNSETTLED_MOST:
            return WaitFor(why="the store has to be told of what was sent")
        queues = await self._queues()
        # A queue that is being filled answers late: who needs no answer does not ask.
        asks = queues and self.view.pace != AllAtOnce()
        try:
            told = await self._counts.look(queues) if asks else NOTHING_SEEN
        except WireError:
            return WaitFor(why="the broker is away")
        now_ms = _now_ms()
        view, seen = await self._seen(told, now_ms)
        self.follow(view)
        if view.state is not ReplayState.RUNNING:
            return None
        hands = [hand for queue in queues if (hand := self._ground.unacked(queue)) is not None]
        seen = replace(
            seen,
            released_lately=max(seen.released_lately, self._sent_lately()),
            unacked=max((hand.letters for hand in hands), default=0),
            unacked_ms=min((hand.at_ms for hand in hands), default=None),
        )
        step = next_step(view.pace, seen, now_ms)
        if isinstance(step, SendUpTo) and not view.overrules_guards:
            gates, lately = self._ground.gates, seen.released_lately
            if (held := held_by(gates, queues, sending=seen.sending, lately=lately)).letters == 0:
                return WaitFor(why=held.why)
            if held.letters is not None:
                return SendUpTo(letters=min(step.letters, held.letters), stage=step.stage)
        return step

    async def _seen(self, told: QueuesSeen, now_ms: int) -> tuple[ReplayView, ReplaySeen]:
        if self.view.pace == AllAtOnce():  # nothing of what was seen matters, and there may be a million
            view = await self._access.ask(lambda store: store.view(self.id))
            counts = view.counts
            return view, ReplaySeen(waiting=counts.waiting, sending=counts.sending, sent=counts.sent)
        return await self._access.ask(
            lambda store: store.seen(self.id, depth=told.depth, consumers=told.consumers, now_ms=now_ms)
        )

    async def _queues(self) -> tuple[str, ...]:
        """Those that its letters go to, as far as that is known."""
        match self.view.target:
            case ToOrigin():
                if self._origins is None:
                    found = await self._access.ask(lambda store: store.origins(self.id))
                    self._origins = tuple(one for one in found if one != UNKNOWN_ORIGIN)
                return self._origins
            case ToQueue(queue=queue):
                return (queue,)
            case ToExchange():
                return ()
            case _:
                assert_never(self.view.target)

    async def _marked(self, limit: int, stage: ReplayStage) -> Sequence[ClaimedLetter]:
        """The next letters, committed as being sent, changed where that was asked for, and with a way."""
        view = self.view
        if view.edit:
            if not await self._can_edit(view):
                return ()
            limit = min(limit, EDITED_AT_ONCE)
        try:
            some: Sequence[ClaimedLetter] = await self._access.once(
                lambda store: store.next_portion(
                    view.id, limit, stage=stage, follows=view, holder=self._holder
                )
            )
        except StoreError:
            self._lost_track = True  # they may be marked all the same
            await self._rest(LOOK_S)
            return ()
        if not some:  # somebody else has it by now, or has ended it: that is seen soon
            await self._rest(LOOK_S)
        try:
            if view.edit and some:
                edited = await self._ground.edits.made(view, some)
                some = edited.letters
                for row, why in edited.refused.items():
                    self._keep(row, why)
                if not some:  # the next step is another one when the store knows that
                    await self._settling.drained()
            return await self._with_a_way(some)
        except BaseException:
            self._lost_track = True  # they are marked, and nobody has them
            raise

    async def _can_edit(self, view: ReplayView) -> bool:
        """Whether letters may be marked. One whose edit is none is over; where jq is away it waits."""
        try:
            await self._ground.edits.ready(view)
        except UsageError as error:
            self.give_up(str(error))
            return False
        except JqUnavailable as error:
            await self._say(str(error))
            await self._rest(EDIT_AGAIN_S)
            return False
        return True

    async def _with_a_way(self, some: Sequence[ClaimedLetter]) -> Sequence[ClaimedLetter]:
        going, staying = await self.ways.sorted(some)
        for one, queue, why in staying:
            self._stayed_in_vain(queue, why)
            self._keep(one.row, why)
        return going

    # -- what became of them -----------------------------------------------------------------------------
    def pack(self, one: ClaimedLetter, number: int, user: str) -> PackedLetter:
        return self._packing.pack(one, number, user)

    def number_of(self, returned: RawMessage) -> int | None:
        return self._packing.number_of(returned)

    def arrived(self, some: Sequence[ClaimedLetter]) -> None:
        target = self.view.target
        queues = [queue_to(target, one.origin) for one in some]
        self._vain.arrived(set(queues))
        self._settling.sent([one.row for one in some])
        self._lately.append((time.monotonic(), len(some)))
        went = Counter((one.letter.source, one.origin) for one in some)
        fates = {
            LetterFate(step=Step.REPLAYED, source=source, origin=origin): letters
            for (source, origin), letters in went.items()
        }
        gates = self._ground.gates
        if not isinstance(target, ToExchange):
            for queue, one in zip(queues, some, strict=True):
                gates.replayed(queue, one.letter_id)
        self._ground.emit(Confirmed(fates=fates))
        self._ground.emit(ReplayCounted(what="sent", letters=len(some)))

    def stayed(self, one: ClaimedLetter, what: Stayed, why: str) -> None:
        queue = queue_to(self.view.target, one.origin)
        match what:
            case Stayed.REFUSED:
                if not isinstance(self.view.target, ToExchange):
                    self._ground.gates.refused(queue, by_replay=True)
                if self.view.overrules_guards:
                    self._stayed_in_vain(queue, why)
                elif held_by(self._ground.gates, [queue] if queue else []).letters == 0:
                    self._hold_back()
            case Stayed.UNROUTABLE:
                self.ways.doubt(queue)
                self._stayed_in_vain(queue, why)
            case Stayed.UNFIT:
                self._stayed_in_vain(queue, why)
            case _:
                assert_never(what)
        self._keep(one.row, why)

    def doubtful(self, some: Sequence[ClaimedLetter]) -> None:
        self._settling.doubtful([one.row for one in some])
        self._ground.emit(ReplayCounted(what="doubtful", letters=len(some)))

    def _hold_back(self) -> None:
        """The queue takes none: what is marked and not published stays home, too."""
        self.held_back = True
        self.stop_sending()
        self._wake.set()

    async def hand_back(self, some: Sequence[ClaimedLetter]) -> None:
        """These were marked and never published: they wait again, in no doubt."""
        await self._settling.drained()
        if rows := [one.row for one in some]:
            back = await self._access.ask(lambda store: store.handed_back(self.id, rows, holder=self._holder))
            self._lost_track = self._lost_track or back < len(rows)
        self.held_back = False

    def _keep(self, row: int, why: str) -> None:
        self._settling.refused(row, why)
        self._ground.emit(ReplayCounted(what="refused", letters=1))

    def _stayed_in_vain(self, queue: str, why: str) -> None:
        all_of_them = (self._origins or ()) if isinstance(self.view.target, ToOrigin) else ()
        most = IN_VAIN_OF_CANARY if isinstance(self.view.pace, Canary) else IN_VAIN_MOST
        if ends := self._vain.stayed(queue, why, all_of_them, most=most):
            self.give_up(ends)
            self._hold_back()

    # -- waiting -----------------------------------------------------------------------------------------
    def _sent_lately(self) -> int:
        since = time.monotonic() - LATELY_S
        while self._lately and self._lately[0][0] < since:
            self._lately.popleft()
        return sum(number for _, number in self._lately)

    async def mark_quiet(self) -> None:
        """Letters that did not come back in time, now and then."""
        now = time.monotonic()
        if now - self._quiet_at < QUIET_S:
            return
        self._quiet_at = now
        now_ms = _now_ms()
        while quiet := await self._access.ask(lambda store: store.quiet(self.id, now_ms=now_ms)):
            self._ground.emit(ReplayCounted(what="quiet", letters=quiet))

    async def _say(self, why: str) -> None:
        """Why it waits, for whoever looks at it."""
        if why != self.waits or why != self.view.told:  # who pauses and resumes makes the store forget it
            self.waits = why
            await self._access.ask(lambda store: store.tell(self.id, why))

    async def _rest(self, seconds: float) -> None:
        self._wake.clear()
        if self._stopping or self.held_back:
            return
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
