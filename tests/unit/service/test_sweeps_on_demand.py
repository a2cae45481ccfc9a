"""A sweep that somebody asks for: in which vhosts a name is swept.

About `service.running`.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from deadletter.service.running import Service
from deadletter.service.sweeps import Swept


class _Worker:
    """Of a vhost that has these queues."""

    def __init__(self, vhost: str, *queues: str) -> None:
        self.address = SimpleNamespace(vhost=vhost)
        self.queues = queues

    def knows(self, queue: str) -> bool:
        return queue in self.queues

    async def sweep(self, dlqs: Sequence[str], why: str) -> list[Swept]:
        return [Swept(dlq=one, refused=f"{why} in {self.address.vhost}") for one in dlqs or self.queues]


async def test_a_name_is_swept_in_the_vhosts_that_are_meant() -> None:
    service = cast(
        "Any", SimpleNamespace(workers=[_Worker("shop", "a.dlq"), _Worker("bank", "a.dlq", "b.dlq")])
    )
    everywhere = [
        Swept(dlq="a.dlq", refused="request in shop"),
        Swept(dlq="a.dlq", refused="request in bank"),
    ]
    assert await Service.sweep(service, ["a.dlq"], "request") == everywhere
    mine = await Service.sweep(service, ["a.dlq"], "request", lambda vhost: vhost == "shop")
    assert mine == everywhere[:1]
    assert await Service.sweep(service, [], "request", lambda vhost: vhost == "shop") == everywhere[:1]
