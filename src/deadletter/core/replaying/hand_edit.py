"""A letter as a file that a person edits: what may be changed of headers and properties, and the body.

The body stands there as it is, not inside JSON: whoever repairs a text or broken JSON sees what is sent.
"""

from __future__ import annotations

import json
from typing import Final

from deadletter.core.replaying import exact_json
from deadletter.core.replaying.exact_json import JsonKind, Member, NotJson
from deadletter.core.replaying.letter_edit import (
    PROPERTIES,
    BodyForm,
    Editable,
    Edited,
    edited_by_hand,
    is_locked,
)
from deadletter.errors import EditRefused

BELOW: Final = "----- the body, as it stands, is everything below this line -----"


def file_of(shown: Editable, title: str) -> str:
    """The file to be edited."""
    how = {
        BodyForm.JSON: "JSON; what is not changed is sent as it stood, also its blanks",
        BodyForm.TEXT: "text, sent as it stands here",
        BodyForm.CLOSED: f"not shown and cannot be changed: {shown.closed}",
    }[shown.form]
    lines = [
        f"# {title}",
        "# Headers and properties can be changed, added and taken out; headers of Deadletter and of the",
        f"# broker are not shown. Properties that can be set: {', '.join(PROPERTIES)}.",
        '# Bytes are {"base64": "..."}; a header keeps its AMQP type where the new value fits.',
        f"# The body is {how}{' (unpacked; it is packed again)' if shown.packed else ''}.",
        "# Lines above the body that begin with # are not read. Leave the file as it is to change nothing.",
        "{",
        f'  "headers": {_members(_free(shown, "headers"))},',
        f'  "properties": {_members(_free(shown, "properties"))}',
        "}",
        BELOW,
    ]
    return "\n".join(lines) + "\n" + shown.text + "\n"


def read_file(shown: Editable, text: str, *, by: str) -> Edited:
    """EditRefused, with the reason, for what cannot be read or cannot be done."""
    head, found, body = text.partition(f"{BELOW}\n")
    if not found:
        head, found, body = text.partition(f"{BELOW}\r\n")
    if not found and text.rstrip().endswith(BELOW):
        head, body = text.rstrip().removesuffix(BELOW), ""
    elif not found:
        raise EditRefused(f"expected the line {BELOW!r} between headers and body; it is gone")
    said = "\n".join(line for line in head.splitlines() if not line.lstrip().startswith("#"))
    try:
        rest = exact_json.read(said)
    except NotJson as error:
        raise EditRefused(f"headers and properties: {error}") from error
    if rest.kind is not JsonKind.OBJECT or rest.members.keys() != {"headers", "properties"}:
        raise EditRefused('expected {"headers": {…}, "properties": {…}} above the body')
    if (twice := exact_json.doubled(rest)) is not None:
        raise EditRefused(f"{twice} is there twice")
    parts: list[str] = []
    for name in ("headers", "properties"):
        node = rest.members[name].node
        if node.kind is not JsonKind.OBJECT:
            raise EditRefused(f".{name}: expected an object, got {node.written[:60]}")
        everything = shown.document.members[name].node.members
        free = _free(shown, name)
        locked = {one: member for one, member in everything.items() if one not in free}
        parts.append(f'"{name}": {_members({**locked, **node.members})}')
    return edited_by_hand(shown, "{" + ", ".join(parts) + "}", body.removesuffix("\n"), by=by)


def _free(shown: Editable, part: str) -> dict[str, Member]:
    """What of the headers or properties may be changed."""
    found = shown.document.members[part].node.members
    if part == "properties":
        return {name: member for name, member in found.items() if name in PROPERTIES}
    return {name: member for name, member in found.items() if is_locked(name) is None}


def _members(some: dict[str, Member]) -> str:
    if not some:
        return "{}"
    lines = [f"    {json.dumps(name, ensure_ascii=False)}: {one.node.written}" for name, one in some.items()]
    return "{\n" + ",\n".join(lines) + "\n  }"
