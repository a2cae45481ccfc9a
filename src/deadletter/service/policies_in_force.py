"""The policies in force: the store's table before the file, kept up to date while the service runs.

`PolicySource.current` always has an answer. It begins with the file's policies alone; when the store has
been read, its rows stand before them; and when the store is lost, what was read last stays in force, however
long the outage. A change in the table is in force within two seconds, without a restart.

What can go wrong is said and never raised: a store that does not answer (`Trouble`, once per outage and again
when the reason changes; `Recovered`), a row that cannot be a policy (`PoliciesChanged.problems`), and also a
mistake of our own, which must not end the watching in silence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from typing import Final

from deadletter.core.deciding.backoff import Backoff
from deadletter.core.deciding.event_config import TABLE, InForce, Row, in_force
from deadletter.core.deciding.policy import Policies
from deadletter.core.letter.header_values import shown
from deadletter.errors import DeadletterError
from deadletter.service.telling.service_events import PoliciesChanged, Recovered, ServiceEvent, Trouble
from deadletter.store.opening import open_store

STORE: Final = "store"
_NO_ROWS: Final[Sequence[Row]] = ()
_PAUSE_S: Final = 0.25
_PAUSE_MAX_S: Final = 5.0
_STABLE_S: Final = 2.0
"""A store that answered for so long was really back: the pauses begin small again."""


class PolicySource:
    """`on_change` hears the new policies, in the task that runs `run`."""

    def __init__(
        self,
        settings_policies: Policies,
        store_url: str | None,
        backoff: Backoff,
        emit: Callable[[ServiceEvent], None],
    ) -> None:
        self.on_change: list[Callable[[Policies], None]] = []
        self._file = settings_policies
        self._backoff = backoff
        self._url = store_url
        self._emit = emit
        self._rows: Sequence[Row] | None = None
        self.read: asyncio.Event = asyncio.Event()
        """Whether the table was read once, or there is none: before that, what it says is not known."""
        if store_url is None:
            self.read.set()
        self._in_force = InForce(policies=settings_policies)
        self._prepared = False
        self._answered_at_s: float | None = None
        self._reason: str | None = None  # of the present outage

    @property
    def current(self) -> Policies:
        return self._in_force.policies

    @property
    def rows(self) -> Sequence[Row]:
        """The table as it was read last: a watch with delays of its own makes its own policies of it."""
        return self._rows if self._rows is not None else _NO_ROWS

    @property
    def problems(self) -> tuple[str, ...]:
        """Rows of the table that are ignored, and why."""
        return self._in_force.warnings

    async def run(self) -> None:
        """Follow the store for ever. Ends only by being cancelled."""
        if self._url is None:
            await asyncio.Event().wait()
            return
        loop = asyncio.get_running_loop()
        tries = 0
        while True:
            try:
                await self._follow(self._url)
                why = f"nobody tells of changes in {TABLE} any more"
            except DeadletterError as error:
                why = str(error)
            except Exception as error:  # noqa: BLE001 -- whatever it is, it is said, and policies stay in force
                why = f"a mistake of ours, please report it: {type(error).__name__}: {shown(str(error), 300)}"
            was_back = self._answered_at_s is not None and loop.time() - self._answered_at_s > _STABLE_S
            tries = 1 if was_back else tries + 1
            pause_s = min(_PAUSE_S * 2.0 ** min(tries - 1, 30), _PAUSE_MAX_S)
            self._lost(why, pause_s)
            await asyncio.sleep(pause_s)

    async def _follow(self, url: str) -> None:
        self._answered_at_s = None
        # Once it was prepared it is not created again: an empty database where ours was is a loss to be said,
        # and not a table without rows.
        async with open_store(url, prepare=not self._prepared) as store:
            self._prepared = True
            async with aclosing(store.changes()) as changes:
                async for rows in changes:
                    self._answered_at_s = self._answered_at_s or asyncio.get_running_loop().time()
                    if self._reason is not None:
                        self._reason = None
                        self._emit(Recovered(what=STORE, why=f"{store.address} answers again"))
                    if rows != self._rows:
                        found = await self._compiled(rows)
                        self._rows = rows
                        self._announce(found, f"{TABLE} in {store.address}")
                    self.read.set()

    async def _compiled(self, rows: Sequence[Row]) -> InForce:
        """In a thread: a thousand long ladders take seconds, and letters must not wait for them."""
        while True:  # once more if the configuration was replaced meanwhile
            file, backoff = self._file, self._backoff
            found = await asyncio.to_thread(in_force, rows, file=file, backoff=backoff)
            if file is self._file and backoff is self._backoff:
                return found

    def _announce(self, found: InForce, where: str) -> None:
        before, self._in_force = self._in_force, found
        self._emit(
            PoliciesChanged(count=len(self.current.rules) + 1, where=where, problems=self._in_force.warnings)
        )
        if self.current == before.policies:
            return
        for hear in self.on_change:
            try:
                hear(self.current)
            except Exception as error:  # noqa: BLE001 -- one who cannot follow must not keep it from the others
                self._emit(
                    Trouble(
                        what="policies",
                        why=f"new policies could not be taken over: {type(error).__name__}: {error}",
                    )
                )

    def _lost(self, reason: str, pause_s: float) -> None:
        if reason == self._reason:
            return
        self._reason = reason
        if self._rows is None:
            still = "only the policies of the configuration are in force until it was read"
        else:
            still = "the policies read last stay in force"
        self._emit(Trouble(what=STORE, why=f"{reason}; {still}", seconds=pause_s))
