"""Policies: which one counts for a queue, which has no effect, and what one changes that comes later.

About `testing.memory.contents.shapes`, `testing.memory.contents.queue_rules`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest
from tests.contract.ground import Ground

from deadletter.core.letter.field_table import Value
from deadletter.core.topology.merging import void_keys

KINDS = pytest.mark.parametrize("kind", ["classic", "quorum"])
TTL: Mapping[str, Value] = {"message-ttl": 100}
VALUES: Mapping[str, Value] = {
    "delivery-limit": 3,
    "dead-letter-strategy": "at-least-once",
    "queue-mode": "lazy",
    "queue-version": 2,
    "max-age": "1D",
    "max-in-memory-length": 1_000,
    "initial-cluster-size": 1,
    "queue-leader-locator": "balanced",
    "alternate-exchange": "elsewhere",
    "expires": 600_000,
}


@pytest.mark.parametrize("key", VALUES)
@KINDS
async def test_one_foreign_key_makes_a_policy_void(ground: Ground, kind: str, key: str) -> None:
    """Not that key alone: nothing of the policy holds, and nobody says so."""
    ground.site.set_policy("p", "^q$", {**TTL, key: VALUES[key]}, 1)
    await ground.declare("q", kind)
    await ground.calm()
    await ground.put("q", b"1", b"2")
    if void_keys(kind, [key], ground.traits.version):
        await asyncio.sleep(1)
        assert await ground.depth("q") == 2
    else:
        await ground.depth_becomes("q", 0)


@KINDS
async def test_where_a_policy_is_void_the_next_lower_counts(ground: Ground, kind: str) -> None:
    foreign = "delivery-limit" if kind == "classic" else "queue-mode"
    ground.site.set_policy("low", "^q$", TTL, 1)
    ground.site.set_policy("high", "^q$", {"max-length": 1, foreign: VALUES[foreign]}, 5)
    await ground.declare("q", kind)
    await ground.calm()
    await ground.put("q", b"1", b"2", b"3", expiration="60000")
    await ground.depth_becomes("q", 0)


@KINDS
async def test_an_overflow_by_policy_holds_against_the_argument_on_quorum_queues(
    ground: Ground, kind: str
) -> None:
    ground.site.set_policy("p", "^q$", {"overflow": "drop-head"}, 1)
    await ground.declare("q", kind, {"x-max-length": 1, "x-overflow": "reject-publish"})
    await ground.calm()
    outcomes = [(await ground.put("q", b"%d" % n)).confirmed for n in range(4)]
    kept = b"3" if kind == "quorum" else b"0"
    assert outcomes == ([1, 1, 1, 1] if kind == "quorum" else [1, 0, 0, 0])
    await ground.depth_becomes("q", 1)
    assert [d.message.body for d in await ground.drain("q")] == [kept]


@KINDS
async def test_a_ttl_by_policy_is_for_what_comes_after_it(ground: Ground, kind: str) -> None:
    await ground.declare("q", kind)
    await ground.put("q", b"before")
    await ground.depth_becomes("q", 1)
    ground.site.set_policy("p", "^q$", TTL, 1)
    await asyncio.sleep(1)
    assert [d.message.body for d in await ground.drain("q")] == [b"before"]
    await ground.put("q", b"after")
    await ground.depth_becomes("q", 0)


@KINDS
async def test_a_policy_can_make_a_queue_expire(ground: Ground, kind: str) -> None:
    await ground.declare("q", kind)
    ground.site.set_policy("p", "^q$", {"expires": 1_000}, 1)
    await ground.gone("q")
