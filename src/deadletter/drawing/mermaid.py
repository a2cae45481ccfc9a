"""A topology as a Mermaid flowchart, for README files and wikis that draw it themselves."""

from __future__ import annotations

from typing import Final, assert_never

from deadletter.core.text.safe_text import line
from deadletter.drawing.graph import Arrow, DrawnLine, DrawnNode, DrawnShape, Graph

_STYLES: Final = (
    "    classDef exchange fill:#e8eefc,stroke:#4a6fd0,color:#1c2a4a",
    "    classDef queue fill:#f3f4f6,stroke:#6b7280,color:#1f2937",
    "    classDef hole fill:#fdecec,stroke:#c0392b,color:#7b1f16,stroke-dasharray:4 3",
    "    classDef given fill:#ffffff,stroke:#6b7280,color:#1f2937,stroke-dasharray:4 3",
)


def mermaid(picture: Graph) -> str:
    """The same text for the same topology, every time."""
    short = {node.id: f"n{number}" for number, node in enumerate(picture.nodes)}
    lines = ["flowchart LR"]
    lines += [f"    {short[node.id]}{_box(node)}:::{node.shape.value}" for node in picture.nodes]
    lines += [
        f"    {short[arrow.source]} {_line(arrow)} {short[arrow.target]}"
        for arrow in picture.arrows
        if arrow.source in short and arrow.target in short
    ]
    return "\n".join([*lines, *_STYLES]) + "\n"


def _box(node: DrawnNode) -> str:
    text = "<br/>".join([_escaped(node.title), *(f"<small>{_escaped(line)}</small>" for line in node.lines)])
    match node.shape:
        case DrawnShape.EXCHANGE:
            return f'(["{text}"])'
        case DrawnShape.QUEUE | DrawnShape.HOLE | DrawnShape.GIVEN:
            return f'["{text}"]'
        case _:
            assert_never(node.shape)


def _line(arrow: Arrow) -> str:
    label = f'|"{_escaped(arrow.label)}"|' if arrow.label else ""
    match arrow.line:
        case DrawnLine.BINDING:
            return f"-->{label}"
        case DrawnLine.DEATH | DrawnLine.ALTERNATE:
            return f"-.->{label}"
        case _:
            assert_never(arrow.line)


def _escaped(text: str) -> str:
    """As entities: Mermaid takes `#` and a number for any character, and stops at a quote or a bracket."""
    return "".join(char if char.isalnum() or char in " .,-_:/()" else f"#{ord(char)};" for char in line(text))
