"""What a layout would declare, and what it has to say about it."""

from __future__ import annotations

from dataclasses import dataclass

from deadletter.core.topology.vhost import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """Where a layout differs from the document it is named after, and why."""

    document_says: str
    we_declare: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The planned part of a vhost: `topology` holds nothing but what this layout would declare."""

    layout: str
    """return, levels, sweep, ladder, loop or native; never auto: that is resolved."""
    queue: str
    topology: Topology
    notes: tuple[str, ...] = ()
    """What a person should know: why `auto` chose this, what is not declared and why."""
    corrections: tuple[Correction, ...] = ()
