"""Where a broker is and how to speak to it: an AMQP URL as a value.

`amqp://user:password@host:5672/vhost` and `amqps://…`, with RabbitMQ's own query parameters: `cacertfile`,
`certfile`, `keyfile`, `verify` (`verify_peer` or `verify_none`), `server_name_indication`,
`auth_mechanism` (`plain` or `external`), `heartbeat`, `connection_timeout`. The vhost is percent-encoded:
`%2F` is `/`; no path at all means `/`, an empty one (a URL that ends in `/`) means `/` too, because the
empty vhost that the specification reads there is never what was meant.

Several brokers of one cluster are several URLs, separated by commas.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from deadletter.errors import UsageError

Mechanism = Literal["PLAIN", "EXTERNAL"]

_BETWEEN: Final = re.compile(r",(?=\s*(?:amqps?://|$))")
"""A comma is between two URLs only where one begins after it: passwords have commas too."""
_PARAMETERS: Final = (
    "auth_mechanism",
    "cacertfile",
    "certfile",
    "connection_timeout",
    "heartbeat",
    "keyfile",
    "server_name_indication",
    "verify",
)


_TLS_PARAMETERS: Final = {"cacertfile", "certfile", "keyfile", "server_name_indication", "verify"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """How to verify the broker, and how to be verified by it."""

    verify: bool = True
    ca_file: Path | None = None
    """Trusted authorities; None means the system's."""
    cert_file: Path | None = None
    key_file: Path | None = None
    server_name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """One broker, one user, one vhost."""

    host: str = "127.0.0.1"
    port: int = 5672
    user: str = "guest"
    password: str = field(default="guest", repr=False)
    vhost: str = "/"
    mechanism: Mechanism = "PLAIN"
    tls: Tls | None = None
    heartbeat_s: int = 30
    connect_timeout_s: float = 10.0

    def __str__(self) -> str:
        """The URL without its password: this is what errors and logs show."""
        scheme = "amqps" if self.tls else "amqp"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{quote(self.user)}@{host}:{self.port}/{quote(self.vhost, safe='')}"

    @property
    def api(self) -> str:
        """The URL of its management API where nobody names another, without a user: on the same host.

        Whoever speaks TLS to the broker does not want the password in the clear to its management API.
        """
        scheme, port = ("https", 15671) if self.tls else ("http", 15672)
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{scheme}://{host}:{port}/api"


class NotAnAmqpUrl(UsageError):
    """To everybody a UsageError; the configuration says in its own words what an AMQP URL is."""


def parse_addresses(urls: str) -> tuple[Address, ...]:
    """One or several URLs, separated by commas, of one and the same vhost."""
    addresses = tuple(parse_address(url.strip()) for url in _BETWEEN.split(urls) if url.strip(" ,"))
    if not addresses:
        raise NotAnAmqpUrl("expected an AMQP URL such as amqp://guest:guest@127.0.0.1:5672/, got nothing")
    if len({address.vhost for address in addresses}) > 1:
        raise UsageError(
            "several AMQP URLs are several ways to one vhost; got " + ", ".join(map(str, addresses))
        )
    return addresses


def parse_address(url: str) -> Address:
    """One URL. Raises UsageError that says what was expected and what came, without the password."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        # Python's own words may quote the password: it takes part of it for the port.
        raise NotAnAmqpUrl(f"{_EXPECTED}, got {_hidden(url)!r}; {_ENCODE}") from None
    if parts.scheme not in ("amqp", "amqps") or not parts.hostname:
        raise NotAnAmqpUrl(f"{_EXPECTED}, got {_hidden(url)!r}")
    if port == 0:
        raise UsageError(f"expected a port from 1 to 65535 in {_hidden(url)!r}, got 0")
    if parts.fragment or "#" in url or "@" in parts.path + parts.query:
        raise NotAnAmqpUrl(f"{_EXPECTED}, got {_hidden(url)!r}; {_ENCODE}")
    if "/" in parts.path[1:]:
        raise UsageError(f"the vhost in {_hidden(url)!r} has a plain slash; write it as %2F")
    vhost = unquote(parts.path[1:]) or "/"
    secure = parts.scheme == "amqps"
    parameters = _parameters(parts.query, url)
    if not secure and (idle := sorted(_TLS_PARAMETERS & parameters.keys())):
        raise UsageError(f"{', '.join(idle)} in {_hidden(url)!r} means nothing without TLS; use amqps://")
    return Address(
        host=parts.hostname,
        port=port or (5671 if secure else 5672),
        user=unquote(parts.username) if parts.username is not None else "guest",
        password=unquote(parts.password) if parts.password is not None else "guest",
        vhost=vhost,
        mechanism=_mechanism(parameters.get("auth_mechanism", "plain")),
        tls=_tls(parameters) if secure else None,
        heartbeat_s=_whole("heartbeat", parameters.get("heartbeat", "30"), most=65535),
        connect_timeout_s=_whole("connection_timeout", parameters.get("connection_timeout", "10000")) / 1000,
    )


_EXPECTED: Final = "expected an AMQP URL such as amqp://user:password@host:5672/vhost"
_ENCODE: Final = "write : / ? # @ in a user or password with percent signs (%3A %2F %3F %23 %40)"


def _hidden(url: str) -> str:
    """What may be shown of a URL that cannot be parsed: a password may stand anywhere but in these places."""
    scheme, separator, rest = url.partition("://")
    credentials, at, host = (rest if separator else url).rpartition("@")
    shown = re.split(r"[:/?#,]", host)[0]
    before = scheme + separator if separator and scheme.isalnum() else ""
    return f"{before}…@{shown}" if at and credentials else f"{before}{shown}"


def _parameters(query: str, url: str) -> dict[str, str]:
    found = dict(parse_qsl(query, keep_blank_values=True))
    for name in found:
        if name not in _PARAMETERS:
            known = ", ".join(_PARAMETERS)
            raise UsageError(f"unknown parameter {name!r} in {_hidden(url)!r}; known are {known}")
    return found


def _mechanism(text: str) -> Mechanism:
    match text.lower():
        case "plain":
            return "PLAIN"
        case "external":
            return "EXTERNAL"
        case _:
            raise UsageError(f"expected auth_mechanism plain or external, got {text!r}")


def _tls(parameters: dict[str, str]) -> Tls:
    verify = parameters.get("verify", "verify_peer")
    if verify not in ("verify_peer", "verify_none"):
        raise UsageError(f"expected verify=verify_peer or verify=verify_none, got {verify!r}")

    def file(name: str) -> Path | None:
        return Path(parameters[name]) if name in parameters else None

    return Tls(
        verify=verify == "verify_peer",
        ca_file=file("cacertfile"),
        cert_file=file("certfile"),
        key_file=file("keyfile"),
        server_name=parameters.get("server_name_indication"),
    )


def _whole(name: str, text: str, most: int = 2**31) -> int:
    if not text.isdecimal() or len(text) > 10 or int(text) > most:
        raise UsageError(f"expected {name} to be a whole number from 0 to {most}, got {text[:20]!r}")
    return int(text)
