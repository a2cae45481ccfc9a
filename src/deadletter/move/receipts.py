"""Which deliveries of one channel may be acked now, and in how few words. Pure.

Delivery tags of a channel count 1, 2, 3, … Each is in one of four states: not settled yet, confirmed (its
copy is safe in the new home), held (it stays in the source: left, or failed), or acked. `due` turns what is
confirmed into acks: one `multiple` up to the first tag that is not settled, because confirms come out of
order but mostly in clumps; single acks only for what would otherwise wait too long behind a slow or a held
one. A `multiple` never reaches across a held tag: it would throw that letter away.
"""

from __future__ import annotations

from typing import NamedTuple


class Ack(NamedTuple):
    tag: int
    multiple: bool


class Receipts:
    """The deliveries of one channel. `patience` is how many confirmed ones may wait behind a slow one."""

    __slots__ = ("_confirmed", "_held", "_sealed", "_single", "_upto", "acked", "patience", "seen")

    def __init__(self, *, patience: int) -> None:
        self.patience: int = patience
        self.seen: int = 0
        """How many deliveries came; also the highest tag."""
        self.acked: int = 0
        self._upto = 0
        self._confirmed: set[int] = set()
        self._single: set[int] = set()
        self._held: set[int] = set()
        self._sealed = 0

    @property
    def held(self) -> int:
        """How many stay in the source until the channel gives them back."""
        return self._sealed + len(self._held)

    @property
    def only_held(self) -> bool:
        """Whether all that came stays: none went, none is on its way."""
        return self.seen == self.held

    @property
    def ripe(self) -> bool:
        """Whether letters are confirmed and not acked."""
        return bool(self._confirmed)

    @property
    def unsettled(self) -> int:
        """How many are neither acked nor confirmed nor held."""
        return self.seen - self.acked - len(self._confirmed) - self.held

    @property
    def unacked(self) -> int:
        return self.seen - self.acked

    def seal(self) -> bool:
        """No delivery should come any more: if all are settled, only the number of held ones is remembered.

        A million letters that are left are then a few numbers, not a million of them. A delivery that comes
        all the same is settled by a single ack: there is no `multiple` across what is held.
        """
        if self.unsettled or self._confirmed:
            return False
        self._sealed += len(self._held)
        self._held.clear()
        self._single.clear()
        return True

    def take(self, tag: int) -> None:
        """A delivery came."""
        self.seen = tag

    def confirm(self, tag: int) -> None:
        """Its copy is safe: it may leave the source."""
        self._confirmed.add(tag)

    def hold(self, tag: int) -> None:
        """It stays in the source."""
        self._held.add(tag)

    def pick_up(self, tag: int) -> None:
        """It was held, and may go after all."""
        if tag in self._held:
            self._held.remove(tag)
        else:
            self._sealed -= 1

    def let_go(self, tag: int) -> None:
        """It was rejected by itself: the broker knows this tag no more."""
        self.acked += 1
        if tag != self._upto + 1:
            self._single.add(tag)
            return
        # The first that was not settled: whoever rejects everything must not have us remember it all.
        self._upto = tag
        while self._upto + 1 in self._single:
            self._upto += 1
            self._single.remove(self._upto)

    def due(self, *, most: int | None = None, at_once: bool = False) -> list[Ack]:
        """What to ack now; at most `most` deliveries in all, None for any number.

        `at_once` asks for everything that is confirmed, however many words it takes.
        """
        room = len(self._confirmed) if most is None else min(len(self._confirmed), most - self.acked)
        if room <= 0:
            return []
        acks: list[Ack] = []
        room = self._in_a_row(room, acks)
        # Single acks go in bunches: one by one each would make the broker send one letter, in a packet of
        # its own, and both sides would spend their time on packets.
        if room > 0 and self._confirmed and (at_once or len(self._confirmed) > self.patience):
            for tag in sorted(self._confirmed)[:room]:
                self._confirmed.remove(tag)
                self._single.add(tag)
                self.acked += 1
                acks.append(Ack(tag, multiple=False))
        return acks

    def _in_a_row(self, room: int, acks: list[Ack]) -> int:
        """Take everything settled from the front on, as one `multiple`."""
        tag, last, taken = self._upto + 1, 0, 0
        while True:
            if tag in self._confirmed:
                if taken == room:
                    break
                self._confirmed.remove(tag)
                taken += 1
                # Only a tag the broker still knows may be named in an ack: one that was acked singly is
                # unknown to it, and naming it closes the channel.
                last = tag
            elif tag in self._single:
                self._single.remove(tag)
            else:
                break
            tag += 1
        self._upto = tag - 1
        if last:
            self.acked += taken
            acks.append(Ack(last, multiple=taken > 1))
        return room - taken
