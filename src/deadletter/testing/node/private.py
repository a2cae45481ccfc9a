"""A RabbitMQ of one's own, for a test, a demo or a try, gone without a trace afterwards.

::

    with private_broker() as broker:
        connect(broker.url)

Where it comes from is told in `releases`; what it has on disk in `node_files`; how its processes are told
from others in `processes`. This page is about its life:

- It starts beside whatever runs already: own name, ports (never 5672), epmd and data, on 127.0.0.1 only.
- It ends with the `with` block; at the exit of the interpreter; and on SIGTERM and SIGHUP, which we take only
  if nobody else did, and which then do what they would have done without us.
- After kill -9 nobody can tidy up. The next start does: it looks for nodes whose owner is gone.

Starting takes seconds and blocks; from a coroutine call it through `asyncio.to_thread`. Signals can only be
taken in the main thread, so elsewhere SIGTERM is left to the next start as well.
"""

from __future__ import annotations

import atexit
import os
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Protocol, TypedDict, Unpack, assert_never

from deadletter.errors import NoPrivateBroker, UsageError
from deadletter.testing.node import node_files, probe, processes
from deadletter.testing.node.container import SEEN_AT, Container, remove_container
from deadletter.testing.node.node import BrokerNode, PortClash
from deadletter.testing.node.node_files import TlsFiles
from deadletter.testing.node.releases import Given, Image, Install, find

__all__ = ["PrivateBroker", "TlsFiles", "private_broker", "start_private_broker"]

START_LIMIT_S = 90.0
_PORT_TRIES = 3
_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class _Life(Protocol):
    version: str

    def start(self) -> None: ...
    def restart(self) -> None: ...
    def kill(self) -> None: ...
    def stop(self) -> None: ...
    def rabbitmqctl(self, *arguments: str) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class PrivateBroker:
    """A broker to use. Unless it was given by DLQ_URL, it is ours alone and goes when we go."""

    url: str  # with user and password, the default vhost
    api: str  # the management API; sign in as in `url`
    tls_url: str | None  # when certificates were given; the certificate must be good for localhost
    version: str  # as the running broker says; "unknown" if a given one has no management API
    node: str | None  # Erlang's name for it; None when it was given
    _life: _Life | None = field(repr=False)

    def rabbitmqctl(self, *arguments: str) -> str:
        """What `rabbitmqctl` prints, asked of this broker."""
        return self._ours("run rabbitmqctl on").rabbitmqctl(*arguments)

    def restart(self) -> None:
        """An orderly shutdown and a new start on the same data and ports. After `kill`: the start alone."""
        self._ours("restart").restart()

    def kill(self) -> None:
        """kill -9 of the node. Its data stays; `restart` brings it back."""
        self._ours("kill").kill()

    def stop(self) -> None:
        """End it and remove every trace. Twice does no harm; a given broker is left alone."""
        if self._life is not None:
            self._life.stop()
            _forget(self._life)  # not before: a signal in between would find nothing to stop

    def _ours(self, verb: str) -> _Life:
        if self._life is None:
            raise UsageError(f"cannot {verb} the broker that DLQ_URL names: it is not ours; unset DLQ_URL")
        return self._life


class NodeWishes(TypedDict, total=False):
    """What may be asked of a node that is started, as keywords."""

    tls: TlsFiles | None
    extra_config: Sequence[str]
    """Lines for rabbitmq.conf."""
    extra_plugins: Sequence[str]
    """Names beside management and shovel."""
    start_limit_s: float
    """90 unless said otherwise."""


@contextmanager
def private_broker(
    version: str | Path | None = None, **wishes: Unpack[NodeWishes]
) -> Iterator[PrivateBroker]:
    """A private broker for as long as the block lasts. See `start_private_broker`."""
    broker = start_private_broker(version, **wishes)
    try:
        yield broker
    finally:
        broker.stop()


def start_private_broker(version: str | Path | None = None, **wishes: Unpack[NodeWishes]) -> PrivateBroker:
    """Start a broker; ready when this returns. `stop` ends it, at the latest when the interpreter ends.

    `version` is "3.10", "4.0", "4.3", ... or the path of a fetched root; None takes DLQ_URL or what is there.
    """
    source = find(version)
    match source:
        case Given():
            told = probe.management_version(source.api, source.url)
            return PrivateBroker(
                url=source.url, api=source.api, tls_url=None, version=told or "unknown", node=None, _life=None
            )
        case Install() | Image():
            pass
        case _:
            assert_never(source)
    tries_left = _PORT_TRIES
    while True:
        try:
            return _start(source, **wishes)
        except PortClash:
            tries_left -= 1
            if not tries_left:
                raise


def _start(source: Install | Image, **wishes: Unpack[NodeWishes]) -> PrivateBroker:
    tls, start_limit_s = wishes.get("tls"), wishes.get("start_limit_s", START_LIMIT_S)
    with node_files.locked() as folder:
        for left_behind in node_files.stale(folder):
            _clear(left_behind)
        claim = node_files.claim(folder)
    life: _Life
    match source:
        case Install():
            life = BrokerNode(claim=claim, install=source, start_limit_s=start_limit_s)
            listen, seen_at, more = "127.0.0.1", claim.etc, []
        case Image():
            life = Container(claim=claim, image=source, start_limit_s=start_limit_s, with_tls=tls is not None)
            # From inside, the host's side of a published port is no loopback address.
            listen, seen_at, more = "0.0.0.0", SEEN_AT, ["loopback_users = none"]  # noqa: S104
        case _:
            assert_never(source)
    _remember(life)
    try:
        node_files.write_configuration(
            claim,
            listen=listen,
            seen_at=seen_at,
            tls=tls,
            plugins=wishes.get("extra_plugins", ()),
            extra=[*more, *wishes.get("extra_config", ())],
        )
        life.start()
    except BaseException as error:
        life.stop()
        _forget(life)
        if isinstance(error, OSError):
            raise NoPrivateBroker(f"could not prepare a private broker: {error}") from error
        raise
    return PrivateBroker(
        url=f"amqp://guest:guest@127.0.0.1:{claim.ports.amqp}",
        api=f"http://127.0.0.1:{claim.ports.api}/api",
        tls_url=f"amqps://guest:guest@localhost:{claim.ports.tls}" if tls is not None else None,
        version=life.version,
        node=claim.node if isinstance(source, Install) else None,
        _life=life,
    )


def _clear(node_folder: Path) -> None:
    """Remove what a killed owner left. Under the lock, so nobody else clears the same."""
    processes.end(node_folder)
    with suppress(NoPrivateBroker):  # the engine may be gone as well; that must not stop a start
        remove_container(node_folder)
    node_files.release(node_folder)


# What this process has running, for the ways out that do not pass a `with` block.
_running: list[_Life] = []
_owner_pid = 0


def _remember(life: _Life) -> None:
    global _owner_pid  # noqa: PLW0603 - one per process, like the signals and exits it is about
    _running.append(life)
    _owner_pid = os.getpid()
    atexit.register(_stop_all)
    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _on_signal)


def _forget(life: _Life) -> None:
    if life in _running:
        _running.remove(life)
    if _running:
        return
    atexit.unregister(_stop_all)
    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            if signal.getsignal(number) is _on_signal:
                signal.signal(number, signal.SIG_DFL)


def _stop_all() -> None:
    if os.getpid() != _owner_pid:
        return  # a forked child ends; the broker is its parent's
    while _running:
        life = _running.pop()
        with suppress(NoPrivateBroker):
            life.stop()


def _on_signal(number: int, _frame: FrameType | None) -> None:
    """Tidy up, then let the signal do what it does. Raising instead would leave the decision to whoever
    catches: pytest, for one, counts a SystemExit as one failed test and goes on."""
    _stop_all()
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
