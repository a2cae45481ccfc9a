"""JSON read with the place of each value in its text, so that what nobody changed is written as it stood.

Python's reader tells values and forgets how they were written: `1.10`, `1e400`, a number of forty digits, two
members of one name, the blanks between them. Here a text becomes nodes; two texts are compared by what they
mean (numbers as exact decimals, members in any order). `spliced_json` writes them.

Python's reader does the reading all the same, because it is fast: once for what the whole text means, and,
where somebody asks for the parts of a value, once more to find where each of them ends.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from json.decoder import JSONDecodeError, JSONDecoder
from typing import Any, Final, NoReturn

MAX_DEPTH: Final = 200
_BLANK: Final = re.compile(r"[ \t\n\r]*")
STRING: Final = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+"')
_EXACT_CHARS: Final = 15
"""A number that is written with so many characters and no exponent is one of jq's: a double holds it."""


class JsonKind(Enum):
    OBJECT = "object"
    ARRAY = "array"
    STRING = "string"
    NUMBER = "number"
    WORD = "word"
    """true, false, null."""


class NotJson(ValueError):
    """The text is no JSON, or one that is nested too deep; the sentence says where."""


class _Whole:
    """A text, and what was seen in it when it was read."""

    __slots__ = ("doubled", "long_numbers", "text")

    def __init__(self, text: str) -> None:
        self.text: Final = text
        self.doubled: bool = False
        """An object in it has two members of one name."""
        self.long_numbers: list[Decimal] = []

    def meaning(self) -> Any:
        """Objects and arrays as Python has them, numbers as exact decimals, each alone in a tuple: so nothing
        but a number equals one. NotJson: it is none."""
        _check_depth(self.text)
        decoder = JSONDecoder(
            object_pairs_hook=self._object,
            parse_float=self._number,
            parse_int=self._number,
            parse_constant=_no_constant,
        )
        try:
            return decoder.decode(self.text)
        except JSONDecodeError as error:
            _wrong(self.text, error.pos, error.msg)
        except RecursionError:
            raise NotJson(f"it is nested deeper than {MAX_DEPTH} levels") from None

    def _object(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        members = dict(pairs)
        if len(members) < len(pairs):
            self.doubled = True
        return members

    def _number(self, written: str) -> tuple[Decimal]:
        try:
            number = Decimal(written)
        except ArithmeticError:
            raise NotJson(f"a number is beyond all bounds: {written[:40]}") from None
        if len(written) > _EXACT_CHARS or "e" in written or "E" in written:
            self.long_numbers.append(number)
        return (number,)


class Node:
    """A value and where it stands. Its parts are looked for when somebody asks for them."""

    __slots__ = ("_elements", "_members", "_twice", "_whole", "end", "kind", "meaning", "start")

    def __init__(self, whole: _Whole, start: int, end: int, meaning: Any) -> None:
        self.start: Final = start
        self.end: Final = end
        self.meaning: Final = meaning
        """What is compared: `_Whole.meaning`."""
        self.kind: Final = _kind(meaning)
        self._whole = whole
        self._members: Mapping[str, Member] | None = None
        self._elements: tuple[Node, ...] | None = None
        self._twice: str | None = None

    @property
    def text(self) -> str:
        """The whole one that it stands in."""
        return self._whole.text

    @property
    def written(self) -> str:
        return self._whole.text[self.start : self.end]

    @property
    def value(self) -> str | bool | Decimal | None:
        """Of what has no parts."""
        match self.kind:
            case JsonKind.NUMBER:
                number: Decimal = self.meaning[0]
                return number
            case JsonKind.STRING | JsonKind.WORD:
                told: str | bool | None = self.meaning
                return told
            case JsonKind.OBJECT | JsonKind.ARRAY:
                return None

    @property
    def members(self) -> Mapping[str, Member]:
        """Of an object, by name, the last one of each."""
        if self._members is None:
            self._members = self._find_members() if self.kind is JsonKind.OBJECT else {}
        return self._members

    @property
    def elements(self) -> tuple[Node, ...]:
        """Of an array."""
        if self._elements is None:
            self._elements = tuple(self._find_elements()) if self.kind is JsonKind.ARRAY else ()
        return self._elements

    @property
    def twice(self) -> str | None:
        """A name that two members of this object have."""
        if self._whole.doubled:
            _ = self.members
        return self._twice

    @property
    def may_be_doubled(self) -> bool:
        """Whether an object somewhere in its text has two members of one name."""
        return self._whole.doubled

    @property
    def long_numbers(self) -> list[Decimal]:
        """Numbers of its whole text that a double may not hold."""
        return self._whole.long_numbers

    def member(self, name: str) -> Node:
        """Of an object that has one of this name once; nothing after it is looked at."""
        if self._members is None and not self._whole.doubled:
            for found, member in self._each_member():
                if found == name:
                    return member.node
        return self.members[name].node

    def with_members(self, members: Mapping[str, Member]) -> Node:
        """An object that has these instead, to be compared."""
        meaning = {name: member.node.meaning for name, member in members.items()}
        other = Node(self._whole, self.start, self.end, meaning)
        other._members = members
        return other

    def _find_members(self) -> dict[str, Member]:
        found: dict[str, Member] = {}
        for name, member in self._each_member():
            if name in found:
                self._twice = name
            found[name] = member
        return found

    def _each_member(self) -> Iterator[tuple[str, Member]]:
        text = self._whole.text
        at = blank(text, self.start + 1)
        while text[at] != "}":
            name, end = _SKIPPING.raw_decode(text, at)
            start = blank(text, blank(text, end) + 1)
            end = _end_of(text, start)
            yield name, Member(at, Node(self._whole, start, end, self.meaning[name]))
            at = _next_part(text, end)

    def _find_elements(self) -> Iterator[Node]:
        text = self._whole.text
        at = blank(text, self.start + 1)
        for meaning in self.meaning:
            end = _end_of(text, at)
            yield Node(self._whole, at, end, meaning)
            at = _next_part(text, end)


@dataclass(frozen=True, slots=True)
class Member:
    """`start`: where its name begins."""

    start: int
    node: Node


def read(text: str) -> Node:
    """The one value of this text. NotJson: it is none, as the standard has it; NaN is none."""
    whole = _Whole(text)
    meaning = whole.meaning()
    return Node(whole, blank(text, 0), len(text.rstrip(" \t\n\r")), meaning)


def same(one: Node, other: Node) -> bool:
    """Whether both mean the same: `1.0` is `1`, and the order of members says nothing."""
    return bool(one.meaning == other.meaning)


def doubled(node: Node, path: str = "") -> str | None:
    """The path of a member whose name its object has twice; None: there is none."""
    if not node.may_be_doubled:
        return None
    if node.twice is not None:
        return path + step(node.twice)
    for name, inner in children(node):
        if (found := doubled(inner, path + step(name))) is not None:
            return found
    return None


def children(node: Node) -> Iterator[tuple[str | int, Node]]:
    for name, member in node.members.items():
        yield name, member.node
    yield from enumerate(node.elements)


def leaves(node: Node) -> Iterator[Node]:
    """Every value that holds no other."""
    if node.kind in (JsonKind.OBJECT, JsonKind.ARRAY):
        for _, inner in children(node):
            yield from leaves(inner)
    else:
        yield node


_PLAIN_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def step(name: str | int) -> str:
    """One step of a path, as jq writes it."""
    if isinstance(name, int):
        return f"[{name}]"
    return f".{name}" if _PLAIN_NAME.fullmatch(name) else f"[{json.dumps(name)}]"


def plain(node: Node) -> Any:
    """As Python has it: integers whole, other numbers as exact decimals."""
    match node.kind:
        case JsonKind.OBJECT:
            return {name: plain(member.node) for name, member in node.members.items()}
        case JsonKind.ARRAY:
            return [plain(inner) for inner in node.elements]
        case JsonKind.NUMBER:
            assert isinstance(node.value, Decimal)
            return int(node.written) if is_integer(node) else node.value
        case _:
            return node.value


def is_integer(node: Node) -> bool:
    """Whether it is written as a whole number, and not too long to count with."""
    return node.kind is JsonKind.NUMBER and node.written.lstrip("-").isdigit() and len(node.written) < 1_000


# -- reading ---------------------------------------------------------------------------------------------
_SKIPPING: Final = JSONDecoder(parse_float=len, parse_int=len)
"""Where a value ends, of a text that was read before: what its numbers are does not matter."""


def _end_of(text: str, start: int) -> int:
    _, end = _SKIPPING.raw_decode(text, start)
    return end


def _next_part(text: str, end: int) -> int:
    """Where the next member or element begins, or the closing bracket stands."""
    at = blank(text, end)
    return blank(text, at + 1) if text[at] == "," else at


def _kind(meaning: Any) -> JsonKind:
    if isinstance(meaning, str):
        return JsonKind.STRING
    if isinstance(meaning, tuple):
        return JsonKind.NUMBER
    if isinstance(meaning, dict):
        return JsonKind.OBJECT
    return JsonKind.ARRAY if isinstance(meaning, list) else JsonKind.WORD


def _check_depth(text: str) -> None:
    if text.count("{") + text.count("[") <= MAX_DEPTH:
        return
    depth = 0
    for one in re.findall(r"[\[\]{}]", STRING.sub("", text)):
        depth += 1 if one in "[{" else -1
        if depth > MAX_DEPTH:
            raise NotJson(f"it is nested deeper than {MAX_DEPTH} levels")


def _no_constant(word: str) -> NoReturn:
    raise NotJson(f"{word} is no JSON by the standard")


def blank(text: str, start: int) -> int:
    found = _BLANK.match(text, start)
    assert found is not None
    return found.end()


def _wrong(text: str, at: int, expected: str) -> NoReturn:
    line = text.count("\n", 0, at) + 1
    column = at - text.rfind("\n", 0, at)
    raise NotJson(f"{expected} at line {line}, column {column}, got {text[at : at + 20]!r}") from None
