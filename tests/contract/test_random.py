"""Any sequence of words to a broker: memory and the real one of the same version answer the same.

Nobody thought of these sequences beforehand. Whatever they show that the other tests do not say is a mistake
of the broker in memory.

About `testing.memory.broker`, `testing.memory.contents.queues`.
"""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from tests.brokers import Vhost
from tests.contract.conftest import version_of
from tests.contract.ground import Ground, MemorySite, RealSite, seen

from deadletter.amqp.channel import Channel, Delivery
from deadletter.core.letter.field_table import Value
from deadletter.testing.memory import settle

EXAMPLES = 10
ABREAST = 12
"""So many plans at once: most of a plan on a real broker is waiting."""
PAUSE_S = 0.1
"""What a real broker needs until the effect of a word nobody answers can be seen."""

_examples = itertools.count()


@dataclass(frozen=True, slots=True)
class Op:
    verb: str
    queue: str = "work"
    pick: int = 0
    requeue: bool = True
    multiple: bool = False


OPS = st.one_of(
    st.builds(Op, st.just("put"), st.sampled_from(["work", "work", "work", "dead"])),
    st.builds(Op, st.just("put")),
    st.builds(Op, st.just("get"), st.sampled_from(["work", "work", "dead"])),
    st.builds(Op, st.just("get")),
    st.builds(Op, st.just("ack"), pick=st.integers(0, 5), multiple=st.booleans()),
    st.builds(Op, st.just("nack"), pick=st.integers(0, 5), requeue=st.booleans(), multiple=st.booleans()),
    st.builds(Op, st.just("reject"), pick=st.integers(0, 5), requeue=st.booleans()),
    st.builds(Op, st.just("close")),
    st.builds(Op, st.just("purge"), st.sampled_from(["work", "dead"])),
    st.builds(Op, st.just("wrong")),
)


@dataclass(frozen=True, slots=True)
class Plan:
    kind: str
    dead_kind: str
    max_length: int | None
    refuses: bool
    limit: int | None
    ops: tuple[Op, ...]

    def arguments(self, prefix: str) -> dict[str, Value]:
        found: dict[str, Value] = {
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": f"{prefix}dead",
        }
        if self.max_length is not None:
            found["x-max-length"] = self.max_length
            if self.refuses:
                found["x-overflow"] = "reject-publish"
        if self.limit is not None and self.kind == "quorum":
            found["x-delivery-limit"] = self.limit
        return found


KINDS = st.sampled_from(["classic", "quorum"])
PLANS = st.builds(
    Plan,
    KINDS,
    KINDS,
    st.sampled_from([None, None, 1, 3]),
    st.booleans(),
    st.sampled_from([None, 0, 2]),
    st.lists(OPS, min_size=8, max_size=24).map(tuple),
)


class Run:
    """One plan on one broker, and all that could be seen."""

    def __init__(self, ground: Ground, plan: Plan, prefix: str, *, real: bool) -> None:
        self._ground = ground
        self._plan = plan
        self._prefix = prefix
        self._real = real
        self._held: list[Delivery] = []
        self.seen: list[object] = []

    async def pause(self) -> None:
        if self._real:
            await asyncio.sleep(PAUSE_S)
        await settle()

    async def go(self) -> list[object]:
        plan, prefix = self._plan, self._prefix
        await self._ground.declare(f"{prefix}dead", plan.dead_kind)
        await self._ground.declare(f"{prefix}work", plan.kind, plan.arguments(prefix))
        channel = await self._ground.channel()
        for number, op in enumerate(plan.ops):
            if channel.error is not None:
                channel = await self._ground.channel()
            self.seen.append((op.verb, await self._do(channel, op, number)))
            await self.pause()
            for queue in ("work", "dead"):
                self.seen.append((queue, await self._ground.depth(prefix + queue)))
        if channel.error is None:
            await channel.close()
        return self.seen

    async def _do(self, channel: Channel, op: Op, number: int) -> object:
        queue = self._prefix + op.queue
        match op.verb:
            case "put":
                outcome = await self._ground.put(queue, b"%d" % number, headers={"n": number})
                return outcome.confirmed, outcome.refused
            case "get":
                delivery = await channel.get(queue)
                if delivery is None:
                    return None
                self._held.append(delivery)
                return delivery.tag, seen(delivery)
            case "purge":
                return await channel.purge_queue(queue)
            case "close" if len(self._held) <= 1:
                # Several gets of a quorum queue come back in an order nobody promises.
                self._held.clear()
                await channel.close()
                return None
            case "wrong" if len(self._held) <= 1:
                channel.ack(99)
                self._held.clear()
                return None
            case "ack" | "nack" | "reject" if self._held:
                self._settle(channel, op)
        return None

    def _settle(self, channel: Channel, op: Op) -> None:
        tag = self._held[op.pick % len(self._held)].tag
        if op.verb == "reject":
            channel.reject(tag, requeue=op.requeue)
        elif op.verb == "nack":
            channel.nack(tag, multiple=op.multiple, requeue=op.requeue)
        else:
            channel.ack(tag, multiple=op.multiple)
        many = op.multiple and op.verb != "reject"
        self._held = [d for d in self._held if (d.tag > tag if many else d.tag != tag)]


@pytest.mark.timeout(600)
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    phases=(Phase.generate,),  # to make an example smaller takes minutes on a real broker
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(plans=st.lists(PLANS, min_size=ABREAST, max_size=ABREAST))
@pytest.mark.slow
async def test_memory_answers_like_the_real_broker(vhost: Vhost, plans: list[Plan]) -> None:
    version = await version_of(vhost)
    for in_memory, in_truth in await asyncio.gather(*(both(vhost, version, plan) for plan in plans)):
        assert in_memory == in_truth


async def both(vhost: Vhost, version: str, plan: Plan) -> tuple[list[object], list[object]]:
    """What is seen in memory, and in truth."""
    prefix = f"r{next(_examples)}."
    memory, real = Ground(MemorySite(version)), Ground(RealSite(vhost, version))
    try:
        in_memory = await Run(memory, plan, prefix, real=False).go()
        return in_memory, await Run(real, plan, prefix, real=True).go()
    finally:
        await memory.leave()
        await real.leave()
