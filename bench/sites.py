"""The brokers a measurement runs on: private ones, started one at a time, or one that is given.

Never two at once: they would measure each other.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeAlias

from bench.errors import BenchError
from bench.management import ask
from deadletter.testing.node import probe
from deadletter.testing.node.private import PrivateBroker, private_broker
from deadletter.testing.node.releases import default_api

_NEW_LOG: Final = "ra_log_wal:force_roll_over(ra_log_wal)."


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A running broker."""

    url: str
    api: str
    version: str
    private: PrivateBroker | None = field(default=None, repr=False)
    """When it is ours: then it can be asked for more than a user may ask."""

    def begin_log(self) -> None:
        """Let the log of all quorum queues begin anew, where the broker is ours.

        It does so by itself after each half a gigabyte, which is in every third run of 50,000 letters, and
        then writes what is left of the old one into files of the queues: that run takes a fifth longer.
        """
        if self.private is not None:
            self.private.rabbitmqctl("eval", _NEW_LOG)

    @property
    def erlang(self) -> str:
        """The version of Erlang it runs on."""
        told = ask(self.api, self.url, "overview") or {}
        return str(told.get("erlang_version", "?"))

    @property
    def pid(self) -> int | None:
        """Its process on this machine; None when it runs elsewhere, or where pids are others."""
        for node in ask(self.api, self.url, "nodes") or []:
            pid = int(node.get("os_pid", 0))
            with suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_text().startswith("beam"):
                    return pid
        return None


Opening: TypeAlias = Callable[[], AbstractContextManager[Site]]


def add_arguments(parser: argparse.ArgumentParser, *, default: Sequence[str]) -> None:
    """The options that say where to measure."""
    said = " and ".join(default) or "DLQ_URL, else what is installed"
    parser.add_argument(
        "--broker",
        action="append",
        metavar="VERSION",
        help=f"start a private broker of this version; may be repeated (default: {said})",
    )
    parser.add_argument("--url", help="measure on this broker instead of a private one")
    parser.add_argument("--api", help="its management API (default: the same host, port 15672)")
    parser.set_defaults(default_brokers=tuple(default))


def openings(options: argparse.Namespace) -> list[Opening]:
    """What the options ask for, each to be opened when its turn comes."""
    if options.url:
        if options.broker:
            raise BenchError("expected --broker or --url, got both")
        return [lambda: _given(options.url, options.api or default_api(options.url))]
    versions: Sequence[str | None] = options.broker or options.default_brokers or (None,)
    return [_opening(version) for version in versions]


def _opening(version: str | None) -> Opening:
    return lambda: _private(version)


@contextmanager
def _given(url: str, api: str) -> Iterator[Site]:
    version = probe.management_version(api, url)
    if version is None:
        raise BenchError(f"the management API at {api} does not answer; give the right one as --api")
    yield Site(url=url, api=api, version=version)


@contextmanager
def _private(version: str | None) -> Iterator[Site]:
    with private_broker(version) as broker:
        ours = None if broker.node is None else broker
        yield Site(url=broker.url, api=broker.api, version=broker.version, private=ours)
