"""The private broker, on the real thing: it starts beside others, and goes without a trace whatever happens.

Traces are looked for by other means than the code uses: the node's name anywhere in any process's command
line or environment, its folder, its ports, and the mounts.

About `testing.node.private`, `testing.node.node`, `testing.node.node_files`, `testing.node.probe`,
`testing.node.processes`, `testing.node.releases`.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import trustme
from tests.brokers import Vhost, call, in_vhost

from deadletter.errors import NoPrivateBroker, UsageError
from deadletter.testing.node import node_files, probe, processes, releases
from deadletter.testing.node.node_files import Owner
from deadletter.testing.node.private import PrivateBroker, TlsFiles, private_broker, start_private_broker

START_LIMIT_S = 120.0

OWNER = """
import sys, time
from deadletter.testing.node.private import private_broker
print("begun", flush=True)
with private_broker(sys.argv[1] or None) as broker:
    print(broker.node, broker.url, flush=True)
    time.sleep(600)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """A Python process that owns a broker."""

    process: subprocess.Popen[bytes]
    node: str
    port: int


def traces(node: str) -> list[str]:
    """Whatever is left of a node on this machine."""
    name = node.partition("@")[0]
    found = [f"folder {path}" for path in Path("/tmp").glob(f"deadletter-*/{name}")]
    for process in Path("/proc").glob("[0-9]*"):
        for file in ("cmdline", "environ"):
            try:
                if name.encode() in (process / file).read_bytes():
                    found.append(f"process {process.name} ({(process / 'comm').read_text().strip()})")
            except OSError:
                continue
    mounts = Path("/proc/self/mounts").read_text()
    found += [f"mount {line}" for line in mounts.splitlines() if name in line or "/brokers/" in line]
    return found


def port_of(url: str) -> int:
    port = urlsplit(url).port
    assert port is not None
    return port


def spawn(version: str | None) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        # Under nohup a child would inherit that SIGHUP is ignored, and then it rightly is.
        [sys.executable, "-c", "import signal; signal.signal(1, signal.SIG_DFL)\n" + OWNER, version or ""],
        stdout=subprocess.PIPE,
        bufsize=0,  # a line read ahead into a buffer is a line that select does not see
    )


def read_line(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    ready, _, _ = select.select([process.stdout], [], [], START_LIMIT_S)
    assert ready, "the child said nothing"
    return process.stdout.readline().decode().strip()


@pytest.fixture(scope="module")
def children(broker_version: str | None) -> Iterator[tuple[Child, Child, Child]]:
    """Three processes that each start a broker at the same moment. None survives the module."""
    started = [spawn(broker_version) for _ in range(3)]
    try:
        one, two, three = (_child(process) for process in started)
        yield one, two, three
    finally:
        for process in started:
            process.terminate()
            process.communicate(timeout=120)


def _child(process: subprocess.Popen[bytes]) -> Child:
    assert read_line(process) == "begun"
    node, _, url = read_line(process).partition(" ")
    return Child(process=process, node=node, port=port_of(url))


@pytest.fixture
def tls(tmp_path: Path) -> TlsFiles:
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost", "127.0.0.1")
    files = TlsFiles(ca=tmp_path / "ca.pem", cert=tmp_path / "cert.pem", key=tmp_path / "key.pem")
    authority.cert_pem.write_to_path(str(files.ca))
    certificate.cert_chain_pems[0].write_to_path(str(files.cert))
    certificate.private_key_pem.write_to_path(str(files.key))
    return files


def test_starts_at_once_do_not_collide(children: tuple[Child, Child, Child]) -> None:
    ports = {child.port for child in children}
    assert len(ports) == len({child.node for child in children}) == 3
    assert 5672 not in ports
    assert all(probe.greeted_version(port) for port in ports)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_gone_after_a_signal(children: tuple[Child, Child, Child], number: signal.Signals) -> None:
    child = children[0] if number is signal.SIGINT else children[1]
    assert traces(child.node), "a look for traces that finds none while it runs proves nothing"
    child.process.send_signal(number)
    child.process.wait(timeout=120)
    assert traces(child.node) == []
    # Whoever watches the process sees the signal, as if we had not been there.
    assert child.process.returncode == -number


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_gone_after_a_signal_in_the_middle_of_a_start(
    broker_version: str | None, number: signal.Signals
) -> None:
    process = spawn(broker_version)
    try:
        assert read_line(process) == "begun"
        limit_at = time.monotonic() + 120
        while not (begun := owned_by(process.pid)) and time.monotonic() < limit_at:
            time.sleep(0.02)
        time.sleep(1.0)
        process.send_signal(number)
        process.wait(timeout=120)
        assert len(begun) == 1
        assert process.returncode == -number
        assert traces(begun[0]) == []
    finally:
        process.kill()
        process.communicate()


def owned_by(pid: int) -> list[str]:
    """Nodes of this process; others come and go meanwhile."""
    found = []
    for record in node_files.runtime_folder().glob("*/owner.json"):
        with suppress(FileNotFoundError):
            if f'"pid": {pid},' in record.read_text():
                found.append(record.parent.name)
    return sorted(found)


def test_after_kill_9_the_next_start_tidies_up(
    children: tuple[Child, Child, Child], broker: PrivateBroker, broker_version: str | None, tls: TlsFiles
) -> None:
    orphan = children[2]
    orphan.process.kill()
    orphan.process.wait(timeout=120)
    assert probe.greeted_version(orphan.port), "nobody tidies up after kill -9: the node is an orphan now"
    # The next start also shows what else can be asked of one: TLS and lines of configuration.
    with private_broker(broker_version, tls=tls, extra_config=["heartbeat = 17"]) as next_one:
        assert traces(orphan.node) == []
        assert not probe.listens(orphan.port)
        assert probe.greeted_version(port_of(broker.url)), "what has an owner is not swept"
        assert "{heartbeat,17}" in next_one.rabbitmqctl("environment").replace(" ", "")
        assert next_one.tls_url is not None
        context = ssl.create_default_context(cafile=tls.ca)
        address = ("127.0.0.1", port_of(next_one.tls_url))
        with (
            socket.create_connection(address, timeout=10) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as wrapped,
        ):
            wrapped.sendall(b"AMQP\x00\x00\x09\x01")
            assert wrapped.recv(1) == b"\x01"
    assert next_one.node is not None
    assert traces(next_one.node) == []
    next_one.stop()  # once more does no harm


def test_a_node_that_cannot_start_says_why_and_leaves_nothing(broker_version: str | None) -> None:
    before = owned_by(os.getpid())
    with pytest.raises(NoPrivateBroker, match="no_such_setting") as caught:
        start_private_broker(broker_version, extra_config=["no_such_setting = 1"])
    assert "DLQ_URL" in str(caught.value)
    assert owned_by(os.getpid()) == before


@pytest.mark.slow
@pytest.mark.kills
def test_a_restart_and_a_crash_keep_durable_data(broker: PrivateBroker, vhost: Vhost) -> None:
    vhost.put("queues", "kept", durable=True)
    published = {
        "properties": {"delivery_mode": 2},
        "routing_key": "kept",
        "payload": "a",
        "payload_encoding": "string",
    }
    answer = call(broker, "POST", "exchanges", vhost.name, "amq.default", "publish", content=published)
    assert answer == {"routed": True}
    for disturbance in (broker.restart, broker.kill):
        disturbance()
        if disturbance == broker.kill:
            assert probe.greeted_version(port_of(broker.url)) is None
            broker.restart()
        look = {"count": 9, "ackmode": "ack_requeue_true", "encoding": "auto"}
        found = call(broker, "POST", "queues", vhost.name, "kept", "get", content=look)
        assert [message["payload"] for message in found] == ["a"]


def test_the_vhost_is_fresh_and_its_url_is_encoded(broker: PrivateBroker, vhost: Vhost) -> None:
    assert vhost.list("queues") == []
    assert vhost.depth("absent") is None
    vhost.put("queues", "here", durable=True)
    assert vhost.depth("here") == 0
    assert vhost.url == f"{broker.url}/{vhost.name.replace('/', '%2F')}"
    assert in_vhost("amqp://u:p@h:1", "/") == "amqp://u:p@h:1/%2F"
    names = [each["name"] for each in call(broker, "GET", "vhosts")]
    assert vhost.name in names


def test_it_is_the_version_asked_for(broker: PrivateBroker, broker_version: str | None) -> None:
    if broker_version is not None and "/" not in broker_version:
        assert broker.version.startswith(f"{broker_version}.")
    assert broker.version in broker.rabbitmqctl("version")


def test_a_failing_rabbitmqctl_says_what_it_said(broker: PrivateBroker) -> None:
    with pytest.raises(NoPrivateBroker, match="delete_vhost nowhere"):
        broker.rabbitmqctl("delete_vhost", "nowhere")


def test_a_given_broker_is_used_as_it_is(broker: PrivateBroker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLQ_URL", f"{broker.url}/some")
    monkeypatch.setenv("DLQ_API", broker.api)
    with private_broker() as given:
        assert given.url == f"{broker.url}/some"
        assert (given.api, given.version, given.node) == (broker.api, broker.version, None)
        for verb in (given.restart, given.kill, given.rabbitmqctl):
            with pytest.raises(UsageError, match="unset DLQ_URL"):
                verb()
    assert probe.greeted_version(port_of(broker.url)) == broker.version, "it was not ours to stop"


def test_the_management_api_of_a_given_broker_is_on_the_same_host(monkeypatch: pytest.MonkeyPatch) -> None:
    for url, api in (
        ("amqp://me:secret@rabbit.example:5673/shop", "http://rabbit.example:15672/api"),
        ("amqp://[::1]/", "http://[::1]:15672/api"),
    ):
        monkeypatch.setenv("DLQ_URL", url)
        assert releases.find() == releases.Given(url=url, api=api)


def test_with_nothing_at_hand_one_sentence_says_what_to_do(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("DLQ_BROKERS", str(tmp_path))
    monkeypatch.setattr(releases, "_PACKAGE_BIN", Path("/nowhere/rabbitmq/bin"))
    with pytest.raises(NoPrivateBroker) as caught:
        start_private_broker()
    for way in ("DLQ_URL", "rabbitmq-server", "Docker"):
        assert way in str(caught.value)
    with pytest.raises(NoPrivateBroker, match=r"scripts/fetch-brokers 9\.9"):
        start_private_broker("9.9")
    with pytest.raises(NoPrivateBroker, match="no RabbitMQ in"):
        start_private_broker(tmp_path)


def test_half_a_root_is_no_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DLQ_BROKERS", str(tmp_path))
    monkeypatch.setattr(releases, "docker_answers", lambda: False)
    monkeypatch.setattr(os, "getuid", lambda: 0)
    for suite, version in (("one", "9.9.2"), ("two", "9.9.10"), ("three", "9.10.0")):
        root = tmp_path / suite
        (root / "usr/lib/rabbitmq/bin").mkdir(parents=True)
        (root / "usr/lib/rabbitmq/bin/rabbitmq-server").touch()
        (root / f"usr/lib/rabbitmq/lib/rabbitmq_server-{version}").mkdir(parents=True)
    with pytest.raises(NoPrivateBroker):
        releases.find("9.9")
    for suite in ("one", "two", "three"):
        (tmp_path / suite / releases.STAMP).touch()
    found = releases.find("9.9")
    assert isinstance(found, releases.Install)
    assert (found.root, found.version) == (tmp_path / "two", "9.9.10")


def test_an_owner_is_one_process_and_no_later_one_with_its_pid() -> None:
    me = Owner.me()
    assert not me.is_gone()
    assert replace(me, started_at_ticks=(me.started_at_ticks or 0) - 1).is_gone()
    assert replace(me, boot="before the last power cut").is_gone()
    assert not replace(me, pid_namespace="pid:[1]", pid=0).is_gone(), (
        "pids of a container are not ours to judge"
    )


@pytest.fixture
def sleepers() -> Iterator[tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]]]:
    """Two processes that carry marks of nodes which have no folder here."""
    folder = node_files.runtime_folder()
    started = [
        subprocess.Popen(["sleep", "60"], env={processes.MARK: str(folder / name)})
        for name in ("dlq-00000001", "dlq-00000002")
    ]
    yield started[0], started[1]
    for process in started:
        process.kill()
        process.wait()


def test_only_who_carries_the_mark_is_ended(
    sleepers: tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]],
) -> None:
    ours, other = sleepers
    assert processes.end(node_files.runtime_folder() / "dlq-00000001") == []
    assert ours.wait(timeout=120) == -signal.SIGKILL
    assert other.poll() is None


def test_a_node_whose_folder_is_in_another_root_is_not_swept(
    sleepers: tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]],
) -> None:
    # It has an owner there. A sweep that went by marks alone once ended three living nodes that way.
    with node_files.locked() as folder:
        assert not {"dlq-00000001", "dlq-00000002"} & {path.name for path in node_files.stale(folder)}
    assert all(process.poll() is None for process in sleepers)


def test_a_folder_killed_before_it_was_signed_is_swept() -> None:
    with node_files.locked() as folder:
        unsigned = folder / "dlq-00000003"
        unsigned.mkdir()
        (folder / "not-a-node").mkdir()
        try:
            assert [
                path for path in node_files.stale(folder) if path.name in {unsigned.name, "not-a-node"}
            ] == [unsigned]
        finally:
            (folder / "not-a-node").rmdir()
            node_files.release(unsigned)
