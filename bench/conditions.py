"""Under what conditions a measurement was taken: the half of a figure that is forgotten first."""

from __future__ import annotations

import os
import platform
import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final

BUSY_PER_CORE: Final = 0.3
REST_S: Final = 180.0
_LOOK_S: Final = 2.0


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
    shovel_prefetch: int | None = None
    """Where a shovel ran beside it with its own."""
    rounds: int
    most_rounds: int = 0
    """Where rounds go on until they agree."""
    cpu: str = ""
    memory_gb: float = 0.0
    kernel: str = ""
    brokers: tuple[str, ...] = ()
    """Each with its Erlang, once they have been met."""

    @property
    def machine(self) -> str:
        """What it was measured on."""
        parts = [
            f"{self.cores} × {self.cpu}" if self.cpu else f"{self.cores} cores",
            f"{self.memory_gb:.0f} GB",
            f"Linux {self.kernel}",
            f"Python {self.python}",
            *self.brokers,
        ]
        return ", ".join(parts)

    @property
    def is_busy(self) -> bool:
        return self.load > BUSY_PER_CORE * self.cores

    @property
    def busy(self) -> str:
        """Why nothing can be quoted that was measured then; empty where the machine was at rest."""
        return f"load {self.load:.1f} on {self.cores} cores at the start" if self.is_busy else ""

    def __str__(self) -> str:
        rounds = (
            f"{self.rounds} to {self.most_rounds}" if self.most_rounds > self.rounds else f"{self.rounds}"
        )
        prefetch = f"prefetch {self.prefetch:,}"
        if self.shovel_prefetch is not None:
            prefetch += f" (the shovel its own {self.shovel_prefetch:,})"
        return (
            f"letters of {self.body_bytes:,} bytes, {prefetch}, median of {rounds}; "
            f"{self.cores} cores for broker and client, uvloop {self.uvloop}, "
            f"pika {self.pika}, aio-pika {self.aio_pika}; {self.at[:10]}"
        )


def come_to_rest() -> None:
    """Until the load is low enough not to be called busy, or it does not become so."""
    deadline = time.monotonic() + REST_S
    enough = BUSY_PER_CORE * len(os.sched_getaffinity(0))
    while os.getloadavg()[0] > enough and time.monotonic() < deadline:
        time.sleep(_LOOK_S)


def look(*, body_bytes: int, prefetch: int, rounds: int) -> Conditions:
    """Those of now, when the machine has come to rest."""
    come_to_rest()
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
        cpu=_cpu(),
        memory_gb=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9,
        kernel=platform.release(),
    )


def _cpu() -> str:
    """The model of the first core; empty where the kernel does not tell."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return ""
