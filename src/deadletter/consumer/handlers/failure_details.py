"""Why it failed, on the letter itself: error, message, stack, host, service, release, first and last time.

A stack can be larger than a frame, an error's text can be a whole page, and both can hold secrets. So each
has a limit, the stack keeps its last frames (the error is at the end), and a `redact` hook sees every text
before it is written. Nothing here may fail a second time: a hook that raises leaves its text out and says so.
"""

from __future__ import annotations

import socket
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from types import TracebackType
from typing import Final, TypeAlias

from deadletter.core.letter import names
from deadletter.core.letter.field_table import Value

TYPE_CHARS: Final = 300
MESSAGE_CHARS: Final = 2_000
STACK_CHARS: Final = 8_000
STACK_FRAMES: Final = 50
_OURS: Final = "deadletter.consumer."
Redact: TypeAlias = Callable[[str], str]


@lru_cache(maxsize=1)
def _host() -> str:
    return socket.gethostname()


@dataclass(frozen=True, slots=True, kw_only=True)
class Teller:
    """Writes failures. `service` and `release` are the application's."""

    service: str = ""
    release: str = ""
    redact: Redact | None = None
    host: str = field(default_factory=_host)

    def headers(self, error: BaseException, *, at_ms: int, first_at_ms: int | None) -> dict[str, Value]:
        """The headers that tell of this failure."""
        told: dict[str, Value] = {
            names.ERROR_TYPE: sendable(type_of(error))[:TYPE_CHARS],
            names.ERROR_MESSAGE: self._text(_message(error), MESSAGE_CHARS),
            names.ERROR_STACK: self.stack(error),
            names.ERROR_HOST: self.host[:TYPE_CHARS],
            names.ERROR_AT: at_ms,
            names.ERROR_FIRST_AT: at_ms if first_at_ms is None else first_at_ms,
        }
        if self.service:
            told[names.ERROR_SERVICE] = self.service[:TYPE_CHARS]
        if self.release:
            told[names.ERROR_RELEASE] = self.release[:TYPE_CHARS]
        return told

    def safe(self, text: str) -> str:
        """The same as it may leave the process."""
        return self._text(text, MESSAGE_CHARS)

    def stack(self, error: BaseException) -> str:
        """Its stack, as it may leave the process."""
        return self._text(_stack(error), STACK_CHARS, tail=True)

    def _text(self, text: str, chars: int, *, tail: bool = False) -> str:
        text = sendable(text)
        if self.redact is not None:
            try:
                text = sendable(str(self.redact(text)))
            except Exception as error:  # noqa: BLE001 -- a hook of the application; without it no text may go out
                return f"(left out: the redaction hook failed with {type(error).__name__})"
        if len(text) <= chars:
            return text
        return f"…{text[-chars:]}" if tail else f"{text[:chars]}…"


def sendable(text: str) -> str:
    """The same in characters that UTF-8 has; an error may quote bytes that are none, as lone surrogates."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def slimmer(headers: dict[str, Value]) -> dict[str, Value]:
    """The same without what is large: for a letter whose own headers leave little room in a frame."""
    return {name: value for name, value in headers.items() if name != names.ERROR_STACK} | {
        names.ERROR_MESSAGE: str(headers.get(names.ERROR_MESSAGE, ""))[:200]
    }


def type_of(error: BaseException) -> str:
    """The name of its class, with the module where that tells something."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def _stack(error: BaseException) -> str:
    """As Python prints it, from where the application's own code begins."""
    try:
        if (
            error.__cause__ is not None
            or error.__context__ is not None
            or isinstance(error, BaseExceptionGroup)
        ):
            return "".join(traceback.format_exception(error, limit=-STACK_FRAMES))
        # An error alone, most of them: without the marks below each line, which cost as much as all the rest.
        frames = traceback.StackSummary.extract(
            traceback.walk_tb(_theirs(error.__traceback__)), limit=-STACK_FRAMES
        )
        lines = ["Traceback (most recent call last):\n", *frames.format()]
        return "".join([*lines, *traceback.format_exception_only(error)])
    except Exception as broken:  # noqa: BLE001 -- an error whose own text cannot be made must not hide itself
        return f"(no stack: {type(broken).__name__})"


def _theirs(raised: TracebackType | None) -> TracebackType | None:
    """Without the frames of ours that called the handler."""
    found = raised
    while found is not None and str(found.tb_frame.f_globals.get("__name__", "")).startswith(_OURS):
        found = found.tb_next
    return raised if found is None else found


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as broken:  # noqa: BLE001 -- an application's __str__
        return f"(no text: {type(broken).__name__})"
