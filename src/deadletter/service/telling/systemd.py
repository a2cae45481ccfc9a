"""Telling systemd how the service is: `Type=notify` or `notify-reload`, and its watchdog.

The protocol is a datagram of lines to the socket that NOTIFY_SOCKET names; without that variable nobody
listens and nothing is sent. A datagram is sent or not, at once: a manager that does not read holds up nobody.
What could not be sent is said once, through `on_trouble`.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import Final

from deadletter.core.text.safe_text import line
from deadletter.service.telling.log_lines import shown, without_channel
from deadletter.service.telling.service_events import LifeChanged, Recovered, ServiceEvent, Stage, Trouble

_STATUS_CHARS: Final = 300


class Notifier:
    """Hears of the service's life and passes it on. `environ` is read once."""

    def __init__(self, environ: Mapping[str, str], *, on_trouble: Callable[[str], None]) -> None:
        self._address = _address(environ.get("NOTIFY_SOCKET", ""))
        self._watchdog_s = _watchdog_s(environ) if self._address else None
        self._on_trouble = on_trouble
        self._said = False
        self._stage = Stage.STARTING

    def __call__(self, event: ServiceEvent) -> None:
        match event:
            case LifeChanged(stage=stage, why=why):
                self._stage = stage
                self._send(*_LINES[stage], _status(f"{stage.value}: {why}" if why else stage.value))
            case Trouble(what=what, why=why):
                what, why = shown(what, why)
                self._send(_status(f"{self._stage.value}; {what}: {why}"))
            case Recovered(what=what):
                self._send(_status(f"{self._stage.value}; {without_channel(what)} works again"))
            case _:
                pass  # systemd wants to know of life and trouble alone

    def reloading(self) -> None:
        """Before the settings are read again; that they are in force follows as a fact."""
        # The same clock that systemd compares with: it tells this reload from an earlier one's end.
        self._send("RELOADING=1", f"MONOTONIC_USEC={time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000}")

    async def run(self, alive: Callable[[], bool] = lambda: True) -> None:
        """Feed the watchdog, twice as often as it asks for, while `alive`; ends at once if there is none."""
        while self._watchdog_s is not None:
            if alive():
                self._send("WATCHDOG=1")
            await asyncio.sleep(self._watchdog_s / 2)

    def _send(self, *lines: str) -> None:
        if self._address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as channel:
                channel.setblocking(False)
                channel.sendto("\n".join(lines).encode("utf-8", "replace"), self._address)
        except OSError as error:
            if not self._said:
                self._said = True
                self._on_trouble(f"systemd does not take our notes at {self._address!r}: {error}")


_LINES: Final[Mapping[Stage, tuple[str, ...]]] = {
    Stage.STARTING: (),
    Stage.READY: ("READY=1",),
    Stage.RELOADED: ("READY=1",),
    Stage.STOPPING: ("STOPPING=1",),
    Stage.STOPPED: (),
}


def _address(given: str) -> str | None:
    """A path, or an abstract name, written with an @. Other kinds are for machines, not services."""
    if given.startswith("@"):
        return "\0" + given[1:]
    return given if given.startswith("/") else None


def _watchdog_s(environ: Mapping[str, str]) -> float | None:
    """How long systemd waits for a sign of life; None: it does not, or it waits for another process."""
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    given = environ.get("WATCHDOG_USEC", "")
    return int(given) / 1e6 if given.isdecimal() and int(given) > 0 else None


def _status(text: str) -> str:
    return f"STATUS={line(text, _STATUS_CHARS)}"
