"""Errors that frameworks keep in a structure of theirs: in a JSON header, in a table, in the body.

* **Dramatiq** (`Retries`): `options.traceback`, `options.retries`, `options.requeue_timestamp` in its JSON
  body; without a traceback (`max_retries=0`, `throws=`) only the actor is known.
* **Celery's results** (`task_store_errors_even_if_ignored`, `rpc://`): `result.exc_type`,
  `result.exc_message` (the arguments of the exception), `traceback`, `queue` and `name` in its JSON body.
* **Symfony Messenger**: a stamp with the exception and its trace, as JSON in a header, or with PHP's own
  serializer in the body.
* **Rascal**: the header `rascal`, a table with the error's message, code and queue; no type, no stack.

Bodies are looked into only when they begin as such a body does, and when they are small.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from deadletter.core.letter import header_values

MAX_STACK_CHARS: Final = 1_000_000
_MAX_BODY_BYTES: Final = 256 * 1024
_MAX_FRAMES: Final = 200
_MAX_CHAIN: Final = 8
_MAX_TEXT: Final = 4_000
_STAMP: Final = "X-Message-Stamp-Symfony\\Component\\Messenger\\Stamp\\"
_SERIALIZED: Final = b'O:36:\\"Symfony\\\\Component\\\\Messenger\\\\Envelope'
_UNSLASHED: Final = re.compile(r"\\(.)", re.DOTALL)
_STRING: Final = r's:(\d{1,7}):"'


class Payload(NamedTuple):
    """What such a structure says."""

    error_type: str | None = None
    message: str | None = None
    stack: str | None = None
    queue: str | None = None
    task: str | None = None
    retries: int | None = None
    at: object = None


def dramatiq(body: bytes) -> Payload | None:
    # Dramatiq writes queue_name and actor_name first; anything else is not worth parsing a body for.
    if not body.startswith(b"{") or b'"actor_name"' not in body[:1024]:
        return None
    told = _json(body)
    options = told.get("options")
    if not isinstance(options, dict):
        return None
    stack = header_values.text(options.get("traceback"), MAX_STACK_CHARS)
    queue = header_values.name(told.get("queue_name"))
    return Payload(
        stack=stack,
        # its delay queue, which nobody but Dramatiq feeds
        queue=queue.removesuffix(".DQ") if queue else None,
        task=header_values.name(told.get("actor_name")),
        retries=header_values.count(options.get("retries")),
        at=options.get("requeue_timestamp"),
    )


def celery_result(body: bytes) -> Payload | None:
    if not body.startswith(b"{") or b'"exc_type"' not in body[:512]:
        return None
    told = _json(body)
    result = told.get("result")
    if told.get("status") != "FAILURE" or not isinstance(result, dict):
        return None
    module, kind = result.get("exc_module"), header_values.name(result.get("exc_type"))
    said = result.get("exc_message")
    words = [_argument(one) for one in said] if isinstance(said, list) else [str(said or "")]
    return Payload(
        error_type=f"{module}.{kind}" if isinstance(module, str) and kind else kind,
        message=", ".join(words)[:_MAX_TEXT] or None,
        stack=header_values.text(told.get("traceback"), MAX_STACK_CHARS),
        queue=header_values.name(told.get("queue")),
        task=header_values.name(told.get("name")),
        retries=header_values.count(told.get("retries")),
        at=told.get("date_done"),
    )


def _argument(value: object) -> str:
    """One word alone is a value, and is quoted, as Python's own messages have it."""
    return repr(value) if isinstance(value, str) and " " not in value else str(value)


def symfony(headers: Mapping[str, object]) -> Payload | None:
    errors = _stamp(headers, "ErrorDetailsStamp")
    sent = _stamp(headers, "SentToFailureTransportStamp")
    if errors is None and sent is None:
        return None
    queue = header_values.name((sent or {}).get("originalReceiverName"))
    retries = header_values.count((_stamp(headers, "RedeliveryStamp") or {}).get("retryCount"))
    if errors is None:
        return Payload(queue=queue, retries=retries, task=header_values.name(headers.get("type")))
    flat = errors.get("flattenException")
    return Payload(
        error_type=header_values.text(errors.get("exceptionClass"), 300),
        message=header_values.text(errors.get("exceptionMessage"), _MAX_TEXT),
        stack=_php_stack(flat) if isinstance(flat, dict) else None,
        queue=queue,
        retries=retries,
        task=header_values.name(headers.get("type")),
    )


def serialized_symfony(body: bytes) -> Payload | None:
    """The same where PHP's own serializer wrote it, with slashes added."""
    if not body.startswith(_SERIALIZED) or len(body) > _MAX_BODY_BYTES:
        return None
    plain = _UNSLASHED.sub(
        lambda found: "\0" if found[1] == "0" else found[1], body.decode("utf-8", "replace")
    )
    kind, said = _serialized(plain, "exceptionClass"), _serialized(plain, "exceptionMessage")
    return Payload(
        error_type=kind,
        message=said,
        stack=_serialized_stack(plain) or None,
        queue=_serialized(plain, "originalReceiverName"),
    )


def _serialized_stack(plain: str) -> str:
    """Its errors with their traces; PHP writes the one that was the cause first."""
    traces, kinds = _all_serialized(plain, "traceAsString"), _all_serialized(plain, "class")
    lines: list[str] = []
    for kind, trace in reversed(list(zip(kinds, traces, strict=False))[:_MAX_CHAIN]):
        lines.append(f"{'Caused by: ' if lines else ''}{kind}:\n{trace}")
    return "\n".join(lines)


def rascal(headers: Mapping[str, object]) -> Payload | None:
    told = headers.get("rascal")
    if not isinstance(told, dict) or "originalQueue" not in told:
        return None
    error = told.get("error")
    said = error if isinstance(error, dict) else {}
    return Payload(
        error_type=header_values.text(said.get("code"), 300),
        message=header_values.text(said.get("message"), _MAX_TEXT),
        queue=header_values.name(told.get("originalQueue")),
        retries=header_values.count(told.get("redeliveries")),
    )


def _json(body: bytes) -> dict[str, Any]:
    if len(body) > _MAX_BODY_BYTES:
        return {}
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return told if isinstance(told, dict) else {}


def _stamp(headers: Mapping[str, object], name: str) -> dict[str, Any] | None:
    """The last of its stamps of this name."""
    value = header_values.text(headers.get(_STAMP + name), _MAX_BODY_BYTES)
    if not value:
        return None
    try:
        told = json.loads(value)
    except (ValueError, RecursionError):
        return None
    last = told[-1] if isinstance(told, list) and told else None
    return last if isinstance(last, dict) else None


def _php_stack(flat: dict[str, Any]) -> str:
    """A trace as PHP writes it. Each entry has the file of the caller: here each function is with its own."""
    lines: list[str] = []
    error: Any = flat
    for _ in range(_MAX_CHAIN):
        if not isinstance(error, dict):
            break
        lines.append(f"{'Caused by: ' if lines else ''}{error.get('class')}: {error.get('message')}")
        trace = [entry for entry in error.get("trace") or () if isinstance(entry, dict)][:_MAX_FRAMES]
        for place, caller in zip(trace, [*trace[1:], {}], strict=True):
            function = "".join(str(caller.get(key) or "") for key in ("class", "type", "function"))
            lines.append(f"#{len(lines)} {place.get('file')}({place.get('line')}): {function or '{main}'}()")
        error = error.get("previous")
    return "\n".join(lines)


def _serialized(plain: str, name: str) -> str | None:
    """The first property of this name that holds text."""
    return next(iter(_all_serialized(plain, name)), None)


def _all_serialized(plain: str, name: str) -> list[str]:
    """All properties of this name that hold text: PHP writes its length before it, in bytes."""
    found: list[str] = []
    for place in re.finditer(rf'\0{name}";{_STRING}', plain):
        length = min(int(place[1]), _MAX_BODY_BYTES)
        raw = plain[place.end() : place.end() + length].encode()[:length]
        found.append(raw.decode("utf-8", "replace").removesuffix('";'))
    return found
