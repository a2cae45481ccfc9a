"""The process that runs jq programs. Started by its path, alone: it imports nothing of ours.

jq is a language with loops and a regular-expression engine, its Python binding holds the interpreter lock
while it runs, and `env` in it reads the environment. So the bounds are the kernel's, not Python's: a timer
on CPU time whose signal nobody handles, a limit on the address space, an environment with nothing in it.
Whatever breaks a bound ends this process, and whoever started it sees which answer did not come.

CPU time rather than the clock's: jq never waits for anything, so on a busy machine a slow answer is not the
program's fault.

On stdin comes one frame per body: the number of programs and the length of the body, then each program with
its length, then the body. On stdout goes one byte per program, as soon as it is known; before the first, one
byte says that jq is there.

With `edit` as the first argument each program changes the body instead: on stdout goes YES and the one value
it puts out, as JSON text, or NO and why there is none, each with its length. The text is made by jq itself
(`tojson`): a number that the program only carries is in it as it was written, of whatever length.

With `check` as the first argument the frames have no bodies that matter, and per program one JSON line says
why it does not compile, or null.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from struct import Struct
from typing import Any, BinaryIO, Final

HEAD: Final = Struct(">HI")
LENGTH: Final = Struct(">I")
READY: Final = b"R"
YES: Final = b"Y"
NO: Final = b"N"
BROKEN: Final = b"B"
"""The program does not compile, so it says nothing about the body."""

_MAX_COMPILED: Final = 1_000
_MAX_WHY_CHARS: Final = 300
_WRAPPED: Final = "if length == 1 then .[0] | any((\n%s\n); .) else false end"
"""The body is slurped, so that two JSON texts in one body are no JSON. `any` stops at the first true output,
so whatever a program puts out, one boolean comes back. And in brackets there is no `import` or `include`."""

_EDITING: Final = "if length == 1 then .[0] | [limit(2; (\n%s\n)) | tojson] else [] end"
"""At most two outputs are made: one is wanted."""


def main() -> None:
    cpu_s, memory_bytes = float(sys.argv[2]), int(sys.argv[3])
    shut_in(memory_bytes)
    # `import jq` only now: within the limits
    frames, out = sys.stdin.buffer, sys.stdout.buffer
    runner = Runner(cpu_s)
    out.write(READY)
    out.flush()
    while (head := _exactly(frames, HEAD.size)) is not None:
        count, body_bytes = HEAD.unpack(head)
        programs = [_program(frames) for _ in range(count)]
        body = _exactly(frames, body_bytes) or b""
        for program in programs:
            if sys.argv[1] == "check":
                out.write(json.dumps(runner.refusal(program)).encode() + b"\n")
            elif sys.argv[1] == "edit":
                out.write(runner.edit(program, body))
            else:
                out.write(runner.answer(program, body))
            out.flush()


def shut_in(memory_bytes: int) -> None:
    """No environment, no files, no core dump, so much memory."""
    os.environ.clear()
    os.environ["HOME"] = "/nonexistent"  # else jq looks for ~/.jq in the password database
    try:
        import resource
    except ImportError:
        return
    for kind, most in (
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
    ):
        try:
            resource.setrlimit(kind, (most, most))
        except (ValueError, OSError):
            continue  # some systems have no such limit; the time limit is there in any case


class Runner:
    """Programs compiled once, each run under the timer."""

    def __init__(self, cpu_s: float) -> None:
        import jq

        self._compile = jq.compile
        self._compiled: dict[str, object] = {}
        self._cpu_s = cpu_s
        if hasattr(signal, "SIGPROF"):
            signal.signal(signal.SIGPROF, signal.SIG_DFL)

    def edit(self, program: str, body: bytes) -> bytes:
        self._timer(self._cpu_s)
        try:
            compiled: Any = self._known(_EDITING, program)
            made: list[str] = next(iter(compiled.input_text(body.decode("utf-8"), slurp=True)), [])
        except ValueError as error:
            return _told(NO, str(error)[:_MAX_WHY_CHARS])
        finally:
            self._timer(0)
        if len(made) != 1:
            return _told(NO, "it puts out nothing" if not made else "it puts out more than one value")
        return _told(YES, made[0])

    def _known(self, wrapping: str, program: str) -> object:
        """Compiled now or before. ValueError: it cannot be."""
        compiled = self._compiled.get(program)
        if compiled is None:
            if len(self._compiled) >= _MAX_COMPILED:
                self._compiled.clear()
            compiled = self._compiled[program] = self._compile(wrapping % program)
        return compiled

    def answer(self, program: str, body: bytes) -> bytes:
        self._timer(self._cpu_s)
        try:
            compiled = self._known(_WRAPPED, program)
        except ValueError:
            self._timer(0)
            return BROKEN
        try:
            text = body.decode("utf-8")
            said = next(iter(compiled.input_text(text, slurp=True)), False)  # type: ignore[attr-defined]
        except ValueError:  # no UTF-8, no JSON, or the program raised an error: all say so this way
            return NO
        else:
            return YES if said is True else NO
        finally:
            self._timer(0)

    def refusal(self, program: str) -> str | None:
        """Why it cannot be used, in jq's words; None when it can."""
        self._timer(self._cpu_s)
        try:
            for text in (_WRAPPED % program, program):
                self._compile(text)
        except ValueError:
            return self._why(program)
        finally:
            self._timer(0)
        return None

    def _why(self, program: str) -> str:
        """Compiled once more without its wrapping, so that line and column are the user's."""
        try:
            self._compile(program)
        except ValueError as error:
            return str(error).partition("\n")[0].removeprefix("jq: error: ").rstrip(":")[:_MAX_WHY_CHARS]
        return "import and include cannot be used here"

    def _timer(self, cpu_s: float) -> None:
        if hasattr(signal, "setitimer"):
            signal.setitimer(signal.ITIMER_PROF, cpu_s)


def _told(answer: bytes, text: str) -> bytes:
    raw = text.encode("utf-8", "replace")
    return answer + LENGTH.pack(len(raw)) + raw


def _program(frames: BinaryIO) -> str:
    raw = _exactly(frames, LENGTH.size)
    return (_exactly(frames, LENGTH.unpack(raw)[0]) or b"").decode("utf-8", "replace") if raw else ""


def _exactly(frames: BinaryIO, count: int) -> bytes | None:
    """So many bytes; None at the end, also in the middle of them: whoever asked is gone."""
    read = frames.read(count)
    return read if len(read) == count else None


if __name__ == "__main__":
    main()
