"""Letters that must not be given back: their next return may destroy them (`core.topology.look_cost`).

Every such letter is known here from the moment it comes until it is safe. Mostly that is its new home. One
that has to stay (it is left, its target is full, the passage ends before its turn) is *renewed*: published to
the queue it came from, confirmed, acked. Where that queue does not take it (it is full, or the letter fits
into no frame) it is *sheltered*: put whole into `deadletter.parked`, from where `dlq move` brings it back.
Where even that fails it is kept unacked until the end, tried again there, and said.

This is the only place that decides how a letter stays; no command does it by itself.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from typing import Final

from deadletter.amqp.channel import Delivery
from deadletter.amqp.connection import Connection
from deadletter.core.letter import names
from deadletter.core.letter.envelope import Deaths, ExchangeKey, delivery_count, move_number
from deadletter.core.letter.parking import Cause, parked_headers
from deadletter.core.topology.look_cost import Deliveries
from deadletter.core.topology.queue_arguments import X_OVERFLOW, X_QUEUE_TYPE
from deadletter.errors import ChannelClosed, MessageError
from deadletter.move.intake import Intake
from deadletter.move.outlet import Cargo, Outlet, id_of
from deadletter.move.verdict import MoveFailure, Send, Setback, Wrap

_RENEWAL: Final = "renewal"
_SHELTER: Final = "shelter"


class Rescue:
    """The rescue of letters that must not be given back, for one passage."""

    def __init__(
        self,
        deliveries: Deliveries,
        on_failure: Callable[[MoveFailure], None],
        *,
        source: str,
        run: str,
        number_from: int,
    ) -> None:
        self.deliveries: Deliveries = deliveries
        self.watching: bool = deliveries.limit is not None or not deliveries.known
        """Whether counts mean anything here."""
        self.every: bool = deliveries.renew_at == 0
        """Whether even a letter that was never delivered must not be given back."""
        self.at_risk: dict[tuple[Intake, int], Delivery] = {}
        """All that came, must not be given back, and are not safe yet."""
        self.stranded: dict[tuple[Intake, int], str] = {}
        """Those of them that their queue does not take, and why."""
        self.renewed: int = 0
        self.sheltered: Counter[str] = Counter()
        """Why they could not stay in their queue."""
        self.lost_hope: Counter[str] = Counter()
        """Those that went back at the end all the same, and why."""
        self._flying: set[tuple[Intake, int]] = set()
        self._kept: set[tuple[Intake, int]] = set()
        """Held until the end, to be tried again there."""
        self._declared = False
        self._source = source
        self._run = run
        self._number_from = number_from
        self._on_failure = on_failure
        self._renewal = Send(routing_key=source, deaths=Deaths.KEEP, fate=_RENEWAL)

    # -- letters come ------------------------------------------------------------------------------------
    def arrived(self, intake: Intake, delivery: Delivery) -> None:
        """A letter came that was delivered before."""
        count = self._count(delivery)
        intake.highest_count = max(intake.highest_count, count)
        if self.deliveries.must_renew(count):
            self.at_risk[intake, delivery.tag] = delivery
            if self.deliveries.is_last(count):
                intake.alarmed = True

    def _count(self, delivery: Delivery) -> int:
        try:
            return delivery_count(delivery.message.properties)
        except MessageError:
            return self.deliveries.limit or 0  # a broker counts it, and we cannot read what: the worst

    def returns(self, delivery: Delivery) -> bool:
        """Whether this letter was renewed by this very passage, and comes round again."""
        try:
            number = move_number(delivery.message.properties, self._run)
        except MessageError:
            return False
        return number is not None and number > self._number_from

    # -- letters stay ------------------------------------------------------------------------------------
    def stay(self, intake: Intake, delivery: Delivery, outlet: Outlet) -> None:
        """It stays in its source: held until the end, or renewed now where it must not be given back."""
        key = (intake, delivery.tag)
        if key not in self.at_risk:
            intake.receipts.hold(delivery.tag)
        elif self.returns(delivery):
            self._keep(key)
        elif key not in self._flying and key not in self.stranded:
            self._renew(key, delivery, outlet)

    def _renew(self, key: tuple[Intake, int], delivery: Delivery, outlet: Outlet) -> None:
        if outlet.lost:
            return  # the passage ends, and tries again there
        came_by = ExchangeKey(delivery.exchange, delivery.routing_key)
        why = outlet.send(key[0], delivery, self._renewal, came_by)
        if why is None:
            self._flying.add(key)
        else:
            self.stranded[key] = why

    def landed(self, cargo: Cargo) -> bool:
        """A publish is safe. Whether it was one of ours; the letter is out of danger in any case."""
        key = (cargo.intake, cargo.tag)
        delivery = self.at_risk.pop(key, None)
        why = self.stranded.pop(key, "")
        if key not in self._flying:
            return False
        self._flying.remove(key)
        if cargo.verdict.fate is _RENEWAL:
            self.renewed += 1
        else:
            self.sheltered[why] += 1
            if delivery is not None:
                told = f"given back it might be destroyed, and its queue does not take it ({why})"
                identity = id_of(delivery.message, self._source)
                self._on_failure(MoveFailure(id=identity, why=f"{told}; it is in {names.PARKED} now"))
        return True

    def refused(self, cargo: Cargo, setback: Setback) -> bool:
        """A publish did not arrive; whether it was one of ours."""
        key = (cargo.intake, cargo.tag)
        if key not in self._flying:
            return False
        self._flying.remove(key)
        if cargo.verdict.fate is _RENEWAL:
            self.stranded[key] = setback.value
        else:
            self._keep(key)
        return True

    def _keep(self, key: tuple[Intake, int]) -> None:
        """Until the end, where it is tried again; its intake must not wait for it."""
        if key not in self._kept:
            self._kept.add(key)
            key[0].receipts.hold(key[1])

    # -- letters are sheltered ---------------------------------------------------------------------------
    @property
    def waiting(self) -> list[tuple[Intake, int]]:
        """Those whose queue did not take them, not under way to their shelter, not given up."""
        return [key for key in self.stranded if key not in self._flying and key not in self._kept]

    async def shelter(self, connection: Connection, outlet: Outlet) -> None:
        """Put what its own queue does not take into a queue of ours."""
        if not self._declared:
            self._declared = True
            await _declare_parked(connection)
        for key in self.waiting:
            self._shelter(key, outlet)

    def _shelter(self, key: tuple[Intake, int], outlet: Outlet) -> None:
        intake, delivery, why = key[0], self.at_risk[key], self.stranded[key]
        at_ms = int(time.time() * 1000)
        send = Send(
            routing_key=names.PARKED,
            deaths=Deaths.KEEP,
            headers=parked_headers(Cause.NO_DELIVERIES_LEFT, why, at_ms),
            fate=_SHELTER,
        )
        came_by = ExchangeKey(delivery.exchange, delivery.routing_key)
        if outlet.send(intake, delivery, send, came_by) is not None:
            wrap = Wrap(
                routing_key=names.PARKED, cause=Cause.NO_DELIVERIES_LEFT, why=why, at_ms=at_ms, fate=_SHELTER
            )
            outlet.send_wrapped(intake, delivery, wrap, tries=0)
        self._flying.add(key)

    # -- the end -----------------------------------------------------------------------------------------
    def crashed(self) -> None:
        """What was under way is in doubt, and our letters with it."""
        self._flying.clear()

    def send_all(self, outlet: Outlet) -> list[Intake]:
        """The passage ends: renew all that is still at risk. Returns the intakes they belong to."""
        keys = [key for key in self.at_risk if key not in self._flying]
        for key in keys:
            if key in self._kept:
                self._kept.remove(key)
                key[0].receipts.pick_up(key[1])
            if key not in self.stranded:
                self._renew(key, self.at_risk[key], outlet)
        return [key[0] for key in keys]

    def despair(self) -> None:
        """They go back all the same."""
        for key, delivery in self.at_risk.items():
            why = self.stranded.get(key) or "it could not be published in time"
            self.lost_hope[why] += 1
            told = f"given back although that may have destroyed it: no queue took it ({why})"
            self._on_failure(MoveFailure(id=id_of(delivery.message, self._source), why=told))
        self.at_risk.clear()
        self.stranded.clear()


async def _declare_parked(connection: Connection) -> None:
    """As every layout declares it (`core.layouts.pieces`), so that nobody meets another one."""
    channel = await connection.channel()
    try:
        await channel.declare_queue(
            names.PARKED, arguments={X_QUEUE_TYPE: "quorum", X_OVERFLOW: "reject-publish"}
        )
    except ChannelClosed:
        return  # it is there in another shape, or we may not declare it: the publish shows what is true
    await channel.close()
