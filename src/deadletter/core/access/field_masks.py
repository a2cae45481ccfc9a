"""Which fields of a letter are masked, as the settings name them: `body.card.number`, `header.tenant`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from deadletter.core.text.glob import glob

MASK_PATTERN: Final = r"^(body(\.[^.]+)*|header\..+)$"
MASKED: Final = "***"


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldMasks:
    """Patterns of names, in lower case: `card`, `Card` and `CARD` are one. `bodies`: a name for each level;
    an empty one is the whole body."""

    bodies: tuple[tuple[str, ...], ...] = ()
    headers: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.bodies or self.headers)

    def hides_header(self, name: str) -> bool:
        return any(glob(pattern, name.lower()) for pattern in self.headers)


NO_MASKS: Final = FieldMasks()


def field_masks(told: Sequence[str]) -> FieldMasks:
    """Of the settings."""
    parted = [one.lower().partition(".") for one in told]
    return FieldMasks(
        bodies=tuple(tuple(rest.split(".")) if rest else () for kind, _, rest in parted if kind == "body"),
        headers=tuple(rest for kind, _, rest in parted if kind == "header"),
    )
