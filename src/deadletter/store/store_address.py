"""Which store a URL means. What is said of a URL never holds its password.

PostgreSQL's URLs are handed on as they are, so everything libpq's have works: several hosts, `sslmode`,
`options=-csearch_path=app`, a socket's directory as `host`, and `PGPASSWORD` or a passfile instead of a
password in the URL.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias
from urllib.parse import parse_qsl, unquote, urlsplit

from deadletter.core.letter.header_values import shown
from deadletter.errors import UsageError

_EXPECTED: Final = "sqlite:///path/to/file.db or postgresql://user:password@host/database"
_ENCODED: Final = "special characters in user and password must be percent-encoded (%40 for @, %2F for /)"
_SQLITE: Final = ("sqlite", "sqlite+aiosqlite")
_POSTGRES: Final = ("postgresql", "postgresql+asyncpg")


@dataclass(frozen=True, slots=True, kw_only=True)
class SqliteAddress:
    """A file."""

    path: Path

    def __str__(self) -> str:
        return f"sqlite:///{self.path}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresAddress:
    """A server's database. `dsn` holds the password, `name` is what may be shown."""

    dsn: str = field(repr=False)
    name: str

    def __str__(self) -> str:
        return self.name


StoreAddress: TypeAlias = SqliteAddress | PostgresAddress


def address_text(address: StoreAddress) -> str:
    """The same for everybody on this machine who means this store. No password is in it."""
    if isinstance(address, SqliteAddress):
        return str(SqliteAddress(path=address.path.resolve()))
    return str(address)


def default_url(environ: Mapping[str, str], home: Path) -> str:
    """A file where programs of one user keep their data; nobody has to set anything up."""
    data = Path(environ.get("XDG_DATA_HOME") or "")
    if not data.is_absolute():  # the specification says to ignore it then
        data = home / ".local" / "share"
    return f"sqlite:///{data / 'deadletter' / 'deadletter.db'}"


def parse(url: str) -> StoreAddress:
    """Raises UsageError for a URL that is none of a store."""
    scheme, separator, rest = url.partition("://")
    if separator and scheme in _SQLITE:
        return _sqlite(rest)
    if separator and scheme in _POSTGRES:
        return _postgres(rest)
    told = f"one that begins with {shown(scheme, 30)}://" if separator else "something else"
    raise UsageError(f"the store's URL: expected {_EXPECTED}, got {told}")


def _sqlite(rest: str) -> SqliteAddress:
    path = rest.removeprefix("/")
    if not rest.startswith("/") or not path or path == ":memory:":
        raise UsageError(
            "the store's URL: expected a file, as in sqlite:///relative.db or sqlite:////absolute.db, got "
            f"sqlite://{shown(rest)}"
        )
    if "?" in path:
        raise UsageError(f"the store's URL: expected a path without parameters, got sqlite://{shown(rest)}")
    return SqliteAddress(path=Path(path))


def _postgres(rest: str) -> PostgresAddress:
    dsn = f"postgresql://{rest}"
    try:
        # what this raises quotes the part it could not read, and that may be the password
        parts = urlsplit(dsn)
        login, at, hosts = parts.netloc.rpartition("@")
        whole = "@" not in login and not parts.fragment
        whole = whole and all(_is_port(host) for host in hosts.split(","))
        parameters = dict(parse_qsl(parts.query, strict_parsing=True)) if parts.query else {}
    except ValueError:
        whole, login, at, hosts, parameters, parts = False, "", "", "", {}, urlsplit("")
    if not whole:
        raise UsageError(f"the store's URL: expected {_EXPECTED}, got one that cannot be read; {_ENCODED}")
    user = shown(unquote(login.partition(":")[0]), 100)
    where = hosts or parameters.get("host", "")
    return PostgresAddress(dsn=dsn, name=f"postgresql://{user}{at}{shown(where)}{shown(parts.path, 100)}")


def _is_port(host: str) -> bool:
    behind = host.rpartition("]")[2].partition(":")
    return not behind[1] or (behind[2].isdecimal() and 0 < int(behind[2]) < 65536)
