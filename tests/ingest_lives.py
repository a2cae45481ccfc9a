"""`dlq serve`, killed at a named step of bringing letters into the store, again and again, then left alone.

``python -m tests.ingest_lives CONFIG STEP LIVES``: so many lives end by SIGKILL at that step, each a fork of
this process, which has imported everything; the last one is the service as it is. `STEPS` are the steps.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from deadletter.cli import serve_command
from deadletter.service.storing import reading_process, storekeeper
from deadletter.service.storing.forgetting import Forgetting
from deadletter.store.groups import regrouping
from deadletter.store.groups.regroup_run import Regrouping
from deadletter.store.letters import letter_changes
from deadletter.store.letters.ingesting import Ingest
from deadletter.store.letters.letter_store import LetterStore
from deadletter.store.letters.letter_views import RegroupStage

LIFE_S: Final = 60
"""A life that does not come to its step ends after so long, and not by SIGKILL."""


class Fuse:
    """Burns at the so-manieth time."""

    def __init__(self, times: int) -> None:
        self._left = times

    def burn(self) -> None:
        self._left -= 1
        if self._left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)


def before_put(fuse: Fuse) -> None:
    """A batch is read, and nothing is written."""
    _first(LetterStore, "ingest", fuse)


def in_the_transaction(fuse: Fuse) -> None:
    """Everything is written, and nothing is committed."""
    _then(Ingest, "put", fuse)


def after_the_commit(fuse: Fuse) -> None:
    """It is committed, and nothing is acked."""
    _then(LetterStore, "ingest", fuse)


def in_the_child(fuse: Fuse) -> None:
    """The process that reads letters dies with a batch, each time; in the end the service does, too."""
    reading_process._FEW = 1  # type: ignore[misc]
    read, ask = reading_process.BatchReader.read, reading_process._Child.ask

    async def when_it_is_there(self: Any, *batch: Any, **more: Any) -> Any:
        self._want()
        while self._child is None and self._life is not None and not self._life.done():  # noqa: ASYNC110 -- it tells nobody
            await asyncio.sleep(0.01)
        return await read(self, *batch, **more)

    async def killed(self: Any, *batch: Any, **more: Any) -> Any:
        os.kill(self.pid, signal.SIGKILL)
        fuse.burn()
        return await ask(self, *batch, **more)

    _put(reading_process.BatchReader, "read", when_it_is_there)
    _put(reading_process._Child, "ask", killed)


def in_retention(_fuse: Fuse) -> None:
    """Letters are forgotten, and that is not committed: so the next life finds as many."""
    forget_some = letter_changes.forget_some

    async def forget(*args: Any, **more: Any) -> int:
        gone = await forget_some(*args, **more)
        if gone:
            Fuse(1).burn()
        return gone

    _put(letter_changes, "forget_some", forget)
    _put(storekeeper, "Forgetting", partial(Forgetting, look_s=0.02))


def in_regroup(fuse: Fuse) -> None:
    """Letters are in other groups, and that is not committed."""
    _put(regrouping, "AT_ONCE", 9)
    _then(Regrouping, "_work", fuse)

    run = Forgetting.run

    async def regroup(self: Forgetting, store: LetterStore) -> None:
        while (await store.regrouping.go_on(self._grouping, who="ann")).stage is not RegroupStage.DONE:
            pass
        await run(self, store)

    _put(Forgetting, "run", regroup)


STEPS: Final[dict[str, Callable[[Fuse], None]]] = {
    step.__name__.replace("_", " "): step
    for step in (before_put, in_the_transaction, after_the_commit, in_the_child, in_retention, in_regroup)
}


def _put(place: object, name: str, what: object) -> None:
    setattr(place, name, what)


def _first(kind: type, name: str, fuse: Fuse) -> None:
    real = getattr(kind, name)

    async def burning(*args: Any, **more: Any) -> Any:
        fuse.burn()
        return await real(*args, **more)

    setattr(kind, name, burning)


def _then(kind: type, name: str, fuse: Fuse) -> None:
    real = getattr(kind, name)

    async def burning(*args: Any, **more: Any) -> Any:
        done = await real(*args, **more)
        fuse.burn()
        return done

    setattr(kind, name, burning)


def main(config: str, step: str, lives: int) -> None:
    for life in range(lives):
        child = os.fork()
        if not child:
            signal.alarm(LIFE_S)
            STEPS[step](Fuse(life % 3 + 1))
            os._exit(serve_command.run(file=Path(config), options={}, watch=()))
        _, status = os.waitpid(child, 0)
        print("life", os.waitstatus_to_exitcode(status), flush=True)
    print("last", flush=True)
    os.execv(sys.executable, [sys.executable, "-m", "deadletter.cli.main", "serve", "--config", config])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
