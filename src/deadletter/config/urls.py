"""The addresses in a configuration: of the broker, its management API, the store.

What is wrong with a URL is said of the URL without its password: it is parsed a second time that way, because
an error about the original may quote the very part that must not be shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from urllib.parse import SplitResult, quote, urlsplit

from deadletter.amqp.address import Address, NotAnAmqpUrl, parse_addresses
from deadletter.config.secrets import without_password
from deadletter.errors import UsageError

_AMQP: Final = "an AMQP URL such as amqp://user:password@host:5672/vhost"
NO_STORE: Final = "none"
"""What stands in the place of a store's URL where there shall be no store."""
_STORES: Final = ("sqlite", "postgresql")


def addresses(urls: Sequence[str]) -> tuple[Address, ...]:
    """Raises ValueError with what was expected."""
    try:
        return parse_addresses(",".join(urls))
    except UsageError:
        pass
    try:
        parse_addresses(without_password(",".join(urls)))
    except NotAnAmqpUrl:
        raise ValueError(_AMQP) from None
    except UsageError as error:
        why = str(error)
    else:
        why = "special characters in user and password must be percent-encoded"
    raise ValueError(f"{_AMQP}; {why}")


def management_api(given: str | None, address: Address) -> str:
    """The URL of the management API, up to /api and with a user. Raises ValueError with what was expected."""
    login = f"{quote(address.user, safe='')}:{quote(address.password, safe='')}"
    if given is None:
        return address.api.replace("://", f"://{login}@", 1)
    parts = SplitResult("", "", "", "", "")
    try:
        parts = urlsplit(given)
        whole = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        whole = whole and not parts.query and not parts.fragment
    except ValueError:
        whole = False
    if not whole:
        raise ValueError("the URL of a management API such as http://user:password@host:15672")
    place = parts.netloc if "@" in parts.netloc else f"{login}@{parts.netloc}"
    path = parts.path.rstrip("/")
    return f"{parts.scheme}://{place}{path if path.endswith('/api') else path + '/api'}"


def check_store(url: str) -> None:
    """Raises ValueError unless it is the URL of a store we have, or says that there is none."""
    if url == NO_STORE:
        return
    scheme, separator, rest = url.partition("://")
    if not separator or scheme.partition("+")[0] not in _STORES or not rest.strip("/"):
        raise ValueError("sqlite:///path/to/file.db or postgresql://user:password@host/database, or none")


def is_loopback(host: str) -> bool:
    """Whether this host, a name or an address, is reached from this machine alone."""
    import ipaddress  # who only connects has no need of it

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"
