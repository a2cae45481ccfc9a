"""A PostgreSQL of one's own, for a test: beside whatever runs already, and gone afterwards.

::

    with private_postgres() as postgres:
        connect(postgres.url)

Own data, own port on 127.0.0.1, own socket directory. `stop` is an immediate stop: the server does not tidy
up and has to recover when it starts again, as after kill -9. A PostgreSQL that is not installed is an error
with what to do, never a skip.
"""

from __future__ import annotations

import os
import pwd
import secrets
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from tests.ports import free_port
from tests.prepared import prepare

START_LIMIT_S = 60
_USER = "dlq"
_INSTALL = "on Debian and Ubuntu: apt-get install postgresql"


class NoPostgres(RuntimeError):
    """PostgreSQL could not be started; the text says what to do."""


class PrivatePostgres:
    """A running server. `url` names its database `deadletter`, with a user that may do everything."""

    def __init__(self, folder: Path, binaries: Path, port: int) -> None:
        self.folder = folder
        self.port = port
        self.url = self.database_url("deadletter")
        self._binaries = binaries
        self._prepared: str | None = None

    def database_url(self, database: str, user: str = _USER, password: str = "secret") -> str:
        return f"postgresql://{user}:{password}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """On the same data and port, after `stop`; ready when it returns."""
        options = f"-c listen_addresses=127.0.0.1 -p {self.port} -k {self.folder} -c fsync=off"
        self._run(
            "pg_ctl",
            "start",
            "-w",
            "-t",
            str(START_LIMIT_S),
            "-D",
            self._data,
            "-l",
            self._log,
            "-o",
            options,
        )

    def stop(self) -> None:
        """At once, like kill -9: connections are cut, and the next start has to recover."""
        self._run("pg_ctl", "stop", "-w", "-m", "immediate", "-D", self._data)

    def fresh_database(self) -> str:
        """The URL of an empty database; it goes with the server."""
        name = f"test_{secrets.token_hex(4)}"
        self.psql(f"CREATE DATABASE {name}")
        return self.database_url(name)

    def prepared_database(self) -> str:
        """The URL of a database that has had every migration, and nothing else."""
        if self._prepared is None:
            self._prepared = self.fresh_database()
            prepare(self._prepared)
        name = f"test_{secrets.token_hex(4)}"
        self.psql(f"CREATE DATABASE {name} TEMPLATE {urlsplit(self._prepared).path.strip('/')}")
        return self.database_url(name)

    def psql(self, sql: str, url: str | None = None) -> str:
        """What `psql` prints, columns separated by |: somebody else's hand, not our code."""
        return self._run("psql", "--no-psqlrc", "-v", "ON_ERROR_STOP=1", "-qAt", "-c", sql, url or self.url)

    def dump(self, url: str, table: str) -> str:
        """The definition of a table, as pg_dump writes it."""
        told = self._run("pg_dump", "--schema-only", "-t", table, url)
        # newer versions write a random key into every dump
        return "\n".join(line for line in told.splitlines() if "restrict" not in line)

    def create(self) -> None:
        password = self.folder / "password"
        password.write_text("secret\n")
        _hand_over(password)
        self._run(
            "initdb", "-D", self._data, "-U", _USER, f"--pwfile={password}", "--auth=scram-sha-256",
            "--encoding=UTF8", "--no-locale", "--no-sync",
        )  # fmt: skip
        self.start()
        self.psql("CREATE DATABASE deadletter", self.database_url("postgres"))

    @property
    def _data(self) -> str:
        return str(self.folder / "data")

    @property
    def _log(self) -> str:
        return str(self.folder / "log")

    def _run(self, program: str, *arguments: str) -> str:
        done = subprocess.run(
            [*_as_somebody(), str(self._binaries / program), *arguments],
            capture_output=program != "pg_ctl",  # the server would keep the pipe open
            stdin=subprocess.DEVNULL,
            stdout=None if program != "pg_ctl" else subprocess.DEVNULL,
            stderr=None if program != "pg_ctl" else subprocess.DEVNULL,
            text=True,
            timeout=2 * START_LIMIT_S,
            check=False,
            cwd=self.folder,
            env={**os.environ, "LC_ALL": "C", "PGCONNECT_TIMEOUT": "10"},
        )
        if done.returncode:
            log = Path(self._log)
            told = done.stderr or (log.read_text()[-2000:] if log.exists() else "")
            raise NoPostgres(f"{program} {arguments[0]} ended with {done.returncode}: {told}")
        return (done.stdout or "").strip()


@contextmanager
def private_postgres() -> Iterator[PrivatePostgres]:
    """A server for as long as the block lasts."""
    binaries = _binaries()
    folder = Path(tempfile.mkdtemp(prefix="dlq-pg-", dir="/tmp"))  # a socket's path is at most 107 bytes
    _hand_over(folder)
    server = PrivatePostgres(folder, binaries, free_port())
    try:
        server.create()
        yield server
    finally:
        if (folder / "data" / "postmaster.pid").exists():
            server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _binaries() -> Path:
    """The newest installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[4]))
    on_path = shutil.which("initdb")
    if found:
        return found[-1].parent
    if on_path:
        return Path(on_path).resolve().parent
    raise NoPostgres(f"the store's tests need PostgreSQL and found none; {_INSTALL}")


def _as_somebody() -> list[str]:
    """PostgreSQL refuses to run as root."""
    return ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []


def _hand_over(path: Path) -> None:
    if os.geteuid() == 0:
        try:
            somebody = pwd.getpwnam("postgres")
        except KeyError:
            raise NoPostgres(f"as root, PostgreSQL's tests need its user postgres; {_INSTALL}") from None
        os.chown(path, somebody.pw_uid, somebody.pw_gid)
