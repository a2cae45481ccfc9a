"""A JSON text with what another one changed in it, and everything else byte for byte."""

from __future__ import annotations

from deadletter.core.replaying.exact_json import STRING, JsonKind, Member, Node, NotJson, same


def spliced(before: Node, after: Node) -> str:
    """The text of `before` with what is otherwise in `after`. NotJson: a name twice where that is."""
    if same(before, after):
        return before.written
    if before.kind is JsonKind.OBJECT and after.kind is JsonKind.OBJECT:
        return _object(before, after)
    if before.kind is JsonKind.ARRAY and after.kind is JsonKind.ARRAY:
        return _array(before, after)
    return after.written


def whole(before: Node, after: Node) -> str:
    """As `spliced`, with what stands around the value in its text."""
    return before.text[: before.start] + spliced(before, after) + before.text[before.end :]


def _object(before: Node, after: Node) -> str:
    if before.twice is not None:
        raise NotJson(f"two members are called {before.twice!r}")
    was = {name: (member.start, member.node) for name, member in before.members.items()}
    kept: list[tuple[int, int, str]] = []
    for name, (start, node) in was.items():
        if (now := after.members.get(name)) is not None:
            kept.append((start, node.end, before.text[start : node.start] + spliced(node, now.node)))
    added = [
        _name(after, member) + _colon(before) + member.node.written
        for name, member in after.members.items()
        if name not in was
    ]
    return _joined(before, [member.start for member in before.members.values()], kept, added)


def _array(before: Node, after: Node) -> str:
    kept: list[tuple[int, int, str]] = []
    added: list[str] = []
    for now, place in zip(after.elements, aligned(before, after), strict=True):
        if place is None:
            added.append(now.written)
        else:
            was = before.elements[place]
            kept.append((was.start, was.end, spliced(was, now)))
    return _joined(before, [node.start for node in before.elements], kept, added)


def aligned(before: Node, after: Node) -> list[int | None]:
    """Which element each one of `after` was: by place; in an array that became shorter an equal one first."""
    if len(before.elements) <= len(after.elements):
        return [place if place < len(before.elements) else None for place in range(len(after.elements))]
    found: list[int | None] = []
    first = 0
    for place, now in enumerate(after.elements):
        last = len(before.elements) - (len(after.elements) - place)
        at = next((n for n in range(first, last + 1) if same(before.elements[n], now)), first)
        found.append(at)
        first = at + 1
    return found


def _joined(before: Node, starts: list[int], kept: list[tuple[int, int, str]], added: list[str]) -> str:
    """Parts of an object or array, each with the blanks that stood before it."""
    opening, closing = before.text[before.start], before.text[before.end - 1]
    if not kept and not added:
        return opening + closing
    blank = {start: _before(before.text, start) for start in starts}
    last = blank[starts[-1]] if starts else ""
    first = blank[starts[0]] if starts else ""
    parts = [(first if n == 0 else blank[start]) + text for n, (start, _, text) in enumerate(kept)]
    between = last if len(starts) > 1 or "\n" in last else (" " if _spaced(before) else "")
    parts += [(between if parts or n else first) + text for n, text in enumerate(added)]
    end = before.end - 1
    return opening + ",".join(parts) + (_before(before.text, end) if starts else "") + closing


def _spaced(node: Node) -> bool:
    """Whether blanks stand after the commas and colons of this text."""
    return ": " in node.text or ", " in node.text


def _colon(before: Node) -> str:
    for member in before.members.values():
        head = before.text[member.start : member.node.start]
        end = STRING.match(head)
        return head[end.end() :] if end else ":"
    return ": " if _spaced(before) else ":"


def _name(node: Node, member: Member) -> str:
    found = STRING.match(node.text, member.start)
    assert found is not None
    return found[0]


def _before(text: str, start: int) -> str:
    """The blanks that end here."""
    begin = start
    while begin and text[begin - 1] in " \t\n\r":
        begin -= 1
    return text[begin:start]
