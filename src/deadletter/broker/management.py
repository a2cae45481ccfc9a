"""The management API, as far as we need it. Asked only where AMQP has no answer.

The default address is the AMQP host, port 15672, the same user; with TLS on the AMQP side https and port
15671. Everything here speaks of the one vhost that the AMQP address names.
"""

from __future__ import annotations

import hashlib
import ssl
from base64 import b64encode
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlencode, urlsplit, urlunsplit

from deadletter.amqp.address import Address
from deadletter.core.topology import rabbitmq_commands
from deadletter.errors import ManagementRefused, UsageError
from deadletter.http.answers import Asking, HttpAnswer, HttpFailed
from deadletter.http.asking import asking

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
        return address.api, address.user, address.password
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


@dataclass(frozen=True, slots=True, eq=False)
class Listing:
    """A whole list, and the fingerprint of the answer it came in."""

    items: Sequence[Mapping[str, Any]]
    fingerprint: bytes = b""


class Management:
    """A conversation with the API; made by `management`. `need` says what it is needed for."""

    def __init__(
        self, asked: Asking, base: str, user: str, vhost: str, need: str, *, answer_s: float = TIMEOUT_S
    ) -> None:
        self._asked = asked
        self._answer_s = answer_s
        self._base = base
        self._user = user
        self.vhost = vhost
        self._need = need

    async def get(self, what: str, *, in_vhost: bool = True, **params: str | int) -> Any:
        """`what` as the API tells it; of our vhost unless said otherwise."""
        path = self._path(what, in_vhost=in_vhost)
        return self._json(await self._ask("GET", f"{path}?{urlencode(params)}" if params else path))

    async def get_if_allowed(self, what: str, *, below: str = "") -> Any | None:
        """What not everybody may know; None for those who may not. `below` is what follows the vhost."""
        path = self._path(what, in_vhost=True) + (f"/{below}" if below else "")
        answer = await self._send("GET", path)
        return None if answer.status in (401, 403) else self._json(self._checked(answer))

    async def every(self, what: str, columns: str, *, before: Listing | None = None) -> Listing:
        """Every item of a list. `before` is what it was the last time: it comes back where nothing changed.

        A long list comes in one answer: for each page a broker walks over all it has and sorts it, so that
        pages cost more the more there are. What it computed of a whole list it keeps for five times as long
        as that took, and would tell again; a question for another part makes it forget that. So the first
        page is asked for each time, and what follows it is never old.
        """
        few = 1 if before is not None and len(before.items) > PAGE else PAGE
        page = await self._page(what, {"page": 1, "page_size": few, "columns": columns})
        if before is not None and _fingerprint(page) == before.fingerprint:
            return before
        told = self._json(page)
        try:
            pages, items = int(told["page_count"]), list(told["items"])
        except (ValueError, KeyError, TypeError) as error:
            raise self._strange(f"{type(error).__name__}: {error}") from error
        if pages <= 1:
            return Listing(items, _fingerprint(page))
        # It may take as long as all its pages might have.
        whole = await self._page(what, {"columns": columns}, answer_s=pages * self._answer_s)
        if before is not None and _fingerprint(whole) == before.fingerprint:
            return before
        return Listing(self._listed(whole), _fingerprint(whole))

    async def _page(
        self, what: str, params: Mapping[str, str | int], *, answer_s: float | None = None
    ) -> HttpAnswer:
        """A page of a list, or all of it."""
        path = f"{self._path(what, in_vhost=True)}?{urlencode(params)}"
        return self._checked(await self._send("GET", path, answer_s=answer_s))

    def _listed(self, answer: HttpAnswer) -> list[Mapping[str, Any]]:
        told = self._json(answer)
        if not isinstance(told, list):
            raise self._strange(f"expected a list, got {type(told).__name__}")
        return told

    async def one(self, what: str, name: str) -> Any | None:
        """One thing of our vhost by its name; None where there is none."""
        answer = await self._send("GET", self._named(what, name))
        return None if answer.status == 404 else self._json(self._checked(answer))

    async def put(self, what: str, name: str, content: Mapping[str, object]) -> None:
        """Make or change something of our vhost."""
        await self._ask("PUT", self._named(what, name), content)

    def _named(self, what: str, name: str) -> str:
        return f"{self._path(what, in_vhost=True)}/{quote(name, safe='')}"

    async def delete(self, what: str, *below: str) -> None:
        """Delete something of our vhost; that it is not there is well."""
        path = "/".join([self._path(what, in_vhost=True), *(quote(part, safe="") for part in below)])
        answer = await self._send("DELETE", path)
        if answer.status != 404:
            self._checked(answer)

    def _path(self, what: str, *, in_vhost: bool) -> str:
        return f"{what}/{quote(self.vhost, safe='')}" if in_vhost else what

    async def _ask(self, method: str, path: str, content: object = None) -> HttpAnswer:
        return self._checked(await self._send(method, path, content))

    async def _send(
        self, method: str, path: str, content: object = None, *, answer_s: float | None = None
    ) -> HttpAnswer:
        try:
            return await self._asked.ask(method, path, content, answer_s=answer_s)
        except HttpFailed as error:
            raise self._strange(str(error)) from error

    def _checked(self, answer: HttpAnswer) -> HttpAnswer:
        if not answer.is_success:
            raise ManagementRefused(self._refusal(answer))
        return answer

    def _json(self, answer: HttpAnswer) -> Any:
        try:
            return answer.json()
        except ValueError as error:
            raise self._strange(f"{type(error).__name__}: {error}") from error

    def _strange(self, why: str) -> ManagementRefused:
        return ManagementRefused(
            f"the management API at {self._base} does not answer as it should ({why}); {self._need}"
        )

    def _refusal(self, answer: HttpAnswer) -> str:
        code = answer.status
        if code in (401, 403):
            tag = "management" if answer.method == "GET" else "policymaker"  # which is both
            return (
                f"the management API at {self._base} refuses user {self._user!r} ({code}); it needs the tag "
                f"{tag!r} and access to vhost {self.vhost!r}; beside the tags it has: "
                f"{rabbitmq_commands.set_user_tags(self._user, tag)}"
            )
        return f"the management API at {self._base} answered {code} for vhost {self.vhost!r}{_reason(answer)}"


def _fingerprint(answer: HttpAnswer) -> bytes:
    return hashlib.blake2b(answer.body, digest_size=16).digest()


def _reason(answer: HttpAnswer) -> str:
    """What the API itself says about a refusal."""
    try:
        told = answer.json()
    except ValueError:
        return ""
    reason = told.get("reason") if isinstance(told, dict) else None
    return f": {reason}" if isinstance(reason, str) else ""


@asynccontextmanager
async def management(
    address: Address, api: str | None, *, need: str, timeout_s: float = TIMEOUT_S
) -> AsyncIterator[Management]:
    """Talk to the management API of the broker at `address`. Raises ManagementRefused."""
    base, user, password = api_of(address, api)
    verify: ssl.SSLContext | bool = address.tls.verify if address.tls is not None else True
    if base.startswith("http:"):
        verify = False  # nothing to verify; to read all certificates of this machine takes a while
    if verify and address.tls is not None and address.tls.ca_file is not None:
        verify = ssl.create_default_context(cafile=address.tls.ca_file)
    login = b64encode(f"{user}:{password}".encode()).decode()
    headers = {"authorization": f"Basic {login}"}
    async with asking(base, headers=headers, answer_s=timeout_s, verify=verify) as asked:
        yield Management(asked, base, user, address.vhost, need, answer_s=timeout_s)


async def list_queues(address: Address, api: str | None) -> list[QueueInfo]:
    """Every queue of the vhost. Raises ManagementRefused that says what to do."""
    need = "a pattern needs it to know the queues: give its address (DLQ_API, --api), or name one queue"
    async with management(address, api, need=need) as asked:
        return [
            QueueInfo(
                name=str(item["name"]),
                type=str(item.get("type", "classic")),
                exclusive=bool(item.get("exclusive")),
            )
            for item in (await asked.every("queues", "name,type,exclusive,arguments")).items
        ]
