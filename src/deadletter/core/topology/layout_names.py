"""The names of layouts, by who offers them; apart from `core.layouts`, which not everybody should load."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Literal, TypeAlias, get_args


class ServedLayout(StrEnum):
    """The layouts that the service looks after."""

    RETURN = "return"
    LEVELS = "levels"
    SWEEP = "sweep"


class ConsumerLayout(StrEnum):
    """The layouts a consumer, or an adapter, can work in."""

    RETURN = "return"
    LADDER = "ladder"
    LOOP = "loop"
    NATIVE = "native"
    EXTERNAL = "external"


# The same for type checkers, which want them spelled.
ServedLayoutName: TypeAlias = Literal["return", "levels", "sweep"]
AdapterLayoutName: TypeAlias = Literal["ladder", "loop", "return", "native", "external"]
LayoutName: TypeAlias = Literal["auto", "return", "ladder", "loop", "native", "external"]
"""What `@app.queue(layout=…)` takes."""
LAYOUT_NAMES: Final[tuple[str, ...]] = get_args(LayoutName)
