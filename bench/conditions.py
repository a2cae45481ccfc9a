"""Under what conditions a measurement was taken: the half of a figure that is forgotten first."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Final

BUSY_PER_CORE: Final = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    at: str
    cores: int
    load: float
    """Average number of running processes in the minute before the start."""
    python: str
    uvloop: str
    pika: str
    aio_pika: str
    body_bytes: int
    prefetch: int
    rounds: int

    @property
    def is_busy(self) -> bool:
        return self.load > BUSY_PER_CORE * self.cores

    def __str__(self) -> str:
        return (
            f"letters of {self.body_bytes:,} bytes, prefetch {self.prefetch}, median of {self.rounds}; "
            f"{self.cores} cores for broker and client, Python {self.python}, uvloop {self.uvloop}, "
            f"pika {self.pika}, aio-pika {self.aio_pika}; {self.at[:10]}"
        )


def look(*, body_bytes: int, prefetch: int, rounds: int) -> Conditions:
    return Conditions(
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        cores=len(os.sched_getaffinity(0)),
        load=os.getloadavg()[0],
        python=platform.python_version(),
        uvloop=version("uvloop"),
        pika=version("pika"),
        aio_pika=version("aio-pika"),
        body_bytes=body_bytes,
        prefetch=prefetch,
        rounds=rounds,
    )
