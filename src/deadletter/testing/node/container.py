"""A private broker in Docker, for machines where RabbitMQ can be neither found nor installed.

UNVERIFIED: no Docker engine was available where this was written and tested. It follows the documentation of
the engine and of the image `rabbitmq`; the first person with an engine is asked to run
`tests/broker/testing/test_private_node.py` on a machine without RabbitMQ and to take this paragraph out.

Configuration is copied in, not mounted: our folder is closed to the user inside, and an engine may be on
another machine. Inside it listens on every address, and the engine publishes the ports on 127.0.0.1 only.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from deadletter.errors import NoPrivateBroker
from deadletter.testing.node import probe, processes
from deadletter.testing.node.node_files import Claim, release
from deadletter.testing.node.releases import Image

SEEN_AT = Path("/etc/rabbitmq")
_NOTE = "container"  # a file in the node's folder: there is, or soon will be, a container of its name
_DOCKER_LIMIT_S = 120.0
_PULL_LIMIT_S = 900.0
_POLL_S = 0.2


@dataclass(slots=True, kw_only=True, eq=False)
class Container:
    """The same verbs as a node has, said to an engine."""

    claim: Claim
    image: Image
    start_limit_s: float
    with_tls: bool
    version: str = ""

    def start(self) -> None:
        ports = self.claim.ports
        published = [ports.amqp, ports.api, *([ports.tls] if self.with_tls else [])]
        options = [f"--publish=127.0.0.1:{port}:{port}" for port in published]
        (self.claim.folder / _NOTE).touch()
        _docker("pull", "--quiet", self.image.name, limit_s=_PULL_LIMIT_S)
        _docker("create", f"--name={self.claim.name}", *options, self.image.name)
        _docker("cp", f"{self.claim.etc}/.", f"{self.claim.name}:{SEEN_AT}")
        self._run()

    def restart(self) -> None:
        _docker("stop", "--time=60", self.claim.name)
        self._run()

    def kill(self) -> None:
        _docker("kill", self.claim.name)

    def stop(self) -> None:
        remove_container(self.claim.folder)
        release(self.claim.folder)

    def rabbitmqctl(self, *arguments: str) -> str:
        return _docker("exec", self.claim.name, "rabbitmqctl", *arguments)

    def _run(self) -> None:
        _docker("start", self.claim.name)
        limit_at = time.monotonic() + self.start_limit_s
        while time.monotonic() < limit_at:
            if (version := probe.ready_version(self.claim.ports)) is not None:
                self.version = version
                return
            time.sleep(_POLL_S)
        tail = _docker("logs", "--tail=15", self.claim.name)
        raise NoPrivateBroker(
            f"{self.image.name} was not ready within {self.start_limit_s:g} s. It said:\n{tail}"
        )


def remove_container(folder: Path) -> None:
    """Remove the container of a node's folder with its volumes, if it has one."""
    if (folder / _NOTE).exists():
        _docker("rm", "--force", "--volumes", folder.name, missing_is_fine=True)


def _docker(*arguments: str, limit_s: float = _DOCKER_LIMIT_S, missing_is_fine: bool = False) -> str:
    done = processes.run(["docker", *arguments], limit_s=limit_s)
    # docker has one exit code for everything: that there is no such container it says in words alone.
    if done.returncode != 0 and not (missing_is_fine and "No such container" in done.stderr):
        raise NoPrivateBroker(
            f"docker {' '.join(arguments)} failed ({done.returncode}): {done.stderr.strip()}"
        )
    return done.stdout + done.stderr
