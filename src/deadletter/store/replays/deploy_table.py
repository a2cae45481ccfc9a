"""Deploys: releases of services that somebody told the desk of."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Row, insert, select

from deadletter.errors import UsageError
from deadletter.store.letters import letter_changes
from deadletter.store.letters.letter_connections import uncut
from deadletter.store.letters.letter_rows import clean
from deadletter.store.letters.letter_store import LetterStore
from deadletter.store.replays.replay_tables import deploys

NAME_CHARS: Final = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class Deploy:
    """A release that was told."""

    id: int
    service: str
    release: str
    at_ms: int
    who: str


class DeployStore:
    """The deploys of one store; each is audited."""

    def __init__(self, store: LetterStore) -> None:
        self._reading = store.connections.reading
        self._writing = store.connections.writing
        self._now_ms = store.now_ms

    @uncut
    async def tell(self, service: str, release: str, *, who: str) -> tuple[Deploy, bool]:
        """The deploy, and whether it is news: where the same was told last of this service, nothing is
        written, as whoever tells it may tell it again because no answer came."""
        _is_name("service", service)
        _is_name("release", release)
        async with self._writing() as connection:
            newest = select(deploys).where(deploys.c.service == service)
            newest = newest.order_by(deploys.c.id.desc()).limit(1)
            last = (await connection.execute(newest)).first()
            if last is not None and last.release == release:
                return deploy_of(last), False
            now_ms = self._now_ms()
            made = insert(deploys).values(service=service, release=release, at_ms=now_ms, who=clean(who))
            row = (await connection.execute(made.returning(*deploys.c))).one()
            detail = json.dumps({"service": service, "release": release})
            await letter_changes.noted(connection, who=who, action="deployed", detail=detail, now_ms=now_ms)
            return deploy_of(row), True

    async def all(
        self,
        *,
        service: str | None = None,
        since_ms: int | None = None,
        after: int | None = None,
        limit: int = 50,
    ) -> list[Deploy]:
        """The newest first. `after`: go on after this one."""
        asked = select(deploys).order_by(deploys.c.id.desc()).limit(limit)
        if service is not None:
            asked = asked.where(deploys.c.service == clean(service))
        if since_ms is not None:
            asked = asked.where(deploys.c.at_ms > since_ms)
        if after is not None:
            asked = asked.where(deploys.c.id < after)
        async with self._reading() as connection:
            return [deploy_of(row) for row in await connection.execute(asked)]


def _is_name(what: str, name: str) -> None:
    if not name or len(name) > NAME_CHARS or not name.isprintable() or name != clean(name).strip():
        raise UsageError(f"{what}: expected a name of 1 to {NAME_CHARS} characters, got {name[:300]!r}")


def deploy_of(row: Row[Any]) -> Deploy:
    return Deploy(id=int(row.id), service=row.service, release=row.release, at_ms=int(row.at_ms), who=row.who)
