"""The terms on which the desk is open: to whom, at which address, for how long."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from deadletter.config.settings import DeskToken, OidcSettings
from deadletter.config.urls import is_loopback


def no_home() -> None:
    """Of a desk that has no owner's token, and shall have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """`host`: what the service listens on. `token`: DLQ_API_TOKEN. `home_token`: of whoever started it.

    `tokens` are those of the settings in force: one that goes from the file is worth nothing from then on.
    Without any token at all, on this machine alone, whoever comes is the owner: so tests have it.
    """

    host: str
    token: str | None = field(default=None, repr=False)
    home_token: Callable[[], str | None] = field(default=no_home, repr=False)
    owner: str = "api"
    """Who it was, for the audit, where the owner does not say who they are."""
    tokens: Callable[[], Sequence[DeskToken]] = field(default=tuple, repr=False)
    oidc: Callable[[], OidcSettings | None] = lambda: None
    oidc_secret: str | None = field(default=None, repr=False)
    masked: Callable[[], Sequence[str]] = tuple
    """Fields that those do not see who have no right to."""
    addresses: tuple[str, ...] = ()
    """Under which the desk is reached from elsewhere: URLs, or names."""
    page: bool = True
    idle_s: int = 8 * 3_600
    end_s: int = 7 * 86_400
    session_key: bytes = field(default_factory=lambda: secrets.token_bytes(32), repr=False)

    @property
    def at_home(self) -> bool:
        """Whether only this machine can reach us."""
        return is_loopback(self.host)

    @property
    def signs_in(self) -> bool:
        """Whether somebody from elsewhere could say who they are."""
        return self.token is not None or bool(self.tokens()) or self.oidc() is not None

    @property
    def unlocked(self) -> bool:
        # a token that is not there yet, because the port is not known, is no open door
        return self.at_home and not self.signs_in and self.home_token is no_home

    def names(self) -> frozenset[str]:
        """Of these addresses."""
        return frozenset(_parts(one)[1] for one in self.addresses)

    def secure(self, name: str) -> bool:
        """Whether people reach this name over https."""
        return any(_parts(one) == ("https", name) for one in self.addresses)


def _parts(address: str) -> tuple[str, str]:
    parts = urlsplit(address if "://" in address else f"http://{address}")
    return parts.scheme, (parts.hostname or "").lower()
