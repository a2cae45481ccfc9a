"""From an address to an open connection, or to an error that says what to do about it.

TCP, TLS when asked for (verified unless told otherwise), AMQP's greeting, login, tuning, vhost. Each step
fails in its own way, and most of those failures look alike on the wire: here they are told apart.
"""

from __future__ import annotations

import asyncio
import platform
import socket
import ssl
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from deadletter import __version__
from deadletter.amqp import replies, requests
from deadletter.amqp.address import Address, Tls
from deadletter.amqp.connection import Connection
from deadletter.amqp.frames import PROTOCOL_HEADER
from deadletter.core.letter.field_table import Value
from deadletter.errors import (
    CannotConnect,
    CertificateRefused,
    ClosedByBroker,
    ConnectionLost,
    FrameError,
    LoginRefused,
    NotAmqp,
    Unreachable,
    UsageError,
    VhostRefused,
)

if TYPE_CHECKING:
    from deadletter.amqp.replies import Reply

_R = TypeVar("_R", bound="Reply")
_TLS_ALERT: Final = b"\x15\x03"
"""What a TLS server answers to AMQP without TLS: a record of type alert, of any version of TLS 1."""
_FRAME_MAX_BYTES: Final = 131072
_CHANNEL_MAX: Final = 65535
_CAPABILITIES: Final[Mapping[str, Value]] = {
    "publisher_confirms": True,
    "consumer_cancel_notify": True,
    "basic.nack": True,
    "connection.blocked": True,
    "authentication_failure_close": True,
}


async def connect(address: Address, *, name: str = "deadletter") -> Connection:
    """Open a connection; raises a CannotConnect, or a UsageError for certificate files that are not there."""
    loop = asyncio.get_running_loop()
    context = None if address.tls is None else _tls_context(address.tls)
    server_name = None
    if address.tls is not None:
        server_name = address.tls.server_name or address.host
    connection: Connection | None = None
    try:
        async with asyncio.timeout(address.connect_timeout_s):
            transport, connection = await loop.create_connection(
                lambda: Connection(address, loop),
                address.host,
                address.port,
                ssl=context,
                server_hostname=server_name,
            )
            sock = transport.get_extra_info("socket")
            if sock is not None:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await _greet(connection, name)
    except BaseException as error:
        if connection is not None:
            connection.abort(ConnectionLost("the connection did not come about"))
            await connection.gone()
        known = _cannot_connect(address, error)
        if known is None:
            raise
        raise known from error
    return connection


async def _greet(connection: Connection, name: str) -> None:
    address = connection.address
    connection.send(PROTOCOL_HEADER)
    hint = "" if address.tls else "; if it is a TLS port, use amqps://"
    start = await _hear(connection, replies.Start, f"before it said a word{hint}")
    connection.server_properties = start.server_properties
    if address.mechanism not in start.mechanisms.split():
        raise LoginRefused(f"{address} offers {start.mechanisms} to log in, not {address.mechanism}")
    connection.send_method(0, _login(address, name))
    # A wrong password is answered in words; a mere hang-up is a line that was lost.
    tune = await _hear(connection, replies.Tune, "at the login", refused=(LoginRefused, (403,), ""))
    heartbeat_s = min(filter(None, (tune.heartbeat_s, address.heartbeat_s)), default=0)
    connection.channel_max = min(tune.channel_max or _CHANNEL_MAX, _CHANNEL_MAX)
    connection.frame_max_bytes = min(tune.frame_max_bytes or _FRAME_MAX_BYTES, _FRAME_MAX_BYTES)
    connection.send_method(
        0, requests.tune_ok(connection.channel_max, connection.frame_max_bytes, heartbeat_s)
    )
    connection.send_method(0, requests.open_connection(address.vhost))
    hint = "; is the vhost there, and open to this user?"
    await _hear(
        connection,
        replies.OpenOk,
        "while the vhost was opened",
        refused=(VhostRefused, (402, 403, 530), hint),
    )
    connection.start_heartbeats(heartbeat_s)


async def _hear(
    connection: Connection,
    expected: type[_R],
    when: str,
    *,
    refused: tuple[type[CannotConnect], tuple[int, ...], str] | None = None,
) -> _R:
    """The next word of the broker's, or what its absence means to a person."""
    address = connection.address
    try:
        word = await connection.reply()
    except ClosedByBroker as error:
        if refused is not None and error.code in refused[1]:
            kind, _, hint = refused
            raise kind(f"{address}: {error.text}{hint}") from error
        raise
    except ConnectionLost as error:
        raise Unreachable(f"{address} hung up {when}") from error
    except FrameError as error:
        raise _not_amqp(address, error) from error
    if not isinstance(word, expected):
        raise NotAmqp(f"{address} said {type(word).__name__} where AMQP has {expected.__name__}")
    return word


def _login(address: Address, name: str) -> bytes:
    properties: dict[str, Value] = {
        "product": "Deadletter",
        "version": __version__,
        "platform": f"Python {platform.python_version()}",
        "connection_name": name,
        "capabilities": _CAPABILITIES,
    }
    external = address.mechanism == "EXTERNAL"
    response = b"" if external else f"\0{address.user}\0{address.password}".encode()
    return requests.start_ok(properties, address.mechanism, response)


def _tls_context(tls: Tls) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=None if tls.ca_file is None else str(tls.ca_file))
        if tls.cert_file is not None:
            context.load_cert_chain(tls.cert_file, tls.key_file)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(str(file) for file in (tls.ca_file, tls.cert_file, tls.key_file) if file)
        raise UsageError(f"cannot read the TLS files {files}: {error}") from error
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _not_amqp(address: Address, error: FrameError) -> NotAmqp:
    if error.first_bytes.startswith(_TLS_ALERT) and address.tls is None:
        return NotAmqp(f"{address} speaks TLS; use amqps://")
    return NotAmqp(f"{address} is not an AMQP 0-9-1 broker: {error}")


def _cannot_connect(address: Address, error: BaseException) -> CannotConnect | None:
    """What a failure of the first steps means to a person; None when it already says so."""
    match error:
        case ssl.SSLCertVerificationError():
            return CertificateRefused(
                f"the certificate of {address} does not verify: {error.verify_message}; "
                "give its authority as ?cacertfile=FILE, or add ?verify=verify_none to go unverified"
            )
        case ssl.SSLError():
            return NotAmqp(
                f"{address} does not answer with TLS ({error.reason}); is it a plain port? use amqp://"
            )
        case UnicodeError():
            return Unreachable(f"{address}: {address.host!r} cannot be the name of a host")
        case TimeoutError():
            return Unreachable(f"{address} did not answer within {address.connect_timeout_s:g} s")
        case socket.gaierror():
            return Unreachable(f"{address}: no such host ({error.strerror})")
        case OSError():
            return Unreachable(
                f"cannot reach {address}: {error.strerror or error}; is the broker running there?"
            )
        case _:
            return None
