"""What the broker tests need of RabbitMQ beside the code under test: a vhost of their own, and a way to look.

Everything here goes through the management API with the standard library, so that a mistake in our own client
cannot hide itself.
"""

from __future__ import annotations

import base64
import http.client
import json
import secrets
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from deadletter.testing.node.private import PrivateBroker


@dataclass(frozen=True, slots=True, kw_only=True)
class Vhost:
    """A vhost of one test. It is created empty and deleted with all it holds."""

    name: str
    broker: PrivateBroker

    @property
    def url(self) -> str:
        """The AMQP URL of this vhost."""
        return in_vhost(self.broker.url, self.name)

    @property
    def tls_url(self) -> str | None:
        return None if self.broker.tls_url is None else in_vhost(self.broker.tls_url, self.name)

    @property
    def api(self) -> str:
        """The management API of the broker; the vhost goes into the path."""
        return self.broker.api

    def depth(self, queue: str) -> int | None:
        """How many messages a queue holds, up to a second late; None when there is no such queue."""
        found = self.get("queues", queue)
        return None if found is None else int(found.get("messages", 0))

    def get(self, kind: str, name: str) -> Any:
        """One object of this vhost ("queues", "exchanges", "policies", ...), or None."""
        return call(self.broker, "GET", kind, self.name, name)

    def list(self, kind: str) -> list[Any]:
        """All objects of a kind in this vhost."""
        found = call(self.broker, "GET", kind, self.name)
        assert isinstance(found, list)
        return found

    def put(self, kind: str, name: str, **content: object) -> None:
        """Create or change an object of this vhost."""
        call(self.broker, "PUT", kind, self.name, name, content=content)

    def delete(self, kind: str, name: str) -> None:
        call(self.broker, "DELETE", kind, self.name, name)


def in_vhost(url: str, name: str) -> str:
    """The URL with that vhost, percent-encoded: a slash belongs to the name."""
    parts = urlsplit(url)
    return parts._replace(path=f"/{quote(name, safe='')}").geturl()


@contextmanager
def fresh_vhost(broker: PrivateBroker) -> Iterator[Vhost]:
    # The slash is meant: code that forgets to encode a vhost fails here and not at a user's.
    name = f"test/{secrets.token_hex(4)}"
    user = unquote(urlsplit(broker.url).username or "guest")
    call(broker, "PUT", "vhosts", name)
    try:
        everything = {"configure": ".*", "write": ".*", "read": ".*"}
        call(broker, "PUT", "permissions", name, user, content=everything)
        yield Vhost(name=name, broker=broker)
    finally:
        call(broker, "DELETE", "vhosts", name)


@contextmanager
def seen_by(vhost: Vhost, *, configure: str, write: str, read: str, tags: str = "") -> Iterator[Vhost]:
    """The vhost as a user with these patterns and tags sees it."""
    call(vhost.broker, "PUT", "users", "small", content={"password": "secret", "tags": tags.replace(" ", "")})
    patterns = {"configure": configure, "write": write, "read": read}
    call(vhost.broker, "PUT", "permissions", vhost.name, "small", content=patterns)
    url = vhost.broker.url.replace("guest:guest@", "small:secret@")
    try:
        yield replace(vhost, broker=replace(vhost.broker, url=url))
    finally:
        call(vhost.broker, "DELETE", "users", "small")


def call(broker: PrivateBroker, method: str, *path: str, content: object = None) -> Any:
    """One request to the management API; None for 404, an AssertionError for any other refusal."""
    api, amqp = urlsplit(broker.api), urlsplit(broker.url)
    user = api if api.username else amqp
    token = base64.b64encode(
        f"{unquote(user.username or '')}:{unquote(user.password or '')}".encode()
    ).decode()
    kind = http.client.HTTPSConnection if api.scheme == "https" else http.client.HTTPConnection
    where = "/".join([api.path.rstrip("/"), *(quote(part, safe="") for part in path)])
    body = None if content is None else json.dumps(content)
    headers = {"Authorization": f"Basic {token}", "Content-Type": "application/json"}
    with closing(kind(api.hostname or "localhost", api.port, timeout=30)) as connection:
        connection.request(method, where, body=body, headers=headers)
        answer = connection.getresponse()
        said = answer.read()
    if answer.status == http.client.NOT_FOUND:
        return None
    assert 200 <= answer.status < 300, f"{method} {where}: {answer.status} {said.decode(errors='replace')}"
    return json.loads(said) if said else None


def raise_memory_alarm(broker: PrivateBroker, seconds: float = 120.0) -> None:
    """The broker takes no publishes when this returns: it looks at its memory only every few seconds."""
    broker.rabbitmqctl("set_vm_memory_high_watermark", "0.00001")
    until = time.monotonic() + seconds
    while "memory" not in broker.rabbitmqctl("eval", "rabbit_alarm:get_alarms()."):
        assert time.monotonic() < until, f"no memory alarm within {seconds} s"


def end_memory_alarm(broker: PrivateBroker) -> None:
    broker.rabbitmqctl("set_vm_memory_high_watermark", "0.4")
