"""A search as people type it: `queue:orders header.tenant:7 since:2h "card declined"`.

A word with a colon is a qualifier, everything else is text to be found as `dlq letters --text` finds it. A
value with blanks stands in double quotes. `read` makes the question, `written` the text again, so that a link
can add or take away one qualifier.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final

from deadletter.core.grouping.letter_query import LetterOrder, LetterQuery, LetterState
from deadletter.core.letter.moments import past_ms
from deadletter.errors import UsageError

MOST_CHARS: Final = 2_000
_WORD: Final = re.compile(r'\s*((?:[^\s":]+:)?)("(?:[^"\\]|\\.)*+"|"[^"]*+$|[^\s"]+|)', re.DOTALL)
_QUALIFIER: Final = re.compile(r"(?:header\.[^\s:\"]+|[a-z][a-z-]*):\Z")
TEXTS: Final = {
    "queue": "queue",
    "origin": "origin",
    "vhost": "vhost",
    "cause": "cause",
    "error": "error",
    "message-id": "message_id",
    "letter-id": "letter_id",
}
"""Qualifiers that are a text of the question."""
OTHERS: Final = ("group", "state", "since", "until", "id", "header.NAME")
NAMES: Final = (*TEXTS, *OTHERS)
_IDS: Final = 500
_HEADERS: Final = 20


@dataclass(frozen=True, slots=True)
class SearchWord:
    """`name` empty: text. A text in quotes keeps them."""

    name: str
    value: str

    def __str__(self) -> str:
        if not self.name:
            return self.value
        plain = self.value and not re.search(r'[\s":]', self.value)
        return f"{self.name}:{self.value if plain else _quoted(self.value)}"


def words(said: str) -> tuple[SearchWord, ...]:
    """What was typed, piece by piece. UsageError: it is too long."""
    if len(said) > MOST_CHARS:
        raise UsageError(f"a search has at most {MOST_CHARS:,} characters, this one {len(said):,}")
    found: list[SearchWord] = []
    place = 0
    while place < len(said):
        match = _WORD.match(said, place)
        if match is None or match.end() == place:
            place += 1  # a colon or a quote of nothing
            continue
        place = match.end()
        name, value = match[1], match[2]
        if name and not _QUALIFIER.fullmatch(name):
            name, value = "", name + value
        if name:
            found.append(SearchWord(name[:-1], _unquoted(value)))
        elif value.strip():
            found.append(SearchWord("", value))
    return tuple(found)


def written(some: tuple[SearchWord, ...]) -> str:
    return " ".join(map(str, some))


def read(said: str, *, now_ms: int) -> LetterQuery:
    """The question. UsageError names what nobody can read, and what there is."""
    query = LetterQuery()
    texts: list[str] = []
    for word in words(said):
        if word.name:
            query = _with(query, word, now_ms)
        else:
            texts.append(word.value)
    return replace(query, text=" ".join(texts) or None)


def _with(query: LetterQuery, word: SearchWord, now_ms: int) -> LetterQuery:
    name, value = word.name, word.value
    if not value:
        raise UsageError(
            f"{name}: expected a value behind the colon, such as {name}:{_EXAMPLES.get(name, 'x')}"
        )
    if name in TEXTS:
        return replace(query, **{TEXTS[name]: value})  # type: ignore[arg-type]  # all of them are texts
    if name.startswith("header."):
        if len(query.headers) >= _HEADERS:
            raise UsageError(f"expected at most {_HEADERS} headers")
        return replace(query, headers=(*query.headers, (name.removeprefix("header."), value)))
    match name:
        case "group":
            return replace(query, group=_number(name, value))
        case "id":
            if len(query.ids) >= _IDS:
                raise UsageError(f"expected at most {_IDS} letters by number")
            return replace(query, ids=(*query.ids, _number(name, value)))
        case "state":
            states = [one.value for one in LetterState]
            if value not in (*states, "any"):
                raise UsageError(f"state: expected one of {', '.join(states)} or any, got {value!r}")
            return replace(query, state=None if value == "any" else LetterState(value))
        case "since":
            return replace(query, died_from_ms=past_ms(name, value, now_ms))
        case "until":
            return replace(query, died_until_ms=past_ms(name, value, now_ms))
        case _:
            raise UsageError(
                f"{name}: is nothing to look for; there are {', '.join(NAMES)}. "
                f'In quotes it is text: "{name}:{value}"'
            )


_EXAMPLES: Final = {"since": "2h", "until": "2025-06-01T12:00", "group": "12", "id": "812", "state": "any"}


def _number(name: str, value: str) -> int:
    if not value.isascii() or not value.isdigit() or len(value) > 15:
        raise UsageError(f"{name}: expected a number, got {value!r}")
    return int(value)


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _unquoted(value: str) -> str:
    if not value.startswith('"'):
        return value
    inside = value[1:-1] if len(value) > 1 and value.endswith('"') else value[1:]
    return re.sub(r"\\(.)", r"\1", inside, flags=re.DOTALL)


def with_word(said: str, name: str, value: str) -> str:
    """The same search with this qualifier instead of what it said of that name."""
    kept = tuple(one for one in words(said) if one.name != name)
    return written((*kept, SearchWord(name, value)))


def without_word(said: str, place: int) -> str:
    """The same search without one of its pieces."""
    return written(tuple(one for number, one in enumerate(words(said)) if number != place))


def order_of(said: str) -> LetterOrder:
    return LetterOrder.OLDEST if said == LetterOrder.OLDEST.value else LetterOrder.NEWEST
