"""One suite, two backends: `ground` is a fresh store on SQLite and then on PostgreSQL, and prepared already,
which otherwise would be half of many a test. With the mark `unprepared` nobody has touched it.

`pytest tests/store -m "not postgresql"` is the SQLite half, which needs nothing installed.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.postgres import PrivatePostgres
from tests.prepared import prepare_file
from tests.store.grounds import Ground, PostgresGround, SqliteGround


@pytest.fixture
def sqlite_ground(request: pytest.FixtureRequest, tmp_path: Path) -> SqliteGround:
    path = tmp_path / "new folder" / "dead 100%#letter.db"
    if not _is_unprepared(request):
        prepare_file(path)
    return SqliteGround(path)


@pytest.fixture
def postgres_ground(request: pytest.FixtureRequest, postgres: PrivatePostgres) -> PostgresGround:
    fresh = postgres.fresh_database if _is_unprepared(request) else postgres.prepared_database
    return PostgresGround(postgres, fresh())


def _is_unprepared(request: pytest.FixtureRequest) -> bool:
    return request.node.get_closest_marker("unprepared") is not None


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgresql)])
def ground(request: pytest.FixtureRequest) -> Ground:
    """A store with nothing in it, on each backend."""
    found: Ground = request.getfixturevalue(f"{request.param}_ground")
    return found
