"""What a user may rely on is what it was: `tests.surface` tells it, `tests/surface.txt` has it in writing."""

from __future__ import annotations

from pathlib import Path

from tests.surface import surface


def test_nothing_a_user_relies_on_has_changed() -> None:
    written = (Path(__file__).parents[1] / "surface.txt").read_text()
    told = surface()
    gone = sorted(set(written.splitlines()) - set(told.splitlines()))
    new = sorted(set(told.splitlines()) - set(written.splitlines()))
    assert (gone, new) == ([], []), "if it is meant: python -m tests.surface > tests/surface.txt"
    assert told == written
