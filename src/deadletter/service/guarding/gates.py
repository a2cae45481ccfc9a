"""All gates and budgets of one instance: whether a letter may go home now, and what keeps it.

A gate stands before each origin, and one more before each group of it where the error is known; budgets stand
before policies and before everything. A letter that may not pass goes to the queue of whatever keeps it
(`deadletter.held.<key>`), and from there one instance lets it through (`held_letters`), one letter first,
then faster and faster. So what may not go waits in the broker, and holds up nobody else.

Gates are made with the first letter and forgotten when nothing happened at them for a while.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Final, assert_never

from deadletter.config.settings import GuardSettings
from deadletter.core.deciding.policy import Policies
from deadletter.core.guards.breaker import Breaker
from deadletter.core.guards.budget import Budget, portion, share_per_minute
from deadletter.core.guards.copies_alarm import CopiesAlarm
from deadletter.core.guards.flow import FREE, Flow, Free, Hold, Probe, Ramp
from deadletter.core.guards.gate import Gate, GateNotice, GateState
from deadletter.core.guards.health import OriginState, health
from deadletter.service.guarding.allowance import Allowance, allowance, kept_by, within
from deadletter.service.guarding.origins import DiedAgain, GuardedOrigin, room
from deadletter.service.telling.instance_news import NewsItem, What
from deadletter.service.telling.service_events import BudgetSeen, GateChanged, GrowthFound, ServiceEvent

GATES_MAX: Final = 2_000
FORGET_S: Final = 600.0
BUDGET: Final = "budget"
"""The key of the budget over all."""
GROWTH: Final = "growth"
"""The guard that only a person opens again."""
HEALTH_S: Final = 1.0
"""How often the health of an origin is looked at while letters go there."""
BUSY_S: Final = 5.0
"""So long after its last letter the health of an origin is still looked at."""


class Gates:
    """What intake, release and sweeps ask of the guards."""

    def __init__(
        self,
        settings: GuardSettings,
        policies: Policies,
        emit: Callable[[ServiceEvent], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._settings = settings
        self._emit = emit
        self._clock = clock
        self._since = clock()
        self._instances = 1
        self._gates: dict[str, GuardedOrigin] = {}
        self._growth = CopiesAlarm(copies=settings.copies)
        self._passes: dict[str, int] = {}
        """By dead-letter queue: the number of the pass over it that is under way."""
        self._begun = 0
        self._budgets: dict[str, Budget] = {}
        self._limits: dict[str, int] = {}
        self.on_news: Callable[[NewsItem], None] = lambda _item: None
        """Tells the other instances."""
        self.use(settings, policies)

    # -- settings ----------------------------------------------------------------------------------------
    def use(self, settings: GuardSettings, policies: Policies) -> None:
        """Settings and policies may change while it runs."""
        self._settings = settings
        now = self._clock()
        limits = {p.name: p.budget_per_minute for p in policies if p.budget_per_minute is not None}
        if settings.budget_per_minute is not None:
            limits[""] = settings.budget_per_minute
        self._limits = limits
        for name in self._budgets.keys() - limits.keys():
            del self._budgets[name]
        for name, per_minute in limits.items():
            share = portion(per_minute, self._instances)
            if name in self._budgets:
                self._budgets[name].resize(share, now)
            else:
                self._budgets[name] = Budget(share, now)

    def share_among(self, instances: int) -> None:
        """So many instances keep to the budgets together."""
        if instances != self._instances and instances > 0:
            self._instances = instances
            now = self._clock()
            for name, budget in self._budgets.items():
                budget.resize(portion(self._limits[name], instances), now)

    # -- letters -----------------------------------------------------------------------------------------
    def begin(self, dlq: str) -> None:
        """A pass over a dead-letter queue begins: what was given back by the one before may come again."""
        self._begun += 1
        self._passes[dlq] = self._begun

    def died_again(self, dead: DiedAgain) -> None:
        """A letter that had gone back is here again."""
        now = self._clock()
        seen_in = self._passes.get(dead.dlq, 0)
        came = self._growth.came(dead.letter_id, dead.attempt, origin=dead.origin, seen_in=seen_in)
        if came.new:
            for one in self._ways_to(dead.origin, dead.group):
                if one.gate.flow(now) is not FREE:
                    self._tell(What.DIED, one.gate, dead=dead)
                self._count(one.gate, dead.letter_id, dead.attempt, dead.released_s, now)
        if came.copies is not None:
            self._stop(dead.origin, dead.letter_id, came.copies)

    @staticmethod
    def _count(gate: Gate, letter_id: str, attempt: int, released_s: float | None, now: float) -> None:
        if released_s is None:
            gate.probe_died(now, letter_id)
        else:
            gate.died_again(now, letter_id, attempt=attempt, released_at=now - max(0.0, released_s))

    def passes(
        self, origin: str, group: str, policy: str, letter_id: str = "", attempt: int = 0
    ) -> str | None:
        """Whether a letter that is due may go at once; else the key of what keeps it."""
        now = self._clock()
        pioneering: list[Gate] = []
        for one in self._ways_to(origin, group):
            if one.gate.flow(now) is not FREE:
                if not one.gate.pioneer(now, attempt):
                    return one.gate.key
                pioneering.append(one.gate)
        kept = self._spend(origin, group, policy, now, letter_id, attempt)
        if kept is None:
            for gate in pioneering:
                gate.pioneer_sent(now, letter_id, attempt)
        return kept

    def admit(self, origin: str, group: str, policy: str, letter_id: str, attempt: int = 0) -> str | None:
        """The same for a letter that waited: it may be the probe, or one of those that go ever faster."""
        now = self._clock()
        probed: list[Gate] = []
        pioneering: list[Gate] = []
        for one in self._ways_to(origin, group):
            flow = one.gate.flow(now)
            match flow:
                case Free():
                    continue
                case Hold():
                    if not one.gate.pioneer(now, attempt):
                        return one.gate.key
                    pioneering.append(one.gate)
                case Probe():
                    probed.append(one.gate)
                case Ramp(rate_per_s=rate_per_s):
                    if not one.within(rate_per_s, now):
                        return one.gate.key
                case _:
                    assert_never(flow)
        kept = self._spend(origin, group, policy, now, letter_id, attempt)
        if kept is None:
            for gate in probed:
                gate.probe_sent(now, letter_id, attempt)
            for gate in pioneering:
                gate.pioneer_sent(now, letter_id, attempt)
        return kept

    def replayed(self, origin: str, letter_id: str) -> None:
        """A replay sent it there: it counts as any that goes home, and nobody was asked."""
        now, one = self._clock(), self._of(origin)
        one.sent += 1
        one.room = None if one.room is None else one.room - 1
        for budget in filter(None, (one.share, self._budgets.get(""))):
            budget.take(now)
        if isinstance(one.gate.flow(now), Probe):
            one.gate.probe_sent(now, letter_id, 0)
            one.gate.accepted(now)  # it is there already
        one.gate.released(now, attempt=0)
        self._growth.went(letter_id, 0, origin=origin)

    def refused(self, origin: str, *, by_replay: bool = False) -> None:
        """The origin did not take a letter."""
        self._of(origin).gate.refused(self._clock(), unasked=by_replay)

    def accepted(self, origin: str) -> None:
        """The origin took letters."""
        if (one := self._gates.get(origin)) is not None:
            one.gate.accepted(self._clock())

    def _spend(
        self, origin: str, group: str, policy: str, now: float, letter_id: str, attempt: int
    ) -> str | None:
        own = self._of(origin)
        if own.room is not None and own.room <= 0:
            return origin
        if own.share is not None or self._budgets:
            of_policy = self._budgets.get(policy) if policy else None
            asked = ((origin, own.share), (f"{BUDGET}/{policy}", of_policy), (BUDGET, self._budgets.get("")))
            budgets = [(key, budget) for key, budget in asked if budget is not None]
            # All of them first: what one of them keeps must not cost the others.
            for key, budget in budgets:
                if budget.wait_s(now) > 0:
                    return key
            for _, budget in budgets:
                budget.take(now)
        own.sent += 1
        own.room = None if own.room is None else own.room - 1
        for one in self._ways_to(origin, group):
            one.gate.released(now, attempt=attempt)
        if letter_id:
            self._growth.went(letter_id, attempt, origin=origin)
        return None

    def _stop(self, origin: str, letter_id: str, copies: int) -> None:
        why = (
            f"{copies} letters with the id {letter_id} came back from {origin!r} in one attempt; something "
            "copies them, and sending each back would make more (dlq doctor says what; reload to go on)"
        )
        gate = self._of(origin).gate
        flow = gate.flow(self._clock())
        if not (isinstance(flow, Hold) and flow.guard == GROWTH):  # said once, and not for each copy
            gate.stop(why)
            self._emit(GrowthFound(origin=origin, letter_id=letter_id, copies=copies, why=why))

    def resume(self) -> None:
        """A person says that stopped paths may go on."""
        now = self._clock()
        for one in self._gates.values():
            one.gate.resume(now)

    # -- what the broker tells ---------------------------------------------------------------------------
    def observe(self, origin: str, state: OriginState) -> None:
        """What the broker says of an origin. Being looked at is no reason to be looked at again."""
        now = self._clock()
        one = self._gates.get(origin) or self._of(origin)
        answer = health(
            state,
            require_consumers=self._settings.require_consumers,
            max_depth=self._settings.max_depth,
            in_flight=one.sent,
            now=now,
            again_s=2 * HEALTH_S,
        )
        one.room = room(state, self._settings.max_depth, one.sent)
        one.sent = 0
        one.gate.healthy(answer, now)

    def traffic(self, origin: str, published_per_s: float) -> None:
        """What else is published to an origin: the measure of its share."""
        share = self._settings.budget_share
        if share is None or (one := self._gates.get(origin)) is None:
            return
        now = self._clock()
        per_minute = share_per_minute(published_per_s, share, self._settings.budget_floor_per_minute)
        per_minute = portion(per_minute, self._instances)
        if one.share is None:
            one.share = Budget(per_minute, now)
        else:
            one.share.resize(per_minute, now)

    @property
    def origins(self) -> list[str]:
        """Those whose health matters now: letters go there, or would."""
        now = self._clock()
        return [
            key
            for key, one in self._gates.items()
            if one.gate.origin == key and (now - one.seen_at < BUSY_S or one.gate.flow(now) is not FREE)
        ]

    def budgets(self) -> list[BudgetSeen]:
        now = self._clock()
        return [
            BudgetSeen(policy=name, used=budget.used(now), limit=round(budget.per_minute))
            for name, budget in self._budgets.items()
        ]

    def tick(self) -> None:
        """Tell what changed, and forget what is long over."""
        now = self._clock()
        for key, one in list(self._gates.items()):
            notice = one.gate.changed(now)
            if notice is not None:
                self._tell_change(one, notice)
                self._emit(
                    GateChanged(
                        gate=notice.key,
                        origin=notice.origin,
                        state=notice.state,
                        guard=notice.guard,
                        why=notice.why,
                    )
                )
            if now - one.seen_at > FORGET_S and one.gate.flow(now) is FREE:
                del self._gates[key]

    # -- several instances -------------------------------------------------------------------------------
    def hear(self, item: NewsItem) -> None:
        """What another instance learned."""
        now = self._clock()
        one = self._of(item.origin, item.group)
        match item.what:
            case What.DIED:
                self._count(one.gate, item.letter_id, item.attempt, item.released_s, now)
            case What.CLOSED:
                one.heard = True
                one.gate.trip(now, item.why)
            case What.OPENED:
                one.heard = True
                one.gate.open(now)
            case _:
                assert_never(item.what)

    def _tell_change(self, one: GuardedOrigin, notice: GateNotice) -> None:
        """What was heard is not told again, else two instances would tell each other for ever."""
        heard, one.heard = one.heard, False
        if heard or notice.guard != "breaker":
            return
        if notice.state is GateState.CLOSED:
            self._tell(What.CLOSED, one.gate, why=notice.why)
        elif notice.state is GateState.OPEN:
            self._tell(What.OPENED, one.gate)

    def _tell(self, what: What, gate: Gate, *, dead: DiedAgain | None = None, why: str = "") -> None:
        group = gate.key.removeprefix(gate.origin).removeprefix("/")
        item = NewsItem(what=what, origin=gate.origin, group=group, why=why)
        if dead is not None:
            item = replace(item, letter_id=dead.letter_id, attempt=dead.attempt, released_s=dead.released_s)
        self.on_news(item)

    # -- held letters ------------------------------------------------------------------------------------
    def reason(self, key: str) -> tuple[str, str]:
        """What keeps letters here: the guard, and why."""
        one = self._gates.get(key)
        if one is None:
            return BUDGET, "more letters would go back than the budget allows; they go a little later"
        flow = one.gate.flow(self._clock())
        if not isinstance(flow, Free):
            return flow.guard, flow.why
        if one.room is not None and one.room <= 0:
            return "depth", "the origin has no room for more"
        return BUDGET, "more letters would go back than the origin's share allows; they go a little later"

    def allowance(self, key: str) -> Allowance:
        """How many letters of a held queue may be tried now."""
        now = self._clock()
        if key == BUDGET or key.startswith(f"{BUDGET}/"):
            budget = self._budgets.get(key.partition("/")[2])
            if budget is None:
                return Allowance(count=None)
            return within(budget, now)
        one = self._gates.get(key)
        if one is None:
            return Allowance(count=1)  # this instance knows nothing of it: one letter tells where it belongs
        return allowance(one.gate.flow(now), now, room=one.room, share=one.share)

    def flow(self, key: str) -> Flow:
        """How letters that this gate or budget keeps may go now, for whoever has to say why they stay."""
        now = self._clock()
        if key == BUDGET or key.startswith(f"{BUDGET}/"):
            return kept_by(FREE, now, budget=self._budgets.get(key.partition("/")[2]))
        one = self._gates.get(key)
        return FREE if one is None else kept_by(one.gate.flow(now), now, room=one.room, budget=one.share)

    def at_once(self, key: str) -> int | None:
        """How many letters an open gate, or the budget, lets go at once; None: any number."""
        if key == BUDGET:
            budget = self._budgets.get("")
            return None if budget is None else budget.left(self._clock())
        one = self._gates.get(key)
        return None if one is None else one.at_once(self._clock())

    # -- gates -------------------------------------------------------------------------------------------
    def _ways_to(self, origin: str, group: str) -> Iterable[GuardedOrigin]:
        if not group:
            return (self._of(origin),)
        return (self._of(origin), self._of(origin, group))

    def _of(self, origin: str, group: str = "") -> GuardedOrigin:
        key = f"{origin}/{group}" if group else origin
        one = self._gates.get(key)
        now = self._clock()
        if one is None:
            if len(self._gates) >= GATES_MAX:
                if group:
                    return self._of(origin)  # more kinds of errors than can be told apart
                self._make_room()
            terms = self._settings.breaker
            one = self._gates[key] = GuardedOrigin(
                Gate(key, origin, Breaker(terms, self._since) if terms.enabled else None), now
            )
        one.seen_at = now
        return one

    def _make_room(self) -> None:
        """Forget the gate nobody asked for longest; an open one if there is any."""
        now = self._clock()
        free = [key for key, one in self._gates.items() if one.gate.flow(now) is FREE]
        oldest = min(free or self._gates, key=lambda key: self._gates[key].seen_at)
        del self._gates[oldest]
