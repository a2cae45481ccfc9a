"""A letter for eyes that may not see all of it: masked fields are `***`, everything else as it stands.

A body that is JSON keeps its shape: only the values of masked fields are replaced in its text. A body that is
none, or that cannot be taken apart for sure (two members of one name, a text in a text, too deep, too large),
is hidden whole where any of its fields is masked. What an error may quote of such a body is not known, so its
words are hidden, too: its type is told, and where it was raised.

What a masked field held is also looked for in texts beside it, as an error that quotes it: here in the other
headers and properties of the letter, by `hidden` in whatever is told of it. That finds the very same
characters and no others: not a part of them, not another way to write them, and nothing that is shorter than
four.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Final, TypeVar

from deadletter.core.access.field_masks import MASKED, FieldMasks
from deadletter.core.deciding.failure import error_texts
from deadletter.core.grouping.stored_letter import Inside
from deadletter.core.letter import header_values
from deadletter.core.letter.plain_values import plain
from deadletter.core.replaying.exact_json import JsonKind, Node, NotJson, doubled, leaves, read
from deadletter.core.text.glob import glob

MASKED_BYTES: Final = 4 * 1024 * 1024
"""A larger body is hidden whole."""
MOST_SECRETS: Final = 1_000
"""Each is looked for in every text. Where masked fields hold more, no error is told in its own words."""
_HIDDEN: Final = MASKED.encode()
_SHORTEST: Final = 4
_HEADER_CHARS: Final = 4_000
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class MaskedInside:
    """What can be shown, and what masked fields held: longest first. `unknown`: nobody can say all that they
    held, so no error is told in its own words."""

    inside: Inside
    secrets: tuple[str, ...]
    unknown: bool = False


def masked(inside: Inside, masks: FieldMasks) -> MaskedInside:
    if not masks:
        return MaskedInside(inside, ())
    secrets: set[str] = set()
    headers = _headers(inside.headers, masks, secrets)
    outer = headers if inside.outer is inside.headers else _headers(inside.outer, masks, secrets)
    body = _body(inside.body, masks, secrets) if masks.bodies else inside.body
    long = (one for one in secrets if len(one) >= _SHORTEST)
    known = tuple(sorted(long, key=lambda one: (-len(one), one)))[:MOST_SECRETS]
    unknown = body is None or len(secrets) > MOST_SECRETS
    if unknown:
        one = outer is headers
        headers = _wordless(headers)
        outer = headers if one else _wordless(outer)
    unquoted = hidden(headers, known)
    shown = inside._replace(
        headers=unquoted,
        outer=unquoted if outer is headers else hidden(outer, known),
        properties=hidden(replace(inside.properties, headers=None), known),
        body=_HIDDEN if body is None else body,
    )
    return MaskedInside(shown, known, unknown)


def hidden(value: _T, secrets: Sequence[str]) -> _T:
    """The same value; every text in it without what masked fields held."""
    if not secrets:
        return value
    made: Any = _hidden(value, secrets)
    found: _T = made
    return found


def _hidden(value: Any, secrets: Sequence[str]) -> Any:
    match value:
        case str() if type(value) is str:
            # Not one pattern of all of them: `replace` takes its time for the text, however they are made up,
            # while a pattern tries each of them at each place.
            for secret in secrets if len(value) >= _SHORTEST else ():
                value = value.replace(secret, MASKED)
            return value
        case bytes() if type(value) is bytes:
            for secret in secrets:
                value = value.replace(secret.encode("utf-8", "surrogatepass"), _HIDDEN)
            return value
        case tuple() | list():
            return type(value)(_hidden(one, secrets) for one in value)
        case Mapping():
            return {_hidden(key, secrets): _hidden(one, secrets) for key, one in value.items()}
        case _ if is_dataclass(value) and not isinstance(value, type):
            told = {one.name: getattr(value, one.name) for one in fields(value)}
            return replace(value, **{name: _hidden(one, secrets) for name, one in told.items()})
        case _:
            return value


def _headers(headers: Mapping[str, Any], masks: FieldMasks, secrets: set[str]) -> Mapping[str, Any]:
    told = [name for name in headers if masks.hides_header(name)]
    for name in told:
        said = header_values.text(headers[name], _HEADER_CHARS)
        secrets.update([said] if said else _texts(plain(headers[name])))
    return {**headers, **dict.fromkeys(told, MASKED)} if told else headers


def _wordless(headers: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**headers, **dict.fromkeys(error_texts(headers), MASKED)}


def _texts(value: Any) -> Iterator[str]:
    match value:
        case dict():
            for one in value.values():
                yield from _texts(one)
        case list():
            for one in value:
                yield from _texts(one)
        case _:
            yield str(value)


def _body(body: bytes, masks: FieldMasks, secrets: set[str]) -> bytes | None:
    """None: it cannot be taken apart, and nobody knows what is in it."""
    if not body:
        return body
    if len(body) > MASKED_BYTES:
        return None
    try:
        text = body.decode()
        whole = read(text)
        if whole.kind is JsonKind.STRING or doubled(whole) is not None:
            return None
        found = [whole] if () in masks.bodies else _fields(whole, masks.bodies)
    except (UnicodeDecodeError, NotJson, RecursionError):
        return None
    parts: list[str] = []
    at = 0
    for node in found:
        for leaf in leaves(node):
            if len(secrets) > MOST_SECRETS:
                break
            secrets.add(leaf.written)
            if leaf.kind is JsonKind.STRING:
                secrets |= {str(leaf.value), leaf.written[1:-1]}
        parts += [text[at : node.start], f'"{MASKED}"']
        at = node.end
    if () in masks.bodies:
        return _HIDDEN
    return "".join([*parts, text[at:]]).encode() if found else body


def _fields(node: Node, masks: Sequence[tuple[str, ...]]) -> list[Node]:
    """Those that are masked, in the order of the text. Lists are looked through."""
    if node.kind is JsonKind.ARRAY:
        return [found for inner in node.elements for found in _fields(inner, masks)]
    if node.kind is not JsonKind.OBJECT:
        return []
    found: list[Node] = []
    for name, member in node.members.items():
        deeper = [mask[1:] for mask in masks if glob(mask[0], name.lower())]
        if () in deeper:
            found.append(member.node)
        elif deeper:
            found += _fields(member.node, deeper)
    return found
