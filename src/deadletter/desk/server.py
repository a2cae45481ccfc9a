"""The HTTP server, inside the service's own event loop.

uvicorn is used without what it likes to do for whole programs: it installs no signal handlers, starts no
lifespan, configures no logging. The socket is bound here, so that a port that is taken is one clear sentence.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable, Iterator
from typing import Final

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from deadletter.errors import UsageError

END_S: Final = 2
"""How long requests may still take when the server is ended."""
_CONNECTIONS: Final = 200
_BACKLOG: Final = 128
_HEAD_BYTES: Final = 32_768
REQUEST_S: Final = 10.0
"""What a request may take to come, from the connection or the answer before it to its last byte."""
WAITING_MAX: Final = 100
"""The most connections that may be there without a whole request."""


class PatientProtocol(H11Protocol):
    """uvicorn's own waits for a first request without end; this one has a bound.

    A client that opens connections and never ends a request costs us nothing but places, so places are what
    is bounded. Each connection has a few seconds from its first byte to the end of its request, dribbling or
    not; and of all that wait, the one that waits longest goes when there are too many. So whoever asks in
    earnest (an orchestrator for `/health/live`) finds a place, however many others hold one.
    """

    waiting_since: float | None = None
    """The loop's time since when a request is awaited; None while one is answered."""
    _patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        super().connection_made(transport)
        self._look()
        waiting = [
            (one.waiting_since, number, one)
            for number, one in enumerate(self.connections)
            if isinstance(one, PatientProtocol) and one.waiting_since is not None
        ]
        if len(waiting) > WAITING_MAX:
            min(waiting)[2].give_up()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._look()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._rest()
        self._look()

    def connection_lost(self, exc: Exception | None) -> None:
        self._rest()
        super().connection_lost(exc)

    def _look(self) -> None:
        """Is a request on its way? The clock starts once for each, not with every byte of it."""
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._rest()
        elif self.waiting_since is None and not self.transport.is_closing():
            self.waiting_since = self.loop.time()
            self._patience = self.loop.call_later(REQUEST_S, self.give_up)

    def _rest(self) -> None:
        self.waiting_since = None
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def give_up(self) -> None:
        """The client took too long, or too many do."""
        self._rest()
        self.transport.abort()


def host_of(listen: str) -> str:
    """The host of `host:port`, without brackets."""
    return _parted(listen)[0]


async def serve(app: ASGIApp, listen: str, *, on_ready: Callable[[str], None]) -> None:
    """Answer at `host:port` until cancelled. `on_ready` hears the URL, with the real port instead of 0.

    UsageError when the address cannot be had.
    """
    host, port = _parted(listen)
    sockets = await _bind(host, port, listen)
    named = f"[{host}]" if ":" in host else host
    url = f"http://{named}:{sockets[0].getsockname()[1]}"
    server = _Embedded(
        uvicorn.Config(
            app,
            http=PatientProtocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            backlog=_BACKLOG,
            limit_concurrency=_CONNECTIONS,
            timeout_keep_alive=5,
            timeout_graceful_shutdown=END_S,
            h11_max_incomplete_event_size=_HEAD_BYTES,
        ),
        on_started=lambda: on_ready(url),
    )
    serving = asyncio.create_task(server.serve(sockets), name="http")
    try:
        await asyncio.shield(serving)
    finally:
        server.should_exit = True
        done, _ = await asyncio.wait({serving}, timeout=END_S + 1)
        if not done:
            serving.cancel()
        for one in sockets:
            one.close()


class _Embedded(uvicorn.Server):
    """Leaves signals to the service, and says when it answers."""

    def __init__(self, config: uvicorn.Config, *, on_started: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_started = on_started

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_started()


def _parted(listen: str) -> tuple[str, int]:
    host, colon, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > 65_535:
        raise UsageError(f"[serve] listen: expected host:port such as 127.0.0.1:8025, got {listen!r}")
    return host, int(port)


async def _bind(host: str, port: int, listen: str) -> list[socket.socket]:
    """A socket for each address of the host; for any free port, one."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
    except OSError as error:
        raise UsageError(
            f"[serve] listen: expected a host of this machine, got {listen!r}: {error.strerror or error}"
        ) from error
    bound: list[socket.socket] = []
    refused: OSError | None = None
    for family, kind, protocol, _, address in dict.fromkeys(found[:1] if port == 0 else found):
        try:
            one = socket.socket(family, kind, protocol)
        except OSError as error:  # a host with an IPv6 address on a machine without IPv6
            refused = error
            continue
        try:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind(address)
            one.listen(_BACKLOG)
            one.setblocking(False)
        except OSError as error:
            one.close()
            refused = error
            if error.errno != errno.EADDRNOTAVAIL:
                break
            continue
        bound.append(one)
    if refused is not None and (not bound or refused.errno != errno.EADDRNOTAVAIL):
        for one in bound:
            one.close()
        raise UsageError(f"[serve] listen: {_why(refused, listen)}") from refused
    return bound


def _why(error: OSError, listen: str) -> str:
    match error.errno:
        case errno.EADDRINUSE:
            return (
                f"expected an address that is free, got {listen}, where another process listens; stop that "
                'one or choose another port, or listen = "off" for none'
            )
        case errno.EACCES:
            return f"expected a port that this user may open, got {listen}; take one above 1023"
        case errno.EADDRNOTAVAIL:
            return f"expected an address of this machine, got {listen}; 0.0.0.0 is every one of them"
        case _:
            return f"cannot listen on {listen}: {error.strerror or error}"
