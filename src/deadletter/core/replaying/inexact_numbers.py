"""Numbers that jq cannot count with: it keeps a literal that it only carries, and rounds where it computes.

`9007199254740993` passes through jq as it is, and is one less after `. + 1 - 1`. Whether a program computes
with such a number is found by asking it twice: once about the letter, once about the same letter with each
of these numbers replaced by its neighbour on the far side. What differs in the two answers came of the
number: where that is the number itself, it was carried; where it is anything else, it was computed, and the
edit is refused.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from decimal import Decimal

from deadletter.core.replaying.exact_json import JsonKind, Node, children, leaves, step
from deadletter.errors import EditRefused


def neighbours(document: Node) -> dict[Decimal, Decimal]:
    """The numbers of a document that are none of jq's, each with the one that stands in for it."""
    found = {number: _neighbour(number) for number in document.long_numbers}
    return {number: other for number, other in found.items() if other is not None}


def replaced(document: Node, others: Mapping[Decimal, Decimal]) -> str:
    """The document with the stand-ins."""
    pieces: list[str] = []
    position = document.start
    for leaf in sorted(leaves(document), key=lambda one: one.start):
        if isinstance(leaf.value, Decimal) and leaf.value in others:
            pieces += (document.text[position : leaf.start], str(others[leaf.value]))
            position = leaf.end
    return "".join((*pieces, document.text[position : document.end]))


def check_carried(answer: Node, probe: Node, others: Mapping[Decimal, Decimal], path: str = "") -> None:
    """EditRefused where the two answers differ by more than the numbers that were replaced."""
    if answer.kind is not probe.kind or answer.members.keys() != probe.members.keys():
        _computed(path, others)
    match answer.kind:
        case JsonKind.OBJECT | JsonKind.ARRAY:
            if len(answer.elements) != len(probe.elements):
                _computed(path, others)
            for (name, inner), (_, other) in zip(
                sorted(children(answer), key=lambda one: str(one[0])),
                sorted(children(probe), key=lambda one: str(one[0])),
                strict=True,
            ):
                check_carried(inner, other, others, path + step(name))
        case JsonKind.NUMBER | JsonKind.STRING:
            if answer.value != probe.value and not _carried(answer, probe, others):
                _computed(path, others)
        case JsonKind.WORD:
            if answer.value is not probe.value:
                _computed(path, others)


def _carried(answer: Node, probe: Node, others: Mapping[Decimal, Decimal]) -> bool:
    """Whether it is such a number, or its text."""
    try:
        return others.get(Decimal(str(answer.value))) == Decimal(str(probe.value))
    except ArithmeticError:
        return False


def _computed(path: str, others: Mapping[Decimal, Decimal]) -> None:
    shown = ", ".join(str(number)[:40] for number in list(others)[:3])
    raise EditRefused(
        f"{path or '.'} depends on a number that jq cannot count with exactly ({shown}): it would be "
        "rounded; carry such numbers as they are, or edit this letter by hand"
    )


def _neighbour(number: Decimal) -> Decimal | None:
    """The next number of jq's beyond this one; None: it is one itself."""
    try:
        near = float(number)
    except OverflowError:
        near = math.copysign(math.inf, number)
    if not math.isfinite(near):
        return Decimal(repr(math.copysign(math.nextafter(math.inf, 0), near)))
    shortest = Decimal(repr(near))
    if shortest == number:
        return None
    beyond = math.nextafter(near, math.inf if number > shortest else -math.inf)
    if not math.isfinite(beyond):
        beyond = math.nextafter(near, 0)
    return Decimal(repr(beyond))
