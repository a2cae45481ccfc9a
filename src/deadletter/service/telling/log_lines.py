"""How a log line is written, and how it gets out.

A line is a line: whatever a queue is called, no character in a name ends it. No password is in one: the
user's part of every URL, and in alerts everything behind the scheme, is hidden here at the last moment,
whoever wrote the text.

Nothing waits for stderr. Lines go into a bounded buffer that a thread empties; where nobody reads, the oldest
are given up, counted, and the loss is said as soon as somebody reads again. The thread writes to the file
descriptor itself: one that is stuck in a buffered stream would keep the process from ending.
"""

from __future__ import annotations

import os
import re
import select
import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final, TextIO

from deadletter.config.secrets import HIDDEN_PARAMETERS, without_token
from deadletter.core.text.safe_text import exact_json, is_plain, line

BUFFER_CHARS: Final = 4_000_000
FIELD_CHARS: Final = 2_000
"""More of one value is not told."""

_USERINFO: Final = re.compile(r"([A-Za-z][\w+.-]*://[^\s:@/]*:)\S*@")
_PARAMETER: Final = re.compile(rf"((?:[?&;]|\b)(?:{HIDDEN_PARAMETERS})=)[^&#\s'\"]*", re.IGNORECASE)
_URL: Final = re.compile(r"[A-Za-z][\w+.-]*://[^\s'\"]+")
_BEARER: Final = re.compile(r"(bearer\s+)[\w.~+/=-]+", re.IGNORECASE)


def safe(text: str) -> str:
    """The same text without passwords."""
    if "://" in text:
        text = _PARAMETER.sub(r"\g<1>***", _USERINFO.sub(r"\g<1>***@", text))
    return _BEARER.sub(r"\g<1>***", text)


def without_channel(text: str) -> str:
    """For alerts: all that is behind a scheme, or a webhook's host, may be the key to a channel."""
    return _URL.sub(lambda url: without_token(url[0]), text) if "://" in text else text


def shown(what: str, why: str) -> tuple[str, str]:
    """A trouble as it may be told to anybody."""
    hidden = without_channel(why) if what.startswith("alert:") else safe(why)
    return without_channel(what), hidden


class Lines:
    """A bounded buffer before a stream; a thread empties it. `dropped` counts what was given up."""

    def __init__(self, stream: TextIO, *, on_drop: Callable[[int], str], chars: int = BUFFER_CHARS) -> None:
        self.dropped: int = 0
        self._stream = stream
        self._chars_max = chars
        self._on_drop = on_drop
        self._lines: deque[str] = deque()
        self._chars = 0
        self._dropped_unsaid = 0
        self._writing = False
        self._closed = False
        self._change = threading.Condition()
        self._thread = threading.Thread(target=self._empty, name="log", daemon=True)
        self._thread.start()

    def write(self, line: str) -> None:
        """Never waits for anybody but the thread's own short moments."""
        with self._change:
            if self._closed:
                self.dropped += 1
                return
            self._lines.append(line)
            self._chars += len(line)
            while self._chars > self._chars_max and len(self._lines) > 1:
                self._chars -= len(self._lines.popleft())
                self.dropped += 1
                self._dropped_unsaid += 1
            self._change.notify_all()

    def close(self, within_s: float = 2.0) -> None:
        """Write what is there, but take no longer than this."""
        with self._change:
            self._change.wait_for(lambda: not self._lines and not self._writing, within_s)
            self._closed = True
            self._change.notify_all()
        self._thread.join(0.1)

    def _empty(self) -> None:
        while True:
            with self._change:
                self._writing = False
                self._change.notify_all()
                self._change.wait_for(lambda: self._lines or self._closed)
                if not self._lines:
                    return
                lines, self._lines, self._chars = list(self._lines), deque(), 0
                lost, self._dropped_unsaid = self._dropped_unsaid, 0
                self._writing = True
            if lost:
                lines.insert(0, self._on_drop(lost))
            try:
                self._put("".join(f"{line}\n" for line in lines))
            except (OSError, ValueError):  # nobody will ever read; that is counted, and all we can do
                with self._change:
                    self.dropped += len(lines)

    def _put(self, text: str) -> None:
        try:
            number = self._stream.fileno()
        except (OSError, ValueError, AttributeError):  # a stream in memory
            self._stream.write(text)
            return
        rest = memoryview(text.encode("utf-8", "backslashreplace"))
        while rest:
            try:
                rest = rest[os.write(number, rest) :]
            except BlockingIOError:  # somebody made it non-blocking; a thread may wait
                ready = select.poll()
                ready.register(number, select.POLLOUT)
                ready.poll()


def told_value(value: object) -> object:
    match value:
        case bool() | int():
            return value
        case float():
            return round(value, 3)
        case Mapping():
            return {str(told_value(key)): told_value(inner) for key, inner in value.items()}
        case list() | tuple():
            return [told_value(item) for item in value]
        case _:
            text = safe(str(value))
            return text if len(text) <= FIELD_CHARS else text[: FIELD_CHARS - 1] + "…"


def as_json(fields: Mapping[str, object]) -> str:
    return exact_json(fields, str)


def as_text(fields: Mapping[str, object]) -> str:
    rest = (
        f"{line(k)}={_word(v)}"
        for k, v in fields.items()
        if k not in ("at", "level", "event", "instance", "broker")
    )
    return "  ".join([f"{fields['at']} {fields['level']:<7} {line(str(fields['event']))}", *rest])


def _word(value: object) -> str:
    if isinstance(value, Mapping):
        return ",".join(f"{_word(key)}:{_word(inner)}" for key, inner in value.items())
    text = str(value)
    if re.fullmatch(r"[^\s\"=\\]+", text) and is_plain(text):
        return text
    return exact_json(text)
