"""A database's errors in our words.

Three layers may speak: SQLAlchemy, the driver, the socket. What counts is the innermost: PostgreSQL's
SQLSTATE, SQLite's error code, or that nothing answered at all. SQLAlchemy's own text quotes statements and
their values, and is never passed on.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import asyncpg  # type: ignore[import-untyped]
from sqlalchemy.exc import SQLAlchemyError

from deadletter.core.letter.header_values import shown
from deadletter.errors import StoreError, StoreRefused, StoreUnreachable, TableMissing, UsageError
from deadletter.store.store_address import StoreAddress

_CUT: Final = (asyncpg.InterfaceError, asyncpg.InternalClientError)
"""What the driver says of a connection that went away under it."""
FOREIGN: Final = (SQLAlchemyError, asyncpg.PostgresError, *_CUT, sqlite3.Error, OSError)
"""TimeoutError is an OSError."""
_PASSING: Final = ("08", "53", "57", "40", "55")
"""SQLSTATE classes that another try may cure: connection, resources, shutdown, serialization, locks."""
_LOCKED: Final = ("SQLITE_BUSY", "SQLITE_LOCKED")
_PASSING_SQLITE: Final = ("SQLITE_CANTOPEN", "SQLITE_IOERR", "SQLITE_FULL", "SQLITE_INTERRUPT")
_MAX_SAID_CHARS: Final = 300


@contextmanager
def in_our_words(address: StoreAddress) -> Iterator[None]:
    """Within, whatever a database or its driver raises becomes a StoreError."""
    try:
        yield
    except FOREIGN as error:
        raise _translated(address, error) from error


def sqlstate(error: BaseException) -> str:
    """PostgreSQL's code for it; empty when it is not PostgreSQL that speaks."""
    inner = _innermost(error)
    return str(inner.sqlstate) if isinstance(inner, asyncpg.PostgresError) else ""


def is_forbidden(error: BaseException) -> bool:
    """Whether the database would let somebody with more rights do it, or if it were not read-only."""
    inner = _innermost(error)
    if isinstance(inner, sqlite3.Error):
        return _code(inner).startswith("SQLITE_READONLY")
    return sqlstate(error) in ("42501", "25006")


def _translated(address: StoreAddress, error: BaseException) -> StoreError | UsageError:
    inner = _innermost(error)
    said = shown(str(inner).strip().partition("\n")[0] or type(inner).__name__, _MAX_SAID_CHARS)
    match inner:
        case sqlite3.Error():
            return _of_sqlite(address, _code(inner), said)
        case asyncpg.PostgresError():
            return _of_postgres(address, str(inner.sqlstate or ""), said)
        case asyncpg.exceptions.ClientConfigurationError():
            return UsageError(f"the store's URL {address}: {said}")
        case TimeoutError():
            return StoreUnreachable(f"the store {address} did not answer in time")
        case OSError() | asyncpg.InterfaceError() | asyncpg.InternalClientError():
            return StoreUnreachable(f"the store {address} does not answer: {said}")
        case _:
            return StoreRefused(f"the store {address} refuses: {said}")


def _of_sqlite(address: StoreAddress, code: str, said: str) -> StoreError:
    if code.startswith(_LOCKED):
        return StoreUnreachable(
            f"the store {address} is locked by somebody who writes to it; nothing was done"
        )
    if code.startswith(_PASSING_SQLITE):
        return StoreUnreachable(f"the store {address} cannot be used: {said}")
    if said.startswith("no such table"):  # SQLite has no code of its own for it: its words are all there is
        return TableMissing(f"the store {address} has {said.replace('no such', 'no')}")
    return StoreRefused(f"the store {address} refuses: {said}")


def _of_postgres(address: StoreAddress, state: str, said: str) -> StoreError:
    if state == "42P01":
        return TableMissing(f"the store {address} refuses: {said}")
    if state.startswith(_PASSING):
        return StoreUnreachable(f"the store {address} does not answer: {said}")
    return StoreRefused(f"the store {address} refuses: {said}")


def _innermost(error: BaseException) -> BaseException:
    """What the database or the socket itself said, below what SQLAlchemy and its adapter made of it."""
    found = error
    while not isinstance(found, asyncpg.PostgresError | asyncpg.InterfaceError | sqlite3.Error | OSError):
        inner = getattr(found, "orig", None) or found.__cause__
        if not isinstance(inner, Exception):
            break
        found = inner
    return found


def _code(error: sqlite3.Error) -> str:
    return getattr(error, "sqlite_errorname", "") or ""
