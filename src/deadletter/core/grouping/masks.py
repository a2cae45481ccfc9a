"""What differs between two occurrences of one failure, taken out of its message.

Ids, numbers, addresses, times, hosts and quoted values say which letter it was, not what went wrong. Each is
replaced by a word in angle brackets, by one combined expression in which the first that fits wins: an uuid is
no hash, a date no number. Every quantifier is bounded, and so is the text: whoever may publish may write it.
"""

from __future__ import annotations

import json
import re
import unicodedata
from functools import lru_cache
from typing import Final, NamedTuple

MAX_CHARS: Final = 4_000
_LINES: Final = 3
_STRUCTURED_KEYS: Final = ("code", "type", "path", "loc", "field", "rule", "keyword", "instancePath", "error")
"""In a message that is JSON, a validator's mostly, the values of these keys say what went wrong."""
_JSON_EDGES: Final = (("[", "]"), ("{", "}"))
_STRUCTURED_MAX: Final = 12
_MAX_MASKED_CHARS: Final = 600

_DATE: Final = r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:[.,]\d{1,9})?)?(?:Z|[+-]\d{2}:?\d{2})?)?"
_NAMING: Final = (
    "reading|setting|property|attribute|key|column|constraint|relation|table|field|argument|parameter|variable"
    "|method|function|named|name|class|member|option|header"
)
"""Words after which a quoted name is one of the code's own, and not a value."""
_NAME: Final = r"(?=[A-Za-z_.]{0,60}[a-z])[A-Za-z_][A-Za-z_.]{0,60}"
"""Of something in the code: words in capitals are mostly currencies and countries."""
_KEPT: Final = (
    r"(?i:\b(?:status|http|code|error)[ :=]{1,3}(?:code[ :=]{1,3}|status[ :=]{1,3})?)['\"]?[1-5]\d\d\b"
    rf"|\b(?:{_NAMING}) ?:? ['\"`:]{_NAME}['\"`]?(?!\w)"
    rf"|['\"`]{_NAME}['\"`] (?=is (?:undefined|not defined|not a function|missing|required))"
    rf"|['\"`]{_NAME}['\"`] (?=object has no attribute|object is not)"
)
_WORD: Final = r"(?!localhost\b)[A-Za-z][a-z]*(?= |$)"
_PLAIN: Final = (
    rf"(?<![\w=]){_WORD}"
    rf"(?: (?!(?i:status|http|code|error)|(?:{_NAMING})){_WORD})*"
)
"""Words with which no mask begins: they are passed in one step, and not tried letter by letter. Those after
the first must not begin with a word of which something is kept (`_KEPT`)."""
_MASKS: Final[tuple[tuple[str, str], ...]] = (
    ("kept", f"{_KEPT}|{_PLAIN}"),
    ("input", r"\binput_value=.{0,2000}?, input_type"),
    ("url", r"\b[a-zA-Z][a-zA-Z0-9+.-]{1,15}://[^\s'\"<>)\]]{1,800}"),
    ("email", r"\b[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}\b"),
    ("traceparent", r"\b00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}\b"),
    ("uuid", r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"),
    ("jwt", r"\beyJ[\w-]{5,500}\.[\w-]{5,1000}\.[\w-]{0,500}"),
    ("ulid", r"\b[0-7][0-9A-HJKMNP-TV-Z]{25}\b"),
    (
        "date",
        (
            rf"\b{_DATE}\b|\b\d{{1,2}}/[A-Z][a-z]{{2}}/\d{{4}}(?::\d{{2}}){{0,3}}"
            r"|\b\d{1,2}[./]\d{1,2}[./]\d{4}\b"
        ),
    ),
    ("time", r"\b\d{1,2}:\d{2}:\d{2}(?:[.,]\d{1,9})?\b"),
    (
        "ip",
        (
            r"\b(?:\d{1,3}\.){3}\d{1,3}(?::\d{1,5})?\b"
            r"|\[?(?:[0-9a-fA-F]{1,4}:){3,7}[0-9a-fA-F]{0,4}\]?(?::\d{1,5})?"
        ),
    ),
    ("address", r"\b0x[0-9a-fA-F]{1,32}\b"),
    (
        "duration",
        (
            r"\b\d{1,12}(?:\.\d{1,9})? ?"
            r"(?:ns|us|µs|ms|secs?|seconds?|s|mins?|minutes?|m|hours?|hrs?|h|days?|d)\b"
        ),
    ),
    (
        "hex",
        (
            r"\b(?=[0-9a-f]{0,127}\d)(?=\d{0,127}[a-f])[0-9a-f]{8,128}\b"
            r"|\b(?=[0-9A-F]{0,127}\d)(?=\d{0,127}[A-F])[0-9A-F]{8,128}\b"
        ),
    ),
    (
        "host",
        (
            r"\b(?:[a-zA-Z0-9-]{1,63}\.){1,6}(?:local|internal|svc|lan|com|net|org|io|dev|example|test|localdomain)"
            r"(?::\d{1,5})?\b|\blocalhost(?::\d{1,5})?\b|\b[a-zA-Z][\w-]{0,62}:\d{2,5}\b"
        ),
    ),
    ("path", r"(?<![\w<])(?:[A-Za-z]:\\|~?/)(?:[\w.@+-]{1,100}[/\\]){1,20}[\w.@+-]{0,100}"),
    ("value", r"(?<=[=:] )\"[^\"\n]{0,400}\"|(?<=[=:] )'[^'\n]{0,400}'|(?<==)[^\s,;)\]}'\"]{1,200}"),
    (
        "quoted",
        (
            r"\"[^\"\n]{0,400}\"(?:\.{3})?|(?<!\w)'[^'\n]{0,400}'(?!\w)(?:\.{3})?|`[^`\n]{0,400}`"
            r"|“[^”\n]{0,400}”|«[^»\n]{0,400}»"
        ),
    ),
    (
        "id",
        (
            r"\b[A-Za-z]{1,12}[-_#](?=[\w-]{0,40}\d)[\w-]{1,40}\b"
            r"|\b(?=\w{0,40}\d)(?=\w{0,40}[A-Z])[A-Z0-9]{5,40}\b|\b[a-z]{1,3}\d{3,40}\b"
        ),
    ),
    ("subs", r"\(\d{1,6} sub-exceptions?\)"),
    (
        "number",
        (
            r"(?<![\w.])[-+]?\d{1,3}(?:[ \u00a0\u202f']\d{3})+(?:[.,]\d{1,9})?(?!\d)"
            r"|(?<![\w.])[-+]?\d{1,40}(?:[.,]\d{1,40}){0,8}(?:[eE][-+]?\d{1,3})?%?(?![A-Za-z]{2})"
        ),
    ),
)
_NEVER_BY: Final = {
    "a": ("traceparent", "ulid", "date", "time", "address", "duration", "quoted", "subs", "number"),
    "1": ("kept", "input", "url", "jwt", "path", "quoted", "subs"),
    "-": ("input", "url", "traceparent", "uuid", "jwt", "ulid", "address", "hex", "id"),
}
"""Which masks cannot begin with a letter, with a digit, with anything else (which digits of other scripts
are): they are not tried there, which saves half of the time. With a space none does."""


def _beginning(kind: str) -> str:
    """A group has a name once: those that are tried in several places have `_` behind it."""
    behind = "_" * list(_NEVER_BY).index(kind)
    tried = ((name, pattern) for name, pattern in _MASKS if name not in _NEVER_BY[kind])
    return "|".join(f"(?P<{name}{behind}>{pattern})" for name, pattern in tried)


_COMBINED: Final = re.compile(
    rf"(?=[A-Za-z])(?:{_beginning('a')})|(?=[0-9])(?:{_beginning('1')})|(?![A-Za-z0-9\s])(?:{_beginning('-')})"
)
_ANSI: Final = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]")


class Masked(NamedTuple):
    """A message without what differs, and which masks did it."""

    text: str
    masks: tuple[str, ...]


@lru_cache(maxsize=256)
def mask(message: str) -> Masked:
    """The first lines that say something, with what differs between two occurrences masked."""
    text = message[:MAX_CHARS]
    if not text.isprintable() or not text.isascii():
        text = unicodedata.normalize("NFC", _ANSI.sub("", text))
    structured = _structured(text)
    if structured:
        return Masked(structured[:_MAX_MASKED_CHARS], ("structure",))
    lines = [line for line in text.splitlines() if line.strip()][:_LINES]
    used: dict[str, None] = {}

    def replacement(found: re.Match[str]) -> str:
        assert found.lastgroup is not None
        name = found.lastgroup.rstrip("_")
        if name == "kept":
            return found[0]
        used[name] = None
        return f"<{name}>"

    masked = _COMBINED.sub(replacement, " ".join(lines))
    return Masked(" ".join(masked.split())[:_MAX_MASKED_CHARS], tuple(used))


def _structured(text: str) -> str:
    """What a message that is JSON says under the keys of validators; empty where it is none."""
    if (text.lstrip()[:1], text.rstrip()[-1:]) not in _JSON_EDGES:
        return ""
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return ""
    found: list[str] = []
    for one in (told if isinstance(told, list) else [told])[:_STRUCTURED_MAX]:
        if isinstance(one, dict):
            said = (f"{key}={one[key]!r}" for key in _STRUCTURED_KEYS if one.get(key))
            found.append(" ".join(said)[:_MAX_MASKED_CHARS])
    return "; ".join(dict.fromkeys(filter(None, found)))
