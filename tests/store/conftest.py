"""One suite, two backends: `ground` is a fresh store on SQLite and then on PostgreSQL.

`pytest tests/store -m "not postgresql"` is the SQLite half, which needs nothing installed.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.postgres import PrivatePostgres
from tests.store.grounds import Ground, PostgresGround, SqliteGround


@pytest.fixture
def sqlite_ground(tmp_path: Path) -> SqliteGround:
    return SqliteGround(tmp_path / "new folder" / "dead 100%#letter.db")


@pytest.fixture
def postgres_ground(postgres: PrivatePostgres) -> PostgresGround:
    return PostgresGround(postgres, postgres.fresh_database())


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgresql)])
def ground(request: pytest.FixtureRequest) -> Ground:
    """A store that nobody prepared, on each backend."""
    found: Ground = request.getfixturevalue(f"{request.param}_ground")
    return found
