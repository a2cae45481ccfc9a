"""Which store a URL means, and that its password is nowhere.

About `store.store_address`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from deadletter.errors import UsageError
from deadletter.store.store_address import PostgresAddress, SqliteAddress, default_url, parse


def test_the_default_is_a_file_of_the_user() -> None:
    home = Path("/home/ann")
    assert default_url({}, home) == "sqlite:////home/ann/.local/share/deadletter/deadletter.db"
    assert default_url({"XDG_DATA_HOME": "/data"}, home) == "sqlite:////data/deadletter/deadletter.db"
    assert default_url({"XDG_DATA_HOME": "data"}, home) == default_url({}, home)
    assert parse(default_url({}, home)) == SqliteAddress(
        path=Path("/home/ann/.local/share/deadletter/deadletter.db")
    )


@pytest.mark.parametrize(
    ("url", "path"),
    [("sqlite:///a.db", "a.db"), ("sqlite:////v/a b%20.db", "/v/a b%20.db"), ("sqlite+aiosqlite:///x", "x")],
)
def test_files(url: str, path: str) -> None:
    assert parse(url) == SqliteAddress(path=Path(path))


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("postgresql://u:hunter2@h:5433/d", "postgresql://u@h:5433/d"),
        ("postgresql+asyncpg://u:hunter2@h/d?sslmode=require", "postgresql://u@h/d"),
        ("postgresql://u:hunter%40%2F2@a,b:5433/d", "postgresql://u@a,b:5433/d"),
        ("postgresql://u:hunter2@[::1]:5433/d", "postgresql://u@[::1]:5433/d"),
        ("postgresql:///d?host=/run/pg&password=hunter2", "postgresql:///run/pg/d"),
    ],
)
def test_servers_are_named_without_their_password(url: str, name: str) -> None:
    address = parse(url)
    assert isinstance(address, PostgresAddress)
    assert str(address) == name
    assert "hunter" not in repr(address)
    assert address.dsn.startswith("postgresql://")


@pytest.mark.parametrize(
    "url",
    [
        "", "hunter2", "mysql://u:hunter2@h/d", "postgres+psycopg://u:hunter2@h/d", "sqlite://", "sqlite:///",
        "sqlite:///:memory:", "sqlite:///a.db?hunter2", "sqlite://a.db", "postgresql://u:hunter2/x@h/d",
        "postgresql://u:hunter2@x@h/d", "postgresql://u:hunter2@h:port/d", "postgresql://u:hunter2@h:99999/d",
        "postgresql://u:hunter2@[::1/d", "postgresql://u:p@h/d?hunter2", "postgresql://u:a#hunter2@h/d",
    ],
)  # fmt: skip
def test_what_is_no_store(url: str) -> None:
    with pytest.raises(UsageError, match=r"^the store's URL: expected ") as raised:
        parse(url)
    if not url.startswith("sqlite"):  # a path is no secret
        assert "hunter2" not in str(raised.value)
