"""What letters of a group have in common, known to whoever packs them.

A store learns the dictionaries of its groups as letters come, and forgets all of them when it may be another
store. What was packed with one is right only while that one is known: so it names the edition.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import NamedTuple


class Dictionary(NamedTuple):
    """One that the store keeps, under this number."""

    number: int
    data: bytes


class PackedContent(NamedTuple):
    """The bytes of a letter, smaller."""

    edition: object
    dictionary: int | None
    """The number of the one that is needed to unpack them; None: none is."""
    data: bytes


class Dictionaries:
    """By the key of a group. `edition` is another object whenever all were forgotten."""

    def __init__(self) -> None:
        self.edition: object = object()
        self._known: dict[str, Dictionary] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __contains__(self, key: str) -> bool:
        return key in self._known

    def get(self, key: str) -> Dictionary | None:
        return self._known.get(key)

    def add(self, some: Mapping[str, Dictionary]) -> None:
        """Those that a group has already stay."""
        for key, one in some.items():
            self._known.setdefault(key, one)

    def forget(self) -> None:
        self.edition = object()
        self._known = {}

    def after(self, place: int) -> dict[str, Dictionary]:
        """Those of this edition that came after the first so many."""
        return dict(islice(self._known.items(), place, None))
