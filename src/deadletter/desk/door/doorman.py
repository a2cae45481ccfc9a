"""The doorman: knows the keys, gives out sessions, and counts who tries too often."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from starlette.responses import Response
from starlette.types import Scope

from deadletter.config.settings import DeskToken
from deadletter.core.access.rights import Role
from deadletter.desk.access.access import Access
from deadletter.desk.access.person import Person
from deadletter.desk.answers.desk_route import JournalSource
from deadletter.desk.door.accounts import Account, Accounts
from deadletter.desk.door.attempts import STRONG_CHARS, Attempts, net_of
from deadletter.desk.door.door_book import DoorBook
from deadletter.desk.door.hosts import HostNames
from deadletter.desk.door.keyring import Key, Keyring, known_key, person_of_account
from deadletter.desk.door.sessions import Session, Sessions
from deadletter.desk.problems import problem
from deadletter.errors import NotAllowed


@dataclass(frozen=True, slots=True)
class Refused:
    """Why somebody does not come in."""

    status: int
    why: str
    headers: Mapping[str, str] = field(default_factory=dict)

    def answer(self) -> Response:
        return problem(self.status, self.why, self.headers)


@dataclass(frozen=True, slots=True)
class Come:
    """Somebody, and the session that they are in; a program has the print of its token instead."""

    person: Person | None
    session: Session | None = None
    key: str = ""


class Doorman:
    """`journal`: where it is written down who came. `clock` goes on evenly, `now_s` is the time of day."""

    def __init__(
        self,
        access: Access,
        journal: JournalSource | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        self.access = access
        self.hosts: Final = HostNames(access)
        self.keyring: Final = Keyring(access)
        self.attempts: Final = Attempts(clock)
        self.account_attempts: Final = Attempts(clock)
        """Apart: who tries tokens keeps nobody from an account."""
        self._book: Final = DoorBook(journal, clock)
        self._keys_told: Sequence[DeskToken] | None = None
        self.sessions: Final = Sessions(
            access.session_key, idle_s=access.idle_s, end_s=access.end_s, now_s=now_s
        )
        self.accounts: Final = Accounts(access.oidc, self.sessions, access.oidc_secret, now_s)

    @property
    def asks(self) -> bool:
        """Whether there is a page to sign in to."""
        return self.access.page and (self.access.signs_in or self.access.home_token() is not None)

    def anybody(self) -> Person | None:
        """Who comes without a token or a session."""
        owner = Person(name="", role=Role.ADMIN, otherwise=self.access.owner)
        return owner if self.access.unlocked else None

    async def bearer(self, scheme: str, token: str, address: str) -> Come | Response:
        """A program, by its token. Long ones nobody finds by trying: they are counted by address alone."""
        if (owner := self.anybody()) is not None:
            return Come(owner)
        wait_s = self.attempts.wait_s(address, alone=len(token) >= STRONG_CHARS)
        key = self._whose(token, wait_s) if scheme.lower() == "bearer" else None
        if key is not None:
            return Come(key.person, key=key.print)
        if wait_s:
            return _too_often(wait_s).answer()
        await self._wrong(self.attempts, address)
        return self.stranger()

    async def let_in(self, token: str, address: str) -> Session | Refused:
        """A person, by their token."""
        await self.look_at_keys()
        wait_s = self.attempts.wait_s(address)
        key = self._whose(token.strip(), wait_s)
        if key is not None:
            await self._book.noted(key.person.called(), "signed in", by="token", address=net_of(address))
            return self.sessions.begun(key=key.print)
        if wait_s:
            return _too_often(wait_s)
        await self._wrong(self.attempts, address)
        return Refused(401, "That is no token of this service.")

    def _whose(self, token: str, wait_s: int) -> Key | None:
        """While others try too often from there, one that could be found by trying is not looked at."""
        return self.keyring.whose(token) if not wait_s or len(token) >= STRONG_CHARS else None

    async def _wrong(self, attempts: Attempts, address: str) -> None:
        if (told := attempts.failed(address)) is not None:
            await self._book.noted("nobody", "sign-in refused", address=told.address, tries=told.tries)

    async def account_let_in(self, account: Account, address: str) -> Session:
        """NotAllowed: they are called like a token, and would be taken for whoever has it."""
        if self.keyring.is_named(account.name):
            raise NotAllowed(
                f"the account is called {account.name!r}, and so is a token of this service: they would be "
                "one person here; sign in with the token, or have it renamed in [[desk.tokens]]"
            )
        await self._book.noted(account.name, "signed in", by="account", address=net_of(address))
        return self.sessions.begun(account=account.name, claims=account.claims)

    async def account_refused(self, address: str) -> None:
        await self._wrong(self.account_attempts, address)

    async def let_out(self, session: Session) -> None:
        """Who signs out is out: here at once, and wherever the store is asked."""
        who = self._person_of(session)
        until_s = self.sessions.end(session)
        await self._book.end_session(session.id, int(until_s * 1000))
        await self._book.noted(session.account if who is None else who.called(), "signed out")

    async def session(self, cookie: str) -> Come | None:
        """None: it is over, or none of ours, or what it began with was taken away."""
        found = self.sessions.read(cookie)
        if found is None or not await self._goes_on(found):
            return None
        who = self._person_of(found)
        return None if who is None else Come(who, session=found)

    async def is_still(self, come: Come) -> bool:
        """Whether somebody who came in is still let in now."""
        if come.session is not None:
            return await self._goes_on(come.session) and self._person_of(come.session) is not None
        return not come.key or self.keyring.of_print(come.key) is not None

    async def _goes_on(self, session: Session) -> bool:
        await self._book.look()
        self.sessions.ended_elsewhere = self._book.ended
        return self.sessions.holds(session)

    def _person_of(self, session: Session) -> Person | None:
        if session.account:
            if self.keyring.is_named(session.account):
                return None
            return person_of_account(session.account, session.claims, self.access.oidc())
        key = self.keyring.of_print(session.key)
        return None if key is None else key.person

    async def look_at_keys(self) -> None:
        """Tokens that came into force or went since the last look, by whoever changed the settings."""
        now = self.access.tokens()
        if now is not self._keys_told and now != self._keys_told:
            self._keys_told = tuple(now)
            await self._book.keys_seen([known_key(one) for one in now], who="deadletter.toml")

    def stranger(self) -> Response:
        """To somebody who has to say first who they are."""
        if not self.access.at_home and not self.access.signs_in:
            return problem(
                403,
                f"the service listens on {self.access.host}, where other machines reach it, and has no "
                "token; set DLQ_API_TOKEN or [[desk.tokens]] for it, or [serve] listen to 127.0.0.1, to "
                "allow changes and a look at letters",
            )
        ways = ["one of [[desk.tokens]]"] if self.access.tokens() else []
        ways += ["the one that the service was started with (DLQ_API_TOKEN)"] if self.access.token else []
        if self.access.home_token() is not None:
            ways.append("that of the user who started it, which their dlq commands find themselves")
        return problem(
            401,
            f"expected a token, as Authorization: Bearer …: {', or '.join(ways)}",
            {"www-authenticate": "Bearer"},
        )

    # -- cookies -----------------------------------------------------------------------------------------
    def cookie_name(self, scope: Scope, host: str) -> str:
        """Cookies know no ports: services on one machine need names of their own."""
        server = scope.get("server")
        port = server[1] if server else 0
        return f"{'__Host-' if self.access.secure(host) else ''}deadletter-{port}"

    def give(self, answer: Response, session: Session, scope: Scope, host: str) -> None:
        answer.set_cookie(
            self.cookie_name(scope, host),
            self.sessions.written(session),
            httponly=True,
            samesite="strict",
            secure=self.access.secure(host),
            path="/",
        )

    def take(self, answer: Response, scope: Scope, host: str) -> None:
        answer.delete_cookie(
            self.cookie_name(scope, host),
            httponly=True,
            samesite="strict",
            secure=self.access.secure(host),
            path="/",
        )


def _too_often(wait_s: int) -> Refused:
    return Refused(429, f"Too many wrong tokens; try again in {wait_s} s.", {"retry-after": str(wait_s)})
