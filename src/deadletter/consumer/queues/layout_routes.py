"""The ways a message takes out of a handler, in the words of each layout.

    return    again: into deadletter.delay.<ms>, or by deadletter.asked; aside: deadletter.parked
    ladder    again: <queue>__retry_exchange → <queue>__retry.<n>; aside: <queue>__dlq
    loop      again: rejected, the broker does the rest; aside: exchange <queue>.dlq
    native    again: rejected with requeue, the broker waits (4.3); aside: <queue>.dlq
    external  both: rejected, into whatever the application declared; dlq serve may take it from there

A ladder's rungs are the queue's own delays, the middle one of each where there is jitter. A delay that is no
rung's (jitter chose it, or an error's rule or a handler asks for it) gets a queue of its own,
`<queue>__retry.<ms>ms`; in `return` one that no schedule of the queue has is `deadletter.asked.<ms>`. Both
are made when they are first needed, reached by the exchange `deadletter.asked`, and gone when nobody needs
them any more (`broker.asked_delays`). Where those of jitter cannot be made, a retry takes its rung. `loop`
and `native` have the delays of the queue and no others.

What is published is published with the failure's details, confirmed, and then acked. What is rejected stays
byte for byte what it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, assert_never

from deadletter.core.deciding.backoff import MAX_DELAY_MS, Schedule
from deadletter.core.deciding.deaths import read_history
from deadletter.core.layouts import ladder, looping
from deadletter.core.layouts.naming import ASKED, around, asked_name, dlq_name, level_name
from deadletter.core.layouts.pieces import delay_queue
from deadletter.core.letter import header_values, names
from deadletter.core.letter.envelope import Deaths, ExchangeKey, Leg, delivery_count
from deadletter.core.letter.field_table import Value
from deadletter.core.letter.letter import Letter
from deadletter.core.letter.message import HEADERS, flags_of
from deadletter.core.letter.parking import Cause, carried
from deadletter.core.topology.layout_names import ConsumerLayout
from deadletter.core.topology.vhost import Queue
from deadletter.move.verdict import Send, Wrap
from deadletter.retrying.parking import PARKED, ParkingPlace, park, park_wrapped


@dataclass(frozen=True, slots=True, kw_only=True)
class Reject:
    """Give it to the broker, which knows what to do."""

    requeue: bool


RouteOut: TypeAlias = Send | Reject
_DIGITS: Final = 3
"""A handler may ask for any delay, and each is a queue: so many digits of it count, rounded up."""
_ASKED: Final = asked_name(0).removesuffix("0")
_MINE: Final = frozenset(
    name.encode()
    for name in (
        names.ATTEMPT,
        names.ORIGIN_QUEUE,
        names.ORIGIN_EXCHANGE,
        names.ORIGIN_ROUTING_KEY,
        names.ERROR_FIRST_AT,
        names.DELIVERIES,
        names.REPLAY,
        names.X_DEATH,
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """What a message carries of its earlier tries."""

    attempt: int
    counted: int
    """How often the queue says that it was delivered in vain; 0 where it does not count."""
    deliveries: int
    """The same as a header of ours says: see `suspicion`."""
    exchange: str
    routing_key: str
    first_failed_at_ms: int | None
    came_back: bool = False
    """Whether a consumer had it and came to no end with it."""
    replay: str = ""
    """The replay that sent it here; empty: none did."""

    @classmethod
    def unread(cls) -> Past:
        """Of a message whose headers cannot be read."""
        return cls(attempt=0, counted=0, deliveries=0, exchange="", routing_key="", first_failed_at_ms=None)


class LayoutRoutes:
    """For one queue in one layout."""

    def __init__(
        self,
        layout: ConsumerLayout,
        queue: str,
        policy: str = "consumer",
        levels_ms: frozenset[int] | None = None,
    ) -> None:
        """`levels_ms`: the planned ones; what else is asked for goes by `deadletter.asked`. None: by name."""
        self.layout = layout
        self.queue = queue
        self.circling: bool = layout in (ConsumerLayout.LOOP, ConsumerLayout.EXTERNAL)
        """Whether a letter may die and come back without us: then nothing carries its id, it is derived."""
        self.policy = policy
        self._levels_ms = levels_ms
        self._came_by: ExchangeKey | None = None
        self._first = Past.unread()
        """Of messages that come for the first time, by one way: most of them, and all the same."""

    # -- what was --------------------------------------------------------------------------------------
    def past(self, letter: Letter) -> Past:
        """Raises MessageError when its headers are not what AMQP says they are."""
        bare = not flags_of(letter.message.properties) & HEADERS
        if bare and not letter.redelivered:
            return self._fresh(letter)
        headers = {} if bare else letter.select(_MINE)
        if not headers and not letter.redelivered:
            return self._fresh(letter)
        mine = headers.get(names.ORIGIN_QUEUE) == self.queue  # copied headers speak of another queue
        noted = (header_values.count(headers.get(names.ATTEMPT)) or 0) if mine else 0
        count = delivery_count(letter.message.properties) if letter.redelivered else 0
        first_at = headers.get(names.ERROR_FIRST_AT)
        attempt, counted, came_back = noted, count, letter.redelivered
        match self.layout:
            case ConsumerLayout.NATIVE:
                attempt = count
            case ConsumerLayout.LOOP:
                rejected = self._rejected(headers, noted)
                attempt = noted + rejected
                # RabbitMQ 4 counts on through the retry queue: what we rejected is no delivery in vain.
                counted = max(0, count - rejected)
                came_back = letter.redelivered and (not count or counted > 0)
            case ConsumerLayout.EXTERNAL:  # which may be a loop of the application's own
                counted = max(0, count - self._rejected(headers, 0))
                came_back = letter.redelivered and (not count or counted > 0)
            case ConsumerLayout.RETURN | ConsumerLayout.LADDER:
                pass
            case _:
                assert_never(self.layout)
        return Past(
            attempt=attempt,
            counted=counted,
            came_back=came_back,
            deliveries=(header_values.count(headers.get(names.DELIVERIES)) or 0) if mine else 0,
            exchange=_text(headers, names.ORIGIN_EXCHANGE) if mine else letter.exchange,
            routing_key=_text(headers, names.ORIGIN_ROUTING_KEY) if mine else letter.routing_key,
            first_failed_at_ms=first_at if mine and isinstance(first_at, int) else None,
            replay=_text(headers, names.REPLAY) if mine else "",
        )

    def _rejected(self, headers: Mapping[str, Value], noted: int) -> int:
        """How often it was rejected here since it was last put back anew, with `noted` attempts.

        Its deaths went along. RabbitMQ 3 counts them on; 4 begins again with the next one.
        """
        deaths = read_history(headers).recent
        all_of_them = sum(d.count for d in deaths if d.queue == self.queue and d.reason == "rejected")
        return all_of_them - noted if all_of_them >= noted else all_of_them

    def _fresh(self, letter: Letter) -> Past:
        if self._came_by != letter.came_by:
            self._came_by = letter.came_by
            self._first = replace(Past.unread(), exchange=letter.exchange, routing_key=letter.routing_key)
        return self._first

    # -- what comes ------------------------------------------------------------------------------------
    def delay_ms(self, past: Past, schedule: Schedule, asked_ms: int) -> int | None:
        """How long it will really wait; `schedule` is the queue's own. None: nobody here knows."""
        match self.layout:
            case ConsumerLayout.RETURN:
                return asked_ms
            case ConsumerLayout.LADDER:
                on_rung = self._on_rung(past.attempt, schedule, asked_ms)
                return schedule.typical_ms(past.attempt) if on_rung else asked_ms
            case ConsumerLayout.LOOP | ConsumerLayout.NATIVE:
                return schedule.typical_ms(past.attempt)
            case ConsumerLayout.EXTERNAL:
                return None
            case _:
                assert_never(self.layout)

    def again(self, past: Past, schedule: Schedule, asked_ms: int, details: Mapping[str, Value]) -> RouteOut:
        """One more try after `asked_ms`; `schedule` is the queue's own."""
        retry = past.attempt + 1
        headers = {**self._carried(past, retry), **details}
        match self.layout:
            case ConsumerLayout.RETURN if self._levels_ms is not None and asked_ms not in self._levels_ms:
                return Send(exchange=ASKED, routing_key=asked_name(asked_ms), leg=Leg.WAIT, headers=headers)
            case ConsumerLayout.RETURN:
                return Send(routing_key=level_name(asked_ms), leg=Leg.WAIT, headers=headers)
            case ConsumerLayout.LADDER if self._on_rung(past.attempt, schedule, asked_ms):
                return self._rung(retry, schedule, headers)
            case ConsumerLayout.LADDER:
                by = "" if self._levels_ms is None else ASKED
                return Send(exchange=by, routing_key=extra_rung_name(self.queue, asked_ms), headers=headers)
            case ConsumerLayout.LOOP | ConsumerLayout.EXTERNAL:
                return Reject(requeue=False)
            case ConsumerLayout.NATIVE:
                return Reject(requeue=True)
            case _:
                assert_never(self.layout)

    def _on_rung(self, attempt: int, schedule: Schedule, asked_ms: int) -> bool:
        """Whether a ladder's rung has this delay; where no others can be opened it has the jitter's too."""
        if self._levels_ms is None:
            return asked_ms in schedule.choices_ms(attempt)
        return asked_ms == schedule.typical_ms(attempt)

    def _rung(self, retry: int, schedule: Schedule, headers: Mapping[str, Value]) -> Send:
        rung = ladder.rung_name(self.queue, min(retry, schedule.retries))
        return Send(exchange=ladder.retry_exchange_name(self.queue), routing_key=rung, headers=headers)

    def on_its_rung(self, past: Past, schedule: Schedule, verdict: Send | Wrap) -> Send | Wrap:
        """A retry without its jitter, where the queue of that cannot be opened; anything else as it is."""
        if self.layout is not ConsumerLayout.LADDER or not isinstance(verdict, Send):
            return verdict
        if delay_of(self.queue, verdict.routing_key) not in schedule.choices_ms(past.attempt):
            return verdict
        return self._rung(past.attempt + 1, schedule, verdict.headers)

    def aside(
        self, past: Past, details: Mapping[str, Value], *, cause: Cause, why: str, at_ms: int
    ) -> RouteOut:
        """No more tries."""
        place = self.parking_place(past.routing_key)
        if place is None:
            return Reject(requeue=False)
        headers = {**self._carried(past, past.attempt), **details}
        return park(
            place,
            cause=cause,
            why=why,
            at_ms=at_ms,
            headers=headers,
            circling=self.layout is ConsumerLayout.LOOP,
        )

    def wrapped(self, *, why: str, at_ms: int) -> Wrap | Reject:
        """No more tries for one that cannot even be read: whole, inside another message."""
        place = self.parking_place(dlq_name(self.queue))
        if place is None:
            return Reject(requeue=False)
        return park_wrapped(place, cause=Cause.UNREADABLE, why=why, at_ms=at_ms)

    def parking_place(self, routing_key: str) -> ParkingPlace | None:
        """Where the layout parks; `routing_key` where its exchange looks at one. None: the broker knows."""
        match self.layout:
            case ConsumerLayout.RETURN:
                return PARKED
            case ConsumerLayout.LADDER:
                return ParkingPlace("", ladder.dlq_name(self.queue))
            case ConsumerLayout.LOOP:
                return ParkingPlace(dlq_name(self.queue), routing_key)
            case ConsumerLayout.NATIVE:
                return ParkingPlace("", dlq_name(self.queue))
            case ConsumerLayout.EXTERNAL:
                return None
            case _:
                assert_never(self.layout)

    def anew(self, past: Past, deliveries: int) -> Send:
        """Into the same queue once more, with the deliveries it cost."""
        keep = Deaths.KEEP if self.layout is ConsumerLayout.LOOP else Deaths.SET_ASIDE
        headers: dict[str, Value] = {**self._carried(past, past.attempt), names.DELIVERIES: deliveries}
        return Send(routing_key=self.queue, deaths=keep, headers=headers, circling=self.circling)

    def _carried(self, past: Past, attempt: int) -> dict[str, Value]:
        return carried(
            queue=self.queue,
            exchange=past.exchange,
            routing_key=past.routing_key,
            attempt=attempt,
            policy=self.policy,
        )


def delays_of(
    layout: ConsumerLayout, queue: str, schedule: Schedule, more: Sequence[Schedule]
) -> Mapping[str, int]:
    """The queues in which letters wait, and for how long; `schedule` is the queue's own."""
    asked = {ms for one in more for ms in one.levels_ms}
    match layout:
        case ConsumerLayout.RETURN:
            return {level_name(ms): ms for ms in sorted(schedule.levels_ms | asked)}
        case ConsumerLayout.LADDER:
            own = schedule.typical_delays_ms
            rungs = {
                ladder.rung_name(queue, retry): own[min(retry, len(own)) - 1]
                for retry in range(1, schedule.retries + 1)
            }
            extra = sorted((asked | schedule.levels_ms) - set(own))
            return {**rungs, **{extra_rung_name(queue, ms): ms for ms in extra}}
        case ConsumerLayout.LOOP:
            return {looping.retry_queue_name(queue): next(iter(schedule.levels_ms), 0)}
        case ConsumerLayout.NATIVE | ConsumerLayout.EXTERNAL:
            return {}
        case _:
            assert_never(layout)


def parked_in(layout: ConsumerLayout, queue: str) -> str | None:
    """The queue of its parked letters; None where the application's own set-up decides that."""
    place = LayoutRoutes(layout, queue).parking_place("")
    return None if place is None else place.exchange or place.routing_key


def _text(headers: Mapping[str, Value], name: str) -> str:
    return header_values.name(headers.get(name)) or ""


def extra_rung_name(queue: str, delay_ms: int) -> str:
    """The queue of a delay that is no rung's: `orders__retry.60000ms`."""
    return around("", queue, f"__retry.{delay_ms}ms")


def rounded_ms(delay_ms: int) -> int:
    """What a handler asked for, in a few digits, never shorter: each delay is a queue."""
    unit: int = 10 ** max(0, len(str(delay_ms)) - _DIGITS)
    return min(-(-delay_ms // unit) * unit, MAX_DELAY_MS)


def delay_of(queue: str, target: str) -> int | None:
    """How long letters wait in this queue; None when it is not such a queue of `queue`."""
    digits = target.rpartition(".")[2].removesuffix("ms")
    if digits.isdecimal() and len(digits) <= 10 and target == extra_rung_name(queue, int(digits)):
        return int(digits)
    return None


def asked_delay_of(way: ConsumerLayout, queue: str, target: str) -> int | None:
    """How long letters wait in a queue that a handler of `queue` may have asked for; None: it is none."""
    match way:
        case ConsumerLayout.LADDER:
            return delay_of(queue, target)
        case ConsumerLayout.RETURN:
            digits = target.removeprefix(_ASKED)
            asked = target != digits and digits.isdecimal() and target == asked_name(int(digits[:10]))
            return int(digits) if asked else None
        case ConsumerLayout.LOOP | ConsumerLayout.NATIVE | ConsumerLayout.EXTERNAL:
            return None
        case _:
            assert_never(way)


def extra_rung(queue: str, target: str) -> Queue | None:
    """The queue for this delay, opened when a letter first needs it; None when `target` is no such queue.

    Like a rung it holds its letters for one time and passes them on, at least once, to the queue's own
    `__retry_dlx`; unlike a rung its time is in its name and never changes.
    """
    delay_ms = delay_of(queue, target)
    if delay_ms is None:
        return None
    back = around("", queue, "__retry_dlx")
    return delay_queue(target, {"dead-letter-exchange": back, "message-ttl": delay_ms})
