"""Ours, with all it does by default: headers added, the `x-death` family taken off, returns matched."""

from __future__ import annotations

import uvloop

from bench.job import Job
from deadletter.amqp.address import parse_addresses
from deadletter.move import courier
from deadletter.move.courier import MoveTally, Send, Terms


def move(job: Job) -> None:
    send = Send(routing_key=job.target)
    terms = Terms(prefetch=job.prefetch)

    async def run() -> MoveTally:
        return await courier.move(
            parse_addresses(job.url), source=job.source, decide=lambda _letter: send, terms=terms
        )

    tally = uvloop.run(run())
    if tally.moved != job.count:
        raise RuntimeError(f"expected {job.count} letters to move, got {tally}")
