"""The limit: what a client in Python can do at most that does nothing with a letter but pass it on.

Frames on one socket, one channel. A delivery becomes one ready-made `basic.publish`, and the frames of its
content header and its body go out again as they came, unread. Deliveries and publishes are in one order, so
the number of a publish is the tag of its delivery; confirms are counted, and everything below the lowest one
that is missing is acked at once. No letter is looked at, so there is no return, refusal or reconnect that it
could tell of: it is a measuring stick, and nobody's mover.
"""

from __future__ import annotations

import select
import socket
import struct
from typing import Final

from bench.job import Job
from deadletter.amqp.address import Address, parse_address

_HEAD: Final = struct.Struct(">BHI")
_WHAT: Final = struct.Struct(">HH")
_CONFIRM: Final = struct.Struct(">QB")
_SIZE: Final = struct.Struct(">Q")
_ACK: Final = struct.Struct(">BHIHHQBB")
_METHOD, _HEADER = 1, 2
_DELIVER, _BASIC_ACK = (60, 60), (60, 80)
_OUTSIDE: Final = 8
"""Bytes of a frame around its payload."""
_END: Final = b"\xce"
_READ: Final = 1 << 20
_WRITE: Final = 1 << 18
_STALLED_S: Final = 30.0


def move(job: Job) -> None:
    address = parse_address(job.url)
    with socket.create_connection((address.host, address.port)) as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _open(line, address, job)
        line.setblocking(False)
        _Splice(line, job).run()
        line.setblocking(True)
        line.sendall(_method(0, 10, 50, struct.pack(">H", 200) + _short("") + struct.pack(">HH", 0, 0)))
        _answer(line)  # it has read everything: the last ack, too


class _Splice:
    def __init__(self, line: socket.socket, job: Job) -> None:
        self._line = line
        self._count = job.count
        self._publish = _method(1, 60, 40, b"\0\0" + _short("") + _short(job.target) + b"\x01")
        self._in = bytearray()
        self._out = bytearray()
        self._floor = 0
        """All up to here are confirmed and acked."""
        self._beyond: set[int] = set()
        self._body_left = 0

    def run(self) -> None:
        while self._floor < self._count or self._out:
            readable, writable, _ = select.select(
                [self._line], [self._line] if self._out else [], [], _STALLED_S
            )
            if not readable and not writable:
                raise RuntimeError(f"nothing happened for {_STALLED_S:.0f} s after {self._floor} letters")
            if writable:
                del self._out[: self._line.send(self._out[:_WRITE])]
            if readable:
                part = self._line.recv(_READ)
                if not part:
                    raise RuntimeError(f"the broker closed the connection after {self._floor} letters")
                self._in += part
                self._ack(self._forward())

    def _forward(self) -> int:
        """Every whole frame that is here. The highest number of a confirm of several."""
        came, out, at, highest = self._in, self._out, 0, self._floor
        end_of_came = len(came)
        while end_of_came - at >= _OUTSIDE:
            kind, _, size = _HEAD.unpack_from(came, at)
            end = at + size + _OUTSIDE
            if end > end_of_came:
                break
            if kind == _METHOD:
                what = _WHAT.unpack_from(came, at + 7)
                if what == _DELIVER:
                    out += self._publish
                    self._body_left = -1  # until its header says
                elif what == _BASIC_ACK:
                    number, several = _CONFIRM.unpack_from(came, at + 11)
                    if several:
                        highest = max(highest, number)
                    else:
                        self._beyond.add(number)
                else:
                    raise RuntimeError(f"the broker said {what} after {self._floor} letters")
            elif kind == _HEADER:
                self._body_left = _SIZE.unpack_from(came, at + 11)[0]
                out += came[at:end]
            else:
                self._body_left -= size
                out += came[at:end]
            at = end
        del came[:at]
        return highest

    def _ack(self, highest: int) -> None:
        if self._body_left:
            return  # not between the frames of one letter
        while highest + 1 in self._beyond:
            highest += 1
        if highest > self._floor:
            self._beyond = {number for number in self._beyond if number > highest}
            self._floor = highest
            self._out += _ACK.pack(_METHOD, 1, 13, *_BASIC_ACK, highest, 1, _END[0])


def _open(line: socket.socket, address: Address, job: Job) -> None:
    """From the first byte to a consumer; each answer is awaited and believed."""
    line.sendall(b"AMQP\x00\x00\x09\x01")
    _answer(line)
    secret = f"\0{address.user}\0{address.password}".encode()
    line.sendall(_method(0, 10, 11, _long(b"") + _short("PLAIN") + _long(secret) + _short("en_US")))
    channels, frame_bytes, _ = struct.unpack_from(">HIH", _answer(line), 4)
    line.sendall(_method(0, 10, 31, struct.pack(">HIH", channels, frame_bytes, 0)))
    for request in (
        _method(0, 10, 40, _short(address.vhost) + b"\0\0"),
        _method(1, 20, 10, b"\0"),
        _method(1, 85, 10, b"\0"),
        _method(1, 60, 10, struct.pack(">IHB", 0, job.prefetch, 0)),
        _method(1, 60, 20, b"\0\0" + _short(job.source) + _short("") + b"\0" + _long(b"")),
    ):
        line.sendall(request)
        _answer(line)


def _answer(line: socket.socket) -> bytes:
    """The payload of the next frame, and not a byte more: deliveries follow the last of them."""
    _, _, size = _HEAD.unpack(_exactly(line, _HEAD.size))
    payload = _exactly(line, size + 1)[:-1]
    if _WHAT.unpack_from(payload) in ((10, 50), (20, 40)):
        raise RuntimeError(f"the broker refused: {payload[7 : 7 + payload[6]].decode(errors='replace')}")
    return payload


def _exactly(line: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        part = line.recv(size - len(found))
        if not part:
            raise RuntimeError("the broker closed the connection; it may not know this user or vhost")
        found += part
    return found


def _method(channel: int, of: int, name: int, arguments: bytes) -> bytes:
    payload = _WHAT.pack(of, name) + arguments
    return _HEAD.pack(_METHOD, channel, len(payload)) + payload + _END


def _short(text: str) -> bytes:
    data = text.encode()
    return bytes([len(data)]) + data


def _long(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data
