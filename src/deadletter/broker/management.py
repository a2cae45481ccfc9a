"""The management API, as far as we need it: which queues there are.

Asked only where AMQP has no answer. The default address is the AMQP host, port 15672, the same user; with TLS
on the AMQP side https and port 15671.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, urlsplit, urlunsplit

import httpx

from deadletter.amqp.address import Address
from deadletter.errors import ManagementRefused, UsageError

PAGE: Final = 500
TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueInfo:
    """A queue as the management API lists it."""

    name: str
    type: str
    exclusive: bool


def api_of(address: Address, given: str | None) -> tuple[str, str, str]:
    """The API's base URL (ending in /api), user and password."""
    if given is None:
        secure = address.tls is not None
        host = f"[{address.host}]" if ":" in address.host else address.host
        base = f"{'https' if secure else 'http'}://{host}:{15671 if secure else 15672}/api"
        return base, address.user, address.password
    parts = urlsplit(given)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError(
            "expected the management API as http://host:15672, got something else (DLQ_API, --api)"
        )
    path = parts.path.rstrip("/")
    path = path if path.endswith("/api") else f"{path}/api"
    netloc = parts.netloc.rpartition("@")[2]
    base = urlunsplit((parts.scheme, netloc, path, "", ""))
    return base, parts.username or address.user, parts.password or address.password


async def list_queues(address: Address, api: str | None) -> list[QueueInfo]:
    """Every queue of the vhost. Raises ManagementRefused that says what to do."""
    base, user, password = api_of(address, api)
    verify = address.tls.verify if address.tls is not None else True
    ca_file = address.tls.ca_file if address.tls is not None else None
    url = f"{base}/queues/{quote(address.vhost, safe='')}"
    found: list[QueueInfo] = []
    try:
        async with httpx.AsyncClient(
            auth=(user, password),
            timeout=TIMEOUT_S,
            verify=str(ca_file) if ca_file is not None and verify else verify,
        ) as client:
            page = pages = 1
            while page <= pages:
                answer = await client.get(
                    url,
                    params={"page": page, "page_size": PAGE, "columns": "name,type,exclusive,arguments"},
                )
                if answer.status_code != httpx.codes.OK:
                    raise ManagementRefused(_refusal(base, answer.status_code, user, address.vhost))
                told = answer.json()
                pages = int(told["page_count"])
                found += [_queue(item) for item in told["items"]]
                page += 1
    except (httpx.HTTPError, ValueError, KeyError, TypeError) as error:
        raise ManagementRefused(
            f"the management API at {base} does not answer as it should ({type(error).__name__}: {error}); "
            "a pattern needs it to know the queues: give its address (DLQ_API, --api), or name one queue"
        ) from error
    return found


def _queue(item: dict[str, object]) -> QueueInfo:
    return QueueInfo(
        name=str(item["name"]), type=str(item.get("type", "classic")), exclusive=bool(item.get("exclusive"))
    )


def _refusal(base: str, code: int, user: str, vhost: str) -> str:
    if code in (401, 403):
        return (
            f"the management API at {base} refuses user {user!r} ({code}); it needs the tag 'management' "
            f"and access to vhost {vhost!r}: rabbitmqctl set_user_tags {user} management"
        )
    return f"the management API at {base} answered {code} for vhost {vhost!r}"
