"""The door of `dlq serve`, as the settings have it.

The rule: on this machine there is a page, and its owner comes in by the machine's own key. Elsewhere there is
one where somebody can sign in. Where nobody can, health, metrics and status are all there is, as an
orchestrator needs them; and where a page or stored letters are asked for there all the same, nothing starts.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from deadletter.cli.terminal.users import user_name
from deadletter.config.settings import Settings
from deadletter.config.urls import is_loopback
from deadletter.desk import server
from deadletter.desk.access.access import Access
from deadletter.desk.door.sign_in_page import DOOR
from deadletter.errors import UsageError
from deadletter.operations.home_key import home_token, key_file, made_key, session_key


def check_door(settings: Settings) -> None:
    """UsageError where letters would be shown to other machines, and nobody could say who they are."""
    listen, desk = settings.serve.listen, settings.desk
    if desk.oidc is not None and find_spec("joserfc") is None:
        raise UsageError("[desk.oidc]: expected the extra for it, got none: pip install 'deadletter[oidc]'")
    if listen is None or desk.page is False or not (desk.page or desk.asked):
        return
    if not is_loopback(server.host_of(listen)) and not _signs_in(settings):
        raise UsageError(
            f"[serve] listen: other machines reach {listen}, and nobody can sign in there: add "
            "[[desk.tokens]] (dlq token new makes one) or set DLQ_API_TOKEN; or say [desk] page = false for "
            "health and metrics alone; or listen on 127.0.0.1"
        )


class ServiceAccess:
    """The terms of a service, whose port is known when it has begun to listen."""

    def __init__(self, listen: str, settings: Callable[[], Settings], key: bytes) -> None:
        self._key = key
        self._home: str | None = None
        desk = settings().desk
        host = server.host_of(listen)
        self.access: Final = Access(
            host=host,
            token=os.environ.get("DLQ_API_TOKEN") or None,
            home_token=lambda: self._home,
            owner=user_name(),
            tokens=lambda: settings().desk.tokens,
            oidc=lambda: settings().desk.oidc,
            oidc_secret=os.environ.get("DLQ_OIDC_SECRET") or None,
            masked=lambda: settings().desk.mask,
            addresses=desk.addresses,
            page=is_loopback(host) or _signs_in(settings()) if desk.page is None else desk.page,
            idle_s=desk.session_idle_ms // 1000,
            end_s=desk.session_end_ms // 1000,
            session_key=session_key(os.environ.get("DLQ_SESSION_KEY", "").encode() or key),
        )

    def begun(self, url: str) -> str | None:
        """The address that lets the owner in; None: there is no page, or others could read it."""
        self._home = home_token(self._key, urlsplit(url).port or 0)
        return door_address(url, self._home) if self.access.page and self.access.at_home else None


def door_address(url: str, token: str) -> str:
    return f"{url}{DOOR}?token={token}"


def service_access(
    listen: str, settings: Callable[[], Settings], on_trouble: Callable[[str], None]
) -> ServiceAccess:
    """With the machine's own key. Where no file can keep it, it is another one after each start."""
    file = key_file(os.environ, Path.home())
    try:
        key = made_key(file)
    except OSError as error:
        on_trouble(f"{file}: {error.strerror or error}; commands need DLQ_API_TOKEN")
        key = secrets.token_bytes(32)
    return ServiceAccess(listen, settings, key)


def _signs_in(settings: Settings) -> bool:
    return bool(settings.desk.tokens or settings.desk.oidc or os.environ.get("DLQ_API_TOKEN"))
