"""The parent's view of one process: started, ready or not, ended."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from deadletter.cli.running import worker
from deadletter.cli.running.worker import READY


class WorkerProcess:
    """Made with `start`. `on_change` hears when it takes messages, and when no longer."""

    def __init__(
        self,
        number: int,
        process: asyncio.subprocess.Process,
        told: int,
        alive: int,
        on_change: Callable[[], None],
    ) -> None:
        self.number = number
        self.ready: bool = False
        self.was_ready: bool = False
        self._process = process
        self._told = told
        self._alive = alive
        self._on_change = on_change

    @classmethod
    async def start(
        cls,
        number: int,
        app: str,
        directory: Path,
        environment: Mapping[str, str],
        on_change: Callable[[], None],
    ) -> WorkerProcess:
        told, telling = os.pipe()
        watched, alive = os.pipe()
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            worker.__name__,
            app,
            str(directory),
            str(telling),
            str(watched),
            env=environment,
            pass_fds=(telling, watched),
            start_new_session=True,  # a terminal's Ctrl-C is for the parent alone: two would end it at once
        )
        os.close(telling)
        os.close(watched)
        made = cls(number, process, told, alive, on_change)
        os.set_blocking(told, False)
        asyncio.get_running_loop().add_reader(told, made._hear)
        return made

    @property
    def pid(self) -> int:
        return self._process.pid

    async def ended(self) -> int:
        """Its exit code, once it is over; negative: the signal that ended it."""
        code = await self._process.wait()
        self.ready = False
        asyncio.get_running_loop().remove_reader(self._told)
        for one in (self._told, self._alive):
            os.close(one)
        return code

    def ask_to_end(self) -> None:
        if self._process.returncode is None:
            self._process.terminate()

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()

    def _hear(self) -> None:
        try:
            words = os.read(self._told, 4096)
        except BlockingIOError:
            return
        if not words:  # it has closed its end; `ended` tells the rest
            asyncio.get_running_loop().remove_reader(self._told)
            return
        self.ready = words.endswith(READY)
        self.was_ready = self.was_ready or READY in words
        self._on_change()
