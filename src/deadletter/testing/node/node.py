"""One private RabbitMQ node, as processes of ours.

It has its own name, ports, folder and epmd (Erlang's directory of nodes, otherwise one per machine, started
by whoever comes first and left behind by everybody). It inherits nothing from the environment or from
/etc/rabbitmq, listens on 127.0.0.1 only, and runs in a session of its own, so that Ctrl-C reaches us and not
the node under our feet.

A node in another root gets a mount namespace of its own: /dev, /proc, /sys, the hosts file and its folder are
mounted in there and vanish with its last process, whatever ended it. Without /dev and hosts 4.3 hangs in its
prelaunch phase and says nothing.
"""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from deadletter.errors import NoPrivateBroker
from deadletter.testing.node import probe, processes
from deadletter.testing.node.node_files import Claim, release
from deadletter.testing.node.releases import Install

_CTL_LIMIT_S = 120.0
_GRACE_LIMIT_S = 60.0
_POLL_S = 0.1
_TAIL_LINES = 12
_TAIL_BYTES = 65_536
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_CLASH = ("eaddrinuse", "already in use", "address in use")

_ENTER = """
root=$1 folder=$2
shift 2
for tree in dev proc sys; do mount --rbind "/$tree" "$root/$tree"; done
mount --bind /etc/hosts "$root/etc/hosts"
mount -t tmpfs deadletter "$root/tmp"
mkdir -p "$root$folder"
mount --bind "$folder" "$root$folder"
exec chroot "$root" "$@"
"""
_TICK = "-rabbit quorum_tick_interval 1000"
"""Quorum queues tell the management API each second, not every five; rabbitmq.conf has no word for it."""


class PortClash(NoPrivateBroker):
    """Somebody took one of our ports between choosing and listening. Worth another try with others."""


@dataclass(slots=True, kw_only=True, eq=False)
class BrokerNode:
    """A node and its epmd. Not frozen: it is a thing in the world that comes and goes."""

    claim: Claim
    install: Install
    start_limit_s: float
    version: str = ""
    _epmd: subprocess.Popen[bytes] | None = None
    _server: subprocess.Popen[bytes] | None = None
    _stopped: bool = False
    # Reentrant: a signal handler stops the node in the very thread that may be starting it.
    _spawning: threading.RLock = field(default_factory=threading.RLock)

    def start(self) -> None:
        """Start epmd where needed, then the node, and return when it takes connections."""
        if self.install.is_chroot:
            (self.install.root / "etc/hosts").touch()  # something to mount on
        if not (cookie := self.claim.folder / "home/.erlang.cookie").exists():
            cookie.write_text(secrets.token_hex(16), encoding="ascii")
            cookie.chmod(0o400)
        if self._epmd is None or self._epmd.poll() is not None:
            self._epmd = self._spawn("epmd", "-address", "127.0.0.1", "-port", str(self.claim.ports.epmd))
            self._await_epmd(self._epmd)
        self._server = self._spawn(str(self.install.bin / "rabbitmq-server"))
        self._await_ready(self._server)

    def restart(self) -> None:
        """End the node as an operator would, and start it on the same data and ports. Also after `kill`."""
        if self._server is not None and self._server.poll() is None:
            # RabbitMQ's own script turns this into an orderly shutdown.
            self._server.terminate()
            try:
                self._server.wait(timeout=_GRACE_LIMIT_S)
            except subprocess.TimeoutExpired:
                self.kill()
        self._end_server()
        self.start()

    def kill(self) -> None:
        """kill -9: no shutdown, no flush. The epmd stays, as it would on a real machine."""
        self._end_server()

    def stop(self) -> None:
        """End everything and remove every trace. There is nothing to flush: the data goes as well."""
        with self._spawning:
            self._stopped = True
        processes.end(self.claim.folder)
        for process in (self._server, self._epmd):
            if process is not None:
                _reap(process)
        release(self.claim.folder)

    def rabbitmqctl(self, *arguments: str) -> str:
        """What `rabbitmqctl` says on stdout, asked of this node."""
        command = self._command(str(self.install.bin / "rabbitmqctl"), *arguments)
        done = processes.run(command, env=self._environment(), limit_s=_CTL_LIMIT_S)
        if done.returncode != 0:
            said = (done.stderr or done.stdout).strip()
            raise NoPrivateBroker(f"rabbitmqctl {' '.join(arguments)} failed ({done.returncode}): {said}")
        return done.stdout

    def _end_server(self) -> None:
        spare = () if self._epmd is None else (self._epmd.pid,)
        processes.end(self.claim.folder, spare=spare)
        if self._server is not None:
            _reap(self._server)

    def _spawn(self, *arguments: str) -> subprocess.Popen[bytes]:
        with self._spawning, (self.claim.folder / "log/console").open("ab") as console:
            if self._stopped:
                raise NoPrivateBroker(f"{self.claim.name} was stopped and is gone; start another one")
            try:
                return subprocess.Popen(  # noqa: S603 - a list of our own words
                    self._command(*arguments),
                    env=self._environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=console,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise NoPrivateBroker(
                    f"cannot run {arguments[0]}: {error}; is RabbitMQ complete here?"
                ) from error

    def _command(self, *arguments: str) -> list[str]:
        if not self.install.is_chroot:
            # Looked up here: Popen would search our own PATH, not the one we pass.
            return [shutil.which(arguments[0], path=_PATH) or arguments[0], *arguments[1:]]
        enter = ["unshare", "--mount", "--propagation", "private", "sh", "-eu", "-c", _ENTER, "enter"]
        return [*enter, str(self.install.root), str(self.claim.folder), *arguments]

    def _environment(self) -> dict[str, str]:
        folder, ports = self.claim.folder, self.claim.ports
        loopback = "-kernel inet_dist_use_interface {127,0,0,1}"
        # Files that are not there: they keep the node from reading the ones in /etc/rabbitmq.
        nothing = str(folder / "etc/nothing")
        return {
            processes.MARK: str(folder),
            "PATH": _PATH if self.install.is_chroot else f"{_PATH}:{os.environ.get('PATH', '')}",
            "HOME": str(folder / "home"),
            "LANG": "C.UTF-8",
            "ERL_EPMD_PORT": str(ports.epmd),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_CRASH_DUMP_SECONDS": "0",
            "RABBITMQ_NODENAME": self.claim.node,
            "RABBITMQ_CONF_ENV_FILE": nothing,
            "RABBITMQ_CONFIG_FILE": str(folder / "etc/rabbitmq.conf"),
            "RABBITMQ_CONFIG_FILES": nothing,
            "RABBITMQ_ADVANCED_CONFIG_FILE": nothing,
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "etc/enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_SCHEMA_DIR": str(folder / "data/schema"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_DIST_PORT": str(ports.dist),
            # The name among the arguments makes the node easy to tell in `ps`.
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"{loopback} {_TICK} -deadletter {self.claim.name}",
            "RABBITMQ_CTL_ERL_ARGS": loopback,
        }

    def _await_epmd(self, epmd: subprocess.Popen[bytes]) -> None:
        limit_at = time.monotonic() + self.start_limit_s
        while time.monotonic() < limit_at:
            if epmd.poll() is not None:
                raise self._failure(f"epmd ended with code {epmd.returncode}")
            if probe.listens(self.claim.ports.epmd):
                return
            time.sleep(_POLL_S / 2)
        raise self._failure(f"epmd did not listen within {self.start_limit_s:g} s")

    def _await_ready(self, server: subprocess.Popen[bytes]) -> None:
        limit_at = time.monotonic() + self.start_limit_s
        while time.monotonic() < limit_at:
            if server.poll() is not None:
                raise self._failure(f"RabbitMQ ended with code {server.returncode} instead of starting")
            if (version := probe.ready_version(self.claim.ports)) is not None:
                # The doors open a moment before the start is complete; a shutdown in between goes wrong.
                self.rabbitmqctl("await_startup")
                self.version = version
                return
            time.sleep(_POLL_S)
        raise self._failure(f"RabbitMQ was not ready within {self.start_limit_s:g} s")

    def _failure(self, what: str) -> NoPrivateBroker:
        tail = self._tail()
        kind = PortClash if any(word in tail.lower() for word in _CLASH) else NoPrivateBroker
        where = f"RabbitMQ {self.install.version} in {self.install.root}"
        return kind(
            f"{what} ({where}). Its last lines were:\n{tail}\n"
            "Try again; if it stays so, set DLQ_URL to a broker of yours."
        )

    def _tail(self) -> str:
        """The first complaints and the last words: Erlang's reports are long, their reason comes first."""
        texts = [_text(path) for path in sorted((self.claim.folder / "log").glob("*"))]
        lines = [line.strip() for text in texts for line in text.splitlines() if line.strip()]
        complaints = [line for line in lines if "error" in line.lower()][:_TAIL_LINES]
        last = [line for line in lines[-_TAIL_LINES:] if line not in complaints]
        return "\n".join([*complaints, *last]) or "(nothing)"


def _text(path: Path) -> str:
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            return log.read().decode("utf-8", "replace")
    except OSError:
        return ""


def _reap(process: subprocess.Popen[bytes]) -> None:
    try:
        process.wait(timeout=_GRACE_LIMIT_S)
    except subprocess.TimeoutExpired as error:
        raise NoPrivateBroker(f"process {process.pid} does not end, not even by kill -9") from error
