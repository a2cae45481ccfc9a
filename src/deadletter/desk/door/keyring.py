"""Tokens and whose they are."""

from __future__ import annotations

import hashlib
import hmac
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from deadletter.config.settings import DeskToken, OidcRole, OidcSettings
from deadletter.core.access.rights import Role
from deadletter.core.access.scope import Scope
from deadletter.core.access.token_hash import hashed
from deadletter.desk.access.access import Access
from deadletter.desk.access.person import Person
from deadletter.store.journal.door_store import KnownKey

_PRINT_CHARS: Final = 32


@dataclass(frozen=True, slots=True)
class Key:
    """A token by its hash. `print` tells keys apart where the hash is not to be seen: another token, another
    print."""

    hash: str
    person: Person

    @property
    def print(self) -> str:
        return hashlib.sha256(f"deadletter key {self.hash}".encode()).hexdigest()[:_PRINT_CHARS]


class Keyring:
    """The keys that fit now."""

    def __init__(self, access: Access) -> None:
        self._access = access

    def whose(self, token: str) -> Key | None:
        """It takes as long for every token: all are compared, each in constant time."""
        given = hashed(token)
        found: Key | None = None
        for key in self._keys():
            if hmac.compare_digest(key.hash, given):
                found = key
        return found

    def of_print(self, said: str) -> Key | None:
        """None: it was taken away."""
        return next((key for key in self._keys() if key.print == said), None)

    def is_named(self, name: str) -> bool:
        """Whether a token has this name. Whoever else is called so would stand for it in the audit, and have
        its views, replays and discards."""
        return _plain(name) in {_plain(one.name) for one in self._access.tokens()}

    def _keys(self) -> Iterator[Key]:
        owner = Person(name="", role=Role.ADMIN, otherwise=self._access.owner)
        for token in (self._access.token, self._access.home_token()):
            if token:
                yield Key(hashed(token), owner)
        for one in self._access.tokens():
            yield Key(one.hash, person_of(one))


def _plain(name: str) -> str:
    """People read names; they do not see blanks and large letters."""
    return unicodedata.normalize("NFKC", name).strip().casefold()


def known_key(token: DeskToken) -> KnownKey:
    """As the store remembers it, for the audit."""
    told: dict[str, object] = {"role": token.role.value}
    told |= {"vhosts": list(token.vhosts)} if token.vhosts != ("*",) else {}
    told |= {"queues": list(token.queues)} if token.queues != ("*",) else {}
    told |= {"sees_masked": True} if token.sees_masked else {}
    return KnownKey(print=Key(token.hash, person_of(token)).print, name=token.name, told=told)


def person_of(token: DeskToken) -> Person:
    return _person(token.name, token)


def person_of_account(name: str, claims: Sequence[str], settings: OidcSettings | None) -> Person | None:
    """By the first role that is meant for them; None: none is any more."""
    roles = () if settings is None else settings.roles
    found = next((role for role in roles if role.value == "*" or role.value in claims), None)
    return None if found is None else _person(name, found)


def _person(name: str, told: DeskToken | OidcRole) -> Person:
    scope = Scope(vhosts=told.vhosts, queues=told.queues)
    return Person(name=name, role=told.role, scope=scope, sees_masked=told.sees_masked)
