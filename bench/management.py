"""The broker's management API, as far as a measurement needs it: a vhost of its own, and a shovel.

With `http.client` and not `urllib`, whose proxy settings would send a question for 127.0.0.1 to a proxy.
"""

from __future__ import annotations

import base64
import http.client
import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

from bench.errors import BenchError

TIMEOUT_S: Final = 60.0
_EVERYTHING: Final = {"configure": ".*", "write": ".*", "read": ".*"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Vhost:
    """A vhost of one measurement: nothing outside it is touched, and it goes with all it holds.

    `kind` is what stands before the vhost in a path: "queues", "parameters/shovel".
    """

    name: str
    url: str
    """The AMQP URL of this vhost."""
    api: str

    def put(self, kind: str, name: str, content: Mapping[str, object]) -> None:
        call(self.api, self.url, "PUT", *kind.split("/"), self.name, name, content=content)

    def has(self, kind: str, name: str) -> bool:
        return call(self.api, self.url, "GET", *kind.split("/"), self.name, name)

    def delete(self, kind: str, name: str) -> None:
        call(self.api, self.url, "DELETE", *kind.split("/"), self.name, name)


@contextmanager
def fresh_vhost(url: str, api: str) -> Iterator[Vhost]:
    """A new vhost that our user may do everything in."""
    name = f"bench-{secrets.token_hex(4)}"
    parts = urlsplit(url)
    call(api, url, "PUT", "vhosts", name)
    try:
        user = unquote(parts.username or "guest")
        call(api, url, "PUT", "permissions", name, user, content=_EVERYTHING)
        yield Vhost(name=name, url=parts._replace(path=f"/{quote(name, safe='')}").geturl(), api=api)
    finally:
        call(api, url, "DELETE", "vhosts", name)


def call(api: str, url: str, method: str, *path: str, content: Mapping[str, object] | None = None) -> bool:
    """One request. Whether the thing is there; any other refusal is raised."""
    return _request(api, url, method, *path, content=content) is not None


def ask(api: str, url: str, *path: str) -> Any:
    """What the API tells about something; None when it is not there."""
    said = _request(api, url, "GET", *path)
    return None if said is None else json.loads(said)


def _request(
    api: str, url: str, method: str, *path: str, content: Mapping[str, object] | None = None
) -> str | None:
    """Signed in as in the AMQP URL. What was answered; None when the thing is not there."""
    address, user = urlsplit(api), urlsplit(url)
    credentials = f"{unquote(user.username or 'guest')}:{unquote(user.password or 'guest')}"
    kind = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
    where = "/".join([address.path.rstrip("/"), *(quote(part, safe="") for part in path)])
    headers = {
        "Authorization": f"Basic {base64.b64encode(credentials.encode()).decode()}",
        "Content-Type": "application/json",
    }
    body = None if content is None else json.dumps(content)
    try:
        with closing(kind(address.hostname or "localhost", address.port, timeout=TIMEOUT_S)) as connection:
            connection.request(method, where, body=body, headers=headers)
            answer = connection.getresponse()
            said = answer.read().decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        raise BenchError(f"the management API at {address.netloc} does not answer: {error}") from error
    if answer.status == http.client.NOT_FOUND:
        return None
    if not http.client.OK <= answer.status < http.client.MULTIPLE_CHOICES:
        raise BenchError(f"the management API answered {method} {where} with {answer.status}: {said[:200]}")
    return said
