"""A store that is prepared already: the migrations run once per worker, and each test gets a copy.

Whoever opens it still looks whether something is left to do, as with any store. Tests of the preparing itself
begin with nothing (`unprepared`).
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
from functools import cache
from pathlib import Path

from deadletter.store.preparing import migrate


def prepare_file(path: Path) -> None:
    """An SQLite store in this file, which is not there yet."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch(mode=0o600, exist_ok=False)
    path.write_bytes(_prepared_file())


@cache
def _prepared_file() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "prepared.db"
        prepare(f"sqlite:///{path}")
        assert [found.name for found in path.parent.iterdir()] == [path.name], (
            "a journal would be left behind"
        )
        return path.read_bytes()


def prepare(url: str) -> None:
    """Run the migrations, whether or not a loop runs here."""
    failed: list[BaseException] = []

    def work() -> None:
        try:
            asyncio.run(migrate(url))
        except BaseException as error:  # noqa: BLE001 -- whatever it is, it is told where it is waited for
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
