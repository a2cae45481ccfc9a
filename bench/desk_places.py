"""Where the desk's letters are kept while it is measured, and how a filled database is kept for later.

A kept folder holds a copy, made when the filling was done: `desk.db` of SQLite, `postgresql` with the files
of a server that was stopped, and `desk.json`, which says what is in it. Whoever uses it works on a copy
again, so it stays as it was filled.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Protocol

from tests.postgres import PrivatePostgres, private_postgres

from bench.errors import BenchError

_SQLITE: Final = "desk.db"
_POSTGRES: Final = "postgresql"
_CONTENT: Final = "desk.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What is in a kept folder."""

    count: int
    groups: int


class Place(Protocol):
    """A database, and what makes a copy of it. Nobody may be connected meanwhile."""

    @property
    def url(self) -> str: ...

    def keep(self, folder: Path) -> None: ...


@dataclass(frozen=True, slots=True)
class _File:
    path: Path

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"

    def keep(self, folder: Path) -> None:
        with sqlite3.connect(self.path) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        shutil.copyfile(self.path, folder / _SQLITE)


@dataclass(frozen=True, slots=True)
class _Server:
    postgres: PrivatePostgres

    @property
    def url(self) -> str:
        return self.postgres.url

    def keep(self, folder: Path) -> None:
        self.postgres.psql("CHECKPOINT")
        self.postgres.stop()
        _copied(self.postgres.folder / "data", folder / _POSTGRES)
        self.postgres.start()

    def use(self, folder: Path) -> None:
        self.postgres.stop()
        _copied(folder / _POSTGRES, self.postgres.folder / "data")
        self.postgres.start()


@contextmanager
def database(name: str, used: Path | None = None) -> Iterator[Place]:
    """An empty one, gone afterwards; or a copy of what is kept in a folder."""
    if name == "sqlite":
        with tempfile.TemporaryDirectory(prefix="dlq-desk-") as folder:
            path = Path(folder) / _SQLITE
            if used is not None:
                shutil.copyfile(_there(used / _SQLITE), path)
            yield _File(path)
    else:
        with private_postgres() as server:
            place = _Server(server)
            if used is not None:
                _there(used / _POSTGRES)
                place.use(used)
            yield place


def kept(place: Place, folder: Path, content: Content) -> None:
    """Into this folder, beside what another database has in it, which must be the same."""
    folder.mkdir(parents=True, exist_ok=True)
    told = folder / _CONTENT
    if told.exists() and content_of(folder) != content:
        raise BenchError(f"{folder} holds other letters: {told.read_text()}")
    place.keep(folder)
    told.write_text(json.dumps(asdict(content)) + "\n")


def content_of(folder: Path) -> Content:
    return Content(**json.loads(_there(folder / _CONTENT).read_text()))


def _there(path: Path) -> Path:
    if not path.exists():
        raise BenchError(f"{path} is not there; fill it with --keep")
    return path


def _copied(source: Path, target: Path) -> None:
    """With its owner: PostgreSQL refuses files of others."""
    shutil.rmtree(target, ignore_errors=True)
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)
