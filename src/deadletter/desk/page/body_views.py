"""A body for people: JSON as a tree, text as it stands, anything as hex; bounded, and nothing is rewritten.

Numbers stand as they were written, a key that is there twice is there twice: the tree is made of the text
itself, token by token, and not of what a JSON reader makes of it.
"""

from __future__ import annotations

import gzip
import re
import zlib
from dataclasses import dataclass, field
from enum import StrEnum
from io import BytesIO
from typing import Final

from markupsafe import Markup

from deadletter.desk.page.shown import counted, value

HEX_BYTES: Final = 4_096
TEXT_BYTES: Final = 64 * 1024
TREE_BYTES: Final = 1_000_000
TREE_DEPTH: Final = 100
TREE_NODES: Final = 3_000
"""So many values are drawn: a browser that gets more of them stands still."""
UNPACKED_BYTES: Final = 4 * TREE_BYTES
_HEX_ROW: Final = 16
_TOKEN: Final = re.compile(
    r'[ \t\n\r]*(?:("(?:[^"\\\x00-\x1f]|\\.)*+")|([{}\[\],:])|(-?[0-9][0-9eE+.\-]*+|true|false|null))',
    re.DOTALL,
)
_STRING_CHARS: Final = 2_000
_OPEN_CHILDREN: Final = 100
"""What has more of them is shut at first."""


class BodyView(StrEnum):
    TREE = "tree"
    TEXT = "text"
    HEX = "hex"


class NodeKind(StrEnum):
    OBJECT = "object"
    ARRAY = "array"
    STRING = "s"
    NUMBER = "n"
    WORD = "b"


@dataclass(slots=True)
class TreeNode:
    """A value of a tree. `key`: as it was written, of a member; `text`: as it was written, of a leaf."""

    kind: NodeKind
    key: str = ""
    text: str = ""
    children: list[TreeNode] = field(default_factory=list)
    """Of an object or an array."""
    left_out: bool = False
    """There is more than is drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unpacked:
    """A body, unpacked where its content-encoding says so. `note`: what was done, or why not."""

    data: bytes
    note: str = ""


def unpacked(body: bytes, encoding: str) -> Unpacked:
    """gzip and deflate, up to a bound: what unpacks to gigabytes does so nowhere."""
    said = encoding.strip().lower()
    if said in ("", "identity", "utf-8", "utf8", "us-ascii", "binary"):
        return Unpacked(data=body)
    try:
        match said:
            case "gzip" | "x-gzip":
                with gzip.GzipFile(fileobj=BytesIO(body)) as file:
                    data = file.read(UNPACKED_BYTES + 1)
            case "deflate" | "zlib":
                data = zlib.decompressobj().decompress(body, UNPACKED_BYTES + 1)
            case _:
                return Unpacked(
                    data=body, note=f"its content-encoding is {said[:60]}, which is not unpacked here"
                )
    except (OSError, EOFError, zlib.error) as error:
        return Unpacked(data=body, note=f"it says {said[:60]}, and is not: {error}")
    if len(data) > UNPACKED_BYTES:
        note = (
            f"unpacked from {said}; it has more than {UNPACKED_BYTES:,} bytes, of which these are the first"
        )
        return Unpacked(data=data[:UNPACKED_BYTES], note=note)
    return Unpacked(data=data, note=f"unpacked from {said}")


def text_of(data: bytes) -> str | None:
    """As UTF-8; None where it is none. What was cut inside a character is still text."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        if error.start < len(data) - 3:
            return None
        return data[: error.start].decode()


def hex_rows(data: bytes, at: int) -> list[str]:
    """A window of it, 16 bytes a row."""
    window = data[at : at + HEX_BYTES]
    rows = []
    for start in range(0, len(window), _HEX_ROW):
        row = window[start : start + _HEX_ROW]
        seen = "".join(chr(one) if 0x20 <= one < 0x7F else "." for one in row)
        rows.append(f"{at + start:08x}  {row.hex(' '):<{_HEX_ROW * 3}} {seen}")
    return rows


def tree_of(text: str) -> TreeNode | None:
    """The text as a tree; None: it is no JSON. Where there is more than is drawn the rest is not looked at.
    Never recursive: depth is what an attacker chooses."""
    top = TreeNode(NodeKind.ARRAY)
    open_nodes = [top]
    closers: list[str] = []
    key, place, drawn, hidden = "", 0, 0, 0
    wants_value, after_comma = True, False
    while (match := _TOKEN.match(text, place)) is not None:
        place = match.end()
        string, sign, other = match.groups()
        if sign in ("}", "]"):
            if not closers or closers.pop() != sign or after_comma or key:
                return None
            if hidden:
                hidden -= 1
            else:
                open_nodes.pop()
            wants_value = False
            continue
        if sign == ",":
            if wants_value or not closers:
                return None
            wants_value = after_comma = True
            continue
        if sign == ":" or not wants_value:
            return None
        if closers and closers[-1] == "}" and not key:
            colon = _TOKEN.match(text, place)
            if string is None or colon is None or colon[2] != ":":
                return None
            place, key = colon.end(), string
            continue
        drawn += 1
        if drawn > TREE_NODES:
            for one in open_nodes:
                one.left_out = True
            return top.children[0] if top.children else None
        if sign:
            closers.append("}" if sign == "{" else "]")
            node = TreeNode(NodeKind.OBJECT if sign == "{" else NodeKind.ARRAY, key=key)
            if hidden or len(open_nodes) > TREE_DEPTH:
                hidden += 1
                open_nodes[-1].left_out = True
            else:
                open_nodes[-1].children.append(node)
                open_nodes.append(node)
        elif not hidden:
            kind = NodeKind.STRING if string is not None else _kind_of(other)
            open_nodes[-1].children.append(TreeNode(kind, key=key, text=string or other))
        key, wants_value, after_comma = "", bool(sign), False
    if closers or text[place:].strip() or len(top.children) != 1:
        return None
    return top.children[0]


def tree_html(root: TreeNode) -> Markup:
    """The tree as lists that open and close by themselves, without a script."""
    made: list[Markup] = [Markup('<ul class="tree">')]
    left: list[TreeNode | Markup] = [root]
    while left:
        one = left.pop()
        if isinstance(one, Markup):
            made.append(one)
            continue
        key = (
            Markup('<span class="k">{}</span>: ').format(value(one.key, _STRING_CHARS))
            if one.key
            else Markup("")
        )
        if one.kind not in (NodeKind.OBJECT, NodeKind.ARRAY):
            said = value(one.text, _STRING_CHARS)
            made.append(
                Markup('<li class="leaf">{}<span class="{}">{}</span></li>').format(key, one.kind.value, said)
            )
            continue
        begin, end = ("{", "}") if one.kind is NodeKind.OBJECT else ("[", "]")
        if not one.children and not one.left_out:
            made.append(Markup('<li class="leaf">{}{}{}</li>').format(key, begin, end))
            continue
        noun = "member" if one.kind is NodeKind.OBJECT else "element"
        told = counted(len(one.children), noun) + (", and more" if one.left_out else "")
        shut = "" if len(one.children) <= _OPEN_CHILDREN else None
        made.append(
            Markup('<li><details{}><summary>{}{} <span class="soft">{}</span> {}</summary><ul>').format(
                Markup(" open") if shut is not None else "", key, begin, told, end
            )
        )
        rest = (
            Markup('<li class="leaf cut">… more; the text has all of it</li>') if one.left_out else Markup("")
        )
        left.append(rest + Markup("</ul></details></li>"))
        left.extend(reversed(one.children))
    made.append(Markup("</ul>"))
    return Markup("").join(made)


def _kind_of(token: str) -> NodeKind:
    return NodeKind.WORD if token in ("true", "false", "null") else NodeKind.NUMBER
