"""What errors mean, and how long a message waits."""

from __future__ import annotations

from deadletter import Consumer, discard, exponential, fixed, linear, own, park, retry
from deadletter.consumer.backoffs import Delays
from deadletter.consumer.outcomes import OnErrorRule


class RateLimited(Exception):
    """Of an application."""


def squares(attempt: int) -> float:
    return attempt**2


BACKOFFS: list[Delays] = [
    fixed(1, 10, 60),
    fixed(0.5, jitter=0.2),
    linear(),
    linear(2, first=1, cap=60, jitter=0.1),
    exponential(),
    exponential(1, factor=3, cap=600, jitter=0.2),
    own(squares),
    own(lambda attempt: attempt * 1.5, jitter=0.1),
]
RULES: dict[type[BaseException], OnErrorRule] = {
    RateLimited: fixed(60),
    ValueError: park,
    KeyError: discard,
    TimeoutError: retry(retries=20),
    ConnectionError: retry(linear(5), retries=3),
    OSError: retry(),
    Exception: own(squares),
}

app = Consumer("amqp://host")


@app.queue("orders", retries=5, backoff=exponential(1, cap=600, jitter=0.2), on=RULES)
async def by_mapping(body: bytes) -> None: ...


@app.queue(
    "mails", on={RateLimited: fixed(60), ValueError: park, KeyError: retry(own(squares)), OSError: discard}
)
async def in_place(body: str) -> None: ...


@app.batch("events", size=10, backoff=own(squares), on={ValueError: park})
async def of_a_batch(bodies: list[str]) -> None: ...
