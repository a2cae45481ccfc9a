"""A store nobody prepared, and a second hand in it: `sqlite3` and `psql`, not our code."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tests.postgres import PrivatePostgres


@dataclass(frozen=True, slots=True)
class SqliteGround:
    """A file that is not there yet."""

    path: Path

    @property
    def url(self) -> str:
        return f"sqlite:///{self.path}"

    def sql(self, statement: str) -> str:
        with closing(sqlite3.connect(self.path, timeout=10)) as connection:
            found = connection.execute(statement).fetchall()
            connection.commit()
        return "\n".join("|".join("" if cell is None else str(cell) for cell in row) for row in found)

    def definition(self) -> str:
        return self.sql("SELECT type, name, sql FROM sqlite_master WHERE tbl_name = 'dlq_event_config'")


@dataclass(frozen=True, slots=True)
class PostgresGround:
    """An empty database."""

    server: PrivatePostgres
    url: str

    def sql(self, statement: str) -> str:
        return self.server.psql(statement, self.url)

    def definition(self) -> str:
        return self.server.dump(self.url, "dlq_event_config")


Ground = SqliteGround | PostgresGround
