"""Which processes are ours, and ending them and only them.

A RabbitMQ node is half a dozen processes: a shell, the Erlang VM, its port starter, name resolvers, epmd,
and whatever `rabbitmqctl` runs at the moment. A list of pids written down at start misses some and is wrong
as soon as a pid is used again. So every process of a node carries a mark in its environment, inherited by
whatever it starts: the folder of its node. Who carries the mark is ours, however it came about; nobody else
does.

A signal goes through a pidfd that was opened *before* the mark was read, so it cannot hit a stranger who got
the same pid in between.

Where there is no /proc there are no marks, and nothing is ever killed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from deadletter.errors import NoPrivateBroker

MARK = "DEADLETTER_NODE"
_END_LIMIT_S = 20.0
Finished: TypeAlias = subprocess.CompletedProcess[str]


def run(command: Sequence[str], *, limit_s: float, env: Mapping[str, str] | None = None) -> Finished:
    """Run a list of our own words to its end, without a shell and without input.

    NoPrivateBroker when it cannot be started or takes too long; how it ended is the caller's to judge.
    """
    try:
        return subprocess.run(  # noqa: S603 - a list of our own words, no shell
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=limit_s,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NoPrivateBroker(f"{' '.join(command)}: {error}") from error


def marked(folder: Path) -> list[int]:
    """The pids that carry the mark of this node's folder."""
    try:
        entries = os.listdir("/proc")  # noqa: PTH208 - names are all we need, hundreds of them
    except OSError:
        return []
    return [int(entry) for entry in entries if entry.isdigit() and _mark(int(entry)) == str(folder)]


def end(folder: Path, *, spare: Collection[int] = ()) -> list[int]:
    """Kill every process of the node, but those to spare, and wait until they are gone.

    Returns those that would not go; a process in an uninterruptible wait can hold out for a while.
    """
    limit_at = time.monotonic() + _END_LIMIT_S
    while True:
        left = [pid for pid in marked(folder) if pid not in spare]
        if not left or time.monotonic() > limit_at:
            return left
        for pid in left:
            _kill(pid, folder)
        # Killing in rounds also takes what was forked between looking and killing.
        time.sleep(0.02)


def started_at_ticks(pid: int) -> int | None:
    """When the process started, in clock ticks after boot: with the pid, it names one process for ever."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The second field is the program's name and may hold spaces and brackets; the rest follows the last one.
    return int(stat.rpartition(")")[2].split()[19])


def _kill(pid: int, folder: Path) -> None:
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        if _mark(pid) == str(folder):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except ProcessLookupError:
        pass
    finally:
        os.close(pidfd)


def _mark(pid: int) -> str | None:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # gone, or another user's: not ours
        return None
    for entry in environment.split(b"\0"):
        name, _, value = entry.partition(b"=")
        if name == MARK.encode():
            return os.fsdecode(value)
    return None
