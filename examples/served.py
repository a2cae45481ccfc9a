"""`dlq serve` beside an example, with settings of its own: three retries after 0.2 s each, then parked."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

SETTINGS = """
[default_policy]
retries = 3
backoff = {{ kind = "fixed", delays = ["200ms"] }}

[[watches]]
dlq = "{dlq}"

[desk]
ingest = false   # letters that are parked stay in deadletter.parked
"""


@contextmanager
def dlq_serve(url: str, api: str | None, dlq: str) -> Iterator[None]:
    """Running until the block ends."""
    with tempfile.TemporaryDirectory() as directory:
        config = Path(directory, "deadletter.toml")
        config.write_text(SETTINGS.format(dlq=dlq))
        command = [sys.executable, "-m", "deadletter.cli.main", "serve", "--config", str(config)]
        command += ["--url", url, "--store", f"sqlite:///{directory}/store.db", "--listen", "off"]
        command += ["--api", api] if api else []
        with running(command):
            yield


@contextmanager
def running(command: list[str]) -> Iterator[None]:
    """A process that ends with the block."""
    process = subprocess.Popen(command, stdout=sys.stderr)  # noqa: S603 -- made above
    try:
        yield
    finally:
        process.terminate()
        process.wait(30)


def until(holds: Callable[[], bool], seconds: float = 90.0) -> None:
    """Wait until something holds."""
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            raise SystemExit(f"it did not come about within {seconds:g} s")
        time.sleep(0.1)
