"""`dlq policy set | remove`, and what `dlq policy list` asks of the store."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from deadletter import config
from deadletter.cli.terminal import event_loop
from deadletter.cli.terminal.output import Exit, complain, data, result
from deadletter.cli.terminal.units import count
from deadletter.config.settings import Settings, Watch
from deadletter.core.deciding.event_config import TABLE, InForce, Row, check_new, in_force, policies_from
from deadletter.core.deciding.policy import Policies
from deadletter.core.letter.header_values import shown
from deadletter.errors import StoreError, TableMissing, UsageError
from deadletter.store.store_address import SqliteAddress, parse

if TYPE_CHECKING:
    from deadletter.store.opening import Store

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLook:
    """What is in force, and what was seen of the store: `store` is None when there is none to look at."""

    in_force: InForce
    numbered: tuple[tuple[Watch, InForce], ...] = ()
    """For each watch with numbered levels, whose delays are others."""
    store: str | None = None
    trouble: StoreError | None = None


def look(settings: Settings) -> StoreLook:
    """The table's rows and the file's policies together. A store that is not there yet is not created."""
    url = settings.store.in_force(os.environ, Path.home())
    if url is None:
        return _looked(settings, [])
    address = parse(url)
    if isinstance(address, SqliteAddress) and not address.path.exists() and settings.store.url is None:
        return _looked(settings, [])
    rows: list[Row] = []
    try:
        rows = _unless_absent(url, lambda store: store.event_rows(), rows)
    except StoreError as error:
        return replace(_looked(settings, []), store=str(address), trouble=error)
    return replace(_looked(settings, rows), store=str(address))


def _looked(settings: Settings, rows: Sequence[Row]) -> StoreLook:
    def together(file: Policies) -> InForce:
        return in_force(rows, file=file, backoff=file.default.backoff)

    return StoreLook(
        in_force=together(settings.policies),
        numbered=tuple(
            (watch, together(settings.policies_of(watch))) for watch in settings.watches if watch.delays_ms
        ),
    )


def set_retries(
    *, routing_key: str, max_retries: int, file: Path | None, store: str | None, as_json: bool
) -> Exit:
    settings = config.load(config=file, options={"store.url": store})
    url = _url_to_write(settings)
    check_new(routing_key, max_retries)
    try:
        _asked(url, lambda store: store.set_event(routing_key, max_retries), prepare=True)
    except StoreError as error:
        return told(error)
    where = str(parse(url))
    if as_json:
        data({"routing_key": routing_key, "max_retries": max_retries, "store": where})
    else:
        row = Row(id=1, name=routing_key, max_retries=max_retries)
        (policy,), _ = policies_from([row], backoff=settings.policies.default.backoff)
        result(f"{shown(routing_key)}: {policy.text()}\n    from {TABLE} in {where}")
    return Exit.DONE


def remove(*, routing_key: str, file: Path | None, store: str | None, as_json: bool) -> Exit:
    settings = config.load(config=file, options={"store.url": store})
    url = _url_to_write(settings)
    address = parse(url)
    try:
        removed = _unless_absent(url, lambda store: store.remove_event(routing_key), 0)
    except StoreError as error:
        return told(error)
    if as_json:
        data({"routing_key": routing_key, "removed": removed, "store": str(address)})
    elif removed:
        result(f"removed {count(removed, 'row')} for {shown(routing_key)} from {TABLE} in {address}")
    else:
        result(f"no row for {shown(routing_key)} in {TABLE} in {address}; nothing to remove")
    return Exit.DONE if removed else Exit.LEFT


def told(error: StoreError | None) -> Exit:
    """What a store did not do is one line on stderr and an exit code of its own."""
    if error is None:
        return Exit.DONE
    complain(error)
    return Exit.UNREACHABLE


def _unless_absent(url: str, ask: Callable[[Store], Awaitable[_T]], otherwise: _T) -> _T:
    """A store that nobody has written to yet has no file or no table: there is nothing in it."""
    address = parse(url)
    if isinstance(address, SqliteAddress) and not address.path.exists():
        return otherwise
    try:
        return _asked(url, ask, prepare=False)
    except TableMissing:
        return otherwise


def _asked(url: str, ask: Callable[[Store], Awaitable[_T]], *, prepare: bool) -> _T:
    async def answer() -> _T:
        from deadletter.store.opening import open_store

        async with open_store(url, prepare=prepare) as store:
            return await ask(store)

    return event_loop.run(answer())


def _url_to_write(settings: Settings) -> str:
    url = settings.store.in_force(os.environ, Path.home())
    if url is None:
        raise UsageError(
            "expected a store to write to, got store.url = none; name one with --store, for instance "
            "--store sqlite:///deadletter.db"
        )
    return url
