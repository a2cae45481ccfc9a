"""Questions to a broker that may not be up yet: do you speak AMQP, and does your management API answer?

They are asked with the standard library and by hand: this is about whether the door opens, and it must work
before there is anything to connect a client to. `http.client` and not `urllib`, whose proxy settings would
send a question for 127.0.0.1 to a proxy.
"""

from __future__ import annotations

import base64
import http.client
import json
import socket
from contextlib import closing
from urllib.parse import unquote, urlsplit

from deadletter.testing.node.node_files import Ports

_AMQP_0_9_1 = b"AMQP\x00\x00\x09\x01"
_GREETING_LIMIT_BYTES = 65_536
_VERSION_FIELD = b"\x07versionS"  # in the server properties of connection.start: name, then a long string


def listens(port: int, *, timeout_s: float = 2.0) -> bool:
    """Whether anybody accepts connections on that port of 127.0.0.1."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=timeout_s).close()
    except OSError:
        return False
    return True


def ready_version(ports: Ports) -> str | None:
    """The version of the node on these ports, or None until both its doors are open."""
    version = greeted_version(ports.amqp)
    api = f"http://127.0.0.1:{ports.api}/api"
    return version if version and management_version(api, "amqp://guest:guest@127.0.0.1") else None


def greeted_version(port: int, *, timeout_s: float = 2.0) -> str | None:
    """The version in the greeting of the broker on 127.0.0.1, or None while nobody greets."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=timeout_s) as connection:
            connection.sendall(_AMQP_0_9_1)
            greeting = b""
            while len(greeting) < _GREETING_LIMIT_BYTES:
                part = connection.recv(4096)
                if not part:
                    return None
                greeting += part
                _, found, rest = greeting.partition(_VERSION_FIELD)
                size_bytes = int.from_bytes(rest[:4], "big")
                if found and len(rest) >= 4 + size_bytes:
                    return rest[4 : 4 + size_bytes].decode("utf-8", "replace")
    except OSError:
        pass
    return None


def management_version(api: str, url: str, *, timeout_s: float = 5.0) -> str | None:
    """The version the management API tells, or None while it does not answer.

    Signs in with the user in the API's own address, else with the one in the AMQP URL.
    """
    address = urlsplit(api)
    user = address if address.username else urlsplit(url)
    name, password = unquote(user.username or "guest"), unquote(user.password or "guest")
    token = base64.b64encode(f"{name}:{password}".encode()).decode()
    kind = http.client.HTTPSConnection if address.scheme == "https" else http.client.HTTPConnection
    try:
        with closing(kind(address.hostname or "localhost", address.port, timeout=timeout_s)) as connection:
            connection.request(
                "GET", f"{address.path.rstrip('/')}/overview", headers={"Authorization": f"Basic {token}"}
            )
            answer = connection.getresponse()
            if answer.status != http.client.OK:
                return None
            version = json.loads(answer.read()).get("rabbitmq_version")
    except (OSError, http.client.HTTPException, ValueError, AttributeError):
        return None
    return version if isinstance(version, str) else None
