"""Headers that every answer has: what a browser may do with it. Scripts and styles need the nonce."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

_ALWAYS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=()"),
)
_UNLESS_SAID: Final = ((b"cache-control", b"no-store"),)
_POLICY: Final = (
    "default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; "
    "img-src 'self' data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types deadletter"
)


def with_safety(headers: Iterable[tuple[bytes, bytes]], nonce: str) -> list[tuple[bytes, bytes]]:
    """What an answer says itself of caching and of its content's policy stays."""
    said = list(headers)
    names = {name.lower() for name, _ in said}
    policy = (b"content-security-policy", _POLICY.format(nonce=nonce).encode())
    more = [one for one in (*_UNLESS_SAID, policy) if one[0] not in names]
    return [*said, *_ALWAYS, *more]
