"""What a consumer is asked and what it tells, each as a line of JSON; and the clock all of them use."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from typing import Any, Final

QUEUE: Final = "bench.orders"
RETRY: Final = "bench.orders.retry"
"""Where the sticks publish what failed. Ours has a delay of its own."""
DELAY_S: Final = 3_600.0
"""What failed does not come back within a run: coming back is a delivery like any other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """Handle `count` messages; every `fails`-th fails, none when it is 0."""

    url: str
    api: str
    count: int
    prefetch: int
    fails: int

    def is_bad(self, order: dict[str, Any]) -> bool:
        return self.fails > 0 and order["n"] % self.fails == 0

    def to_line(self) -> str:
        return json.dumps(asdict(self)) + "\n"

    @staticmethod
    def from_line(line: str) -> Task:
        return Task(**json.loads(line))


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """From the first call of the handler to the last."""

    seconds: float
    cpu_s: float

    def to_line(self) -> str:
        return json.dumps(asdict(self)) + "\n"

    @staticmethod
    def from_line(line: str) -> Told:
        return Told(**json.loads(line))


@dataclass(slots=True)
class Clock:
    """Counts calls. Starting, connecting and declaring are before the first of them, for everybody."""

    count: int
    calls: int = 0
    _began: tuple[float, float] = field(default=(0.0, 0.0))
    _ended: tuple[float, float] = field(default=(0.0, 0.0))

    def tick(self) -> bool:
        """A call; True when it was the last."""
        self.calls += 1
        if self.calls == 1:
            self._began = time.perf_counter(), time.process_time()
        if self.calls != self.count:
            return False
        self._ended = time.perf_counter(), time.process_time()
        return True

    def told(self) -> Told:
        (began, cpu_began), (ended, cpu_ended) = self._began, self._ended
        return Told(seconds=ended - began, cpu_s=cpu_ended - cpu_began)
