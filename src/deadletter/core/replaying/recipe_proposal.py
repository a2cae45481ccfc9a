"""From one letter that a person repaired: jq programs that do the same to others.

Each difference has several readings. `"12"` became `12`: a text becomes a number, wherever it is a text; or
this very text becomes that number; or it is 12 in every letter. The readings are ranked: first the one that
says most about other letters without overwriting what they say themselves. A candidate is one reading of each
difference; whoever proposes it runs it on the example first, as a reading may be wrong (all elements of an
array, where one was meant).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Final, TypeAlias

from deadletter.core.replaying.exact_json import JsonKind, Node, children, same, step
from deadletter.core.replaying.spliced_json import aligned

MOST: Final = 60
"""So many candidates are made, at most."""
_READINGS: Final = 4
_COMBINED: Final = 5_000
_DIFFERENCES: Final = 12
_COPY_CHARS: Final = 3
_PART_CHARS: Final = 16
_TRUE_OR_FALSE: Final = (
    '(ascii_downcase as $word | if $word == "true" then true elif $word == "false" then false else . end)'
)

Path: TypeAlias = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One way to read one difference."""

    program: str
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A program that may do what the person did, and what it does in words, one per difference."""

    program: str
    words: tuple[str, ...]


def candidates(before: Node, after: Node) -> list[Candidate]:
    """The best first; empty: nothing differs, or too much. Both are documents: body, headers, properties."""
    found = [_ranked(one) for one in _readings(before, after, (), before)]
    if not found or len(found) > _DIFFERENCES:
        return []
    merged = _merged(found)
    return [*_combined(merged), *(_combined(found) if len(merged) < len(found) else ())]


def _combined(found: list[tuple[Reading, ...]]) -> Iterator[Candidate]:
    """One reading of each difference, the best together first."""
    ranks = itertools.product(*(range(len(one)) for one in found))
    for rank in sorted(itertools.islice(ranks, _COMBINED), key=lambda rank: (sum(rank), rank))[:MOST]:
        chosen = [one[place] for one, place in zip(found, rank, strict=True)]
        yield Candidate(
            program=" | ".join(one.program for one in chosen), words=tuple(one.words for one in chosen)
        )


def _ranked(readings: Sequence[Reading]) -> tuple[Reading, ...]:
    seen: dict[str, Reading] = {}
    for one in readings:
        seen.setdefault(one.program, one)
    return tuple(seen.values())[:_READINGS]


def _merged(found: list[tuple[Reading, ...]]) -> list[tuple[Reading, ...]]:
    """The same reading of several differences (each element of an array) is said once."""
    kept: list[tuple[Reading, ...]] = []
    firsts: set[str] = set()
    for one in found:
        if one[0].program in firsts:
            continue
        firsts.add(one[0].program)
        kept.append(one)
    return kept


# -- the differences -------------------------------------------------------------------------------------
def _readings(was: Node, now: Node, path: Path, example: Node) -> Iterator[list[Reading]]:
    if same(was, now):
        return
    if was.kind is JsonKind.OBJECT and now.kind is JsonKind.OBJECT:
        yield from _of_members(was, now, path, example)
    elif was.kind is JsonKind.ARRAY and now.kind is JsonKind.ARRAY:
        yield from _of_elements(was, now, path, example)
    else:
        yield list(_of_value(was, now, path, example))


def _of_members(was: Node, now: Node, path: Path, example: Node) -> Iterator[list[Reading]]:
    gone = [name for name in was.members if name not in now.members]
    come = [name for name in now.members if name not in was.members]
    for name in list(gone):
        twin = next((new for new in come if same(was.members[name].node, now.members[new].node)), None)
        if twin is not None:
            gone.remove(name)
            come.remove(twin)
            yield list(_of_rename(path, name, twin))
    for name in gone:
        yield list(_everywhere_first(path, partial(_removal, name)))
    for name in come:
        yield list(_of_addition(path, name, now.members[name].node, example))
    for name, member in was.members.items():
        if name in now.members:
            yield from _readings(member.node, now.members[name].node, (*path, name), example)


def _of_elements(was: Node, now: Node, path: Path, example: Node) -> Iterator[list[Reading]]:
    places = aligned(was, now)
    at, shown = _at(path), _shown(path)
    for place, element in enumerate(was.elements):
        if place not in places:
            value = element.written
            yield [
                Reading(
                    program=f'({at} | select(type == "array")) |= map(select(. != {value}))',
                    words=f"{shown}: every {_cut(value)} is taken out",
                ),
                Reading(
                    program=f"del({at}[{place}]?)",
                    words=f"{shown}: element {place} is taken out, whatever it is",
                ),
            ]
    for element, old in zip(now.elements, places, strict=True):
        if old is None:
            value = element.written
            yield [
                Reading(
                    program=f'({at} | select(type == "array" and all(.[]; . != {value}))) |= . + [{value}]',
                    words=f"{shown}: {_cut(value)} is added at the end where it is not in it",
                ),
                Reading(
                    program=f'({at} | select(type == "array")) |= . + [{value}]',
                    words=f"{shown}: {_cut(value)} is added at the end",
                ),
            ]
        else:
            yield from _readings(was.elements[old], element, (*path, old), example)


def _of_rename(path: Path, old: str, new: str) -> Iterator[Reading]:
    def reading(at: Path) -> Reading:
        was, now = json.dumps(old), json.dumps(new)
        return Reading(
            program=f'({_at(at)} | select(type == "object" and has({was}) and (has({now}) | not))) |= '
            f"with_entries(if .key == {was} then .key = {now} else . end)",
            words=f"{_shown((*at, old))} is called {new}",
        )

    return _everywhere_first(path, reading)


def _removal(name: str, path: Path) -> Reading:
    return Reading(program=f"del({_at((*path, name))})", words=f"{_shown((*path, name))} is removed")


def _of_addition(path: Path, name: str, value: Node, example: Node) -> Iterator[Reading]:
    quoted = json.dumps(name)
    shown, told = _shown((*path, name)), _cut(value.written)
    if (source := _source(example, value)) is not None and not any(isinstance(one, int) for one in path):
        yield Reading(
            program=f'. as $letter | ({_at(path)} | select(type == "object" and (has({quoted}) | not))) |= '
            f"(.[{quoted}] = ($letter | {_at(source)}))",
            words=f"{shown} is what {_shown(source)} is, where it is missing",
        )

    def missing(at: Path) -> Reading:
        return Reading(
            program=f'({_at(at)} | select(type == "object" and (has({quoted}) | not))) |= '
            f"(.[{quoted}] = {value.written})",
            words=f"{_shown((*at, name))} is {told} where it is missing",
        )

    yield from _everywhere_first(path, missing)
    yield Reading(
        program=f'({_at(path)} | select(type == "object")) |= (.[{quoted}] = {value.written})',
        words=f"{shown} is {told} in every letter",
    )


def _of_value(was: Node, now: Node, path: Path, example: Node) -> Iterator[Reading]:
    for kind, function, words in _conversions(was, now):

        def converted(at: Path, kind: str = kind, function: str = function, words: str = words) -> Reading:
            return Reading(
                program=f"({_at(at)} | select(type == {json.dumps(kind)})) |= {function}",
                words=f"{_shown(at)}: {words}",
            )

        yield from _everywhere_first(path, converted)
    before, after = _cut(was.written), _cut(now.written)
    if (
        was.kind is JsonKind.STRING
        and now.kind is JsonKind.STRING
        and (part := _part(str(was.value), str(now.value)))
    ):
        old, new = (json.dumps(one) for one in part)
        yield Reading(
            program=f'({_at(path)} | select(type == "string")) |= (split({old}) | join({new}))',
            words=f"{_shown(path)}: every {_cut(old)} in it becomes {_cut(new)}",
        )

    empty = was.kind is JsonKind.WORD and was.value is None
    other = "it is also set where it is missing, and other values" if empty else "other values"

    def mapped(at: Path) -> Reading:
        return Reading(
            program=f"({_at(at)} | select(. == {was.written})) |= {now.written}",
            words=f"{_shown(at)}: {before} becomes {after}; {other} stay",
        )

    yield from _everywhere_first(path, mapped)
    if (source := _source(example, now)) is not None and not any(isinstance(one, int) for one in path):
        yield Reading(
            program=f"{_exact(path)} = ({_at(source)})", words=f"{_shown(path)} is what {_shown(source)} is"
        )
    yield Reading(
        program=f"({_at(path)} | select(. != null)) |= {now.written}",
        words=f"{_shown(path)} is {after} in every letter that has it",
    )


def _conversions(was: Node, now: Node) -> Iterator[tuple[str, str, str]]:
    """The type it had, the jq function that makes the one of the other, and that in words."""
    text = str(was.value) if was.kind is JsonKind.STRING else None
    if text is not None and now.kind is JsonKind.NUMBER:
        if _number(text) == now.value:
            yield "string", "tonumber", "a text becomes the number it says"
        elif _number(text.strip()) == now.value:
            yield "string", '(gsub("^\\\\s+|\\\\s+$"; "") | tonumber)', "a text becomes the number in it"
        elif _number(text.replace(",", ".")) == now.value:
            yield "string", '(sub(","; ".") | tonumber)', "a text becomes a number, its comma a point"
        elif _number(text.replace(",", "")) == now.value:
            yield "string", '(gsub(","; "") | tonumber)', "a text becomes a number, without its commas"
    if (
        text is not None
        and now.kind is JsonKind.WORD
        and now.value is not None
        and text.lower() == now.written
    ):
        yield "string", _TRUE_OR_FALSE, "a text becomes true or false"
    if now.kind is JsonKind.STRING:
        said = str(now.value)
        if was.kind is JsonKind.NUMBER and was.written == said:
            yield "number", "tostring", "a number becomes a text"
        if was.kind is JsonKind.WORD and was.value is not None and was.written == said:
            yield "boolean", "tostring", "true and false become texts"
        if text is not None and text.strip() == said:
            yield "string", 'gsub("^\\\\s+|\\\\s+$"; "")', "blanks around it are cut off"
        if text is not None and text.isascii() and text.lower() == said:
            yield "string", "ascii_downcase", "in small letters"
        if text is not None and text.isascii() and text.upper() == said:
            yield "string", "ascii_upcase", "in capital letters"
    if now.kind is JsonKind.ARRAY and len(now.elements) == 1 and same(was, now.elements[0]):
        yield _type(was), "[.]", "it becomes an array of itself"
    if was.kind is JsonKind.ARRAY and len(was.elements) == 1 and same(was.elements[0], now):
        yield "array", "(if length == 1 then .[0] else . end)", "an array of one becomes its element"


# -- paths -----------------------------------------------------------------------------------------------
def _everywhere_first(path: Path, reading: Callable[[Path], Reading]) -> Iterator[Reading]:
    """In all elements of the arrays on its path, then in this one."""
    if any(isinstance(one, int) for one in path):
        yield reading(tuple(_ALL if isinstance(one, int) else one for one in path))
    yield reading(path)


class _All(int):
    """Stands for every place of an array."""


_ALL: Final = _All()


def _at(path: Path) -> str:
    """A path expression that is nothing, and no error, where the letter is of another shape."""
    return "".join("[]?" if one is _ALL else f"{step(one)}?" for one in path) or "."


def _exact(path: Path) -> str:
    return "".join(step(one) for one in path) or "."


def _shown(path: Path) -> str:
    return "".join("[]" if one is _ALL else step(one) for one in path) or "."


def _source(example: Node, value: Node, path: Path = ()) -> Path | None:
    """Where else the letter says the same: only for what is not said by chance."""
    if value.kind is not JsonKind.STRING or len(str(value.value)) < _COPY_CHARS:
        return None
    for name, inner in children(example):
        if isinstance(name, int):
            continue
        if inner.kind is JsonKind.STRING and inner.value == value.value:
            return (*path, name)
        if (found := _source(inner, value, (*path, name))) is not None:
            return found
    return None


def _part(before: str, after: str) -> tuple[str, str] | None:
    """What was replaced in a longer text: up to the words around it."""
    if len(before) < _PART_CHARS:
        return None
    start = next((n for n, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), None)
    if start is None:
        start = min(len(before), len(after))
    end = 0
    while end < min(len(before), len(after)) - start and before[-1 - end] == after[-1 - end]:
        end += 1
    while start and not before[start - 1].isspace():
        start -= 1
    while end and not before[len(before) - end].isspace():
        end -= 1
    old, new = before[start : len(before) - end], after[start : len(after) - end]
    return (old, new) if old and before.replace(old, new) == after else None


def _type(node: Node) -> str:
    match node.kind:
        case JsonKind.WORD:
            return "null" if node.value is None else "boolean"
        case _:
            return str(node.kind.value)


def _number(text: str) -> Decimal | None:
    try:
        found = Decimal(text)
    except ArithmeticError:
        return None
    return found if found.is_finite() and text == text.strip() else None


def _cut(text: str) -> str:
    return text if len(text) <= 60 else text[:59] + "…"
