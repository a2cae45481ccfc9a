"""Body conditions that eat memory, hang or never end, and letters that have nothing to do with them.

A jq program that breaks its bounds costs its process. Twenty letters of such a one must not keep the service
busy: the program is switched off for a while, its letters are parked with the reason, the others go on.

About `jq.process`, `jq.worker`, `service.intake.conditions`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from tests import postbox
from tests.brokers import Vhost
from tests.letters import letter
from tests.serving import Application, served

from deadletter.core.letter import names

HUNGRY = 'reduce range(60) as $n (\\"x\\"; . + .) | length > 0'
ENDLESS = "def f: f; f"
TALKATIVE = "[range(1e12)] | tostring | length < 0"
COUNT = 400


def settings(program: str) -> str:
    return f"""
[default_policy]
retries = 3
backoff = {{ kind = "fixed", delays = ["100ms"] }}
[[policies]]
name = "bad"
match = {{ queue = "bad", body = "{program}" }}
retries = 3
[[policies]]
name = "good"
match = {{ queue = "good", body = ".n >= 0" }}
retries = 3
backoff = {{ kind = "fixed", delays = ["100ms"] }}
[[watches]]
dlq = "*.dlq"
[guards.breaker]
enabled = false
"""


async def until(holds: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    for _ in range(int(seconds / 0.1)):
        if await asyncio.to_thread(holds):
            return
        await asyncio.sleep(0.1)
    raise AssertionError(f"not within {seconds} s: {what}")


@pytest.mark.parametrize("program", [HUNGRY, ENDLESS, TALKATIVE], ids=["hungry", "endless", "talkative"])
async def test_a_program_that_breaks_its_bounds_is_switched_off(
    vhost: Vhost, tmp_path: Path, program: str
) -> None:
    async with Application(vhost.url) as app:
        await app.with_dlq("bad")
        await app.with_dlq("good")
        await app.consume("bad", lambda _d, _n: False)
        await app.consume("good", lambda _d, times: times > 1)
        with served(vhost, tmp_path, settings(program)) as (one,):
            await app.publish("", "bad", [letter(b'{"n": %d}' % n) for n in range(COUNT)])
            await app.publish("", "good", [letter(b'{"n": %d}' % n) for n in range(COUNT)])
            # Without the switch four hundred new processes, one after the other, take minutes.
            await app.until(lambda: len(app.handled["good"]) == COUNT, 120, "those of the good one")
            parked = await asyncio.to_thread(postbox.drain, vhost.url, "deadletter.parked", expect=COUNT)
            assert sorted(post.body for post in parked) == sorted(b'{"n": %d}' % n for n in range(COUNT))
            assert {post.headers[names.CAUSE] for post in parked} == {"condition-unanswered"}
            assert {post.headers[names.POLICY] for post in parked} == {"bad"}
            troubles = [told["what"] for told in one.get("/api/status")["troubles"]]
            assert [what for what in troubles if what.startswith("condition:")] == [
                f"condition:{program.replace(chr(92), '')}"
            ]
            assert "is switched off for 30 s" in one.log.read_text()
            (line,) = [
                line
                for line in one.metrics().splitlines()
                if line.startswith("deadletter_trouble{") and "condition:" in line
            ]
            assert line.endswith(" 1.0")
            assert await app.depth("bad.dlq") == 0
