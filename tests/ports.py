"""Ports of this machine for servers that a test starts."""

from __future__ import annotations

import random
import socket
from collections import deque

_FIRST, _LAST = 10_000, 19_999
"""Below those that private brokers take, and below the range from which the system gives ports to clients:
while a server is not there yet, one that tries to reach it could get this very port and connect to itself."""
_KEPT = 500
_reserved: deque[socket.socket] = deque()


def free_port() -> int:
    """A port on which nobody listens, and which no other test is given: many run beside each other, and
    between this moment and the one in which a server listens there pass seconds. It is held by its twin of
    UDP, which nobody here uses, until this process ends or has asked for hundreds more."""
    for port in random.sample(range(_FIRST, _LAST + 1), 1_000):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            held = socket.socket(type=socket.SOCK_DGRAM)
            try:
                held.bind(("127.0.0.1", port))
                probe.bind(("127.0.0.1", port))
            except OSError:
                held.close()
                continue
        _reserved.append(held)
        if len(_reserved) > _KEPT:
            _reserved.popleft().close()
        return port
    raise AssertionError(f"no free port between {_FIRST} and {_LAST}")
