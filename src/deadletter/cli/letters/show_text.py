"""One letter for people: what it is, what happened to it, why it failed, what is in it.

Everything in it is foreign: each line is made safe on its own, so that none of it looks like another line.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from deadletter.cli.letters.asking import age_text, at_text
from deadletter.cli.letters.groups_text import is_told, letters_table
from deadletter.cli.terminal.output import columns
from deadletter.cli.terminal.units import count
from deadletter.core.text.safe_text import line, lines
from deadletter.operations.records.letter_told import BodyKind, BodyTold, ErrorTold, Happening, LetterTold

_FRAMES: Final = 30
_OURS: Final = "deadletter-"
_VALUE_CHARS: Final = 300
_HEX_BYTES: Final = 4_096
_HEX_ROW: Final = 16
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"?|[\[\]{},:]|[^\s\[\]{},:"]+')


def letter_text(
    told: LetterTold, *, now_ms: int, body_bytes: int, ascii_only: bool = False, width: int | None = None
) -> str:
    parts = [
        lines(_head(told, now_ms)),
        "what happened (UTC)\n" + columns([_happening(one) for one in told.timeline], indent=3),
    ]
    if told.error is not None:
        parts.append("error\n" + lines(_error(told.error, ">" if ascii_only else "►")))
    theirs_first = dict(sorted(told.headers.items(), key=lambda item: item[0].startswith(_OURS)))
    for title, table in (("headers", theirs_first), ("properties", told.properties)):
        parts.append(f"{title}\n" + _table(table))
    parts.append(line(f"body, {count(told.body.bytes, 'byte')}") + "\n" + body_text(told.body, body_bytes))
    if told.earlier:
        parts.append("was here before\n" + letters_table(told.earlier, now_ms=now_ms, width=width, indent=3))
    return "\n\n".join(parts)


def _head(told: LetterTold, now_ms: int) -> Iterator[str]:
    row = told.letter
    yield f"letter {row.id}: {row.error or row.cause or 'no error told'}"
    yield f"   id         {row.letter_id}"
    yield f"   state      {row.state.value}"
    yield f"   group      {told.group.id}, {told.group.state.value}: {told.group.title}"
    yield f"   here       {told.why}{f' ({row.cause})' if row.cause else ''}"
    yield f"   origin     {row.origin}{f' in vhost {row.vhost}' if is_told(row.vhost) else ''}"
    yield f"   found in   {row.queue}, came by exchange {told.exchange or '(default)'}, key " + (
        told.routing_key or "(empty)"
    )
    yield f"   died       {at_text(row.died_ms)} UTC ({age_text(row.died_ms, now_ms)})"
    if row.copies:
        yield f"   copies     {row.copies} more of it came, equal to this one; they are kept with it"
    if told.wrapped:
        yield "   wrapped    it could not carry our headers, so it was parked inside another message"
    if told.unreadable:
        yield f"   unreadable {told.unreadable}"


def _happening(one: Happening) -> list[str]:
    times = f" {one.times} ×" if one.times > 1 else ""
    since = ", first at this time" if one.times > 1 and one.what == "died" else ""
    said = one.what + times
    if one.where:
        said += f" {'to' if one.what == 'sent back' else 'in'} {one.where}"
    said += since
    if one.why:
        said += f": {one.why}"
    if one.who:
        said += f" ({one.who})"
    return [at_text(one.at_ms), said]


def _error(error: ErrorTold, mark: str) -> Iterator[str]:
    first, *more = (": ".join(filter(None, (error.type, error.message))) or "no error told").splitlines()
    yield f"   {first}"
    yield from (f"   {one}" for one in more[:20])
    named = (("service", error.service), ("release", error.release), ("host", error.host))
    said = [f"told by {error.framework}", *(f"{name} {value}" for name, value in named if value)]
    yield f"   {', '.join(said)}"
    for raised in error.chain:
        what = ": ".join(filter(None, (raised.type, raised.message.partition("\n")[0]))) or "an error"
        yield f"   {what}, raised along"
        left = raised.frames[-_FRAMES:]
        if len(left) < len(raised.frames):
            yield f"       … {len(raised.frames) - len(left)} further out"
        for frame in left:
            yield f"     {mark if frame.own else ' '} {frame.name}" + (
                f"    {frame.line}" if frame.line else ""
            )
    if any(frame.own for raised in error.chain for frame in raised.frames):
        yield f"   {mark} the application's own"
    if not error.chain and error.stack:
        yield from (f"     {one}" for one in error.stack.splitlines()[:_FRAMES])


def _table(table: Mapping[str, Any]) -> str:
    if not table:
        return "   none"
    return columns([[name, _value(value)] for name, value in table.items()], indent=3)


def _value(value: Any) -> str:
    said = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return said if len(said) <= _VALUE_CHARS else f"{said[:_VALUE_CHARS]}… ({len(said):,} characters)"


# -- bodies ----------------------------------------------------------------------------------------------
def body_text(body: BodyTold, most: int) -> str:
    """JSON one thing a line, text as it stands, the rest in hex; at most `most` bytes of it."""
    if body.kind is BodyKind.BYTES:
        raw = base64.b64decode(body.base64)[: min(most, _HEX_BYTES)]
        return "\n".join([*_hex(raw), *_rest(body.bytes - len(raw))])
    shown = body.text[:most]
    left = 0 if len(shown) == len(body.text) and body.whole else body.bytes - len(shown.encode())
    told = indented(shown) if _is_json(body) else shown
    return "\n".join([*(f"   {line(one.expandtabs(4))}" for one in told.split("\n")), *_rest(left)])


def _rest(left: int) -> list[str]:
    return [f"   … {left:,} bytes more (--body-bytes, or --raw for all of it)"] if left > 0 else []


def _is_json(body: BodyTold) -> bool:
    if body.text.lstrip()[:1] not in ("{", "["):
        return False
    if not body.whole:
        return True  # its beginning looks so, and is shown in lines all the same
    try:
        json.loads(body.text)
    except (ValueError, RecursionError):
        return False
    return True


def indented(text: str) -> str:
    """JSON, or its beginning, one thing a line. Every token stays as it was written: no number is rounded and
    no key that stands there twice is dropped."""
    made: list[str] = []
    depth = 0
    tokens = _TOKEN.findall(text)
    for place, token in enumerate(tokens):
        follows = tokens[place + 1] if place + 1 < len(tokens) else ""
        match token:
            case "{" | "[":
                depth += 1
                made.append(token if follows in ("}", "]") else token + _newline(depth))
            case "}" | "]":
                depth = max(depth - 1, 0)
                empty = place > 0 and tokens[place - 1] in ("{", "[")
                made.append(token if empty else _newline(depth) + token)
            case ",":
                made.append("," + _newline(depth))
            case ":":
                made.append(": ")
            case _:
                made.append(token)
    return "".join(made)


def _newline(depth: int) -> str:
    return "\n" + "  " * min(depth, 40)


def _hex(raw: bytes) -> Iterator[str]:
    for start in range(0, len(raw), _HEX_ROW):
        row = raw[start : start + _HEX_ROW]
        text = "".join(chr(one) if 0x20 <= one < 0x7F else "." for one in row)
        yield f"   {start:06x}  {row.hex(' '):<{_HEX_ROW * 3}} {text}"
