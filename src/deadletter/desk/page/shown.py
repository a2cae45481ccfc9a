"""How values become text on a page: the filters and functions of the templates.

Everything that is written into a template passes `finalized`: whatever a queue, a header or an error is
called, no character in it hides, turns the direction or ends a line. `value` does the same and marks what it
replaced; it is for what a reader looks at. Autoescaping does the rest.
"""

from __future__ import annotations

import json
import shlex
from datetime import UTC, datetime
from typing import Final
from urllib.parse import quote, urlencode

from jinja2 import Undefined
from markupsafe import Markup, escape

from deadletter.core.text.durations import rough_duration_text
from deadletter.core.text.safe_text import is_plain, visible, visible_parts

LIST_CHARS: Final = 200
"""So much of a value is shown in a list."""
SHOWN_CHARS: Final = 64 * 1024
"""So much of one text is shown at all."""


def finalized(value: object) -> object:
    """What a template writes without saying how."""
    if isinstance(value, Markup | Undefined):
        return value
    if value is None:
        return ""
    return visible(str(value))


def value(text: object, most: int = LIST_CHARS) -> Markup:
    """Foreign text in one line, apart from the direction of what stands around it."""
    said = str(text)
    if len(said) <= most and is_plain(said):
        return Markup(f"<bdi>{escape(said)}</bdi>")  # noqa: S704 -- it is escaped
    more = Markup('<span class="cut" title="{} characters">…</span>').format(f"{len(said):,}")
    cut = _marked(said[:most], whole_lines=False)
    return Markup("<bdi>{}{}</bdi>").format(cut, more if len(said) > most else "")


def block(text: object, most: int = SHOWN_CHARS) -> Markup:
    """Foreign text in its own lines."""
    said = str(text)
    more = Markup('\n<span class="cut">… {} characters more</span>').format(f"{len(said) - most:,}")
    return _marked(said[:most], whole_lines=True) + (more if len(said) > most else Markup(""))


def _marked(text: str, *, whole_lines: bool) -> Markup:
    if is_plain(text):
        return escape(text)
    return Markup("").join(
        Markup('<span class="odd">{}</span>').format(part) if odd else escape(part)
        for part, odd in visible_parts(text, whole_lines=whole_lines)
    )


def as_it_stands(text: str) -> Markup:
    """Escaped and nothing else: for a field that sends back what it holds."""
    return escape(text)


def is_odd(text: str) -> bool:
    """Whether something in it had to be made visible."""
    return any(odd for _, odd in visible_parts(text, whole_lines=True))


# -- numbers and times -----------------------------------------------------------------------------------
def number(value: float) -> str:
    return f"{value:,}"


def counted(value: int, noun: str = "letter") -> str:
    """`1 letter`, `20,000 letters`."""
    return f"{value:,} {noun}{'' if value == 1 else 's'}"


def size(value: int) -> str:
    """Bytes as people say them."""
    amount = float(value)
    for unit in ("bytes", "kB", "MB"):
        if amount < 1_000 or unit == "MB":
            return f"{value:,} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1_000
    raise AssertionError("the last unit takes everything")


def span(duration_ms: float) -> str:
    return rough_duration_text(int(duration_ms))


def ago(at_ms: int, now_ms: int) -> str:
    """`3 min ago`, `in 2 h`, `now`."""
    passed = now_ms - at_ms
    if abs(passed) < 1_000:
        return "now"
    said = rough_duration_text(_whole(abs(passed)))
    return f"{said} ago" if passed > 0 else f"in {said}"


def _whole(duration_ms: int) -> int:
    """Seconds and minutes whole."""
    if duration_ms >= 3_600_000:
        return duration_ms
    return duration_ms - duration_ms % (60_000 if duration_ms >= 60_000 else 1_000)


def exact_time(at_ms: int) -> str:
    """In UTC, as people read it."""
    try:
        return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (ValueError, OverflowError, OSError):
        return f"{at_ms} ms"


def iso_time(at_ms: int) -> str:
    try:
        return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%dT%H:%M:%S}Z"
    except (ValueError, OverflowError, OSError):
        return ""


def to_ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)


# -- addresses and commands ------------------------------------------------------------------------------
def path_part(text: object) -> str:
    """A name as a part of an address."""
    return quote(str(text), safe="")


def query_text(said: dict[str, object], **changes: object) -> str:
    """`?a=b` of these, with changes; what is None or empty is left out. A list is said several times."""
    merged = {**said, **changes}
    pairs = [
        (name, str(each))
        for name, one in merged.items()
        for each in (one if isinstance(one, list | tuple) else [one])
        if each not in (None, "")
    ]
    return f"?{urlencode(pairs)}" if pairs else "?"


def command_line(*words: object) -> str:
    """A line for a shell; empty where it cannot be shown as it would have to be typed."""
    said = shlex.join(["dlq", *map(str, words)])
    return said if is_plain(said) else ""


def plain(value: object) -> str:
    """A header or property as text: a string as it is, the rest as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
