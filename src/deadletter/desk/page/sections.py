"""The views that the frame leads to, in their order: the navigation, the keys `g …`, the palette."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A view. `key`: `g` and this letter go there."""

    name: str
    path: str
    key: str
    icon: str
    about: str


SECTIONS: Final = (
    Section(name="Overview", path="/", key="o", icon="home", about="Is everything all right?"),
    Section(name="Groups", path="/groups", key="g", icon="groups", about="Letters that failed alike"),
    Section(name="Letters", path="/letters", key="l", icon="letter", about="Find letters"),
    Section(
        name="Replays", path="/replays", key="r", icon="replay", about="Letters sent back, recipes, deploys"
    ),
    Section(name="Waiting", path="/waiting", key="w", icon="waiting", about="What is delayed or held"),
    Section(name="Policies", path="/policies", key="p", icon="policy", about="What happens after a failure"),
    Section(name="Doctor", path="/doctor", key="d", icon="doctor", about="Where letters can be lost"),
    Section(name="Topology", path="/topology", key="t", icon="topology", about="Exchanges, queues, ways"),
    Section(name="Audit", path="/audit", key="a", icon="audit", about="Who did what"),
)


def section_at(path: str) -> Section | None:
    """The section that a path belongs to."""
    return next(
        (one for one in reversed(SECTIONS) if path == one.path or path.startswith(f"{one.path}/")), None
    )
