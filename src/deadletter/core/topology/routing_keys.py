"""Routing keys, single ones and all that a topic pattern matches, and a quick way to find those that meet.

A broker matches one key against many patterns. Whoever looks at a shape without its messages has to ask
more: can a key of *this* pattern be taken by *that* binding? `Keys` answers for two; `KeyIndex` for one
against thousands, in a tree of words, because a vhost may have tens of thousands of bindings.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Generic, NamedTuple, TypeVar

from deadletter.core.text.glob import match_runs

_T = TypeVar("_T")
_ONE: Final = object()
"""`*` of a pattern. Not the text: a single key may contain a `*` and then means it."""
_RUN: Final = object()
"""`#` of a pattern."""


def topic_matches(pattern: str, key: str) -> bool:
    """Whether a binding with this pattern would route this key, exactly as RabbitMQ's topic exchange says.

    Words are separated by dots. `*` stands for exactly one word, `#` for any number of words, also none; both
    only as whole words, so `a*` is a literal. An empty word is a word: `*` matches the one between the dots
    of `a..b`, and `a.` has two. Only the empty key has no words at all, so `#` and `""` match it and `*` does
    not. All of this is checked against real brokers.
    """
    return match_runs(words(pattern), words(key), "#", _same_word)


def topic_covers(wide: str, narrow: str) -> bool:
    """Whether every key that `narrow` matches is matched by `wide`, as far as one can see. `*` is one word,
    so it never stands for a `#`."""
    return match_runs(words(wide), words(narrow), "#", lambda want, word: word != "#" and want in ("*", word))


def words(key: str) -> list[str]:
    """What stands between the dots; nothing at all in the empty key."""
    return key.split(".") if key else []


def _same_word(wanted: str, word: str) -> bool:
    return wanted in ("*", word)


class Keys(NamedTuple):
    """One routing key, or all that a topic pattern matches. A key may contain a `#` and still be a key."""

    text: str
    pattern: bool = False

    def __str__(self) -> str:
        return self.text

    def meet(self, other: Keys) -> bool:
        """Whether some key is in both."""
        if not self.pattern:
            return topic_matches(other.text, self.text) if other.pattern else other.text == self.text
        if not other.pattern:
            return topic_matches(self.text, other.text)
        index: KeyIndex[None] = KeyIndex()
        index.add(other, None)
        return any(True for _ in index.meeting(self))

    def all_within(self, wide: Keys) -> bool:
        """Whether every key is in `wide`, as far as one can see."""
        if self.pattern:
            return wide.pattern and topic_covers(wide.text, self.text)
        return self.meet(wide)


ANY_KEY: Final = Keys("#", pattern=True)


class _Node(Generic[_T]):
    __slots__ = ("absorbs", "after", "items")

    def __init__(self, *, absorbs: bool) -> None:
        self.absorbs = absorbs
        """Whether it stands for a `#`, which takes any number of words."""
        self.items: list[_T] = []
        self.after: dict[object, _Node[_T]] = {}


class KeyIndex(Generic[_T]):
    """Things by the keys they take."""

    def __init__(self) -> None:
        self._root: _Node[_T] = _Node(absorbs=False)

    def add(self, keys: Keys, item: _T) -> None:
        node = self._root
        for token in _tokens(keys):
            node = node.after.setdefault(token, _Node(absorbs=token is _RUN))
        node.items.append(item)

    def meeting(self, keys: Keys) -> Iterator[_T]:
        """Everything that takes at least one of these keys."""
        tokens = _tokens(keys)
        pending: list[tuple[_Node[_T], int]] = [(self._root, 0)]
        seen: set[tuple[int, int]] = set()
        while pending:
            node, at = pending.pop()
            if (id(node), at) in seen:
                continue
            seen.add((id(node), at))
            if (run := node.after.get(_RUN)) is not None:
                pending.append((run, at))  # as no word at all
            if at == len(tokens):
                yield from node.items
                continue
            token = tokens[at]
            if token is _RUN:
                pending.append((node, at + 1))  # as no word at all
                pending += [(child, at) for child in node.after.values()]
                continue
            if node.absorbs:
                pending.append((node, at + 1))
            if token is _ONE:
                pending += [(child, at + 1) for key, child in node.after.items() if key is not _RUN]
            else:
                pending += [(node.after[key], at + 1) for key in (token, _ONE) if key in node.after]


def _tokens(keys: Keys) -> list[object]:
    found: list[object] = [*words(keys.text)]
    if keys.pattern:
        for at, word in enumerate(found):
            if word == "*":
                found[at] = _ONE
            elif word == "#":
                found[at] = _RUN
    return found
