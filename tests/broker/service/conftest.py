"""A store for a service under test, on each backend."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.postgres import PrivatePostgres, private_postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[PrivatePostgres]:
    """One server for the session. Tests may stop it, and leave it running."""
    with private_postgres() as running:
        yield running


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgresql)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a store that nobody prepared."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'letters.db'}"
    server: PrivatePostgres = request.getfixturevalue("postgres")
    return server.fresh_database()
