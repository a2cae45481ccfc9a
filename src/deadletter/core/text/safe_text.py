"""Foreign text, safe to show: on a terminal, in a log, in a picture.

Ids, types, error texts, header names, bodies, routing keys and queue names come from whoever may publish, and
a broker quotes them back. Shown as they are they can move the cursor, write to the clipboard, ring, turn the
reading direction round, hide, or end a line and begin another that looks like ours. So everything foreign
passes here, on its way to wherever a person reads it: what no reader could see stands there visibly, as
`\\x1b` or `\\u202e`. Data (`--json`) stays exact: there the same characters are written as JSON escapes.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from html import escape
from typing import Final

# Controls, with C1 and DEL; marks that turn the direction; what takes no room; separators of lines and
# paragraphs; blanks that are no spaces; tags; surrogates, which are no characters at all.
_HIDDEN: Final = (
    "\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ud800-\udfff\ufeff\uffa0\ufff0-\uffff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff"
)
_ANY: Final = re.compile(f"[{_HIDDEN}]")
_ANY_BUT_LINES: Final = re.compile(f"[{_HIDDEN}]".replace("\x00-\x1f", "\x00-\x08\x0b-\x1f"))
_NAMED: Final = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ESCAPED_BYTES: Final = range(0xDC80, 0xDD00)
"""What `surrogateescape` makes of a byte that is not UTF-8."""


def line(text: str, most: int | None = None) -> str:
    """In one line, whatever it holds; cut to `most` characters where that is asked."""
    cut = text if most is None else text[: most + 1]
    shown = _ANY.sub(_stand_in, cut)
    return shown if most is None or len(shown) <= most else shown[: most - 1] + "…"


def block(text: str) -> str:
    """In its own lines, tabs kept too: a body, a stack, a result that was made line by line."""
    return _ANY_BUT_LINES.sub(_stand_in, text)


def lines(each: Iterable[str]) -> str:
    """One under the other, and none of them more than a line."""
    return "\n".join(map(line, each))


def markup(text: str) -> str:
    """In one line, escaped for HTML and SVG. What no XML may hold is a stand-in by then."""
    return escape(line(text))


def visible_parts(text: str, *, whole_lines: bool = False) -> Iterator[tuple[str, bool]]:
    """For a page, which can mark what no reader could see: pieces of the text, and whether each stands for
    such a character, as `[U+202E]`. `whole_lines`: ends of lines and tabs stay what they are."""
    place = 0
    for found in (_ANY_BUT_LINES if whole_lines else _ANY).finditer(text):
        if found.start() > place:
            yield text[place : found.start()], False
        number = ord(found[0])
        yield f"[0x{number - 0xDC00:02X}]" if number in _ESCAPED_BYTES else f"[U+{number:04X}]", True
        place = found.end()
    if place < len(text):
        yield text[place:], False


def visible(text: str) -> str:
    """The same in one piece: for titles and labels."""
    return text if is_plain(text) else "".join(part for part, _ in visible_parts(text))


def is_plain(text: str) -> bool:
    """Whether it is shown as it is."""
    return _ANY.search(text) is None


def exact_json(
    value: object, default: Callable[[object], object] | None = None, indent: int | None = None
) -> str:
    """As JSON: the same data when it is read, and nothing a terminal would act on. Lines only by `indent`."""
    return _ANY_BUT_LINES.sub(
        _json_escape, json.dumps(value, ensure_ascii=False, default=default, indent=indent)
    )


def _stand_in(found: re.Match[str]) -> str:
    char = found[0]
    number = ord(char)
    if number in _ESCAPED_BYTES:
        return f"\\x{number - 0xDC00:02x}"
    if number > 0xFFFF:
        return f"\\U{number:08x}"
    return _NAMED.get(char) or (f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}")


def _json_escape(found: re.Match[str]) -> str:
    number = ord(found[0])
    if number <= 0xFFFF:
        return f"\\u{number:04x}"
    number -= 0x10000
    return f"\\u{0xD800 + (number >> 10):04x}\\u{0xDC00 + (number & 0x3FF):04x}"
