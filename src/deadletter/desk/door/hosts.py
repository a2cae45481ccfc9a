"""Under which names the desk answers, and where a request comes from.

A web page can have its own name point here and would read all there is (DNS rebinding): the browser takes us
for its site. So a name must be one of ours. An address in figures is nobody's name, and needs no check.
"""

from __future__ import annotations

import ipaddress
import socket
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import Response

from deadletter.desk.access.access import Access
from deadletter.desk.problems import problem

_HOME: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_PROBES: Final = ("/health/", "/metrics")
"""Orchestrators and Prometheus ask by names that they make up, and learn nothing of letters."""


class HostNames:
    """The names of one desk."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._names = _HOME | {access.host.lower()} | access.names()
        if not access.at_home:
            self._names |= {socket.gethostname().lower()}

    def refused(self, path: str, headers: Headers) -> Response | None:
        named = name_of(headers.get("host", ""))
        if named in self._names:
            return None
        if self._access.at_home:
            return problem(
                421,
                f"expected the Host localhost, 127.0.0.1 or [::1], because the service listens on this "
                f"machine alone, got {named[:100]!r}; ask for it by one of these names",
            )
        if _is_address(named) or path.startswith(_PROBES):
            return None
        return problem(
            421,
            f"expected a Host that [desk] addresses names, got {named[:100]!r}; add "
            f"https://{named[:100]} there if people reach the page by this name",
        )


def name_of(host: str) -> str:
    """The name in a Host header, without port and brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.partition(":")[0].lower().removesuffix(".")


def from_another_site(headers: Headers) -> bool:
    """Whether a page of another site sends this: browsers say so, other programs say nothing."""
    said = headers.get("sec-fetch-site")
    if said is not None:
        return said not in ("same-origin", "none")
    origin = headers.get("origin")  # a browser from before Sec-Fetch-Site
    return origin is not None and urlsplit(origin).netloc.lower() != headers.get("host", "").lower()


def from_this_site(headers: Headers) -> bool:
    """Whether a browser says that it is a page of ours which sends this."""
    said = headers.get("sec-fetch-site")
    return (said == "same-origin" if said is not None else "origin" in headers) and not from_another_site(
        headers
    )


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
