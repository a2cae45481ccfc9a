"""The body of a request: read whole before anybody looks at it, up to a bound in bytes and in time."""

from __future__ import annotations

import asyncio
import re
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Message, Receive

from deadletter.desk.problems import problem
from deadletter.operations.records.exact_letters import MAX_BYTES as ARCHIVE_BYTES
from deadletter.operations.records.exact_letters import MEDIA_TYPE as ARCHIVE_TYPE
from deadletter.operations.replays.replay_told import EDIT_CHARS

BODY_BYTES: Final = 65_536
BODY_S: Final = 10.0
JSON: Final = "application/json"
FORM: Final = "application/x-www-form-urlencoded"
"""What a form of a page sends; the API takes none."""
_API: Final = "/api/"
_BODIES: Final = {"/api/v1/archive": (ARCHIVE_TYPE, ARCHIVE_BYTES)}
"""What a path takes, and how much of it, where that is not JSON."""
_DRAFT: Final = re.compile(r"(/api/v1)?/letters/[^/]+/(draft|edit)")
DRAFT_BYTES: Final = 4 * EDIT_CHARS
"""A letter that a person edited is as large as it is."""


def kind_of(headers: Headers) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower()


def refused_kind(path: str, headers: Headers) -> Response | None:
    """A body that is none of what is taken there."""
    if headers.get("content-length", "0") == "0" and "transfer-encoding" not in headers:
        return None
    kind = kind_of(headers)
    expected, _ = _taken(path)
    if kind == expected or (kind == FORM and not path.startswith(_API)):
        return None
    return problem(415, f"expected a body of {expected}, got {kind[:100] or 'no type'}")


async def read_body(path: str, headers: Headers, receive: Receive) -> bytes | Response:
    """The whole body of a request, or the refusal."""
    _, most = _taken(path)
    too_large = problem(413, f"expected a body of at most {most:,} bytes")
    length = headers.get("content-length", "0")
    if not length.isdecimal() or int(length) > most:
        return too_large
    if length == "0" and "transfer-encoding" not in headers:
        return b""
    parts = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    return problem(400, "the body ended too early")
                parts += message.get("body", b"")
                if len(parts) > most:
                    return too_large
                if not message.get("more_body", False):
                    return bytes(parts)
    except TimeoutError:
        return problem(408, f"expected the body within {BODY_S:.0f} s")


def again(body: bytes, receive: Receive) -> Receive:
    """The body, and then whatever comes after it."""
    told = False

    async def once() -> Message:
        nonlocal told
        if told:
            return await receive()
        told = True
        return {"type": "http.request", "body": body, "more_body": False}

    return once


def _taken(path: str) -> tuple[str, int]:
    most = DRAFT_BYTES if _DRAFT.fullmatch(path) else BODY_BYTES
    return _BODIES.get(path, (JSON, most))
