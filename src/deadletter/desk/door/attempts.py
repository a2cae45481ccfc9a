"""How often somebody may try to sign in: so many wrong tokens a minute from one address, and in all.

An address is shared: on loopback by every user of the machine, elsewhere by a proxy. So who has a right token
that nobody finds by trying comes in whatever others do there; only where trying could find it all wait."""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

WINDOW_S: Final = 60.0
OF_ONE: Final = 10
OF_ALL: Final = 200
TOLD: Final = 10
"""So many lines of a minute's wrong tokens are for the audit: the first of an address, and its last."""
STRONG_CHARS: Final = 16
"""A token that long is not found by trying; a shorter one may be, however it was made."""
_KEPT: Final = 2_000
"""So many addresses are remembered; the oldest goes, and what it did still counts among all."""


class Refusals(NamedTuple):
    """So many wrong ones came from there within a minute."""

    address: str
    tries: int


class Attempts:
    """Counts those that failed. `clock` goes on evenly."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._since = clock()
        self._failed: OrderedDict[str, int] = OrderedDict()
        self._all = 0
        self._told = 0

    def wait_s(self, address: str, *, alone: bool = False) -> int:
        """So long nobody may try from there; 0: now. `alone`: whatever others do."""
        self._turn()
        if self._failed.get(net_of(address), 0) >= OF_ONE or (not alone and self._all >= OF_ALL):
            return max(1, round(self._since + WINDOW_S - self._clock()))
        return 0

    def failed(self, address: str) -> Refusals | None:
        """What is to be written down of it; None: enough was."""
        self._turn()
        net = net_of(address)
        self._failed[net] = tries = self._failed.pop(net, 0) + 1
        self._all += 1
        if len(self._failed) > _KEPT:
            self._failed.popitem(last=False)
        if tries not in (1, OF_ONE) or self._told >= TOLD:
            return None
        self._told += 1
        return Refusals(net, tries)

    def _turn(self) -> None:
        now = self._clock()
        if now - self._since >= WINDOW_S:
            self._since, self._all, self._told = now, 0, 0
            self._failed.clear()


def net_of(address: str) -> str:
    """Of IPv6 a whole network is one: each has more addresses than anybody can count."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address[:100]
    if isinstance(found, ipaddress.IPv6Address):
        mapped = found.ipv4_mapped
        return str(mapped or ipaddress.ip_network((found, 64), strict=False))
    return str(found)
