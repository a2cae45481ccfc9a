"""What is otherwise between a letter and the edited one: for people line by line, for programs as JSON.

JSON bodies are compared by path, texts by line, headers and properties by name. What Deadletter wrote itself
(`deadletter-edited`) is no difference.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from deadletter.core.letter import names
from deadletter.core.letter.letter import Letter
from deadletter.core.replaying import exact_json
from deadletter.core.replaying.exact_json import JsonKind, Node
from deadletter.core.replaying.letter_edit import BodyForm, editable
from deadletter.core.replaying.spliced_json import aligned

_VALUE_CHARS: Final = 2_000
_CONTEXT: Final = 2


class ChangeKind(StrEnum):
    ADDED = "added"
    REMOVED = "removed"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterDifference:
    """One value that is otherwise. `before`, `after`: as JSON text, None where there is none; exact."""

    path: str
    change: ChangeKind
    before: str | None
    after: str | None
    lines: tuple[str, ...] = ()
    """Of texts of several lines: what went and came, as `diff -u` tells it."""


def differences(before: Letter, after: Letter) -> tuple[LetterDifference, ...]:
    """EditRefused: one of them cannot be read."""
    was, now = editable(before), editable(after)
    found = list(_compared(without_mark(was.document), without_mark(now.document), ""))
    closed = BodyForm.CLOSED in (was.form, now.form)
    if closed and was.letter.body != now.letter.body:
        found.append(
            LetterDifference(
                path=".body",
                change=ChangeKind.CHANGED,
                before=json.dumps(f"{len(was.letter.body)} bytes"),
                after=json.dumps(f"{len(now.letter.body)} bytes"),
            )
        )
    return tuple(found)


def difference_lines(found: tuple[LetterDifference, ...]) -> list[str]:
    """For people: `-` was, `+` is."""
    lines: list[str] = []
    for one in found:
        if one.lines:
            lines += [f"  {one.path}", *one.lines]
            continue
        if one.before is not None:
            lines.append(f"- {one.path}: {_cut(one.before)}")
        if one.after is not None:
            lines.append(f"+ {one.path}: {_cut(one.after)}")
    return lines


def difference_json(found: tuple[LetterDifference, ...]) -> list[dict[str, Any]]:
    """For programs. Values are JSON texts, as no number may be rounded by whoever reads them."""
    return [
        {"path": one.path, "change": one.change.value, "before": one.before, "after": one.after}
        for one in found
    ]


def node_differences(was: Node, now: Node, path: str = "") -> tuple[LetterDifference, ...]:
    """Of two JSON values."""
    return tuple(_compared(was, now, path))


def without_mark(document: Node) -> Node:
    """The document without what an edit of ours adds."""
    headers = document.members["headers"]
    kept = {name: member for name, member in headers.node.members.items() if name != names.EDITED}
    bare = headers.node.with_members(kept)
    members = {**document.members, "headers": exact_json.Member(headers.start, bare)}
    return document.with_members(members)


def _compared(was: Node, now: Node, path: str) -> Iterator[LetterDifference]:
    if exact_json.same(was, now):
        return
    if was.kind is JsonKind.OBJECT and now.kind is JsonKind.OBJECT:
        for name in {**was.members, **now.members}:
            then, there = was.members.get(name), now.members.get(name)
            yield from _one(
                None if then is None else then.node,
                None if there is None else there.node,
                path + exact_json.step(name),
            )
    elif was.kind is JsonKind.ARRAY and now.kind is JsonKind.ARRAY:
        places = aligned(was, now)
        for place, element in enumerate(was.elements):
            if place not in places:
                yield from _one(element, None, path + exact_json.step(place))
        for number, (element, old) in enumerate(zip(now.elements, places, strict=True)):
            yield from _one(
                None if old is None else was.elements[old], element, path + exact_json.step(number)
            )
    else:
        yield from _one(was, now, path, deeper=False)


def _one(was: Node | None, now: Node | None, path: str, *, deeper: bool = True) -> Iterator[LetterDifference]:
    if was is None and now is not None:
        yield LetterDifference(path=path, change=ChangeKind.ADDED, before=None, after=now.written)
    elif now is None and was is not None:
        yield LetterDifference(path=path, change=ChangeKind.REMOVED, before=was.written, after=None)
    elif was is not None and now is not None:
        if deeper:
            yield from _compared(was, now, path)
        else:
            yield LetterDifference(
                path=path,
                change=ChangeKind.CHANGED,
                before=was.written,
                after=now.written,
                lines=_lines(was, now),
            )


def _lines(was: Node, now: Node) -> tuple[str, ...]:
    """Only where both are texts and one has several lines."""
    if was.kind is not JsonKind.STRING or now.kind is not JsonKind.STRING:
        return ()
    before, after = str(was.value).splitlines(), str(now.value).splitlines()
    if max(len(before), len(after)) < 2:
        return ()
    told = difflib.unified_diff(before, after, lineterm="", n=_CONTEXT)
    return tuple(f"  {_cut(line)}" if line.startswith("@@") else _cut(line) for line in list(told)[2:])


def _cut(text: str) -> str:
    return text if len(text) <= _VALUE_CHARS else text[: _VALUE_CHARS - 1] + "…"
