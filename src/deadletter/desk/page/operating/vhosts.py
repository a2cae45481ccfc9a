"""Which vhost a page is about, of those that the service looks after and its reader may see."""

from __future__ import annotations

from dataclasses import dataclass

from fastapi import Request

from deadletter.desk.page.whoever import person_of
from deadletter.errors import NotAllowed, Unreachable
from deadletter.operations.outlook.outlook import Outlook


@dataclass(frozen=True, slots=True, kw_only=True)
class VhostView:
    """`named`: as it was asked for; empty: the first."""

    outlook: Outlook
    vhosts: tuple[str, ...]
    vhost: str

    @property
    def said(self) -> dict[str, object]:
        """What of it an address has to say."""
        return {"vhost": self.vhost} if self.vhost != self.vhosts[0] else {}


def vhost_view(request: Request, outlook: Outlook | None, named: str) -> VhostView:
    """NotAllowed: it is not theirs. Unreachable: nobody here has a broker to ask."""
    if outlook is None:
        raise Unreachable("this desk has no broker to ask")
    scope = person_of(request).scope
    mine = tuple(one for one in outlook.vhosts() if scope.in_vhost(one))
    if not mine or (named and named not in mine):
        raise NotAllowed("this vhost is not yours to see, or the service does not look after it")
    return VhostView(outlook=outlook, vhosts=mine, vhost=named or mine[0])
