"""A checkout whose programs are measured: its interpreter, and where its `bench` is found.

Usually this one. `bench.before_after` measures another beside it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.errors import BenchError


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkout:
    """Of this project, with its environment made ready."""

    path: Path
    python: Path

    @property
    def dlq(self) -> Path:
        """The command of its environment."""
        return self.python.with_name("dlq")


HERE: Final = Checkout(path=Path(__file__).resolve().parent.parent, python=Path(sys.executable))


def checkout_at(path: Path) -> Checkout:
    """Another checkout, whose `make setup` has been run."""
    python = path.resolve() / ".venv" / "bin" / "python"
    if not python.exists() or not (path / "bench" / "worker.py").exists():
        raise BenchError(f"expected a checkout of this project after `make setup`, found none in {path}")
    return Checkout(path=path.resolve(), python=python)
