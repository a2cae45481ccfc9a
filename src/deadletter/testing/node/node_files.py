"""What a private node has on disk, and whose it is.

::

    /tmp/deadletter-<uid>/          for this user only; locked while somebody claims or sweeps
      dlq-1f3a09c2/                 one node: the folder's name is the node's name
        owner.json                  which process started it, and the ports it was given
        etc/                        rabbitmq.conf, enabled_plugins, certificates
        data/ log/ home/            everything RabbitMQ writes

A claim and a sweep happen under one lock, so two starts at once never choose the same ports, and nobody
sweeps a folder that is just being claimed. A folder whose owner is gone (kill -9, power cut) is stale; the
next start ends what still runs of it and removes it.

The folder is in /tmp itself, not in $TMPDIR: nodes inside another root get it mounted at the same path, so
that every path in a configuration is right on both sides.
"""

from __future__ import annotations

import fcntl
import json
import os
import random
import re
import secrets
import shutil
import socket
import stat
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from deadletter.errors import NoPrivateBroker
from deadletter.testing.node import processes

_SAMPLES = ("global", "basic", "detailed")
PLUGINS = ("rabbitmq_management", "rabbitmq_shovel", "rabbitmq_shovel_management")

_LOCK_LIMIT_S = 60.0
_NODE_FOLDER = re.compile(r"dlq-[0-9a-f]{8}")
_NEVER = frozenset({4369, 5671, 5672, 15671, 15672, 25672})  # where everybody expects a real broker


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """PEM files for a TLS listener."""

    ca: Path
    cert: Path
    key: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    amqp: int
    api: int
    dist: int
    epmd: int
    tls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """The process that started a node, named so that no other can be taken for it."""

    pid: int
    started_at_ticks: int | None
    pid_namespace: str
    boot: str

    @classmethod
    def me(cls) -> Self:
        return cls(
            pid=os.getpid(),
            started_at_ticks=processes.started_at_ticks(os.getpid()),
            pid_namespace=_pid_namespace(),
            boot=_boot(),
        )

    def is_gone(self) -> bool:
        if self.boot != _boot():
            return True
        # A container that shares our /tmp has pids of its own; we cannot judge them, so its nodes stay.
        if self.pid_namespace != _pid_namespace():
            return False
        # Without /proc both are None: nothing is ever judged gone there, and nothing is ever swept.
        return processes.started_at_ticks(self.pid) != self.started_at_ticks


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A node's folder and ports, ours until released."""

    folder: Path
    ports: Ports

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def node(self) -> str:
        return f"{self.name}@localhost"

    @property
    def etc(self) -> Path:
        return self.folder / "etc"


def runtime_folder() -> Path:
    return Path(f"/tmp/deadletter-{os.getuid()}")  # noqa: S108 - checked in `locked`: ours, and closed to others


@contextmanager
def locked(*, limit_s: float = _LOCK_LIMIT_S) -> Iterator[Path]:
    """The runtime folder, created where needed, and nobody else claims or sweeps in it meanwhile."""
    folder = runtime_folder()
    limit_at = time.monotonic() + limit_s
    while True:
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        try:
            handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue  # the last node left between the two lines, and took the folder along
        except OSError as error:
            raise NoPrivateBroker(f"cannot use {folder}: {error}; remove it and try again") from error
        try:
            _check_ours(folder, os.fstat(handle))
            if _lock(handle, limit_at=limit_at, folder=folder) and _same(handle, folder):
                yield folder
                return
        finally:
            os.close(handle)


def stale(folder: Path) -> list[Path]:
    """Node folders in the runtime folder whose owner is gone. To be called under the lock."""
    # Only folders count, never a process whose folder seems to be missing: it may be in another root, with
    # a /tmp of its own and a living owner. That was tried once and ended three nodes of somebody else.
    return [path for path in folder.iterdir() if _NODE_FOLDER.fullmatch(path.name) and _is_stale(path)]


def claim(folder: Path) -> Claim:
    """A new node folder with ports that nobody has. To be called under the lock."""
    taken = {port for path in folder.iterdir() for port in _recorded_ports(path)}
    amqp, api, dist, epmd, tls = _free_ports(5, taken=taken)
    ours = Claim(
        folder=folder / f"dlq-{secrets.token_hex(4)}",
        ports=Ports(amqp=amqp, api=api, dist=dist, epmd=epmd, tls=tls),
    )
    ours.folder.mkdir(mode=0o700)
    record = {"owner": asdict(Owner.me()), "ports": asdict(ours.ports)}
    (ours.folder / "owner.json").write_text(json.dumps(record, indent=1), encoding="utf-8")
    for name in ("etc", "data", "log", "home"):
        (ours.folder / name).mkdir()
    return ours


def release(node_folder: Path) -> None:
    """Remove a node's folder, and the runtime folder with the last one. The processes are gone by now."""
    for _ in range(10):
        shutil.rmtree(node_folder, ignore_errors=True)
        if not node_folder.exists():
            break
        time.sleep(0.1)
    # No waiting for the lock: a signal may have called us while this very process holds it. Whoever holds
    # it claims or sweeps and will tidy up at its own end.
    with suppress(NoPrivateBroker, OSError), locked(limit_s=0) as folder:
        folder.rmdir()


def write_configuration(
    claim: Claim,
    *,
    listen: str,
    seen_at: Path,
    tls: TlsFiles | None,
    plugins: Sequence[str],
    extra: Sequence[str],
) -> None:
    """Fill `etc`. `seen_at` is the path by which the broker itself sees that folder."""
    lines = [
        f"listeners.tcp.1 = {listen}:{claim.ports.amqp}",
        f"management.tcp.ip = {listen}",
        f"management.tcp.port = {claim.ports.api}",
        "disk_free_limit.absolute = 1MB",  # a small disk is no reason to block a test
        # What the management API tells is a second or two old, not ten: queues report each second (quorum
        # queues by another clock, see node.py), and that is looked at as often as samples are kept.
        "collect_statistics_interval = 1000",
        *(f"management.sample_retention_policies.{kind}.minute = 1" for kind in _SAMPLES),
        *(f"management.sample_retention_policies.{kind}.hour = 60" for kind in _SAMPLES),
    ]
    if tls is not None:
        for name, path in (("ca", tls.ca), ("cert", tls.cert), ("key", tls.key)):
            shutil.copyfile(path, claim.etc / f"{name}.pem")
        lines += [
            f"listeners.ssl.1 = {listen}:{claim.ports.tls}",
            f"ssl_options.cacertfile = {seen_at}/ca.pem",
            f"ssl_options.certfile = {seen_at}/cert.pem",
            f"ssl_options.keyfile = {seen_at}/key.pem",
            "ssl_options.verify = verify_peer",
            "ssl_options.fail_if_no_peer_cert = false",
        ]
    names = ",".join(dict.fromkeys((*PLUGINS, *plugins)))
    (claim.etc / "rabbitmq.conf").write_text("\n".join([*lines, *extra, ""]), encoding="utf-8")
    (claim.etc / "enabled_plugins").write_text(f"[{names}].\n", encoding="utf-8")


def _is_stale(node_folder: Path) -> bool:
    try:
        record = json.loads((node_folder / "owner.json").read_text(encoding="utf-8"))
        return Owner(**record["owner"]).is_gone()
    except (OSError, ValueError, KeyError, TypeError):
        return True  # killed between making the folder and signing it


def _recorded_ports(node_folder: Path) -> list[int]:
    try:
        return list(json.loads((node_folder / "owner.json").read_text(encoding="utf-8"))["ports"].values())
    except (OSError, ValueError, KeyError, AttributeError):
        return []


def _free_ports(count: int, *, taken: Collection[int]) -> list[int]:
    """Ports nobody listens on, from below the range the kernel gives to outgoing connections.

    Inside that range a client that keeps trying to reach a broker which is just restarting sooner or later
    gets the broker's own port as its local one, connects to itself, and the broker cannot bind any more.
    """
    lowest_outgoing = 32768
    with suppress(OSError, ValueError):
        lowest_outgoing = int(
            Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0]
        )
    if lowest_outgoing < 16384:
        lowest_outgoing = 32768
    candidates = list(range(lowest_outgoing - 8192, lowest_outgoing))
    random.shuffle(candidates)
    free: list[int] = []
    for port in candidates:
        if port in _NEVER or port in taken:
            continue
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        free.append(port)
        if len(free) == count:
            return free
    raise NoPrivateBroker(f"no free port between {min(candidates)} and {max(candidates)} on 127.0.0.1")


def _check_ours(folder: Path, status: os.stat_result) -> None:
    # /tmp belongs to everybody: a folder somebody else prepared could be swapped under our feet.
    if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise NoPrivateBroker(
            f"{folder} must belong to this user and be closed to others; remove it and try again"
        )


def _lock(handle: int, *, limit_at: float, folder: Path) -> bool:
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= limit_at:
                raise NoPrivateBroker(f"{folder} has been locked by another start for too long") from None
            time.sleep(0.05)
        else:
            return True


def _same(handle: int, folder: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), folder.stat())
    except FileNotFoundError:
        return False


def _pid_namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _boot() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""
