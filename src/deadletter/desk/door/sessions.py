"""Sessions of people in a browser: a cookie that says who it is, signed, and over after a while.

Nothing is kept for one but the cookie, so it holds wherever the signing key is the same: after a restart, and
on every instance. What it says of a person is only which key, or which account, they came with; what they may
do is looked up with every request, in the settings in force. A key that goes takes its sessions along.

Who signs out ends the session also for whoever copied the cookie: at once on the instance that heard of it,
and by the store (`door_book`) some seconds later on all others, and after a restart.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

RENEWED_S: Final = 60
"""The cookie is written again when it is older than this: idle is counted from the last one."""
_ENDED_MOST: Final = 10_000
_COOKIE_CHARS: Final = 3_500
"""Browsers keep 4 kB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """`key`: the print of the token it began with; empty where an account did, which `account` and `claims`
    tell of."""

    id: str
    key: str
    began_s: int
    seen_s: int
    account: str = ""
    claims: tuple[str, ...] = ()


_READ: Final = TypeAdapter(Session)


class Sessions:
    """Written and read. `now_s`: the time of day, in seconds since 1970."""

    def __init__(self, key: bytes, *, idle_s: int, end_s: int, now_s: Callable[[], float]) -> None:
        self._key = key
        self.idle_s = idle_s
        self.end_s = end_s
        self._now_s = now_s
        self._ended: OrderedDict[str, float] = OrderedDict()
        self.ended_elsewhere: frozenset[str] = frozenset()
        """As the store tells, of all instances and of those before this one."""

    def begun(self, *, key: str = "", account: str = "", claims: tuple[str, ...] = ()) -> Session:
        now = int(self._now_s())
        return Session(
            id=secrets.token_hex(16), key=key, began_s=now, seen_s=now, account=account, claims=claims
        )

    def written(self, session: Session) -> str:
        """For a cookie."""
        told = _text(json.dumps(asdict(session), separators=(",", ":")).encode())
        return f"{told}.{_text(self._signed('session', told.encode()))}"

    def read(self, cookie: str) -> Session | None:
        """None: it is none of ours, or over."""
        told, _, signature = cookie.partition(".")
        if len(cookie) > _COOKIE_CHARS or not hmac.compare_digest(
            _bytes(signature), self._signed("session", told.encode())
        ):
            return None
        try:
            session = _READ.validate_json(_bytes(told))
        except ValidationError:
            return None
        return session if self.holds(session) else None

    def holds(self, session: Session) -> bool:
        """Whether it goes on: neither idle, nor at its end, nor ended by who began it."""
        now = self._now_s()
        over = session.seen_s + self.idle_s <= now or session.began_s + self.end_s <= now
        return not (over or session.id in self._ended or session.id in self.ended_elsewhere)

    def renewed(self, session: Session) -> Session | None:
        """None: the cookie is new enough."""
        now = int(self._now_s())
        return replace(session, seen_s=now) if now - session.seen_s >= RENEWED_S else None

    def end(self, session: Session) -> float:
        """When it would have been over by itself."""
        now = self._now_s()
        while self._ended and next(iter(self._ended.values())) <= now:
            self._ended.popitem(last=False)
        self._ended[session.id] = session.began_s + self.end_s
        while len(self._ended) > _ENDED_MOST:
            self._ended.popitem(last=False)
        return session.began_s + self.end_s

    def form_token(self, session: Session) -> str:
        """What a form of this session has to bring along."""
        return _text(self._signed("form", session.id.encode()))

    def is_form_token(self, session: Session, said: str) -> bool:
        return hmac.compare_digest(self.form_token(session).encode(), said.encode(errors="replace"))

    def sealed(self, what: str, value: Any) -> str:
        """Something small that comes back by the browser, and is ours."""
        told = _text(json.dumps(value, separators=(",", ":")).encode())
        return f"{told}.{_text(self._signed(what, told.encode()))}"

    def unsealed(self, what: str, text: str) -> Any:
        """None: it is not ours."""
        told, _, signature = text.partition(".")
        if not hmac.compare_digest(_bytes(signature), self._signed(what, told.encode())):
            return None
        return json.loads(_bytes(told))

    def _signed(self, what: str, told: bytes) -> bytes:
        return hmac.digest(self._key, what.encode() + b"\0" + told, hashlib.sha256)


def _text(some: bytes) -> str:
    return base64.urlsafe_b64encode(some).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    """Empty for what is none."""
    try:
        return base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except ValueError:
        return b""
