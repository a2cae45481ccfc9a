"""Coming about and coming back: who answers, what it says, and how long we try.

The servers here are real sockets on loopback that behave badly in one way each.

About `broker.session`, `amqp.handshake`.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st
from tests import amqp_oracle as oracle
from tests.amqp_server import Peer, serving

from deadletter.amqp.address import Address, Tls
from deadletter.amqp.handshake import connect
from deadletter.broker.session import Connected, Link, Persistence, SessionEvent, Waiting, supervise
from deadletter.errors import (
    CannotConnect,
    CertificateRefused,
    ConnectionForced,
    ConnectionLost,
    FrameRefused,
    LoginRefused,
    NotAmqp,
    NotFound,
    Unreachable,
    UsageError,
    VhostRefused,
)

QUICK = Persistence(first_s=0.6, again_s=0.6, pause_s=0.05, pause_max_s=0.2)


def at(port: int, *, timeout_s: float = 2.0) -> Address:
    return Address(port=port, password="s3cret", connect_timeout_s=timeout_s)


def closed_port() -> int:
    """A port where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        found = probe.getsockname()[1]
        assert isinstance(found, int)
        return found


# -- the pause ----------------------------------------------------------------------------------------------
def test_the_pause_doubles_up_to_its_most() -> None:
    persistence = Persistence(pause_s=0.2, pause_max_s=10.0)
    longest = [persistence.pause(tries, 1.0) for tries in range(1, 9)]
    assert longest == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0])


def test_the_pause_of_try_ten_thousand_is_still_its_most() -> None:
    assert Persistence(pause_max_s=10.0).pause(10_000, 1.0) == 10.0
    assert Persistence(pause_max_s=10.0).pause(10_000, 0.0) == 5.0


@given(st.integers(1, 10_000), st.floats(0, 1), st.floats(0.001, 100), st.floats(0.001, 1000))
def test_the_dice_choose_between_half_and_all(tries: int, dice: float, pause_s: float, most_s: float) -> None:
    persistence = Persistence(pause_s=pause_s, pause_max_s=most_s)
    longest, found = persistence.pause(tries, 1.0), persistence.pause(tries, dice)
    assert longest / 2 <= found <= longest <= most_s
    assert persistence.pause(tries + 1, 1.0) >= longest


# -- what answers -------------------------------------------------------------------------------------------
async def test_nobody_listens() -> None:
    with pytest.raises(Unreachable, match="is the broker running there") as raised:
        await connect(at(closed_port()))
    assert "s3cret" not in str(raised.value)


async def test_no_such_host() -> None:
    with pytest.raises(Unreachable, match="no such host"):
        await connect(Address(host="broker.invalid"))


@pytest.mark.parametrize("host", ["a" * 64, "a..b", ".a"])
async def test_a_host_that_cannot_be_one_is_said_in_our_words(host: str) -> None:
    with pytest.raises((Unreachable, UsageError)):
        await connect(Address(host=host, connect_timeout_s=2.0))


async def test_it_accepts_and_hangs_up() -> None:
    async def script(peer: Peer) -> None:
        peer.writer.close()

    async with serving(script) as port:
        with pytest.raises(Unreachable, match=r"hung up before it said a word; .*amqps://"):
            await connect(at(port))


async def test_it_accepts_and_resets() -> None:
    async def script(peer: Peer) -> None:
        peer.writer.transport.abort()

    async with serving(script) as port:
        with pytest.raises(Unreachable):
            await connect(at(port))


async def test_it_says_nothing() -> None:
    async def script(peer: Peer) -> None:
        await asyncio.sleep(30)

    async with serving(script) as port:
        with pytest.raises(Unreachable, match=r"did not answer within 0\.2 s"):
            await connect(at(port, timeout_s=0.2))


@pytest.mark.parametrize(
    "words",
    [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"AMQP\x00\x01\x00\x00",
        b"AMQP\x00\x00\x09\x01",
        b"SSH-2.0-OpenSSH_9.2p1\r\n",
        b"\x00" * 100,
        b"\x01\x00\x00\xff\xff\xff\xff",
        oracle.frame(1, 0, b"\x00\x0a\x00\x0a"),
        oracle.frame(1, 0, oracle.OPEN_OK),
        oracle.frame(1, 0, oracle.method(99, 99)),
        oracle.frame(3, 0, b"body"),
    ],
)
async def test_it_does_not_speak_amqp(words: bytes) -> None:
    async def script(peer: Peer) -> None:
        peer.raw(words)

    async with serving(script) as port:
        with pytest.raises(NotAmqp, match=f"127.0.0.1:{port}"):
            await connect(at(port))


async def test_it_answers_with_a_tls_alert() -> None:
    async def script(peer: Peer) -> None:
        peer.raw(b"\x15\x03\x03\x00\x02\x02\x46")
        peer.writer.close()

    async with serving(script) as port:
        with pytest.raises(NotAmqp, match="speaks TLS; use amqps://"):
            await connect(at(port))


async def test_it_does_not_speak_tls() -> None:
    async def script(peer: Peer) -> None:
        await peer.reader.read(8)
        peer.raw(b"AMQP\x00\x00\x09\x01")

    async with serving(script) as port:
        with pytest.raises(NotAmqp, match="use amqp://"):
            await connect(Address(port=port, tls=Tls(), connect_timeout_s=2.0))


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def server_tls(authority: trustme.CA, name: str = "localhost") -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(name).configure_cert(context)
    return context


async def test_a_certificate_of_an_unknown_authority_is_refused(authority: trustme.CA) -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()

    async with serving(script, tls=server_tls(authority)) as port:
        with pytest.raises(CertificateRefused, match="cacertfile"):
            await connect(Address(host="localhost", port=port, tls=Tls()))


async def test_a_certificate_is_verified_by_authority_and_name(authority: trustme.CA, tmp_path: Path) -> None:
    ca_file = tmp_path / "ca.pem"
    authority.cert_pem.write_to_path(str(ca_file))

    async def script(peer: Peer) -> None:
        await peer.greet()

    async with serving(script, tls=server_tls(authority)) as port:
        connection = await connect(Address(host="localhost", port=port, tls=Tls(ca_file=ca_file)))
        await connection.close()
        with pytest.raises(CertificateRefused):
            await connect(
                Address(host="localhost", port=port, tls=Tls(ca_file=ca_file, server_name="other.example"))
            )
        connection = await connect(Address(host="localhost", port=port, tls=Tls(verify=False)))
        await connection.close()


async def test_a_tls_file_that_is_not_there_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"nowhere\.pem"):
        await connect(Address(tls=Tls(ca_file=tmp_path / "nowhere.pem")))


# -- what it says at the door -------------------------------------------------------------------------------
async def up_to_login(peer: Peer, mechanisms: bytes = b"PLAIN AMQPLAIN") -> bytes:
    await peer.reader.readexactly(8)
    peer.say(0, oracle.start(mechanisms))
    _, arguments = await peer.expect(10, 11)
    return arguments


async def up_to_vhost(peer: Peer) -> bytes:
    await up_to_login(peer)
    peer.say(0, oracle.tune(2047, 131072, 0))
    await peer.expect(10, 31)
    _, arguments = await peer.expect(10, 40)
    return arguments


async def test_the_login_is_what_the_address_says() -> None:
    heard: list[bytes] = []

    async def script(peer: Peer) -> None:
        heard.append(await up_to_login(peer))
        peer.say(0, oracle.tune(2047, 131072, 0))
        await peer.expect(10, 31)
        heard.append((await peer.expect(10, 40))[1])
        peer.say(0, oracle.OPEN_OK)

    async with serving(script) as port:
        connection = await connect(Address(port=port, user="größe", password="pw", vhost="a/b"))
        assert connection.server_version == "0.0.1"
        await connection.close()
    assert oracle.short(b"PLAIN") + oracle.long("\0größe\0pw".encode()) in heard[0]
    assert heard[1].startswith(oracle.short(b"a/b"))


async def test_a_login_that_is_refused_with_a_word() -> None:
    async def script(peer: Peer) -> None:
        await up_to_login(peer)
        peer.say(0, oracle.closing(10, 50, 403, b"ACCESS_REFUSED - Login was refused"))

    async with serving(script) as port:
        with pytest.raises(LoginRefused, match="Login was refused") as raised:
            await connect(at(port))
        assert "s3cret" not in str(raised.value)


async def test_a_line_that_is_lost_at_the_login_is_worth_another_try() -> None:
    async def script(peer: Peer) -> None:
        await up_to_login(peer)
        peer.writer.close()

    async with serving(script) as port:
        with pytest.raises(Unreachable, match="hung up at the login"):
            await connect(at(port))


async def test_a_way_to_log_in_that_is_not_offered() -> None:
    async def script(peer: Peer) -> None:
        await up_to_login(peer, b"EXTERNAL X-PLAIN")

    async with serving(script) as port:
        with pytest.raises(LoginRefused, match="offers EXTERNAL X-PLAIN to log in, not PLAIN"):
            await connect(at(port))


@pytest.mark.parametrize("code", [402, 403, 530])
async def test_a_vhost_that_is_refused(code: int) -> None:
    async def script(peer: Peer) -> None:
        await up_to_vhost(peer)
        peer.say(0, oracle.closing(10, 50, code, b"NOT_ALLOWED - vhost nowhere not found"))

    async with serving(script) as port:
        with pytest.raises(VhostRefused, match="vhost nowhere not found"):
            await connect(at(port))


async def test_an_end_after_the_login_is_a_connection_that_did_not_come_about() -> None:
    async def script(peer: Peer) -> None:
        await up_to_vhost(peer)
        peer.writer.close()

    async with serving(script) as port:
        with pytest.raises(CannotConnect):
            await connect(at(port))


async def test_garbage_at_the_login_is_not_amqp() -> None:
    async def script(peer: Peer) -> None:
        await up_to_login(peer)
        peer.raw(b"garbage")

    async with serving(script) as port:
        with pytest.raises(NotAmqp):
            await connect(at(port))


async def test_something_other_than_open_ok_is_not_an_open_connection() -> None:
    async def script(peer: Peer) -> None:
        await up_to_vhost(peer)
        peer.say(0, oracle.tune(1, 2, 3))

    async with serving(script) as port:
        with pytest.raises(CannotConnect):
            await connect(at(port))


# -- supervise ----------------------------------------------------------------------------------------------
async def test_it_gives_up_after_its_patience() -> None:
    events: list[SessionEvent] = []

    async def work(_link: Link) -> None:
        raise AssertionError("there is nobody to work with")

    with pytest.raises(Unreachable):
        await supervise(
            [at(closed_port())], work, persistence=QUICK, dice=lambda: 0.5, on_event=events.append
        )
    waits = [event for event in events if isinstance(event, Waiting)]
    assert len(waits) == len(events) >= 3
    assert [wait.tries for wait in waits] == list(range(1, len(waits) + 1))
    assert all(isinstance(wait.reason, Unreachable) for wait in waits)


async def test_without_patience_it_must_be_there() -> None:
    events: list[SessionEvent] = []

    async def work(_link: Link) -> None:
        raise AssertionError("there is nobody to work with")

    with pytest.raises(Unreachable):
        await supervise([at(closed_port())], work, on_event=events.append)
    assert events == []


async def test_it_asks_every_host_and_names_them_all_when_none_answers() -> None:
    ports = [closed_port(), closed_port()]

    async def work(_link: Link) -> None:
        raise AssertionError("there is nobody to work with")

    with pytest.raises(Unreachable, match="none of the hosts answers") as raised:
        await supervise([at(port) for port in ports], work)
    for port in ports:
        assert f":{port}/" in str(raised.value)


async def test_it_takes_the_first_host_that_answers() -> None:
    async def hang_up(peer: Peer) -> None:
        peer.writer.close()

    async def script(peer: Peer) -> None:
        await peer.greet()

    events: list[SessionEvent] = []

    async def work(link: Link) -> int:
        return link.address.port

    async with serving(hang_up) as bad, serving(script) as good:
        hosts = [at(closed_port()), at(bad), at(good)]
        assert await supervise(hosts, work, on_event=events.append) == good
    assert events == [Connected(address=at(good), server_version="0.0.1")]


async def test_work_is_run_again_when_the_link_is_lost() -> None:
    served = 0

    async def script(peer: Peer) -> None:
        nonlocal served
        served += 1
        await peer.greet()
        if served < 3:
            await peer.open_channel()
            peer.say(0, oracle.closing(10, 50, 320, b"CONNECTION_FORCED - broker forced it"))
        else:
            await peer.open_channel()

    events: list[SessionEvent] = []
    runs = 0

    async def work(link: Link) -> str:
        nonlocal runs
        runs += 1
        connection = await link.connection("consume")
        await connection.channel()
        if served < 3:
            raise await connection.closed
        return "done"

    async with serving(script) as port:
        found = await supervise([at(port)], work, persistence=QUICK, on_event=events.append)
    assert (found, runs) == ("done", 3)
    assert [type(event) for event in events] == [Connected, Waiting, Connected, Waiting, Connected]
    assert all(isinstance(e.reason, ConnectionForced) for e in events if isinstance(e, Waiting))


async def test_a_broker_that_hangs_up_every_time_is_not_asked_for_ever() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        peer.writer.close()

    async def work(link: Link) -> None:
        raise await (await link.connection("consume")).closed

    async with serving(script) as port:
        with pytest.raises(ConnectionLost):
            await asyncio.wait_for(supervise([at(port)], work, persistence=QUICK), 60)


@pytest.mark.parametrize(
    "error", [NotFound(404, "no queue"), FrameRefused(501, "too large"), UsageError("x"), ValueError("x")]
)
async def test_what_would_be_the_same_in_a_minute_is_raised_at_once(error: Exception) -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()

    runs = 0

    async def work(_link: Link) -> None:
        nonlocal runs
        runs += 1
        raise error

    async with serving(script) as port:
        with pytest.raises(type(error)):
            await supervise([at(port)], work, persistence=QUICK)
    assert runs == 1


# -- refused after it worked --------------------------------------------------------------------------------
FORGIVING = Persistence(first_s=0.0, again_s=None, pause_s=0.02, pause_max_s=0.05, forgives=True)


class Moody:
    """A broker that refuses the login for as long as it is told to."""

    def __init__(self, refusals: int, *, first: bool = False) -> None:
        self.logins = 0
        self._refusals = refusals
        self._welcome = 0 if first else 1

    async def script(self, peer: Peer) -> None:
        self.logins += 1
        if self._welcome < self.logins <= self._welcome + self._refusals:
            await up_to_login(peer)
            peer.say(0, oracle.closing(10, 50, 403, b"ACCESS_REFUSED"))
            return
        await peer.greet()
        await peer.goodbye()


async def lost_once(runs: list[Link], link: Link) -> str:
    runs.append(link)
    if len(runs) == 1:
        raise ConnectionLost("cut")
    return "done"


async def test_a_login_that_is_refused_once_it_worked_is_tried_again_with_growing_pauses() -> None:
    broker, events, runs = Moody(4), list[SessionEvent](), list[Link]()
    async with serving(broker.script) as port:
        said = await supervise(
            [at(port)],
            lambda link: lost_once(runs, link),
            persistence=FORGIVING,
            dice=lambda: 1.0,
            on_event=events.append,
        )
    assert (said, len(runs), broker.logins) == ("done", 2, 6)
    waits = [event for event in events if isinstance(event, Waiting)]
    assert [type(wait.reason) for wait in waits] == [ConnectionLost, *[LoginRefused] * 4]
    assert [wait.seconds for wait in waits] == pytest.approx([0.02, 0.04, 0.08, 0.16, 0.32])


async def test_one_that_never_worked_or_does_not_forgive_is_told_at_once() -> None:
    runs: list[Link] = []
    never = Moody(1, first=True)
    async with serving(never.script) as port:
        with pytest.raises(LoginRefused):
            await supervise([at(port)], lambda link: lost_once(runs, link), persistence=FORGIVING)
    assert (never.logins, runs) == (1, [])
    strict = Moody(1)
    async with serving(strict.script) as port:
        with pytest.raises(LoginRefused):
            await supervise([at(port)], lambda link: lost_once(runs, link), persistence=QUICK)
    assert strict.logins == 2


async def test_it_may_have_worked_in_an_earlier_life() -> None:
    broker = Moody(2, first=True)

    async def work(_link: Link) -> str:
        return "done"

    async with serving(broker.script) as port:
        assert await supervise([at(port)], work, persistence=FORGIVING, been_there=True) == "done"
    assert broker.logins == 3


async def test_a_host_that_refuses_does_not_hide_one_that_does_not() -> None:
    moody, kind, runs = Moody(100), Moody(0), list[Link]()
    async with serving(moody.script) as first, serving(kind.script) as second:
        await supervise([at(first), at(second)], lambda link: lost_once(runs, link), persistence=FORGIVING)
    assert [link.address.port for link in runs] == [first, second]


async def test_a_link_that_is_aborted_answers_nobody_any_more() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()
        await asyncio.sleep(60)

    async with serving(script) as port:
        link = Link(at(port), "test")
        connection = await link.connection("consume")
        opening = asyncio.create_task(connection.channel())
        await asyncio.sleep(0)
        link.abort(ConnectionLost("enough"))
        with pytest.raises(ConnectionLost, match="enough"):
            await opening
        await link.close()


async def test_the_patience_for_coming_back_begins_when_the_link_was_there() -> None:
    # A broker that is long in coming, and drops its first client while it starts: it was there, so the
    # patience is the one for a link that was there, and that began a moment ago.
    port, served = closed_port(), 0

    async def script(peer: Peer) -> None:
        nonlocal served
        served += 1
        await peer.greet()
        if served == 1:
            await peer.open_channel()
            peer.writer.close()
        else:
            await peer.open_channel()

    async def work(link: Link) -> str:
        connection = await link.connection("consume")
        await connection.channel()
        if served == 1:
            raise await connection.closed
        return "done"

    persistence = Persistence(first_s=10.0, again_s=1.0, pause_s=0.05, pause_max_s=0.1)
    supervised = asyncio.create_task(supervise([at(port)], work, persistence=persistence))
    await asyncio.sleep(1.3)
    async with serving(script, port=port):
        assert await asyncio.wait_for(supervised, 60) == "done"


async def test_a_link_has_one_connection_per_purpose() -> None:
    async def script(peer: Peer) -> None:
        await peer.greet()

    async with serving(script) as port:
        link = Link(at(port), "test")
        first = await link.connection("consume")
        assert await link.connection("consume") is first
        other = await link.connection("publish")
        assert other is not first
        first.abort(ConnectionLost("cut"))
        assert await link.connection("consume") is not first
        await link.close()
        assert other.closed.done()
