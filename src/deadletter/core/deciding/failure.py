"""Why did it fail? Read from the letter alone, in the dialect of whatever framework left it.

The broker only knows *that* a letter died. The error itself is in headers some frameworks add on the way
to their error queue; a few add nothing, and then only the framework is known. Each dialect is one row of
`_DIALECTS`, tried in order, our own first; a row applies when one of its `marks` is present. Bodies are
looked into last.

What each framework writes:

* **Deadletter's consumer**: `deadletter-error-*`.
* **MassTransit** (`MessageHeaders`): `MT-Fault-*`, `MT-Host-MachineName`; the failed queue as the path of
  `MT-Fault-InputAddress`.
* **NServiceBus** (`FaultsHeaderKeys`): `NServiceBus.ExceptionInfo.*`, `NServiceBus.FailedQ`,
  `NServiceBus.TimeOfFailure`, `NServiceBus.ProcessingMachine`.
* **Spring AMQP** (`RepublishMessageRecoverer`), Spring Cloud Stream and Steeltoe: `x-exception-message`,
  `x-exception-stacktrace`, `x-original-exchange`, `x-original-routingKey`. The type is only in the stack.
* **Ratatoskr** (`RabbitMqRetryHandler`): `x-original-queue`, `x-failure-time`; never the error. The
  failed queue and the time are all there is.
* **GoQueue**: `goqueue-*` with the retry count; never the error.
* **Celery** (message protocol 2): `task`, `id`, `retries`; its errors go to the result backend, not into
  the letter.
* **Moleculer channels**: `x-original-channel`, `x-original-group`; never the error.
* **Nobody in particular**: headers as teams invent them (`x-error-class`, `error_type`, `x-traceback`, …).

Dramatiq, Celery's results, Symfony and Rascal keep it in a structure: see `failure_payloads`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

from deadletter.core.deciding import failure_payloads as payloads
from deadletter.core.deciding.failure_payloads import Payload
from deadletter.core.letter import header_values, names

MAX_TYPE_CHARS: Final = 300
MAX_MESSAGE_CHARS: Final = 4_000
MAX_STACK_CHARS: Final = 32_000
MAX_HOST_CHARS: Final = 300
_MAX_RAW_STACK_CHARS: Final = 1_000_000
_CAUSED_BY: Final = "\nCaused by: "


class Framework(StrEnum):
    """Who wrote the headers."""

    DEADLETTER = "deadletter"
    MASSTRANSIT = "masstransit"
    NSERVICEBUS = "nservicebus"
    SPRING = "spring"
    RATATOSKR = "ratatoskr"
    GOQUEUE = "goqueue"
    CELERY = "celery"
    DRAMATIQ = "dramatiq"
    SYMFONY = "symfony"
    RASCAL = "rascal"
    MOLECULER = "moleculer"
    HAND_MADE = "hand-made"
    """Nobody's: headers under names that many teams came upon."""


class Failure(NamedTuple):
    """What is known of the error. `queue` is where the framework says it happened, in `queue_header`."""

    framework: Framework
    error_type: str | None = None
    message: str | None = None
    stack: str | None = None
    host: str | None = None
    service: str | None = None
    release: str | None = None
    at: datetime | None = None
    first_at: datetime | None = None
    retries: int | None = None
    queue: str | None = None
    queue_header: str | None = None
    task: str | None = None
    """What the framework calls the code that failed, where it says no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Dialect:
    framework: Framework
    marks: tuple[str, ...]
    error_type: str | None = None
    message: str | None = None
    stack: str | None = None
    host: tuple[str, ...] = ()
    service: str | None = None
    release: str | None = None
    at: str | None = None
    first_at: str | None = None
    retries: str | None = None
    queue: str | None = None


_DIALECTS: Final = (
    _Dialect(
        framework=Framework.DEADLETTER,
        marks=(names.ERROR_TYPE, names.ERROR_MESSAGE),
        error_type=names.ERROR_TYPE,
        message=names.ERROR_MESSAGE,
        stack=names.ERROR_STACK,
        host=(names.ERROR_HOST,),
        service=names.ERROR_SERVICE,
        release=names.ERROR_RELEASE,
        at=names.ERROR_AT,
        first_at=names.ERROR_FIRST_AT,
        retries=names.ATTEMPT,
    ),
    _Dialect(
        framework=Framework.MASSTRANSIT,
        marks=("MT-Fault-ExceptionType", "MT-Fault-Message", "MT-Reason"),
        error_type="MT-Fault-ExceptionType",
        message="MT-Fault-Message",
        stack="MT-Fault-StackTrace",
        host=("MT-Host-MachineName",),
        at="MT-Fault-Timestamp",
        retries="MT-Fault-RetryCount",
        queue="MT-Fault-InputAddress",
    ),
    _Dialect(
        framework=Framework.NSERVICEBUS,
        marks=(
            "NServiceBus.ExceptionInfo.ExceptionType",
            "NServiceBus.ExceptionInfo.Message",
            "NServiceBus.FailedQ",
        ),
        error_type="NServiceBus.ExceptionInfo.ExceptionType",
        message="NServiceBus.ExceptionInfo.Message",
        stack="NServiceBus.ExceptionInfo.StackTrace",
        host=(
            "NServiceBus.ProcessingMachine",
            "NServiceBus.ProcessingEndpoint",
            "$.diagnostics.hostdisplayname",
        ),
        at="NServiceBus.TimeOfFailure",
        retries="NServiceBus.Retries",
        queue="NServiceBus.FailedQ",
    ),
    _Dialect(
        framework=Framework.SPRING,
        marks=("x-exception-message", "x-exception-stacktrace"),
        message="x-exception-message",
        stack="x-exception-stacktrace",
    ),
    _Dialect(
        framework=Framework.RATATOSKR,
        marks=("x-failure-time",),
        at="x-failure-time",
        queue="x-original-queue",
    ),
    _Dialect(
        framework=Framework.GOQUEUE,
        marks=("goqueue-queue-service-agent", "goqueue-message-id", "goqueue-retry-count"),
        at="goqueue-requeued-timestamp",
        retries="goqueue-retry-count",
    ),
)


_HAND_MADE: Final = {
    name: meaning
    for meaning, spelled in (
        ("error_type", "error-class error-name error-type exception-type exception-class exception-name"),
        ("message", "error-message exception-message error-reason failure-reason error exception"),
        (
            "stack",
            "traceback error-stack stack stacktrace stack-trace backtrace error-traceback error-stacktrace",
        ),
        ("cause", "error-cause cause"),
        ("host", "host failed-on error-host hostname"),
        ("at", "failed-at error-at failure-time"),
        ("queue", "original-queue failed-queue source-queue"),
        ("task", "task-name"),
    )
    for name in spelled.split()
}
"""Small letters, `-` for `_`, without `x-`."""
_WORDS: Final = frozenset(
    {names.WHY, "rascal", *(name for one in _DIALECTS for name in (one.message, one.stack) if name)}
)
_LIKE_WORDS: Final = re.compile(
    r"(error|exception|fault|fail).*(message|stack|trace|data|reason|detail|cause|description|text|body)"
)
"""Also of frameworks that are not read here, and where one says more: Symfony's stamps, exception data."""


def read_failure(headers: Mapping[str, object], body: bytes = b"") -> Failure | None:
    """What the letter says of its error; None when nothing in it is recognised."""
    if headers:
        for dialect in _DIALECTS:
            if not headers.keys().isdisjoint(dialect.marks):
                return _read(dialect, headers)
        if _is_celery(headers):
            task = _text(headers, "task", MAX_TYPE_CHARS)
            retries = header_values.count(headers.get("retries"))
            return Failure(framework=Framework.CELERY, retries=retries, task=task)
        found = _read_payload(headers) or _read_moleculer(headers) or _read_hand_made(headers)
        if found is not None:
            return found
    return _read_body(body)


def error_texts(headers: Mapping[str, object]) -> frozenset[str]:
    """The names of those headers that say in words what went wrong: such words may quote anything. Types of
    errors, hosts and times are none."""
    return frozenset(name for name in headers if name in _WORDS or _is_text(name))


def _is_text(name: str) -> bool:
    low = name.lower()
    meaning = _HAND_MADE.get(low.replace("_", "-").removeprefix("x-"))
    return meaning in ("message", "stack", "cause") or _LIKE_WORDS.search(low) is not None


def _read(dialect: _Dialect, headers: Mapping[str, object]) -> Failure:
    stack = _text(headers, dialect.stack, _MAX_RAW_STACK_CHARS)
    queue = _queue(headers, dialect.queue)
    if dialect.framework is Framework.SPRING and headers.get("x-original-exchange") == "":
        queue = _queue(headers, "x-original-routingKey")  # the default exchange: the key is the queue
    return Failure(
        framework=dialect.framework,
        error_type=_text(headers, dialect.error_type, MAX_TYPE_CHARS) or _type_in_java_stack(stack),
        message=_text(headers, dialect.message, MAX_MESSAGE_CHARS),
        stack=bounded_stack(stack),
        host=next((host for h in dialect.host if (host := _text(headers, h, MAX_HOST_CHARS))), None),
        service=_text(headers, dialect.service, MAX_HOST_CHARS),
        release=_text(headers, dialect.release, MAX_HOST_CHARS),
        at=header_values.moment(headers.get(dialect.at)) if dialect.at else None,
        first_at=header_values.moment(headers.get(dialect.first_at)) if dialect.first_at else None,
        retries=header_values.count(headers.get(dialect.retries)) if dialect.retries else None,
        queue=queue,
        queue_header=(dialect.queue or "x-original-routingKey") if queue else None,
    )


def _text(headers: Mapping[str, object], header: str | None, limit: int) -> str | None:
    if header is None:
        return None
    value = headers.get(header)
    if type(value) is str:  # nearly all of them
        return value[:limit] or None
    return header_values.text(value, limit) or None


def _queue(headers: Mapping[str, object], header: str | None) -> str | None:
    """A plain queue name, or an address whose path ends in one."""
    if header is None:
        return None
    text = header_values.text(headers.get(header), 2_000) or ""
    if "://" in text:
        text = text.partition("?")[0].rstrip("/").rpartition("/")[2]
    return header_values.name(text) or None


def bounded_stack(stack: str | None) -> str | None:
    """A stack that fits anywhere. Head and tail stay: Java names the error at the top, Python at the end."""
    if not stack or len(stack) <= MAX_STACK_CHARS:
        return stack or None
    head, tail = MAX_STACK_CHARS * 2 // 3, MAX_STACK_CHARS // 4
    return f"{stack[:head]}\n… {len(stack) - head - tail} characters left out …\n{stack[-tail:]}"


def _type_in_java_stack(stack: str | None) -> str | None:
    """The root cause: the last `Caused by`, else the first line. Spring cuts long stacks."""
    if not stack:
        return None
    cause = stack.rpartition(_CAUSED_BY)[2]
    return _leading_name(cause.partition("\n")[0])


def _leading_name(line: str) -> str | None:
    """`java.net.ConnectException: refused` → `java.net.ConnectException`; None when the line is no error."""
    name = line.strip().partition(":")[0].strip()
    looks_right = 0 < len(name) <= MAX_TYPE_CHARS and all(c.isalnum() or c in "._$<>" for c in name)
    return name if looks_right else None


def _is_celery(headers: Mapping[str, object]) -> bool:
    return "task" in headers and "id" in headers and ("lang" in headers or "root_id" in headers)


def _read_payload(headers: Mapping[str, object]) -> Failure | None:
    if (told := payloads.symfony(headers)) is not None:
        return _of(Framework.SYMFONY, told, "SentToFailureTransportStamp")
    if (told := payloads.rascal(headers)) is not None:
        return _of(Framework.RASCAL, told, "rascal.originalQueue")
    return None


def _read_body(body: bytes) -> Failure | None:
    if (told := payloads.dramatiq(body)) is not None:
        error_type, message = _last_line_of_python(told.stack)
        return _of(Framework.DRAMATIQ, told._replace(error_type=error_type, message=message), "queue_name")
    if (told := payloads.celery_result(body)) is not None:
        return _of(Framework.CELERY, told, "queue")
    if (told := payloads.serialized_symfony(body)) is not None:
        return _of(Framework.SYMFONY, told, "SentToFailureTransportStamp")
    return None


def _of(framework: Framework, told: Payload, queue_header: str) -> Failure:
    return Failure(
        framework=framework,
        error_type=told.error_type,
        message=told.message,
        stack=bounded_stack(told.stack),
        at=header_values.moment(told.at),
        retries=told.retries,
        queue=told.queue or None,
        queue_header=queue_header if told.queue else None,
        task=told.task,
    )


def _read_moleculer(headers: Mapping[str, object]) -> Failure | None:
    channel = header_values.name(headers.get("x-original-channel"))
    group = header_values.name(headers.get("x-original-group"))
    if not channel or not group:
        return None
    return Failure(
        framework=Framework.MOLECULER,
        queue=f"{group}.{channel}",
        queue_header="x-original-channel",
        task=channel,
    )


def _read_hand_made(headers: Mapping[str, object]) -> Failure | None:
    """Headers that teams invent alike: `x-error-class`, `error_type`, `x-traceback`, `x-original-queue`, …"""
    found: dict[str, str] = {}
    for name in headers:
        meaning = _HAND_MADE.get(name.lower().replace("_", "-").removeprefix("x-"))
        if meaning is not None:
            found.setdefault(meaning, name)
    if not found.keys() & {"error_type", "stack", "message"}:
        return None
    stack = _text(headers, found.get("stack"), _MAX_RAW_STACK_CHARS)
    cause = _text(headers, found.get("cause"), _MAX_RAW_STACK_CHARS)
    if stack and cause and cause.partition("\n")[0] not in stack:
        stack = f"{stack}{_CAUSED_BY}{cause}"
    queue = _queue(headers, found.get("queue"))
    return Failure(
        framework=Framework.HAND_MADE,
        error_type=_text(headers, found.get("error_type"), MAX_TYPE_CHARS),
        message=_text(headers, found.get("message"), MAX_MESSAGE_CHARS),
        stack=bounded_stack(stack),
        host=_text(headers, found.get("host"), MAX_HOST_CHARS),
        at=header_values.moment(headers.get(found["at"])) if "at" in found else None,
        queue=queue,
        queue_header=found["queue"] if queue else None,
        task=_text(headers, found.get("task"), MAX_TYPE_CHARS),
    )


def _last_line_of_python(stack: str | None) -> tuple[str | None, str | None]:
    """A traceback's error: the last line that is not indented and names one. A message may span lines."""
    lines = [_drawn(line) for line in (stack or "")[-2 * MAX_MESSAGE_CHARS :].rstrip().split("\n")]
    for place in range(len(lines) - 1, -1, -1):
        above_is_frame = place == 0 or lines[place - 1].startswith(" ")
        if above_is_frame and not lines[place].startswith(" ") and (name := _leading_name(lines[place])):
            message = "\n".join([lines[place].partition(":")[2].strip(), *lines[place + 1 :]]).strip()
            return name, message[:MAX_MESSAGE_CHARS] or None
    return None, None


def _drawn(line: str) -> str:
    """A group of exceptions is drawn as a tree; its lines without the branches."""
    return line.lstrip().removeprefix("|").removeprefix(" ") if line.lstrip()[:2] == "| " else line
