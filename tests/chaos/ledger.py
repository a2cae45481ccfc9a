"""The books of a storm: what was published, handled and parked, and what the difference means.

Four kinds of doubles are told apart. The **publisher's own**: it lost the line before the confirm came and
published once more. **Delivered again**: the application's ack was lost with the line, and the broker says so
with `redelivered`. **Dead-lettered twice**: a broker that dead-letters at least once and is killed does so
again when it is back; the two dead letters bear different times of the same first death, so they are two
letters with two ids before we see either. All others are **ours**: a crash between the confirm and the ack
of a move; these must have one id.
"""

from __future__ import annotations

import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from deadletter.amqp.channel import Delivery
from deadletter.core.letter import message, names

SHOWN = 20


def failures_of(body: bytes) -> int:
    """How often a letter fails: most never, some once or twice, one in fifty always. By its body alone."""
    share = zlib.crc32(body) % 100
    return 0 if share < 60 else 1 if share < 85 else 2 if share < 98 else 1000


def _first_death(headers: Mapping[str, object]) -> str:
    """When it died first, in the broker's words; "" if it never did."""
    told = headers.get(names.DEATHS)
    return str(told[-1].get("time")) if isinstance(told, list) and told else ""


class Doubles(NamedTuple):
    """How many too many of each body, by who made them."""

    publishers: dict[bytes, int]
    applications: dict[bytes, int]
    brokers: dict[bytes, int]
    ours: dict[bytes, int]


@dataclass(slots=True)
class Ledger:
    confirmed: set[bytes] = field(default_factory=set)
    republished: set[bytes] = field(default_factory=set)
    """Bodies that may be there twice because the publisher could not know."""
    handled: dict[bytes, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """By body: how often a handler was done with it, by its id ("" before it ever died)."""
    again: Counter[bytes] = field(default_factory=Counter)
    """Of these, how many the broker had marked as redelivered."""
    failed: int = 0
    redelivered: set[bytes] = field(default_factory=set)
    """Bodies that were delivered again at any time: their reject may have been lost as well."""
    parked: dict[bytes, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    """By body: the causes."""
    parked_ids: dict[bytes, Counter[str]] = field(default_factory=lambda: defaultdict(Counter))
    first_deaths: dict[bytes, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    """By body: when it first died, by id."""
    diary: dict[bytes, list[str]] = field(default_factory=lambda: defaultdict(list))
    """By body: each time it came to its handler, in short. What explains a double afterwards."""

    def deliver(self, delivery: Delivery) -> bool:
        """A letter came to its handler; whether it is handled well."""
        body = delivery.message.body
        headers = message.view(delivery.message.properties).headers or {}
        attempt = headers.get(names.ATTEMPT, 0)
        assert isinstance(attempt, int)
        died = self._first_seen(body, headers)
        came = f"{time.time():.3f} attempt {attempt} id {headers.get(names.ID)} first died {died}"
        self.diary[body].append(came + (" redelivered" if delivery.redelivered else ""))
        if delivery.redelivered:
            self.redelivered.add(body)
        if attempt < failures_of(body):
            self.failed += 1
            return False
        self.handled[body][str(headers.get(names.ID, ""))] += 1
        self.again[body] += delivery.redelivered
        return True

    def park(self, delivery: Delivery) -> None:
        headers = message.view(delivery.message.properties).headers or {}
        body = delivery.message.body
        self.parked[body][str(headers.get(names.CAUSE))] += 1
        self.parked_ids[body][str(headers.get(names.ID))] += 1
        self._first_seen(body, headers)

    def _first_seen(self, body: bytes, headers: Mapping[str, object]) -> str:
        died = _first_death(headers)
        if names.ID in headers:
            self.first_deaths[body].setdefault(str(headers[names.ID]), died)
        return died

    # -- the final count -----------------------------------------------------------------------------------
    @property
    def lost(self) -> set[bytes]:
        return self.confirmed - self.handled.keys() - self.parked.keys()

    def doubles(self) -> Doubles:
        found = Doubles({}, {}, {}, {})
        for body in self.handled.keys() | self.parked.keys():
            more = self._ids(body).total() - 1
            if more <= 0:
                continue
            if body in self.republished:
                found.publishers[body] = more
            elif body in self.redelivered:
                found.applications[body] = more
            else:
                twice = min(more, len(set(self.first_deaths[body].values())) - 1)
                if twice > 0:
                    found.brokers[body] = twice
                if more > twice:
                    found.ours[body] = more - max(0, twice)
        return found

    def strangers(self) -> dict[bytes, Counter[str]]:
        """Parked for another reason than that they always fail."""
        return {
            body: causes
            for body, causes in self.parked.items()
            if set(causes) != {"retries-exhausted"} or failures_of(body) < 1000
        }

    def ids_differ(self) -> dict[bytes, set[str]]:
        """Letters to which one first death gave more than one id: their doubles would not be known."""
        found: dict[bytes, set[str]] = {}
        for body in self.doubles().ours:
            deaths = Counter(self.first_deaths[body].values())
            ids = {one for one, died in self.first_deaths[body].items() if deaths[died] > 1}
            if ids:
                found[body] = ids
        return found

    def _ids(self, body: bytes) -> Counter[str]:
        return self.handled.get(body, Counter()) + self.parked_ids.get(body, Counter())

    def _life(self, body: bytes) -> str:
        return f"{sorted(self._ids(body).items())}; " + "; ".join(self.diary[body])

    def told(self) -> list[str]:
        publishers, applications, brokers, ours = self.doubles()
        causes: Counter[str] = Counter()
        for each in self.parked.values():
            causes.update(each)
        lines = [
            f"published and confirmed  {len(self.confirmed):>8,}",
            f"handled                  {len(self.handled):>8,}   after {self.failed:,} failures",
            f"parked                   {len(self.parked):>8,}   {dict(causes)}",
            f"lost                     {len(self.lost):>8,}",
            f"doubles, ours            {sum(ours.values()):>8,}   of {len(ours):,} letters",
            f"doubles, delivered again {sum(applications.values()):>8,}   the application's ack was lost",
            f"doubles, died twice      {sum(brokers.values()):>8,}   a killed broker dead-letters again",
            f"doubles, published twice {sum(publishers.values()):>8,}   the publisher's confirm was lost",
            f"one death, several ids   {len(self.ids_differ()):>8,}",
        ]
        for body, more in sorted(ours.items()):
            lines.append(f"  {body.decode()}: {more} too many, ids {sorted(self._ids(body).items())}")
        lines += [f"  LOST {body.decode()}" for body in sorted(self.lost)[:SHOWN]]
        lines += [f"  DIED TWICE {body.decode()}: {self._life(body)}" for body in list(brokers)[:3]]
        differing = list(self.ids_differ().items())[:SHOWN]
        lines += [f"  UNDER SEVERAL IDS {body.decode()}: {self._life(body)}" for body, _ in differing]
        strange = list(self.strangers().items())[:SHOWN]
        lines += [f"  PARKED {body.decode()}: {dict(why)}" for body, why in strange]
        return lines
