"""Where a private RabbitMQ comes from.

Without a wish for a version, the first of these that holds:

1. `DLQ_URL` names a broker: that one, as it is; nothing is started.
2. RabbitMQ is installed on this machine.
3. We are root on Debian or Ubuntu: `apt-get install rabbitmq-server`, without letting its service start.
4. A Docker engine answers: the image `rabbitmq:management`.

With a version ("4.3"), an explicit wish goes before the environment: the installed one if it is that version,
else a root fetched by `scripts/fetch-brokers` (a small Debian that has that RabbitMQ, entered by chroot),
else Docker. A path names such a root directly.

Fetched roots live in `$DLQ_BROKERS`, else in `.cache/brokers` of the checkout, else in the user's cache.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from deadletter.errors import NoPrivateBroker, UsageError
from deadletter.testing.node import processes

STAMP = ".deadletter-fetched"  # written last by scripts/fetch-brokers; a root without it is half a root

_MACHINE = Path("/")
_PACKAGE_BIN = Path("/usr/lib/rabbitmq/bin")  # the plain scripts; those in /usr/sbin switch the user
_POLICY = Path("/usr/sbin/policy-rc.d")
_APT_LIMIT_S = 900.0
_APT_PATIENCE = ("-o", "DPkg::Lock::Timeout=300")
"""A machine that has just started is often updating itself."""
_DOCKER_LIMIT_S = 15.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """Somebody's broker, named in the environment. Not ours to stop."""

    url: str
    api: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Install:
    """RabbitMQ's files: on this machine (root is /) or in another root, entered by chroot."""

    root: Path
    bin: Path  # as seen from inside the root
    version: str  # "" when only the started node will tell

    @property
    def is_chroot(self) -> bool:
        return self.root != _MACHINE


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A Docker image."""

    name: str


Source = Given | Install | Image


def find(version: str | Path | None = None) -> Source:
    """The broker to use, by the order above."""
    if isinstance(version, Path) or (version is not None and os.sep in version):
        return _explicit_root(Path(version))
    if version is None and (url := os.environ.get("DLQ_URL")):
        return Given(url=url, api=os.environ.get("DLQ_API") or default_api(url))
    here = installed()
    if here is not None and _is_version(here.version, version):
        return here
    if version is not None and (root := _fetched(version)) is not None:
        return root
    if version is None and may_apt():
        return _apt_install()
    if docker_answers():
        return Image(name="rabbitmq:management" if version is None else f"rabbitmq:{version}-management")
    raise NoPrivateBroker(_nothing_here(version, here))


def default_api(url: str) -> str:
    """The management API that goes with an AMQP URL: the same host, port 15672."""
    host = urlsplit(url).hostname
    if not host:
        raise UsageError(f"DLQ_URL: expected amqp://user:password@host:port/vhost, got {url!r}")
    return f"http://{f'[{host}]' if ':' in host else host}:15672/api"


def brokers_folder() -> Path:
    """Where fetched roots are kept."""
    if named := os.environ.get("DLQ_BROKERS"):
        return Path(named)
    checkout = Path(__file__).resolve().parents[4]
    if (checkout / "pyproject.toml").is_file() and (checkout / "scripts" / "fetch-brokers").is_file():
        return checkout / ".cache" / "brokers"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "deadletter" / "brokers"


def installed() -> Install | None:
    """RabbitMQ as installed on this machine, by a package or by hand."""
    if not Path("/proc/self/environ").exists():
        return None  # without /proc we could not promise to clean up after it
    if (packaged := _packaged(_MACHINE)) is not None:
        return packaged
    if (script := shutil.which("rabbitmq-server")) is None:
        return None
    folder = Path(script).resolve().parent
    names = [part.partition("rabbitmq_server-")[2] for part in folder.parts]
    return Install(root=_MACHINE, bin=folder, version="".join(names))


def may_apt() -> bool:
    """Whether we could install a package here."""
    return os.getuid() == 0 and Path("/etc/debian_version").exists() and shutil.which("apt-get") is not None


def docker_answers() -> bool:
    """Whether a Docker engine is there: the client alone is not enough."""
    if (docker := shutil.which("docker")) is None:
        return False
    try:
        return processes.run([docker, "info"], limit_s=_DOCKER_LIMIT_S).returncode == 0
    except NoPrivateBroker:
        return False


def _explicit_root(root: Path) -> Install:
    if not root.is_dir() or (found := _packaged(root.resolve())) is None:
        raise NoPrivateBroker(f"no RabbitMQ in {root}: expected {root}{_PACKAGE_BIN}/rabbitmq-server")
    return _enterable(found)


def _fetched(version: str) -> Install | None:
    """The newest complete root of that version."""
    folder = brokers_folder().resolve()
    roots = [path.parent for path in folder.glob(f"*/{STAMP}")]
    found = [root for path in roots if (root := _packaged(path)) is not None]
    fitting = [root for root in found if _is_version(root.version, version)]
    if not fitting:
        return None
    return _enterable(
        max(fitting, key=lambda root: [int(part) for part in root.version.split(".") if part.isdigit()])
    )


def _enterable(install: Install) -> Install:
    if install.is_chroot and os.getuid() != 0:
        raise NoPrivateBroker(
            f"RabbitMQ {install.version} in {install.root} is entered by chroot: run this as root"
        )
    return install


def _packaged(root: Path) -> Install | None:
    inside = _PACKAGE_BIN.relative_to("/")
    if not (root / inside / "rabbitmq-server").exists():
        return None
    servers = sorted((root / inside).parent.glob("lib/rabbitmq_server-*"))
    version = servers[-1].name.partition("-")[2] if servers else ""
    return Install(root=root, bin=_PACKAGE_BIN, version=version)


def _is_version(found: str, wish: str | None) -> bool:
    return wish is None or found == wish or found.startswith(f"{wish}.")


def _apt_install() -> Install:
    _log.warning("no RabbitMQ on this machine: installing it with apt-get, this takes a minute or two")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    update = ["apt-get", "update", "-q"]
    install = ["apt-get", *_APT_PATIENCE, "install", "-q", "-y", "--no-install-recommends", "rabbitmq-server"]
    with _no_service_starts():
        for command in (update, install):
            done = processes.run(command, env=environment, limit_s=_APT_LIMIT_S)
            # A failed update is not the end: the lists that are there may do.
            if done.returncode != 0 and command is install:
                tail = "\n".join([*done.stdout.splitlines(), *done.stderr.splitlines()][-15:])
                raise NoPrivateBroker(
                    f"{' '.join(command)} failed; install RabbitMQ by hand. It said:\n{tail}"
                )
    if (here := installed()) is None:
        raise NoPrivateBroker(
            "apt-get installed rabbitmq-server, and yet it is not there; install RabbitMQ by hand"
        )
    return here


@contextmanager
def _no_service_starts() -> Iterator[None]:
    """Debian starts what it installs: here that would be a broker on 5672 that nobody asked for."""
    if _POLICY.exists():
        yield
        return
    try:
        _POLICY.write_text("#!/bin/sh\nexit 101\n", encoding="ascii")
        _POLICY.chmod(0o755)
        yield
    finally:
        with suppress(FileNotFoundError):
            _POLICY.unlink()


def _nothing_here(version: str | None, here: Install | None) -> str:
    ways = [
        "set DLQ_URL=amqp://user:password@host/ to use a broker of yours",
        "start a Docker engine",
    ]
    if version is None:
        ways.insert(1, "install RabbitMQ (package rabbitmq-server)")
        return (
            "no RabbitMQ to start: none is installed, and no Docker engine answers. "
            f"Either {'; or '.join(ways)}."
        )
    ways[0] = f"fetch it with scripts/fetch-brokers {version} (as root, on Debian or Ubuntu)"
    there = f"installed is {here.version or 'an unknown version'}" if here else "none is installed"
    return (
        f"no RabbitMQ {version} to start: {there}, there is no complete root of it in {brokers_folder()}, "
        f"and no Docker engine answers. Either {'; or '.join(ways)}."
    )
