"""The doctor: reads shapes, live or from a file, and has every rule look at them."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from deadletter.amqp.address import Address
from deadletter.broker.definitions_file import read_definitions
from deadletter.core.layouts import levels
from deadletter.core.text.glob import glob
from deadletter.core.topology.vhost import Topology
from deadletter.doctor.finding import Finding, Severity
from deadletter.doctor.rules import examine
from deadletter.doctor.rules.case import Case
from deadletter.errors import UsageError

if TYPE_CHECKING:
    from deadletter.config.settings import Watch

ORDER: Final = (Severity.ERROR, Severity.WARNING, Severity.NOTE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Examined:
    """One vhost, and what was found in it."""

    vhost: str
    version: str
    live: bool
    queues: int
    exchanges: int
    bindings: int
    findings: tuple[Finding, ...]
    permissions_known: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """Every vhost that was examined; `source` is the broker's name or the file."""

    source: str
    file: Path | None
    vhosts: tuple[Examined, ...]
    seconds: float

    @property
    def findings(self) -> tuple[Finding, ...]:
        return tuple(finding for vhost in self.vhosts for finding in vhost.findings)


async def examine_broker(
    address: Address,
    api: str | None,
    *,
    watches: Sequence[Watch],
    ignore: frozenset[str],
    at_least: Severity,
) -> Diagnosis:
    """The vhost this address names, as it is now."""
    # Here, because a file needs no HTTP client, and loading one is a tenth of the time for a large file.
    from deadletter.broker.live_topology import read_topology

    started = time.monotonic()
    shape = await read_topology(address, api)
    found = _examine(shape, watches, ignore, at_least)
    return Diagnosis(source=str(address), file=None, vhosts=(found,), seconds=time.monotonic() - started)


def examine_file(
    path: Path,
    *,
    vhost: str | None,
    version: str | None,
    watches: Sequence[Watch],
    ignore: frozenset[str],
    at_least: Severity,
) -> Diagnosis:
    """The vhosts in a definitions file, or one of them. `version` counts where the file names none."""
    started = time.monotonic()
    shapes = read_definitions(path, version=version)
    if vhost is not None and vhost not in shapes:
        raise UsageError(f"{path}: expected the vhost {vhost!r} in it, got {', '.join(map(repr, shapes))}")
    wanted = shapes.values() if vhost is None else [shapes[vhost]]
    return Diagnosis(
        source=str(path),
        file=path,
        vhosts=tuple(_examine(shape, watches, ignore, at_least) for shape in wanted),
        seconds=time.monotonic() - started,
    )


def _examine(
    shape: Topology, watches: Sequence[Watch], ignore: frozenset[str], at_least: Severity
) -> Examined:
    case = Case(
        topology=shape,
        now_ms=int(time.time() * 1000),
        watched=_watched(shape.vhost, shape.queues, watches),
        delays_ms=_delays_ms(shape.vhost, watches),
    )
    shown = ORDER[: ORDER.index(at_least) + 1]
    return Examined(
        vhost=shape.vhost,
        version=shape.version,
        live=shape.live,
        queues=len(shape.queues),
        exchanges=len(shape.exchanges),
        bindings=len(shape.bindings),
        findings=tuple(finding for finding in examine(case, ignore) if finding.severity in shown),
        permissions_known=shape.permissions is not None,
    )


def _watched(vhost: str, queues: Iterable[str], watches: Sequence[Watch]) -> frozenset[str] | None:
    """The queues some watch takes; None where no watch is configured, for then nobody said."""
    if not watches:
        return None
    patterns = [watch.dlq for watch in watches if watch.vhost == vhost]
    return frozenset(name for name in queues if any(glob(pattern, name) for pattern in patterns))


def _delays_ms(vhost: str, watches: Sequence[Watch]) -> dict[str, int]:
    """The delays whose queues are numbered and so do not tell them."""
    numbered = (watch.delays_ms for watch in watches if watch.vhost == vhost and watch.layout == levels.NAME)
    return {levels.delay_queue_name(n): delay_ms for n, delay_ms in enumerate(next(numbered, ()), start=1)}
