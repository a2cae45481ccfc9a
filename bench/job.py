"""What a mover is asked and what it tells. Crosses from one process to another as a line of JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Move `count` letters from `source` to `target`, each acked only after the broker's confirm."""

    url: str
    source: str
    target: str
    count: int
    prefetch: int

    def to_line(self) -> str:
        return json.dumps(asdict(self)) + "\n"

    @staticmethod
    def from_line(line: str) -> Job:
        return Job(**json.loads(line))


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a mover's process says of itself, from the word "go" to its return."""

    seconds: float
    cpu_s: float
    rss_start_bytes: int | None = None
    rss_peak_bytes: int | None = None

    def to_line(self) -> str:
        return json.dumps(asdict(self)) + "\n"

    @staticmethod
    def from_line(line: str) -> Told:
        return Told(**json.loads(line))
